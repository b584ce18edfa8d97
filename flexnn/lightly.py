"""Packages imported without what compiling never uses of them, in a process that somebody waits for: importing that
takes longer than reading a small model.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

WHOLE = "FLEXNN_WHOLE"
"""Variable of the environment: "1" has packages imported whole."""
NUMPY = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars", "numpy._typing")
"""Modules of numpy that add texts for people, and types for checkers, to what other modules make."""
PROTOBUF = "google.protobuf.internal.python_message"
"""Messages in Python, with their texts: protobuf imports them beside those in C, which are used."""


class _Nothing:
    """Stands for each name of a module that is left out; annotations put types in brackets behind it."""

    def __class_getitem__(cls, _: Any) -> type[_Nothing]:
        return cls


class _LeftOut(ModuleType):
    """A module that is left out: it has each name that others import."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks for these itself
            raise AttributeError(name)
        return _Nothing


@contextlib.contextmanager
def left_out(*names: str) -> Iterator[None]:
    """Have what is imported do without these modules, for as long as the context lasts."""
    stubs = {name: _LeftOut(name) for name in names if name not in sys.modules}
    sys.modules.update(stubs)
    try:
        yield
    finally:
        for name, stub in stubs.items():
            if sys.modules.get(name) is stub:
                del sys.modules[name]  # who asks for it now gets it


def lighten(name: str, module: str) -> ModuleType | None:
    """Let importing the package ``name`` make, in this process, only the names of one module of it: what the package's
    own module imports beside that takes longer than reading a small model. The others can be imported by name. Return
    the package; None: it is there already, not installed, or made in another way.
    """
    if name in sys.modules:
        return None
    try:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        package = sys.modules[name] = importlib.util.module_from_spec(spec)
        found = importlib.import_module(f"{name}.{module}")
        vars(package).update({key: value for key, value in vars(found).items() if not key.startswith("_")})
    except Exception:
        sys.modules.pop(name, None)
        return None
    return package


def complete(package: ModuleType) -> None:
    """Run the own module of a package that was lightened."""
    assert package.__spec__ is not None
    assert package.__spec__.loader is not None
    package.__spec__.loader.exec_module(package)


def import_messages() -> None:
    """Import onnx as its messages alone, where that works."""
    before = set(sys.modules)
    with left_out(*_unused_messages()):
        if "onnx" in before or lighten("onnx", "onnx_pb") is not None:
            return
    for name in set(sys.modules) - before:
        if name.startswith(("onnx", "google.protobuf")):
            del sys.modules[name]
    lighten("onnx", "onnx_pb")


def _unused_messages() -> tuple[str, ...]:
    """Return the modules that protobuf does without, if its messages are those in C."""
    with contextlib.suppress(Exception):
        from google.protobuf.internal import api_implementation  # type: ignore[import-untyped]

        if api_implementation.Type() == "upb" and os.environ.get(WHOLE) != "1":
            return (PROTOBUF,)
    return ()


def import_numpy() -> None:
    """Import numpy. Where it does not work without what is left out, this process begins anew, as numpy cannot be
    imported twice. Raises ImportError.
    """
    if os.environ.get(WHOLE) == "1":
        import numpy

        return
    try:
        with left_out(*NUMPY):
            import numpy  # noqa: F401
    except Exception:
        _begin_anew()


def _begin_anew() -> NoReturn:
    os.execve(sys.executable, sys.orig_argv, {**os.environ, WHOLE: "1"})
