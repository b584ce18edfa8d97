"""An installed onnxruntime beside the stand-in: where it is, and the package itself for models that FlexNN refuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

NAME = "onnxruntime"
_METADATA = ".dist-info"


def folders() -> list[str]:
    """Return the folders of the installed package; none where it is not installed."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(NAME)
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def version() -> str | None:
    """Return the version of an installed onnxruntime; None: there is none."""
    found = folders()
    if not found:
        return None
    for folder in found:
        for name in os.listdir(os.path.dirname(folder)):
            if name.startswith(f"{NAME}-") and name.endswith(_METADATA):
                return name[len(NAME) + 1 : -len(_METADATA)]
    from importlib import metadata  # it takes as long to import as FlexNN

    finder = metadata.MetadataPathFinder()
    known = finder.find_distributions(metadata.DistributionFinder.Context(name=NAME))
    return next((distribution.version for distribution in known), None)


_real: dict[str, ModuleType] = {}


@contextmanager
def _aside() -> Iterator[None]:
    """Put the stand-in's modules and finder aside, so that imports reach the installed package."""
    finders = [finder for finder in sys.meta_path if getattr(finder, "stands_in_for", None) == NAME]
    ours = {name: module for name, module in sys.modules.items() if name == NAME or name.startswith(f"{NAME}.")}
    for name in ours:
        del sys.modules[name]
    sys.modules.update(_real)
    for finder in finders:
        sys.meta_path.remove(finder)
    try:
        yield
    finally:
        found = {name: module for name, module in sys.modules.items() if name == NAME or name.startswith(f"{NAME}.")}
        for name in found:
            del sys.modules[name]
        _real.update(found)
        sys.modules.update(ours)
        sys.meta_path[:0] = finders


def onnxruntime() -> Any:
    """Return the installed package. Raises ModuleNotFoundError."""
    with _aside():
        import importlib

        return importlib.import_module(NAME)
