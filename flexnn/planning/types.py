"""Records that the planner's stages hand to each other. Sizes are in bytes, times in seconds.

Moments are logical: the index of a node or, once weights are sliced, of a step.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from flexnn import _core
from flexnn.quick_dataclass import quick_dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

I64: TypeAlias = "NDArray[np.int64]"
F64: TypeAlias = "NDArray[np.float64]"

LINE = 64
"""Alignment of everything in the arena, in bytes."""


def align_up(size: int, align: int = LINE) -> int:
    """Return the smallest multiple of ``align`` that is not below ``size``."""
    return -(-size // align) * align


def io_alignment(*, direct: bool) -> int:
    """Return the alignment of reads in bytes, past the page cache (``direct``) or through it."""
    return _core.DIRECT_ALIGN if direct else LINE


def room_bytes(size: int, io_align: int) -> int:
    """Return the arena bytes that ``size`` bytes of the file take at most, wherever they lie in it."""
    return align_up(size) if io_align <= LINE else align_up(size, io_align) + 2 * io_align


class Variant(NamedTuple):
    """A kernel with its workspace: one choice for computing a node."""

    kernel: str
    """Name of a convolution's kernel; "" for other operators."""
    tile_block: int
    """Winograd tiles transformed at once; 0 for other kernels."""
    workspace_bytes: int
    """Workspace of one thread, a multiple of LINE."""
    fixed_s: float
    """Time that each step takes, whatever channels its window has."""
    channels_s: float
    """Time of all channels; a window takes a proportional part."""

    def seconds(self) -> float:
        """Return the time of the whole node in one step."""
        return self.fixed_s + self.channels_s


@quick_dataclass(slots=True, eq=False)
class NodeCosts:
    """Sizes and variants of one node."""

    variants: list[Variant]
    """Variants, the fastest first; the last one has the smallest workspace."""
    params: NDArray[np.int32]
    """Parameters as the operator's C struct, with ``tile_block`` 0."""
    panels: int
    """Number of panels; 0: none."""
    panel_bytes: int
    """Bytes of a panel; 0 without panels."""
    weight: int
    """Index of the panel weight in the graph, or -1."""
    constants: tuple[tuple[int, int, int], ...]
    """(operand, weight, arena bytes) of each raw constant that is streamed or pinned by choice."""
    table: int = -1
    """Index of the weight whose rows the node reads from the file as its first operand, or -1."""
    close: tuple[str, ...] = ()
    """Kernels that may be the fastest, by times that may be wrong; none where it is sure."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of all panels."""
        return self.panels * self.panel_bytes


class Lives(NamedTuple):
    """A graph's activations, as ``Costs`` have them."""

    roots: list[int]
    root_bytes: list[int]
    first_node: list[int]
    last_node: list[int]


@quick_dataclass(slots=True, eq=False)
class Costs:
    """Sizes, lifetimes and times of a graph, for a number of threads."""

    nodes: list[NodeCosts]
    """Costs of each node, in the graph's order."""
    roots: list[int]
    """Indices of the tensors that own arena storage: the activations."""
    root_bytes: list[int]
    """Bytes of each activation, a multiple of LINE."""
    first_node: list[int]
    """Node that first writes each activation."""
    last_node: list[int]
    """Node that last reads (or writes) each activation."""
    small_constants: list[int]
    """Indices of the raw weights that are always pinned."""
    small_bytes: int
    """Arena bytes of the small constants, each rounded outwards to the alignment of reads."""
    zeros_count: int
    """Number of zeros (of 4 bytes) that some kernel reads."""
    io_bytes: list[int]
    """Bytes of each input, then of each output."""
    threads: int
    """Compute threads."""
    io_align: int
    """Alignment of reads in bytes."""

    @property
    def zeros_bytes(self) -> int:
        """Arena bytes of the zeros."""
        return align_up(4 * self.zeros_count)

    def occupied_bytes(self, offset: int, size: int) -> int:
        """Return the arena bytes that ``size`` bytes of the file from ``offset`` take, rounded to the alignment of
        reads.
        """
        align = self.io_align
        return align_up(offset + size, align) - offset // align * align

    def room_bytes(self, size: int) -> int:
        """Return the arena bytes that ``size`` bytes take at most, wherever they lie in the file."""
        return room_bytes(size, self.io_align)


@quick_dataclass(slots=True, eq=False)
class Placement:
    """Addresses of the activations, and the memory that they leave free at each node."""

    address: list[int]
    """Address of each activation from the start of the working part."""
    gaps: NDArray[Any]
    """Free ranges between live activations (GAP_DTYPE), node by node, the largest ones where there are many."""
    gap_first: I64
    """Index of the first gap of each node, and the number of all gaps."""
    top: I64
    """Bytes above which everything is free, at each node."""
    live: I64
    """Bytes of the activations alive at each node."""
    needs: list[list[int]]
    """Sizes of what each node needs beside them, the largest first (``layout.node_needs``)."""
    tight_bytes: I64
    """Bytes of the smallest working part in which each node has room for its smallest workspace and one panel."""

    @property
    def working_bytes_min(self) -> int:
        """Bytes of the smallest working part in which all nodes have that room."""
        return max(self.tight_bytes.tolist(), default=0)

    @property
    def live_bytes_max(self) -> int:
        """Most bytes of activations alive at once: no placement takes less."""
        return max(self.live.tolist(), default=0)

    def gaps_at(self, node: int) -> list[tuple[int, int]]:
        """Return the free ranges at a node between live activations, then (top, top): above it everything is free."""
        first, behind = self.gap_first.item(node), self.gap_first.item(node + 1)
        top = self.top.item(node)
        return [*self.gaps[first:behind].tolist(), (top, top)]


@quick_dataclass(slots=True, frozen=True, eq=False)
class Program:
    """The engine's program, as arrays of its records (engine.h)."""

    nodes: NDArray[Any]
    """Operator, parameters and operands of each node (fx_node)."""
    steps: NDArray[Any]
    """Steps in the order in which they run (fx_step)."""
    pinned: NDArray[Any]
    """Loads of pinned weights, read once (fx_load)."""
    loads: NDArray[Any]
    """Loads of each run, in the order in which they are read (fx_load)."""
    arena_bytes: int
    """Bytes of the arena."""
    zeros_offset: int
    """Arena offset in bytes of zeros that kernels read as padding."""
    zeros_count: int
    """Number of zeros, 4 bytes each."""
    io_bytes: NDArray[np.int64]
    """Bytes of each input, then of each output."""
    threads: int
    """Compute threads that have a workspace."""
    tables: NDArray[Any] = field(default_factory=lambda: np.zeros(0, _core.LOAD_DTYPE))
    """Weights in the file whose rows steps read (fx_load)."""
    groups: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    """Number of steps of each group that runs at the same time; empty: steps run one by one."""
    spills: NDArray[Any] = field(default_factory=lambda: np.zeros(0, _core.LOAD_DTYPE))
    """Activations that steps store in the spill file, and loads bring back (fx_load)."""
    spill_bytes: int = 0
    """Size of the spill file."""
    input_count: int = 0
    """Number of inputs in ``io_bytes``."""
    front_bytes: int = 0
    """Bytes at the start of the arena that are pinned whatever was chosen: zeros and small constants."""
    held: NDArray[Any] = field(default_factory=lambda: np.zeros(0, _core.LOAD_DTYPE))
    """Loads of weights that another program brings before a loop's first turn (run/holding.py)."""
