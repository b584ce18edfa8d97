"""The finder of onnxruntime's modules: it is asked first, so FlexNN stands in whether it is installed or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "onnxruntime"


class Finder:
    """A finder of imports (sys.meta_path), and of the distribution's metadata."""

    stands_in_for = NAME

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Return the spec of a module that FlexNN offers; None: others may find it."""
        if name != NAME and not name.startswith(f"{NAME}."):
            return None
        from . import standin

        return standin.spec_of(name, self)

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Have a module give its names when it is asked for one."""
        from . import standin

        standin.prepare(module)

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """Yield metadata of onnxruntime, unless it is installed and answers itself."""
        if context is not None and (context.name or NAME).lower().replace("_", "-") == NAME:
            from . import standin

            yield from standin.distributions()


def install() -> None:
    """Have FlexNN stand in from now on in this process."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
