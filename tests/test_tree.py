"""The tree polices itself: import direction, file length, banned calls, the README's commands and paths."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import flexnn

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sorted((ROOT / "flexnn").rglob("*.py"))
C_FILES = sorted(p for folder in ("kernels", "engine", "planner") for p in (ROOT / folder).rglob("*.[ch]"))
CYTHON = sorted((ROOT / "flexnn").rglob("*.px[di]")) + sorted((ROOT / "flexnn").rglob("*.pyx"))
LINES_MAX = 550

# Who may import whom inside flexnn: a package knows those named here, and itself.
MAY_IMPORT = {
    "_core": set(),
    "errors": set(),
    "units": set(),
    "graph": {"_core", "errors"},
    "artifact": {"_core", "errors", "graph"},
    "planning": {"_core", "errors", "graph", "units"},
    "regions": {"graph"},
    "measure": {"_core", "artifact", "graph", "planning"},
    "compiler": {"errors", "graph", "artifact", "regions"},
    "run": {"_core", "artifact", "errors", "graph", "measure", "planning", "regions", "units"},
    "bench": {
        "__init__",
        "doctor",
        "_core",
        "artifact",
        "compiler",
        "graph",
        "measure",
        "planning",
        "run",
        "session",
        "units",
    },
    "session": {"compiler", "graph", "planning", "run", "units"},
    "planned": {"compiler", "graph", "measure", "planning", "regions", "run"},
    "__init__": {"artifact", "compiler", "errors", "graph", "planned", "planning", "session"},
    "__main__": {"cli"},
    "backend": {"compiler", "graph", "session"},
    "doctor": {"_core"},
    "cli": {"bench", "doctor", "__init__", "_core", "compiler", "graph", "run", "units"},
}
COMPILE_TIME = {"onnx", "google"}
MAY_IMPORT_ONNX = {"backend.py", "importer.py", "onnx_file.py"}


def _room(path: Path) -> str:
    relative = path.relative_to(ROOT / "flexnn")
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def _imports(path: Path) -> list[tuple[str, bool]]:
    """(module, at module level) of every import in a file, relative ones resolved."""
    tree = ast.parse(path.read_text())
    found = []
    package = [*path.relative_to(ROOT).parent.parts]
    top = set(ast.walk(tree)) - {
        inner for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            if module == "flexnn":
                found += [(f"flexnn.{alias.name}", node in top) for alias in node.names]
            else:
                found.append((module, node in top))
    return found


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    room = _room(path)
    allowed = MAY_IMPORT[room] | {room}
    for module, _ in _imports(path):
        if not module.startswith("flexnn"):
            continue
        parts = module.split(".")
        target = parts[1] if len(parts) > 1 and (parts[1] in MAY_IMPORT) else "__init__"
        assert target in allowed, f"{path.name} imports {module}"


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_run_time_never_imports_onnx(path: Path) -> None:
    if path.name in MAY_IMPORT_ONNX:
        return
    assert not {module for module, _ in _imports(path) if module.split(".")[0] in COMPILE_TIME}


@pytest.mark.parametrize("path", [*PYTHON, *C_FILES, *CYTHON], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_rooms(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX, "a file this long serves two purposes: split it"


def _c_code(path: Path) -> str:
    """Source without comments and strings."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


@pytest.mark.parametrize("path", C_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_banned_calls(path: Path) -> None:
    code = _c_code(path)
    banned = r"\b(strcpy|strcat|sprintf|gets|alloca|setjmp|longjmp|system|rand)\s*\("
    if "kernels" in path.parts and "check" not in path.parts:
        banned = banned.replace("rand", "rand|malloc|calloc|realloc|free|mmap")
    assert not re.findall(banned, code)


@pytest.mark.parametrize("path", C_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_includes_run_one_way(path: Path) -> None:
    includes = re.findall(r'#\s*include\s+[<"]([^>"]+)[>"]', path.read_text())
    assert "Python.h" not in includes
    if "kernels" in path.parts:
        assert not [name for name in includes if name.startswith(("engine", "../../flexnn"))]


def test_readme_is_short_and_its_paths_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 150
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", readme):
        assert (ROOT / target).exists(), f"README links to {target}"
    commands = r"^(?:\$ )?(?:python3? |bash |\./)((?:bench|examples|wheels)/\S+|demo|test)\b"
    for script in re.findall(commands, readme, re.M):
        assert (ROOT / script).exists(), f"README runs {script}"


def test_every_module_is_installed() -> None:
    installed = Path(flexnn.__file__).parent
    assert [path for path in PYTHON if not (installed / path.relative_to(ROOT / "flexnn")).is_file()] == []
