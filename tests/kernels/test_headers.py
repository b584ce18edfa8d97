"""The public headers of the three C libraries: each compiles alone, and all compile together in any order."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.missing import missing

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("kernels", "engine", "planner")
FOLDERS = [ROOT / library / "include" for library in LIBRARIES]
HEADERS = {str(path.relative_to(folder)): path for folder in FOLDERS for path in sorted(folder.rglob("*.h"))}
OPTIONS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-")


def compiles(source: str) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        missing("missing: cc")
    folders = [f"-I{folder}" for folder in FOLDERS]
    done = subprocess.run(
        [str(compiler), *folders, *OPTIONS], input=source, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_library_has_headers_of_its_own_names() -> None:
    assert all(any(folder.rglob("*.h")) for folder in FOLDERS)
    assert len(HEADERS) == sum(len(list(folder.rglob("*.h"))) for folder in FOLDERS), "two headers of one name"


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone_and_twice(header: str) -> None:
    compiles(f'#include "{header}"\n#include "{header}"\n')


@pytest.mark.parametrize("backwards", [False, True])
def test_all_headers_compile_together(backwards: bool) -> None:
    compiles("".join(f'#include "{header}"\n' for header in sorted(HEADERS, reverse=backwards)))


def test_the_compiler_sees_a_type_that_two_headers_define() -> None:
    with pytest.raises(AssertionError, match="redefin"):
        compiles('#include "flexnn/kernels.h"\ntypedef struct fx_pool { int threads; } fx_pool;\n')
