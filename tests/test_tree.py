"""The tree polices itself: who imports whom, lengths, banned calls, and that whatever a text refers to exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import flexnn
from flexnn.graph import contrib
from flexnn.graph.evaluate import EVALUATORS
from flexnn.graph.lower import LOWERINGS

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sorted((ROOT / "flexnn").rglob("*.py"))
C_FILES = sorted(p for folder in ("kernels", "engine", "planner") for p in (ROOT / folder).rglob("*.[ch]"))
BENCH = sorted((ROOT / "bench").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
FOLDERS = "docs|flexnn|engine|planner|kernels|bench|tests|wheels|examples"
INCLUDED_FROM = (".", "kernels/include", "engine/include", "planner/include")
REPOSITORY = "https://github.com/flexnn/flexnn"
CYTHON = sorted((ROOT / "flexnn").rglob("*.px[di]")) + sorted((ROOT / "flexnn").rglob("*.pyx"))
LINES_MAX = 500

# Who may import whom inside flexnn: a package knows those named here, and itself.
MAY_IMPORT = {
    "_core": set(),
    "errors": set(),
    "apart": set(),
    "quick_dataclass": set(),
    "asynchronous": {"_core"},
    "median": set(),
    "garbage": set(),
    "units": set(),
    "files": {"_core", "apart"},
    "graph": {"quick_dataclass", "_core", "apart", "errors"},
    "artifact": {"quick_dataclass", "_core", "errors", "files", "garbage", "graph"},
    "planning": {"quick_dataclass", "_core", "errors", "garbage", "graph", "units"},
    "regions": {"quick_dataclass", "errors", "garbage", "graph"},
    "measure": {"quick_dataclass", "_core", "artifact", "files", "graph", "median", "planning"},
    "model_files": {"errors"},
    "open_contents": {"artifact", "graph", "regions"},
    "compiler": {"errors", "garbage", "graph", "artifact", "llm", "model_files", "narrowing", "open_contents", "units"},
    "llm": {"quick_dataclass", "errors", "graph", "model_files", "planning", "session", "units"},
    "narrowing": {"quick_dataclass", "_core", "artifact", "errors", "graph", "planned", "regions", "session", "units"},
    "lightly": set(),
    "forking": {"system"},
    "staying": {"apart"},
    "kept_artifacts": {"_core", "apart", "artifact", "errors", "files", "forking", "graph", "staying"},
    "keeping": {
        "quick_dataclass",
        "_core",
        "compiler",
        "errors",
        "files",
        "graph",
        "kept_artifacts",
        "model_files",
        "units",
    },
    "run": {
        "quick_dataclass",
        "_core",
        "artifact",
        "errors",
        "files",
        "graph",
        "measure",
        "planning",
        "regions",
        "system",
        "units",
    },
    "benchmark": {
        "quick_dataclass",
        "__init__",
        "doctor",
        "_core",
        "artifact",
        "errors",
        "graph",
        "inputs",
        "kept_artifacts",
        "measure",
        "median",
        "model_files",
        "planning",
        "run",
        "session",
        "units",
    },
    "session": {
        "artifact",
        "asynchronous",
        "graph",
        "kept_artifacts",
        "planning",
        "run",
        "stateful",
        "system",
        "units",
    },
    "stateful": {"run"},
    "pool": {"planning", "run", "session", "system", "units"},
    "planned": {
        "_core",
        "artifact",
        "graph",
        "inputs",
        "kept_artifacts",
        "measure",
        "planning",
        "regions",
        "report",
        "run",
    },
    "inputs": {"graph", "run", "system", "units"},
    "report": {"quick_dataclass", "_core", "errors", "graph", "planning", "units"},
    "__init__": {"artifact", "compiler", "errors", "graph", "llm", "planned", "planning", "pool", "session"},
    "__main__": {"cli"},
    "maker": {"cli", "errors", "forking", "graph", "keeping", "lightly", "staying", "system"},
    "ort": {
        "__init__",
        "_core",
        "asynchronous",
        "errors",
        "graph",
        "kept_artifacts",
        "planning",
        "pool",
        "run",
        "session",
        "system",
        "units",
    },
    "ray": {"graph", "planned", "session", "units"},
    "backend": {"compiler", "graph", "session"},
    "doctor": {"_core", "files", "system"},
    "system": {"_core", "errors", "planning", "units"},
    "cli": {
        "benchmark",
        "doctor",
        "__init__",
        "_core",
        "compiler",
        "errors",
        "files",
        "graph",
        "inputs",
        "keeping",
        "kept_artifacts",
        "llm",
        "measure",
        "median",
        "model_files",
        "planned",
        "run",
        "system",
        "units",
    },
}
COMPILE_TIME = {"onnx", "google"}
MAY_IMPORT_ONNX = {
    "standard",
    *(f"{n}.py" for n in "backend beside declared importer lightly node_order onnx_file tensors texts".split()),  # noqa: SIM905
    "four_bits.py",
}


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


PARAMETERS_MAX = 7
PYTHON_LINES_MAX = 60
C_LINES_MAX = 70


def _refuse(found: list[str]) -> None:
    assert not found, "\n" + "\n".join(found)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_run_one_way() -> None:
    found = []
    for path in PYTHON:
        room = _room(path)
        allowed = MAY_IMPORT[room] | {room}
        for module, _ in _imports(path):
            parts = module.split(".")
            target = parts[1] if len(parts) > 1 and (parts[1] in MAY_IMPORT) else "__init__"
            if parts[0] == "flexnn" and target not in allowed:
                found.append(f"{_name(path)} imports {module}")
    _refuse(found)


def test_no_module_imports_itself_round_a_corner() -> None:
    """No cycle between modules, imports inside functions included; those for type checkers alone are none."""
    modules = {_module(path): path for path in PYTHON}
    graph = {name: _imported_modules(path, modules) - {name} for name, path in modules.items()}
    done: set[str] = set()
    for start in graph:
        cycle = _cycle(graph, start, [], done)
        assert not cycle, " -> ".join(cycle)


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported_modules(path: Path, modules: dict[str, Path]) -> set[str]:
    """Modules of the tree that a file imports: the submodule where one is named, else the package."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    package = [*path.relative_to(ROOT).parent.parts]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            names = {f"{module}.{alias.name}" for alias in node.names}
            found |= names & modules.keys() or {module}
            if not names <= modules.keys():
                found.add(module)
    return found & modules.keys()


def _cycle(graph: dict[str, set[str]], name: str, path: list[str], done: set[str]) -> list[str]:
    if name in path:
        return [*path[path.index(name) :], name]
    if name in done:
        return []
    for other in sorted(graph[name]):
        if cycle := _cycle(graph, other, [*path, name], done):
            return cycle
    done.add(name)
    return []


def test_run_time_never_imports_onnx() -> None:
    _refuse(
        [
            f"{_name(path)} imports {module}"
            for path in PYTHON
            if path.name not in MAY_IMPORT_ONNX and path.parent.name not in MAY_IMPORT_ONNX
            for module, _ in _imports(path)
            if module.split(".")[0] in COMPILE_TIME
        ]
    )


def test_files_are_rooms() -> None:
    """A file this long serves two purposes: it should be split."""
    lengths = {path: len(path.read_text().splitlines()) for path in [*PYTHON, *BENCH, *C_FILES, *CYTHON]}
    _refuse([f"{_name(path)} has {lines} lines" for path, lines in lengths.items() if lines > LINES_MAX])


def test_python_functions_are_short() -> None:
    """Lines of a function, and its parameters; only keyword-only parameters of a public function may be more."""
    found = []
    for path in [*PYTHON, *BENCH]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            assert node.end_lineno is not None
            lines = node.end_lineno - min([node.lineno, *(d.lineno for d in node.decorator_list)]) + 1
            a = node.args
            count = len([x for x in [*a.posonlyargs, *a.args] if x.arg not in ("self", "cls")])
            if node.name.startswith("_") and node.name != "__init__":
                count += len(a.kwonlyargs)
            if lines > PYTHON_LINES_MAX:
                found.append(f"{_name(path)}:{node.lineno} {node.name} has {lines} lines")
            if count > PARAMETERS_MAX:
                found.append(f"{_name(path)}:{node.lineno} {node.name} has {count} parameters")
    _refuse(found)


def test_c_functions_are_short() -> None:
    """Lines of a function, from its signature to its closing brace."""
    found = []
    for path in C_FILES + sorted((ROOT / "tests").rglob("*.c")):
        start: int | None = None
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.match(r"[A-Za-z_].*\(", line) and not line.rstrip().endswith((";", "\\")):
                start = number
            if line.startswith("}") and start is not None:
                if number - start >= C_LINES_MAX:
                    found.append(f"{_name(path)}:{start + 1} has {number - start + 1} lines: {lines[start]}")
                start = None
    _refuse(found)


def test_c_functions_take_few_parameters() -> None:
    found = []
    definition = re.compile(r"^[A-Za-z_][\w *]*?\b(\w+)\(([^;{}]*)\)\s*\{", re.M)
    for path in C_FILES + sorted((ROOT / "tests").rglob("*.[ch]")):
        for match in definition.finditer(_c_code(path).replace("\\\n", "\n")):
            parameters = re.sub(r"\([^()]*\)", "", match[2]).count(",") + 1
            if parameters > PARAMETERS_MAX:
                found.append(f"{_name(path)}: {match[1]} has {parameters} parameters")
    _refuse(found)


def _c_code(path: Path) -> str:
    """Source without comments and strings."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


def test_banned_calls() -> None:
    found = []
    for path in C_FILES:
        banned = "strcpy|strcat|sprintf|gets|alloca|setjmp|longjmp|system|rand"
        if "kernels" in path.parts and "check" not in path.parts:
            banned += "|malloc|calloc|realloc|free|mmap"
        calls = re.findall(rf"\b({banned})\s*\(", _c_code(path))
        found += [f"{_name(path)} calls {call}" for call in calls]
    _refuse(found)


def test_includes_run_one_way() -> None:
    """Kernels know neither engine nor planner, these two do not know each other, and nobody knows Python."""
    public = {folder: {p.name for p in (ROOT / folder).rglob("*.h")} for folder in ("engine", "planner")}
    foreign = {
        "kernels": public["engine"] | public["planner"],
        "engine": public["planner"],
        "planner": public["engine"],
    }
    found = []
    for path in C_FILES:
        room = path.relative_to(ROOT).parts[0]
        own = {p.name for p in (ROOT / room).rglob("*.h")}
        for name in re.findall(r'#\s*include\s+[<"]([^>"]+)[>"]', path.read_text()):
            if name == "Python.h" or (Path(name).name in foreign[room] - own):
                found.append(f"{_name(path)} includes {name}")
    _refuse(found)


def test_no_type_has_two_meanings() -> None:
    """A type's or a record's name is defined once in all of the C core."""
    seen: dict[str, str] = {}
    found = []
    for path in C_FILES:
        if "check" in path.parts:
            continue
        defined = r"^(?:(?:typedef )?(?:struct|enum|union) (fx_\w+) \{|FX_RECORD\((fx_\w+),)"
        for name in ("".join(names) for names in re.findall(defined, path.read_text(), re.M)):
            if name in seen:
                found.append(f"{name} is defined in {seen[name]} and in {_name(path)}")
            seen[name] = _name(path)
    _refuse(found)


def test_readme_is_short_and_what_it_names_exists() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 150
    commands = r"^(?:\$ )?(?:python3? |bash |\./)((?:bench|examples|wheels)/\S+|demo|test)\b"
    for script in re.findall(commands, readme, re.M):
        assert (ROOT / script).exists(), f"README runs {script}"
    relative = re.findall(r"\]\((?!https?:|#)([^)#]+)\)", readme)
    assert not relative, f"links that do not work where the README is shown elsewhere: {relative}"
    for kind, target in re.findall(rf"{re.escape(REPOSITORY)}/(?:(blob|tree|raw)/main/)?([^)#\s]*)", readme):
        assert not kind or (ROOT / target).exists(), f"README links to {target}"


def test_what_a_text_refers_to_exists() -> None:
    """Links, decisions by number, benches by name and files by path, in docs, comments and docstrings."""
    numbers = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    commands = {path.parent.name for path in (ROOT / "bench").glob("*/__main__.py")}
    commands |= {path.stem for path in (ROOT / "bench").glob("*.py") if "__main__" in path.read_text()}
    found = []
    for path in [*PYTHON, *BENCH, *C_FILES, *CYTHON, *PAGES]:
        text = path.read_text()
        if path.suffix == ".md":
            for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)", text):
                if not (path.parent / target).exists():
                    found.append(f"{_name(path)} links to {target}")
            text = re.sub(r"\]\([^)]*\)", "]", text)
        found += [f"{_name(path)} speaks of decision {n}" for n in _decisions_named(text) if n not in numbers]
        found += [
            f"{_name(path)} runs bench.{name}"
            for name in re.findall(r"python -m bench\.(\w+)", text)
            if name not in commands
        ]
        for target in re.findall(rf"(?<![\w/.-])((?:{FOLDERS})/[\w/.-]+\.\w+)\b", text):
            if ".cache" in target or "NAME" in target:
                continue
            if not any((ROOT / folder / target).exists() for folder in INCLUDED_FROM):
                found.append(f"{_name(path)} names {target}")
        found += [f"{_name(path)} speaks of {word}" for word in re.findall(r"\b(?:DESIGN|STYLE|HOUSE)\b", text)]
    _refuse(found)


def _decisions_named(text: str) -> list[str]:
    return [a or b for a, b in re.findall(r"decisions?/?\s?(00\d\d)\b|\[(00\d\d)\]", text)]


def test_every_module_is_installed() -> None:
    installed = Path(flexnn.__file__).parent
    assert [path for path in PYTHON if not (installed / path.relative_to(ROOT / "flexnn")).is_file()] == []


def test_no_module_is_dead() -> None:
    """Every module is imported by another one, or is where a user or a tool enters."""
    entries = {
        "flexnn",
        "flexnn.__main__",
        "flexnn.cli",
        "flexnn.maker",
        "flexnn.llm.template_process",
        "flexnn.backend",
        "flexnn.ort",
        "flexnn.ray",
    }
    modules = {_module(path): path for path in PYTHON}
    imported = {name for own, path in modules.items() for name in _imported_modules(path, modules) - {own}}
    for registry in (EVALUATORS, LOWERINGS):
        imported |= {f"{registry._package}.{module}" for module in registry._modules.values()}
    imported |= {f"{contrib.__name__}.{module}" for names in contrib.MODULES.values() for module in names}
    passes = "flexnn.graph.passes"
    imported |= {f"{passes}.{module}" for module in re.findall(r'_of_bytes\("(\w+)"', modules[passes].read_text())}
    packages = {name.rpartition(".")[0] for name in imported}  # importing a module imports its package
    assert sorted(modules.keys() - imported - packages - entries) == []
