"""FlexNN as the package ``onnxruntime``: its modules, those of an installed one, and its metadata."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import installed, system

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


def spec_of(name: str, loader: Any) -> ModuleSpec | None:
    """Return the spec of a module that FlexNN offers; None: that of an installed package, if any."""
    if name not in MODULES:
        return None
    spec = ModuleSpec(name, loader, origin="flexnn.ort", is_package=name in _PACKAGES)
    if name == NAME:
        spec.submodule_search_locations = installed.folders()
    return spec


def fill(module: ModuleType) -> None:
    """Give a module the names of ``flexnn.ort``."""
    import flexnn.ort as ort

    names = {name: getattr(ort, name) for name in (*ort.__all__, "__version__")}
    module.__dict__.update(names)
    if module.__name__ == NAME:
        module.__dict__["__version__"] = installed.version() or system.VERSION
        for name in MODULES:
            if name != NAME:
                __import__(name)
    elif module.__name__ == f"{CAPI}.onnxruntime_inference_collection":
        module.__dict__["Session"] = ort.InferenceSession
    elif module.__name__ == f"{CAPI}.onnxruntime_validation":
        module.__dict__["check_distro_info"] = lambda: None


def distributions() -> Iterator[Any]:
    """Yield metadata of onnxruntime where it is not installed."""
    if installed.version() is not None:
        return
    from importlib.metadata import Distribution

    class StandIn(Distribution):
        """Metadata of a package that has no files."""

        def read_text(self, filename: str) -> str | None:
            """Return the metadata; None for other files."""
            if filename not in ("METADATA", "PKG-INFO"):
                return None
            return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {system.VERSION}\nSummary: FlexNN stands in\n"

        def locate_file(self, path: Any) -> Any:
            """Return the path: there are no files."""
            return path

    yield StandIn()
