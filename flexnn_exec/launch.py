"""``flexnn exec [--memory SIZE] [--fallback] -- PROGRAM ARGUMENTS…``"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any, NamedTuple, NoReturn

from .finder import install

HELP = """usage: flexnn exec [--memory SIZE] [--fallback] [--] PROGRAM [ARGUMENT ...]
       flexnn exec [--memory SIZE] [--fallback] [--] -m MODULE [ARGUMENT ...]

Run a program that uses onnxruntime on FlexNN instead, unchanged.

  --memory SIZE  budget of all sessions of a process: a size like 96MiB, a part like 50% of the memory that the
                 process may take, or auto: all of it but a reserve, followed while it changes
                 (default: FLEXNN_MEMORY, else no limit)
  --fallback     hand a model that FlexNN refuses to an installed onnxruntime, outside the budget;
                 without it the program ends

PROGRAM is a Python file, a folder or zip archive with a __main__, or a command of the PATH. Processes that the program
starts stand in, too; the budget is each one's.
"""
WORKERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers")
SIZE_MAX = 1 << 46
"""As flexnn.units has it."""
MESSAGE_MAX = 2000


class _Program(NamedTuple):
    """A program: a module's name or a path, and its arguments."""

    is_module: bool
    name: str
    arguments: list[str]


def main(arguments: Sequence[str]) -> int:
    """Run a program; return 2 where there is none. Raises what it raises."""
    try:
        program = _prepare(list(arguments))
    except ValueError as error:
        return _failed(f"{error}; see flexnn exec --help")
    if program is None:
        print(HELP, end="")
        return 0
    install()
    path = None if program.is_module else _found(program.name)
    if not program.is_module and path is None:
        return _failed(f"{program.name}: no such file or command")
    if path is not None and not _is_python(path):
        os.execv(path, [program.name, *program.arguments])
    _run(program, path)
    return 0


def _failed(line: str) -> int:
    """Print one line in which nothing acts on a terminal; return the exit status."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line[:MESSAGE_MAX])
    print(f"error: {''.join(escaped)}", file=sys.stderr)
    return 2


def _prepare(rest: list[str]) -> _Program | None:
    """Parse options and set the environment, which processes inherit; None: help is asked for. Raises ValueError."""
    memory, mode, is_module = os.environ.get("FLEXNN_MEMORY", ""), "1", False
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if option in ("-h", "--help"):
            return None
        if option == "--":
            if rest[:1] == ["-m"]:
                is_module = bool(rest.pop(0))
            break
        if option == "-m":
            is_module = True
            break
        if option == "--memory":
            if not equals and not rest:
                raise ValueError("--memory needs a size")
            memory = value if equals else rest.pop(0)
        elif option == "--fallback":
            mode = "fallback"
        else:
            raise ValueError(f"unknown option {option}")
    if memory:
        _check_size(memory)
        os.environ["FLEXNN_MEMORY"] = memory
    if not rest:
        raise ValueError("PROGRAM is missing")
    os.environ["FLEXNN_EXEC"] = mode
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder != WORKERS]
    os.environ["PYTHONPATH"] = os.pathsep.join([WORKERS, *folders])
    return _Program(is_module, rest[0], rest[1:])


def _check_size(text: str) -> None:
    """Raise ValueError for what flexnn.units.parse_bytes would not take, which costs importing FlexNN."""
    name, _, size = text.strip().partition(":")
    if text.strip() == "auto":
        return
    digits = (size if name == "auto" else text).strip().rstrip("BKMGibkmgI%").strip()
    if not digits.replace(".", "", 1).isdigit():
        raise ValueError(f"not a size: {text!r}; write bytes, or a number with KiB, MiB, GiB, KB, MB or GB")
    if not 0 < float(digits) < SIZE_MAX:
        raise ValueError(f"size out of range: {text!r}")


def _found(name: str) -> str | None:
    """Return the path of a program: a file, else a command beside the interpreter or of the PATH."""
    if os.path.exists(name):
        return name
    from shutil import which

    beside = os.path.dirname(sys.executable)
    return None if os.sep in name else which(name, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))


def _is_python(path: str) -> bool:
    """Return whether this interpreter can run a file: any but a program of the system, or another one's script."""
    if os.path.isdir(path):
        return True
    with open(path, "rb") as file:
        first = file.read(256).split(b"\n", 1)[0]
    return not first.startswith(b"\x7fELF") and (not first.startswith(b"#!") or b"python" in first)


def _run(program: _Program, path: str | None) -> None:
    """Run a program as Python would: as the module ``__main__``."""
    main = ModuleType("__main__")
    safe = bool(getattr(sys.flags, "safe_path", False))
    if program.is_module:
        if not safe:
            sys.path.insert(0, os.getcwd())
        sys.argv = [program.name, *program.arguments]
        code = _module_code(program.name, main)
        sys.argv[0] = str(main.__file__)
    else:
        assert path is not None
        sys.argv = [path, *program.arguments]
        code = _file_code(path, main, safe)
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _module_code(name: str, main: ModuleType) -> CodeType:
    """Return the code of a module that is to be ``main``. Exits where there is none."""
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        _refuse(f"{name}: {error}")
    return _spec_code(spec, name, main)


def _spec_code(spec: Any, name: str, main: ModuleType) -> CodeType:
    code = spec.loader.get_code(spec.name) if spec is not None and hasattr(spec.loader, "get_code") else None
    if code is None:
        _refuse(f"{name}: no module that can be run")
    main.__file__, main.__spec__, main.__loader__ = spec.origin, spec, spec.loader
    main.__package__ = spec.parent
    main.__dict__["__cached__"] = spec.cached
    return code  # type: ignore[no-any-return]


def _file_code(path: str, main: ModuleType, safe: bool) -> CodeType:
    """Return the code of a file, or of the __main__ of a folder or archive."""
    is_archive = os.path.isdir(path)
    if not is_archive:
        with open(path, "rb") as file:
            text = file.read()
        is_archive = text.startswith(b"PK\x03\x04")
    if is_archive:
        from importlib.machinery import PathFinder

        sys.path.insert(0, path)
        return _spec_code(PathFinder.find_spec("__main__", [path]), path, main)
    if not safe:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    from importlib.machinery import SourceFileLoader

    main.__file__, main.__spec__, main.__package__ = path, None, None
    main.__loader__ = SourceFileLoader("__main__", path)
    main.__dict__["__cached__"] = None
    return compile(text, path, "exec", dont_inherit=True)


def _refuse(line: str) -> NoReturn:
    raise SystemExit(_failed(line))
