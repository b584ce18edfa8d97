"""Keys and values of cross-attention, which a decoder makes of an encoder's output once for many runs.

There is a program for each of a few numbers of rows, and an output is filled up to the next of these: attention reads
no more rows than there were. So nothing is bound or planned for an input (docs/decisions/0053-state.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flexnn import _core
from flexnn.errors import StateError
from flexnn.graph.bind import Binder
from flexnn.graph.crossing import Once, axis_of, rows_given
from flexnn.graph.ir import DTYPES, Array, Graph
from flexnn.graph.large import mapping
from flexnn.graph.passes import run_passes
from flexnn.graph.ports import Port
from flexnn.planning import Plan, Planner, Setting
from flexnn.planning.pins import Pins
from flexnn.planning.relocate import relocated
from flexnn.planning.types import LINE, align_up
from flexnn.quick_dataclass import quick_dataclass

from .engine import BoundProgram, SessionError
from .state_plans import Placed, StatePlans, placed_bytes

ROWS = (64, 512)
"""Numbers of rows for which there are programs, beside one for the capacity."""


@quick_dataclass(eq=False)
class OnceProgram:
    """The program for a number of rows."""

    rows: int
    graph: Graph
    constants: list[Array]
    program: BoundProgram | None = None
    signature: _core.Signature | None = None


class StateOnce:
    """Keys and values that are made once. ``finished`` finds a graph's weights, and returns its constants."""

    def __init__(self, once: Once, finished: Callable[[Graph], list[Array]], *, poison: bool) -> None:
        self.once, self.capacity = once, once.capacity
        ports = {port.name: port for port in once.model.graph.inputs}
        self.ports = [ports[name] for name in once.given]
        is_open = any(not isinstance((p.dims or ())[axis_of(p)], int) for p in self.ports)
        counts = [*(n for n in ROWS if n < self.capacity and is_open), self.capacity]
        self.programs = []
        for rows in counts:
            graph = _bound(once, self.ports, rows)
            self.programs.append(OnceProgram(rows, graph, finished(graph)))
        graph = self.programs[-1].graph
        tensors = [graph.tensors[i] for i in graph.outputs]
        self.shapes = {name: tensor.shape for name, tensor in zip(once.states, tensors, strict=True)}
        sizes = [align_up(tensor.nbytes) for tensor in tensors]
        self.nbytes = sum(sizes)
        memory = mapping(self.nbytes)
        if poison:
            memory.write(b"\xff" * self.nbytes)
        ends = np.cumsum([0, *sizes]).tolist()
        self.states = {
            name: np.ndarray(tensor.shape, DTYPES[tensor.dtype], buffer=memory, offset=at)
            for name, tensor, at in zip(once.states, tensors, ends[:-1], strict=True)
        }
        self.length = np.zeros(1, np.int64)
        """Number of rows there are; 0 before anything was given."""
        self._planners: list[Planner] = []

    @property
    def io_bytes(self) -> int:
        """Bytes of what is given, twice: the caller's, and filled up."""
        graph = self.programs[-1].graph
        given = sum(int(graph.tensors[i].nbytes) for i in graph.inputs[: len(self.ports)])
        return 2 * given + sum(array.nbytes for each in self.programs for array in each.constants)

    # ---- plans ----

    def plan_for(self, setting: Setting) -> None:
        """Have plans be made by a setting."""
        self._planners = [Planner(each.graph, setting) for each in self.programs]
        self._align = max(setting.io_align, LINE)

    def placed(self, plans: StatePlans, memory: int | None, fixed: dict[str, int]) -> tuple[Placed, Placed]:
        """Return the plans of the decoder's programs, and those of these: they pin their weights where all fit, and
        stream them else. Raises BudgetError.
        """
        around = sum(fixed.values())
        whole = plans.placed(None, fixed)
        pinned = self._beside(whole, [planner.plan(None) for planner in self._planners])
        if memory is None or placed_bytes([*whole, *pinned]) + around <= memory:
            return whole, pinned
        none = Pins(None)
        least = [p.whole.plan_over(none, p.whole.least_working_bytes, smallest=True) for p in self._planners]
        fronts = sum(align_up(plan.arena_bytes - plan.working_bytes, self._align) for plan in least)
        working = max(plan.working_bytes for plan in least) + self._align
        beside = fronts + sum(plan.overhead["program"] for plan in least) + plans.lack(working)
        found = plans.placed(memory, fixed | {"once": beside})
        return found, self._beside(found, least)

    def _beside(self, placed: Placed, plans: list[Plan]) -> Placed:
        """Return these programs: working parts lie over those of the decoder's programs, and what is pinned behind."""
        splits = [plan.arena_bytes - plan.working_bytes for plan in plans]
        begin = max(program.arena_bytes - plan.working_bytes for plan, program in placed)
        begin = align_up(max(begin, *splits), self._align)
        at = max(*(program.arena_bytes for _, program in placed), *(begin + plan.working_bytes for plan in plans))
        at, found = align_up(at, self._align), []
        for plan, split in zip(plans, splits, strict=True):
            found.append((plan, relocated(plan.program, split, at, begin - align_up(split, self._align))))
            at += align_up(split, self._align)
        return found

    # ---- runs ----

    def give(self, arrays: Sequence[Array], masks: Sequence[Array], following: BoundProgram) -> tuple[int, int, int]:
        """Make keys and values of what an encoder made; return the figures. Raises StateError, ValueError."""
        rows = rows_given(arrays, self.ports)
        counted = _counted(masks, rows)
        if any(array.shape[0] != 1 for array in arrays):
            raise StateError("an encoder's output of several sequences: sessions keep the state of one")
        if not counted or rows > self.capacity:
            raise StateError(f"{rows} rows of an encoder's output: from 1 to {self.capacity} (cross_capacity) are kept")
        each = next(each for each in self.programs if each.rows >= rows)
        assert each.program is not None
        feed = {p.name: _filled(a, axis_of(p), each.rows) for p, a in zip(self.ports, arrays, strict=True)}
        self.length[0] = 0
        if each.signature is None:
            shapes = [(state.shape, state.dtype) for state in self.states.values()]
            states, order = list(self.states.values()), range(len(feed))
            each.signature = _core.Signature(
                list(feed), list(feed.values()), order, each.constants, shapes, np.empty, lambda _: states
            )
        ran = each.program.repeat(each.signature, feed, [following])
        if ran is None:
            raise SessionError("an encoder's output is not as the session's programs take it")
        self.length[0] = counted
        return ran[1]


def _bound(once: Once, ports: Sequence[Port], rows: int) -> Graph:
    binder = Binder(once.model.opset, in_run=True)
    binder.constants = once.model.graph.constants
    for port in ports:
        shape = [d if isinstance(d, int) else 1 for d in port.dims or ()]
        shape[axis_of(port)] = rows
        binder.add_input(port.name, tuple(shape), str(port.dtype))
    for node in once.model.graph.nodes:
        binder.add(node)
    binder.set_outputs(list(once.states))
    return run_passes(binder.graph, precision=once.model.precision)


def _filled(array: Array, axis: int, rows: int) -> Array:
    """Return an array with rows of zeros behind its own."""
    if array.shape[axis] == rows:
        return np.ascontiguousarray(array)
    made = np.zeros((*array.shape[:axis], rows, *array.shape[axis + 1 :]), array.dtype)
    made[(slice(None),) * axis + (slice(array.shape[axis]),)] = array
    return made


def _counted(masks: Sequence[Array], rows: int) -> int:
    """Return how many rows masks say count: the first ones. Raises StateError for others."""
    for mask in masks:
        seen = mask.reshape(-1) != 0
        count = int(seen.sum())
        if mask.shape != (1, rows) or not seen[:count].all():
            raise StateError(f"a mask {list(mask.shape)} of {rows} rows does not count the first of them")
        rows = min(rows, count)
    return rows
