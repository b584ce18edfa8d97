"""FlexNN as the package ``onnxruntime``: its modules, those of an installed one, and its metadata.

The modules have no names until one is asked for: programs import onnxruntime and may never use it, and FlexNN is
imported by then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import installed

NAME = installed.NAME
CAPI = f"{NAME}.capi"
MODULES = {
    NAME: "",
    CAPI: "",
    f"{CAPI}._pybind_state": "",
    f"{CAPI}.onnxruntime_pybind11_state": "",
    f"{CAPI}.onnxruntime_inference_collection": "",
    f"{CAPI}.onnxruntime_validation": "",
}
"""Modules that FlexNN offers. Others, like ``onnxruntime.quantization``, are those of an installed onnxruntime."""
_PACKAGES = (NAME, CAPI)
_NAMES = ("__all__", "__version__")
"""Names between underscores that count as asking for the others: Python looks for some itself."""


def spec_of(name: str, loader: Any) -> ModuleSpec | None:
    """Return the spec of a module that FlexNN offers; None: that of an installed package, if any."""
    if name not in MODULES:
        return None
    spec = ModuleSpec(name, loader, origin="flexnn.ort", is_package=name in _PACKAGES)
    if name == NAME:
        spec.submodule_search_locations = installed.folders()
    return spec


def prepare(module: ModuleType) -> None:
    """Have a module get the names of ``flexnn.ort`` when it is asked for one."""

    def found(name: str) -> Any:
        if not (name.startswith("__") and name.endswith("__")) or name in _NAMES:
            _fill(module)
            if name in module.__dict__:
                return module.__dict__[name]
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    def names() -> list[str]:
        _fill(module)
        return sorted(module.__dict__)

    module.__dict__.update({"__getattr__": found, "__dir__": names})
    if module.__name__ == NAME:
        module.__file__ = _file(module.__path__)


def _file(folders: Iterable[str]) -> str:
    """Return what ``onnxruntime.__file__`` says: programs look beside it for the files of an installed one."""
    folder = next(iter(folders), os.path.join(_own_folder(), "flexnn", "ort"))
    return os.path.join(folder, "__init__.py")


def _own_folder() -> str:
    """Return the folder that holds this launcher and its FlexNN."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _own_ort() -> Any:
    """Return ``flexnn.ort`` of the FlexNN that this launcher belongs to, whatever folder of that name a program has
    beside it: FlexNN's sources have one, without the compiled core.
    """
    own = _own_folder()
    sys.path.insert(0, own)
    try:
        import flexnn.ort as ort
    finally:
        sys.path.remove(own)
    return ort


def _fill(module: ModuleType) -> None:
    ort = _own_ort()
    names = {name: getattr(ort, name) for name in (*ort.__all__, *_NAMES)}
    if module.__name__ == NAME:
        names["__version__"] = installed.version() or ort.__version__
        for name in MODULES:
            if name != NAME:
                __import__(name)
    elif module.__name__ == f"{CAPI}.onnxruntime_inference_collection":
        names["Session"] = ort.InferenceSession
    elif module.__name__ == f"{CAPI}.onnxruntime_validation":
        names["check_distro_info"] = lambda: None
    for name, value in names.items():
        module.__dict__.setdefault(name, value)  # what a program has set stays


def distributions() -> Iterator[Any]:
    """Yield metadata of onnxruntime where it is not installed."""
    if installed.version() is not None:
        return
    from importlib.metadata import Distribution

    version = _own_ort().__version__

    class StandIn(Distribution):
        """Metadata of a package that has no files."""

        def read_text(self, filename: str) -> str | None:
            """Return the metadata; None for other files."""
            if filename not in ("METADATA", "PKG-INFO"):
                return None
            return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: FlexNN stands in\n"

        def locate_file(self, path: Any) -> Any:
            """Return the path: there are no files."""
            return path

    yield StandIn()
