"""A stretch: the part of a run that needs no decision of Python's, and what Python does after it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field

import numpy as np

from flexnn.graph.ir import Array, Shape
from flexnn.quick_dataclass import quick_dataclass

from .region import Nodes, Region
from .scope import Scope
from .tape import Tape


@quick_dataclass(frozen=True, slots=True)
class Output:
    """A value that a stretch makes and that is needed after it."""

    name: str
    shape: Shape
    """Its shape; of stacked outputs of a loop whose turns nobody knows before, that of one row."""
    dtype: np.dtype
    counter: int = -1
    """Counter of the loop that stacks it; -1: its shape is known."""
    turns_max: int | None = None
    """Most turns of that loop, as its condition bounds them; None: nobody knows."""


@quick_dataclass(frozen=True, slots=True)
class Host:
    """numpy computes a node."""

    node: int


@quick_dataclass(frozen=True, slots=True)
class Read:
    """The numbers of values decide what comes next."""

    names: tuple[str, ...]


@quick_dataclass(frozen=True, slots=True)
class Control:
    """Python walks the bodies of a node."""

    node: int


@quick_dataclass(frozen=True, slots=True)
class Turns:
    """The turns that loops took decide the shapes of their outputs."""

    counters: tuple[int, ...]


@quick_dataclass(slots=True, eq=False)
class Stretch:
    """Tape, its live values, and the action after it."""

    region: Region
    tape: Tape
    scope: Scope
    """Values that are there after it, for recording what follows."""
    remaining: Nodes
    """Nodes that are left after it and after ``action``."""
    inputs: list[str] = field(default_factory=list)
    """Live values that the first buffers take, in order."""
    constants: list[Array] = field(default_factory=list)
    """Arrays that the next buffers take."""
    outputs: list[Output] = field(default_factory=list)
    """Values that the last buffers take."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Other names of values that live after it, by name."""
    known: dict[str, Array] = field(default_factory=dict)
    """Values that live after it and that were known while it was recorded."""
    dropped: tuple[str, ...] = ()
    """Live values that nothing reads after ``action``."""
    action: Host | Read | Control | Turns | None = None
    """Action of Python after it; None: the region is done."""
    is_forgotten: bool = False
    """Whether its segments are gone, so that it must be recorded again."""
    following: dict[Hashable, Stretch] = field(default_factory=dict)
    """Stretches that come next, by the shapes or numbers that ``action`` found."""
