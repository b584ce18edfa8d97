"""The graph between the stages: tensors with places, nodes of internal operators, weights.

Importing and passes make it, the artifact stores it, the planner reads it. The run time imports this module, which
knows nothing of ONNX. A tensor's dimensions are in memory order (channels-last for images; docs/architecture.md, D2):
other orders exist in the passes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .stated import RANK_MAX as RANK_MAX
from .stated import TENSOR_BYTES_MAX as TENSOR_BYTES_MAX
from .stated import GraphError as GraphError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .pack import PanelSource
    from .pack_bytes import BytePanels

Attr = int | float | str | list[int]
Shape = tuple[int, ...]
Array = np.ndarray

DTYPES: dict[str, np.dtype] = {
    "f32": np.dtype("<f4"),
    "i64": np.dtype("<i8"),
    "i32": np.dtype("<i4"),
    "bool": np.dtype("?"),
    "u8": np.dtype("u1"),
    "i8": np.dtype("i1"),
    "f16": np.dtype("<f2"),
    "f64": np.dtype("<f8"),
    "u16": np.dtype("<u2"),
    "i16": np.dtype("<i2"),
    "u32": np.dtype("<u4"),
    "u64": np.dtype("<u8"),
}
"""Types of elements, by the names of FX_DTYPES (kernels/include/flexnn/params.h)."""
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
NARROW = "u8", "i8"
"""Types that quantised activations have."""


class AbsentError(GraphError):
    """Numbers of a constant are asked for that the artifact does not hold."""


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of ``shape``, in elements."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)


@quick_dataclass(slots=True)
class Tensor:
    """A value. Its storage is ``root``'s: itself, or the tensor that contains or shares it (concat, split, in place).

    It is a graph input, or a constant (``weight`` >= 0), or some node's output, or a pure view: no node's output, its
    elements written through other tensors of the same root (the whole of a concat, a part of a split, a reshape).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    root: int = -1
    """Index of the tensor that owns the storage; -1: this one."""
    offset: int = 0
    """Elements from the start of the root's storage."""
    strides: tuple[int, ...] = ()
    """Elements; contiguous for a root."""
    weight: int = -1
    """Index of the raw weight that holds a constant's value; -1: not a constant."""

    def __post_init__(self) -> None:
        if not self.strides:
            self.strides = contiguous_strides(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements (of a root: of its storage)."""
        return self.size * DTYPES[self.dtype].itemsize

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps; strides of dimensions of size 1 do not matter."""
        expected = contiguous_strides(self.shape)
        return all(s == e or d == 1 for d, s, e in zip(self.shape, self.strides, expected, strict=True))


class WeightSource(Protocol):
    """Source of the bytes of a weight while compiling; loaded one weight at a time, never kept."""

    @property
    def key(self) -> str:
        """Sources of one model with the same key hold the same numbers (graph/sources.py)."""
        ...

    def load(self) -> NDArray[np.generic]:
        """The numbers. Raises GraphError or OSError where they cannot be read."""
        ...


@quick_dataclass(slots=True)
class Weight:
    """Stored numbers. ``raw``: a constant in its own dtype, row-major. ``panels``: one node's packed panels
    (kernels/include/flexnn/params.h), ``chunk_bytes`` each.
    """

    name: str
    kind: str
    nbytes: int
    chunk_bytes: int
    """Bytes under one checksum: a panel; of a raw weight RAW_CHUNK_BYTES, or some rows (graph/tables.py). The last
    chunk may be shorter."""
    offset: int = -1
    """In the artifact; page-aligned. -1 until it is written."""
    crc_first: int = 0
    """Index of its first chunk's CRC32C in the artifact's table."""
    source: WeightSource | None = None
    """The numbers of a ``raw`` weight, while compiling."""
    panels: PanelSource | BytePanels | None = None
    """The panels of a ``panels`` weight, while compiling."""

    @property
    def origin(self) -> WeightSource | PanelSource | BytePanels | None:
        """Source of the bytes; None outside compilation."""
        return self.source if self.panels is None else self.panels

    @property
    def chunks(self) -> int:
        """Number of checksums."""
        return -(-self.nbytes // self.chunk_bytes) if self.nbytes else 0


RAW_CHUNK_BYTES = 1 << 20


@quick_dataclass(slots=True)
class Node:
    """One internal operator (graph/operators)."""

    name: str
    """The ONNX node it came from, for messages and plans."""
    op: str
    inputs: list[int]
    outputs: list[int]
    attrs: dict[str, Attr] = field(default_factory=dict)
    weight: int = -1
    """Index of its panel weight; -1: none."""
    params: Array | Mapping[str, int | float] | None = None
    """Its parameters as the operator's C struct, where they are known; its fields in a graph of sizes."""


@quick_dataclass(frozen=True, slots=True)
class Spill:
    """An activation in the spill file (planning/spilling.py): rows that each have a checksum."""

    root: int
    """Index of its tensor, a root."""
    offset: int
    """Bytes from the start of the file."""
    nbytes: int
    row_bytes: int
    crc_first: int
    """Number of rows of all activations before it in the file."""


@quick_dataclass(slots=True, eq=False)
class Graph:
    """Nodes in execution order. Inputs and outputs are roots; no node writes an input."""

    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    added: int = 0
    """Number of nodes that planning has added (planning/bands.py)."""
    spills: tuple[Spill, ...] = ()
    """Activations that lie in the spill file, by offset; planning chooses them."""

    def copied(self) -> Graph:
        """A graph whose parts may be changed without changing these; sources of weights are shared."""
        return Graph(
            [Tensor(t.name, t.shape, t.dtype, t.root, t.offset, t.strides, t.weight) for t in self.tensors],
            [Node(n.name, n.op, n.inputs, n.outputs, n.attrs, n.weight, n.params) for n in self.nodes],
            list(map(copy, self.weights)),
            list(self.inputs),
            list(self.outputs),
            self.added,
            self.spills,
        )

    def root(self, tensor: int) -> int:
        """Index of the tensor that owns the storage of ``tensor``."""
        owner = self.tensors[tensor].root
        return tensor if owner < 0 else owner
