"""Values that go from stage to stage of the planner. Sizes in bytes, times in seconds.

Time is logical: the index of a node, or, once weights are sliced, of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexnn import _core

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

LINE = 64
"""Alignment of everything in the arena, in bytes."""
PAGE = 4096
"""Alignment of direct reads, in bytes: of their place in the file and in memory, and of their length."""


def align_up(size: int, align: int = LINE) -> int:
    """The next multiple of ``align``."""
    return -(-size // align) * align


def io_alignment(*, direct: bool) -> int:
    """Alignment of reads in bytes, past the page cache (``direct``) or through it."""
    return PAGE if direct else LINE


def room_bytes(size: int, io_align: int) -> int:
    """Arena bytes that ``size`` bytes of the file take, wherever they lie in it, rounded to the alignment of reads."""
    return align_up(size) if io_align <= LINE else align_up(size, io_align) + 2 * io_align


@dataclass(slots=True, frozen=True)
class Variant:
    """One variant to compute a node: a kernel with its workspace."""

    kernel: str
    """Name of a convolution's kernel; "" for other operators."""
    tile_block: int
    """Winograd tiles transformed at once; 0 for other kernels."""
    workspace_bytes: int
    """Of one thread, rounded to lines."""
    fixed_s: float
    """Spent once in each step, whatever the window's channels."""
    channels_s: float
    """Spent on all channels; a window takes its share."""

    def seconds(self) -> float:
        """Of the whole node in one step."""
        return self.fixed_s + self.channels_s


@dataclass(slots=True)
class NodeCosts:
    """What the planner knows of one node."""

    variants: list[Variant]
    """Fastest first; the last one has the smallest workspace."""
    params: NDArray[np.int32]
    """As the operator's C struct, ``tile_block`` 0."""
    panels: int
    panel_bytes: int
    """0 and 0 without panels."""
    weight: int
    """Index of the panel weight in the graph, or -1."""
    constants: tuple[tuple[int, int, int], ...]
    """(operand, weight, arena bytes) of each raw constant too big to stay without asking."""
    table: int = -1
    """The weight that its first operand is, where it reads rows of that from the file; else -1."""

    @property
    def weight_bytes(self) -> int:
        """Of all panels."""
        return self.panels * self.panel_bytes


@dataclass(slots=True)
class Costs:
    """A graph as the planner sees it, for a number of threads."""

    nodes: list[NodeCosts]
    roots: list[int]
    """Tensors that own arena storage: the activations."""
    root_bytes: list[int]
    first_node: list[int]
    """Node that first writes each activation."""
    last_node: list[int]
    """Node that last reads (or writes) each activation."""
    small_constants: list[int]
    """Raw weights that always stay."""
    small_bytes: int
    """What they take, each rounded to the I/O alignment."""
    zeros_count: int
    io_bytes: list[int]
    """Of each input, then each output."""
    threads: int
    io_align: int

    @property
    def zeros_bytes(self) -> int:
        """Arena bytes of the zeros."""
        return align_up(4 * self.zeros_count)

    def occupied_bytes(self, offset: int, size: int) -> int:
        """Arena bytes that ``size`` bytes of the file from ``offset`` take: rounded outwards to the I/O alignment."""
        align = self.io_align
        return align_up(offset + size, align) - offset // align * align

    def room_bytes(self, size: int) -> int:
        """Arena bytes that ``size`` bytes take wherever they lie in the file."""
        return room_bytes(size, self.io_align)


@dataclass(slots=True)
class Placement:
    """Addresses of the activations, and what they leave free at each node."""

    address: list[int]
    """Of each activation of the costs."""
    gaps: list[list[tuple[int, int]]]
    """Of each node: free ranges between live activations, then (top, top): above ``top`` everything is free."""
    tight_bytes: list[int]
    """Of each node: the smallest arena in which it finds room for its smallest workspace and one panel."""
    working_bytes_min: int
    """The largest of them."""
    live_bytes_max: int
    """Most bytes of activations alive at once: no placement is lower."""


@dataclass(slots=True, frozen=True)
class Program:
    """The engine's program (engine.h), as arrays of its structs."""

    nodes: NDArray[Any]
    steps: NDArray[Any]
    pinned: NDArray[Any]
    loads: NDArray[Any]
    arena_bytes: int
    zeros_offset: int
    zeros_count: int
    io_bytes: NDArray[np.int64]
    threads: int
    """Compute threads it has workspaces for."""
    tables: NDArray[Any] = field(default_factory=lambda: np.zeros(0, _core.LOAD_DTYPE))
    """Weights that steps read rows of."""
    groups: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    """Steps of each group that runs at the same time; empty: one by one."""
