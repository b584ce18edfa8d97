"""Constants of a model whose shapes are open, out of the artifact's raw weights."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flexnn import _core
from flexnn.graph.ir import DTYPES, Weight

from .format import ArtifactError
from .model_section import StoredModel, source_of
from .reader import Artifact


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A raw weight's numbers, read from an open artifact and checked."""

    artifact: Artifact
    weight: Weight
    dtype: str
    shape: tuple[int, ...]

    @property
    def key(self) -> str:
        """Its place."""
        return f"stored:{self.weight.offset}"

    def load(self) -> NDArray[np.generic]:
        """The whole constant. Raises ArtifactError."""
        values = np.empty(self.weight.nbytes, np.uint8)
        view, done = values.data, 0
        while done < len(view):
            count = os.preadv(self.artifact.fd, [view[done:]], self.weight.offset + done)
            if not count:
                raise ArtifactError(f"{self.artifact.path}: weight {self.weight.name!r} is cut short")
            done += count
        for chunk in range(self.weight.chunks):
            part = view[chunk * self.weight.chunk_bytes : (chunk + 1) * self.weight.chunk_bytes]
            if _core.crc32c(part) != self.artifact.crcs[self.weight.crc_first + chunk]:
                raise ArtifactError(f"{self.artifact.path}: weight {self.weight.name!r} fails its checksum")
        return values.view(DTYPES[self.dtype]).reshape(self.shape)


def attach_values(artifact: Artifact, stored: StoredModel) -> None:
    """Constants whose numbers are raw weights get them from there."""
    for index, weight in stored.values.items():
        constant = stored.constants[index]
        base = StoredSource(artifact, stored.weights[weight], constant.dtype, constant.shape)
        source_of(constant).base = base
