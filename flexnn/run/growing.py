"""Stacks whose number of rows nobody knows before the run: memory that grows without being copied."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from flexnn.graph.ir import Array, Shape
from flexnn.planning import BudgetError

from .engine import SessionError
from .needs import alone_bytes

if TYPE_CHECKING:
    from .open_stretches import OpenStretches
    from .recording import ReadyStretch

GUESS = 8
"""Times that a size nobody knows is guessed to be larger than what was seen."""
LITTLE = 10
"""A refusal asks for 2**-LITTLE of the budget more at least: one row more at a time took hundreds of refusals."""
FIRST_BYTES = 64 << 10
"""Bytes of a stack at first."""


class Growing:
    """Rows of ``shape``, one after the other. The array that ``bytes`` or ``array`` returns must be gone before it
    grows. At first it has room for ``rows``, or for some, but takes at most ``bytes_max``.
    """

    def __init__(self, shape: Shape, dtype: np.dtype, rows: int = 0, bytes_max: int | None = None) -> None:
        self._shape, self._dtype = shape, dtype
        self.row_bytes = math.prod(shape) * dtype.itemsize
        wanted = max(self.row_bytes * max(rows, 1), self.first_bytes)
        self.nbytes = max(wanted if bytes_max is None else min(wanted, bytes_max), 1)
        self._memory = mmap.mmap(-1, self.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    @property
    def first_bytes(self) -> int:
        """Bytes that it has at first where nothing limits it."""
        return min(FIRST_BYTES, 64 * self.row_bytes)

    @property
    def bytes(self) -> Array:
        """All its bytes."""
        return np.frombuffer(self._memory, np.uint8)

    def grow(self, nbytes: int) -> None:
        """Make it larger; the rows stay. Raises OSError, MemoryError."""
        self._memory.resize(nbytes)
        self.nbytes = nbytes

    def array(self, rows: int) -> Array:
        """Return the first rows; the memory beyond them goes back."""
        wanted = max(rows * self.row_bytes, 1)
        if wanted < self.nbytes:
            self.grow(wanted)
        return np.frombuffer(self._memory, self._dtype, rows * math.prod(self._shape)).reshape(rows, *self._shape)


def _room(opened: OpenStretches, found: ReadyStretch, others: int) -> int | None:
    """Return the bytes that the budget leaves to a stack of a stretch beside its ``others``; None: there is no limit.
    Where stacks count twice, the outputs that the caller holds contain the last ones, or will contain these.
    """
    memory = opened.segments.memory
    if memory is None:
        return None
    own, given = found.own_bytes, opened.needs.given_bytes
    beside = max(opened.beside_values() + found.values_bytes, alone_bytes(opened.segments, found)) - found.given_bytes
    if found.stretch.region.path:
        return memory - beside - max(given, own) - others
    once = memory - beside - given
    return (once if once <= given - own else (memory - beside - own) // 2) - others


def _share(opened: OpenStretches, found: ReadyStretch, row_bytes: int) -> int | None:
    """Return the part of what the budget leaves to all stacks of a stretch that is a stack's: as many rows as those of
    the others, so that none takes what another one needs in the same turn. None: there is no limit.
    """
    room = _room(opened, found, 0)
    whole = sum(found.row_bytes(number) for number in found.times)
    return None if room is None else max(room, 0) * row_bytes // max(whole, 1)


def _grow(opened: OpenStretches, found: ReadyStretch, grown: Growing, others: int) -> None:
    """Make a stack of a stretch twice as large, or as large as the budget allows beside its ``others``. Raises
    BudgetError, SessionError.
    """
    least = (grown.nbytes // max(grown.row_bytes, 1) + 1) * grown.row_bytes  # it need not end with a whole row
    wanted = max(2 * grown.nbytes, least)
    room, memory = _room(opened, found, others), opened.segments.memory
    if room is not None and memory is not None:
        share = _share(opened, found, grown.row_bytes) or 0
        wanted = min(wanted, share if least <= share <= room else room)  # a share of less than a row serves nobody
        if wanted < least:
            opened.is_full = True
            guess = max(GUESS * grown.nbytes, grown.first_bytes, memory >> LITTLE)  # few rows may have been seen
            raise BudgetError(memory - room + guess + grown.row_bytes, memory)
    try:
        grown.grow(wanted)
    except (OSError, MemoryError):
        raise SessionError(f"the system has no memory for a stack of {wanted} bytes") from None


def stack(opened: OpenStretches, ready: ReadyStretch, number: int) -> Growing:
    """Return an empty stack for an output of unknown length, which has room for as many rows as last time."""
    output = ready.stretch.outputs[number]
    share = _share(opened, ready, ready.row_bytes(number))
    return Growing(output.shape, output.dtype, ready.capacities.get(number, 0), share)


def run_growing(
    opened: OpenStretches, ready: ReadyStretch, buffers: list[Array], growing: Mapping[int, Growing]
) -> None:
    """Run a stretch; where a stack is full, give it more room. Raises BudgetError where there is none."""
    first = len(buffers) - len(ready.stretch.outputs)
    stopped = opened.run(ready, buffers)
    while stopped >= 0:
        number = ready.grown[stopped]
        grown = growing[number]
        buffers[first + number] = np.empty(0, np.uint8)  # nothing may hold what grows
        _grow(opened, ready, grown, sum(other.nbytes for other in growing.values() if other is not grown))
        buffers[first + number] = grown.bytes
        stopped = opened.run(ready, buffers, goes_on=True)
    for number in growing:
        buffers[first + number] = np.empty(0, np.uint8)
