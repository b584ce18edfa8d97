"""An open artifact, and the descriptors that runs read it through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flexnn.artifact import open_artifact
from flexnn.errors import CompileError, printable
from flexnn.graph import bind_shapes
from flexnn.graph.ir import Graph
from flexnn.graph.state import CAPACITY, has_state
from flexnn.planning.types import io_alignment
from flexnn.units import Groups

if TYPE_CHECKING:
    from flexnn._core import OpenFile
    from flexnn.artifact.model_section import StoredModel

    from .options import RunOptions


class ModelFile:
    """The artifact at ``path``, open. With ``io`` "direct", reads go past the page cache where the file system supports
    it. Open inputs get ``shapes``. Raises OSError, ArtifactError, GraphError if a shape does not fit, CompileError if
    no shape is open.
    """

    def __init__(self, path: str, io: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._direct: OpenFile | None = None
        self.artifact = open_artifact(path)
        try:
            if self.open_model is not None:
                bind_shapes(self.open_model.model, shapes)
            elif shapes:
                raise CompileError(f"{path}: its shapes were fixed when it was compiled: compile it again for others")
            if io == "direct":
                self._direct = self.artifact.open_direct()
            if self.open_model is not None and self.open_model.left:
                import warnings

                warnings.warn(printable(self.open_model.left), RuntimeWarning, stacklevel=2)  # it is the file's
        except BaseException:
            self.close()
            raise

    @property
    def open_model(self) -> StoredModel | None:
        """The stored model, if its shapes or its path are known only at run time; None for a bound graph."""
        contents = self.artifact.contents
        return None if isinstance(contents, Graph) else contents

    @property
    def direct_fd(self) -> int:
        """Descriptor of the artifact opened with O_DIRECT, or -1."""
        return self._direct.fd if self._direct is not None else -1

    @property
    def files(self) -> tuple[OpenFile, ...]:
        """The open files."""
        return (self.artifact.file,) if self._direct is None else (self.artifact.file, self._direct)

    @property
    def io_align(self) -> int:
        """Alignment of reads in bytes."""
        return io_alignment(direct=self.direct_fd >= 0)

    def keeps_state(self, options: RunOptions) -> bool:
        """Return whether a session of these options keeps state. Raises CompileError where it cannot."""
        stored = self.open_model
        if stored is None:
            if options.kv_capacity is not None:
                path = self.artifact.path
                raise CompileError(f"{path}: its shapes are fixed, so it keeps no state: leave kv_capacity out")
            return False
        return bool(options.kv_capacity or stored.kv_capacity) or has_state(stored.model)

    def with_capacity(self, options: RunOptions) -> RunOptions:
        """Return the options with the capacity that is asked for, else the compiler's, else the usual one."""
        stored = self.open_model
        assert stored is not None
        return options._replace(kv_capacity=options.kv_capacity or stored.kv_capacity or CAPACITY)

    def refuse_groups(self, groups: Groups) -> None:
        """Raise ValueError if a number of groups is asked for."""
        if isinstance(groups, int):
            raise ValueError(
                f"{self.artifact.path}: groups need a model with fixed shapes and without control flow: leave them out"
            )

    def refuse_spill(self, spill: str | None) -> None:
        """Raise ValueError if activations may be spilled."""
        if spill is not None:
            raise ValueError(
                f"{self.artifact.path}: a spill file needs a model with fixed shapes and without control flow or state:"
                " compile it for its shapes, or leave spill out"
            )

    def close(self) -> None:
        """Close the file; twice is fine."""
        if self._direct is not None:
            self._direct.close()
        self.artifact.close()
