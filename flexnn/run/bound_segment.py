"""A segment bound to shapes: its graph, its plan, and its program while it is open."""

from __future__ import annotations

import weakref
from _blake2 import blake2b
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from flexnn.graph.ir import Array, Graph
from flexnn.measure import Spans, Watch
from flexnn.planning import Plan, Planner
from flexnn.planning.overhead import NODE_BYTES, STEP_BYTES
from flexnn.quick_dataclass import quick_dataclass
from flexnn.regions import Segment

from .bases import Base, Decided, Pins
from .constants import Packing
from .engine import BoundProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .holding import Loop
    from .segments import BoundSegments

REFIT_BYTES, REFIT_NODE_BYTES = 9 << 10, 48
"""Bytes of a segment that is refitted, and of each of its nodes, beside its numbers and the program's edits: objects in
Python (measured 5.1 KiB), and the ranges that the program touches (7 bytes a node).
"""
EDIT_BYTES, EDITS = 8, 16
"""Bytes of a word in which the program in the engine differs from its base's (fx_edit), and how many there are for each
node, before they are known: measured 4 to 12.
"""
HOLDER_BYTES = 8 << 10
"""Bytes of the program that brings what a segment holds, in Python and in the engine, its loads not counted."""
CLOSED_BYTES = 6 << 10
"""Bytes of it while it is closed, its numbers not counted."""


@quick_dataclass(slots=True, eq=False)
class BoundSegment:
    """A segment bound to shapes, and where it lies in the arena once it is planned and open. Sizes in bytes."""

    segment: Segment
    constants: list[Array]
    """Constants that are not in the artifact, as the graph's last inputs."""
    owner: weakref.ref[BoundSegments]
    """Segments of the session, this one among them. A cycle would keep both until Python looks for cycles."""
    base: Base | None = None
    """Base of its plan; None: it has no plan."""
    is_own: bool = False
    """Whether ``base`` is planned for its own sizes."""
    working_bytes: int = 0
    """Bytes of the arena that segments share: activations, workspaces, streamed weights."""
    loop: Loop | None = None
    """The outermost loop whose turns run it; None: none does."""
    holds: int | None = None
    """Bytes of pinned weights that stay its own where it is planned to hold others; None: all stay."""
    held: NDArray[Any] | None = None
    """Loads of what it holds, while its program is in the engine."""
    bound: BoundProgram | None = None
    """The plan's program in the engine, while the segment is open."""
    bound_base: Base | None = None
    """Base of the bound program."""
    place: tuple[int, int, int] | None = None
    """Arena offsets of its pinned part, of its working part and of what it holds, when it was bound last."""
    watch: Watch | None = None
    """Observer of its runs, for what they tell about the machine."""
    is_measured: bool = False
    """Whether its operators were already checked for missing measurements."""
    unfollowed: Decided | None = None
    """Decisions that made no plan of it."""
    made: Plan | None = None
    """Its refitted plan, until it is bound."""
    known_planner: Planner | None = None
    """The planner of its graph, once it was asked for."""
    known_least: Planner | None = None
    """Planner of what binding makes, where that is another graph."""
    known_kind: Hashable = None
    """Its kind, once it was asked for."""
    nodes: int = 0
    """Number of its nodes in the core."""
    refit_bytes: int = 0
    """Bytes of the program outside the arena where it is refitted."""

    def __post_init__(self) -> None:
        template = self.segment.template
        self.nodes = len(template.template) if template is not None else len(self.graph.nodes)
        self.refit_bytes = self.bytes_with(EDITS * self.nodes)

    @property
    def store(self) -> BoundSegments:
        """Segments of the session."""
        store = self.owner()
        assert store is not None
        return store

    @property
    def graph(self) -> Graph:
        """Its graph, with the weights of the artifact."""
        return self.store.bound_graph(self.segment)

    @property
    def planner(self) -> Planner:
        """The planner of its graph."""
        if self.known_planner is None:
            self.known_planner = Planner(self.graph, self.store.setting)
        return self.known_planner

    @property
    def kind(self) -> Hashable:
        """Facts that all segments have in common which differ in sizes only: the template, or operators and weights."""
        if self.known_kind is None:
            self.known_kind = self.segment.template or _kind_of(self.graph)
        return self.known_kind

    @property
    def least(self) -> Planner:
        """The planner of what binding makes of the segment, which knows its smallest budget."""
        if self.segment.bind is None:
            return self.planner
        if self.known_least is None:
            graph = self.segment.bind()
            Packing.of(graph).apply(graph)
            self.store.find_weights(graph)
            self.known_least = Planner(graph, self.store.setting)
        return self.known_least

    @property
    def plan(self) -> Plan | None:
        """Its plan."""
        if self.base is None:
            return None
        if self.is_own:
            return self.base.plan
        return self.made or self.store.refitted(self, self.base)

    @property
    def is_bound(self) -> bool:
        """Whether the program of its plan is bound."""
        return self.bound is not None and self.bound_base is self.base

    def spans(self) -> Spans | None:
        """Return the times of its last run's steps and loads, as Watch takes them."""
        return self.bound.spans if self.bound is not None else None

    @property
    def pins(self) -> Pins:
        """The part of the arena that stays its own, and of those that share it: zeros, small constants, weights."""
        assert self.base is not None
        return self.base.pins

    @property
    def shared_bytes(self) -> int:
        """Bytes that it needs of the arena's working part: its own, behind what its loop holds."""
        return self.working_bytes + (self.loop.held_bytes if self.loop is not None else 0)

    @property
    def program_bytes(self) -> int:
        """Bytes of the program outside the arena, and of its part of the holder's."""
        assert self.base is not None
        holder = HOLDER_BYTES + STEP_BYTES * len(self.base.plan.program.pinned) if self.base.held is not None else 0
        return holder + (self.base.plan.overhead["program"] if self.is_own else self.refit_bytes)

    @property
    def kept_bytes(self) -> int:
        """Bytes that it takes while it is not open."""
        holds = self.segment.built is not None or self.known_planner is not None
        numbers = self.segment.numbers
        return NODE_BYTES * self.nodes if holds or numbers is None else CLOSED_BYTES + numbers.words.nbytes

    def bytes_with(self, edits: int) -> int:
        """Return the bytes of the program outside the arena where it is refitted, with so many edits."""
        numbers = self.segment.numbers
        words = numbers.words.nbytes if numbers is not None else 0
        return REFIT_BYTES + REFIT_NODE_BYTES * self.nodes + words + EDIT_BYTES * edits

    def drop_plan(self) -> None:
        """Forget the plan, and what can be made again for another one."""
        self.base = self.made = self.known_least = None
        self.is_own = False
        if self.segment.template is not None:
            self.known_planner = None
            self.segment.built = self.segment.fixed = None


def _kind_of(graph: Graph) -> bytes:
    """Return a digest of a graph's operators and weights."""
    offsets = [weight.offset for weight in graph.weights]
    rows = [(node.op, offsets[node.weight] if node.weight >= 0 else -1) for node in graph.nodes]
    return blake2b(repr(rows).encode(), digest_size=16).digest()
