"""Public headers of the three C libraries: each compiles alone, all compile together."""

import shutil
import subprocess
from pathlib import Path

from tests.support.missing import missing

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / library / "include" for library in ("kernels", "engine", "planner")]
HEADERS = sorted(path for folder in FOLDERS for path in (folder / "flexnn").glob("*.h"))


def compiles(headers: list[Path]) -> str:
    """What the compiler says of a file that includes them."""
    if shutil.which("cc") is None:
        missing("cc")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsyntax-only", "-x", "c", "-"]
    include = [f"-I{folder}" for folder in FOLDERS]
    source = "".join(f"#include <flexnn/{path.name}>\n" for path in headers)
    return subprocess.run(["cc", *include, *flags], input=source, capture_output=True, text=True).stderr


def test_each_header_compiles_alone():
    assert len(HEADERS) > 10
    assert {path.name: said for path in HEADERS if (said := compiles([path]))} == {}


def test_all_headers_compile_together():
    """In both orders: no name is declared twice, and no header leans on one before it."""
    assert compiles(HEADERS) == compiles(HEADERS[::-1]) == ""
    assert len({path.name for path in HEADERS}) == len(HEADERS)
