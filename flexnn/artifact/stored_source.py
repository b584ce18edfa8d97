"""Constants of a model with open shapes, read from the artifact's raw weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flexnn import _core
from flexnn.graph.descriptor import Descriptor
from flexnn.graph.ir import DTYPES, Weight
from flexnn.quick_dataclass import quick_dataclass

from .format import ArtifactError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@quick_dataclass(frozen=True, slots=True)
class StoredSource:
    """Numbers of a raw weight, read from an open artifact and checked."""

    file: Descriptor
    crcs: NDArray[np.uint32]
    """Checksums of all the artifact's chunks."""
    weight: Weight
    dtype: str
    shape: tuple[int, ...]

    @property
    def key(self) -> str:
        """Place of the weight in the file."""
        return f"stored:{self.weight.offset}"

    def load(self) -> NDArray[np.generic]:
        """Read the whole constant. Raises GraphError if the file was cut, ArtifactError if it was damaged."""
        values = np.empty(self.weight.nbytes, np.uint8)
        view = values.data
        self.file.read_into(view, self.weight.offset)
        for chunk in range(self.weight.chunks):
            part = view[chunk * self.weight.chunk_bytes : (chunk + 1) * self.weight.chunk_bytes]
            if _core.crc32c(part) != self.crcs[self.weight.crc_first + chunk]:
                raise ArtifactError(f"{self.file.path}: weight {self.weight.name!r} fails its checksum")
        return values.view(DTYPES[self.dtype]).reshape(self.shape)
