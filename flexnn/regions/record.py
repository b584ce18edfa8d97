"""Recording: a region is walked over shapes alone; its parts go onto a tape as long as nothing but the tape decides.

If, Loop and Scan go onto the tape with their bodies where these need nothing of Python: no hosted operator, no number
for binding that only the run knows, carried values of one shape. Others are walked by Python (run/open_shapes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from flexnn.graph.fold import folds
from flexnn.graph.ir import DTYPES, Array, GraphError, Shape
from flexnn.graph.model import Model, ModelNode
from flexnn.quick_dataclass import quick_dataclass

from .control import check_branches
from .region import Nodes, Region
from .scope import NumbersError, Scope, Value, known
from .segment import Segment
from .stretch import Control, Host, Output, Read, Stretch, Turns
from .tape import Tape
from .turns import bound_turns
from .walk import Walker, constant_array, is_idle, is_steady, scoped

TRUE = np.array(True)
NUMBER = np.dtype(np.int64)
TRUTH = np.dtype(np.bool_)
COUNTERS_MAX = 64
"""FX_COUNTERS_MAX of engine/include/flexnn/recording.h."""


class WalkedError(GraphError):
    """Bodies that Python must walk."""


@quick_dataclass(slots=True)
class _Growing:
    """Stacked outputs of a loop whose turns only the run knows."""

    name: str
    value: Value
    counter: int
    turns_max: int | None


@quick_dataclass(slots=True)
class _Session:
    """Slots and buffers of the stretch that is recorded."""

    tape: Tape
    names: dict[Value, str]
    """Live values before the stretch, and a name of each."""
    slots: dict[Value, int] = field(default_factory=dict)
    inputs: list[tuple[str, int]] = field(default_factory=list)
    """Names and slots of the live values that are read."""
    constants: list[tuple[Array, int]] = field(default_factory=list)
    growing: list[_Growing] = field(default_factory=list)

    def slot(self, value: Value) -> int:
        """Return the slot of a value: its own, or that of a buffer that brings it in."""
        found = self.slots.get(value)
        if found is None:
            found = self.slots[value] = self.tape.slot(value.nbytes, is_fixed=True)
            self.tape.slots[found].body = 0
            if value in self.names:
                self.inputs.append((self.names[value], found))
            else:
                assert value.array is not None
                self.constants.append((np.require(value.array, requirements=["C", "ALIGNED"]), found))
        return found

    def own(self, value: Value, *, is_fixed: bool = False, body: int | None = None) -> int:
        """Give a value a slot of its own; ``body``: the one that it belongs to, if not the one recorded now."""
        slot = self.slots[value] = self.tape.slot(value.nbytes, is_fixed=is_fixed)
        if body is not None:
            self.tape.slots[slot].body = body
        return slot

    def whole(self, value: Value) -> int:
        """Return a slot of a value that is no row of another."""
        slot = self.tape.root(self.slot(value))
        if self.tape.slots[slot].row_of < 0:
            self.tape.slots[slot].is_fixed = True  # it must not become a row later
            return slot
        copy = self.tape.slot(value.nbytes, is_fixed=True)
        self.tape.add("copy", a=copy, b=slot, n=value.nbytes)
        return copy


class Recorder(Walker):
    """Walker that records stretches."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._now = _Session(Tape(), {})

    def record(self, region: Region, scope: Scope, remaining: Nodes) -> Stretch:
        """Return the stretch that begins with the remaining nodes, whose live values ``scope`` names; it changes.
        Raises GraphError.
        """
        live = {name: scope[name] for name in scope}
        self._now = _Session(Tape(), {value: name for name, value in live.items()})
        action: Host | Read | Control | Turns | None = None
        while remaining and action is None and not self._now.growing:
            try:
                remaining, action = self._advanced(region, scope, remaining)
            except NumbersError as error:
                if any(name not in scope for name in error.names):
                    raise
                action = Read(tuple(error.names))
            if action is None:
                scope.keep(region.needed(remaining))
        if self._now.growing:
            action = Turns(tuple(sorted({grown.counter for grown in self._now.growing})))
        return self._finished(region, scope, remaining, live, action)

    def _advanced(self, region: Region, scope: Scope, remaining: Nodes) -> tuple[Nodes, Host | Control | None]:
        """Record what comes next. Return the nodes that are left, and what Python has to do."""
        following = self.next(region, scope, remaining)
        if isinstance(following, Segment):
            self._segment_run(following, scope)
            return remaining & ~following.nodes, None
        i, left = following, remaining & ~(1 << following)
        if i not in region.children:
            return left, None if self._folded(region, scope, i) else Host(i)
        if i in region.walked or not self._is_taped(region, scope, i, is_top=True):
            return left, Control(i)
        return left, None

    # ---- what goes onto the tape ----

    def _segment_run(self, segment: Segment, scope: Scope) -> None:
        now = self._now
        made: list[Value] = []
        if segment.makes:
            feeds = [now.slot(scope[name]) for name in segment.feeds]
            made = [Value(shape, DTYPES[dtype]) for shape, dtype in segment.outputs]
            now.tape.run(segment, [*feeds, *(now.own(value) for value in made)])
        scoped(segment, scope, made)

    def _folded(self, region: Region, scope: Scope, i: int) -> bool:
        """Compute a hosted operator whose inputs' numbers are known; return whether they are."""
        node = region.nodes[i]
        given = [scope[name] for name in node.input if name and name in scope]
        if not folds(node) or any(value.array is None and value.size for value in given):
            return False
        idle = is_idle(node, scope)
        inputs = [self._numbers(region, scope, name, idle) if name else None for name in node.input]
        steady = is_steady(node, scope)
        for name, array in zip(node.output, self.evaluated(node, inputs), strict=False):
            if name:
                scope.own[name] = known(array, is_settled=True, is_steady=steady)
        return True

    def _numbers(self, region: Region, scope: Scope, name: str, idle: bool) -> Array:
        if name not in scope:
            return constant_array(region.constants[name], idle=idle)
        value = scope[name]
        return np.zeros(value.shape, value.dtype) if value.array is None else value.array

    def _value(self, region: Region, scope: Scope, name: str) -> Value:
        """Return a value by its name; a constant's numbers are read."""
        if name in scope:
            return scope[name]
        return known(constant_array(region.constants[name]), is_settled=True, is_steady=True)

    def _body(self, region: Region, scope: Scope) -> list[Value]:
        """Record all of a body; return its outputs. Raises WalkedError."""
        remaining = region.all
        try:
            while remaining:
                following = self.next(region, scope, remaining)
                if isinstance(following, Segment):
                    self._segment_run(following, scope)
                    remaining &= ~following.nodes
                else:
                    if following in region.children:
                        if following in region.walked or not self._is_taped(region, scope, following, is_top=False):
                            raise WalkedError(region.nodes[following].where)
                    elif not self._folded(region, scope, following):
                        raise WalkedError(region.nodes[following].where)
                    remaining &= ~(1 << following)
                scope.keep(region.needed(remaining))
        except NumbersError as error:
            if any(name in scope.own for name in error.names):
                raise WalkedError(str(error)) from None
            raise
        return [self._value(region, scope, name) for name in region.outputs]

    def _is_taped(self, region: Region, scope: Scope, i: int, is_top: bool) -> bool:
        """Record a control-flow node; return False, and record nothing, if Python must walk it."""
        now, node = self._now, region.nodes[i]
        mark, body = now.tape.mark(), now.tape.body
        before = dict(now.slots), list(now.inputs), list(now.constants), list(now.growing)
        try:
            made = self._control(region, scope, node, region.children[i], is_top)
        except WalkedError:
            region.walked.add(i)
        except NumbersError:
            now.tape.rewind(mark)
            now.tape.body = body
            now.slots, now.inputs, now.constants, now.growing = before
            raise
        else:
            scope.own.update((name, value) for name, value in zip(node.output, made, strict=False) if name)
            return True
        now.tape.rewind(mark)
        now.tape.body = body
        now.slots, now.inputs, now.constants, now.growing = before
        return False

    def _control(
        self, region: Region, scope: Scope, node: ModelNode, bodies: dict[str, Region], is_top: bool
    ) -> list[Value]:
        """Record a node with bodies; return its outputs. Raises WalkedError."""
        if node.op_type == "If":
            check_branches(node, bodies)
            return self._if(self._value(region, scope, node.input[0]), scope, bodies)
        inputs = [self._value(region, scope, name) if name else None for name in node.input]
        if node.op_type == "Loop" and "body" in bodies:
            return self._loop(node, inputs, scope, bodies["body"], is_top)
        if node.op_type == "Scan" and "body" in bodies and self.model.opset >= 9:
            return self._scan(node, inputs, scope, bodies["body"])
        raise WalkedError(node.where)

    # ---- branches ----

    def _if(self, condition: Value, scope: Scope, bodies: dict[str, Region]) -> list[Value]:
        now, tape = self._now, self._now.tape
        _check_truth(condition)
        if condition.array is not None:
            taken = bodies["then_branch" if bool(condition.array.reshape(-1)[0]) else "else_branch"]
            return self._body(taken, Scope({}, scope))
        branch = tape.add("branch", a=now.slot(condition))
        outer = tape.body
        tape.enter()
        results = self._body(bodies["then_branch"], Scope({}, scope))
        made = [Value(value.shape, value.dtype) for value in results]
        places = [now.own(value, body=outer) for value in made]
        self._deliver(results, places)
        jump = tape.add("jump")
        tape.entries[branch].b = len(tape.entries)
        tape.body = outer
        tape.enter()
        others = self._body(bodies["else_branch"], Scope({}, scope))
        if _forms(others) != _forms(results):
            raise WalkedError("the branches make different shapes")
        self._deliver(others, places)
        tape.body = outer
        tape.entries[jump].b = len(tape.entries)
        return [_unless_empty(value) for value in made]

    def _deliver(self, values: Sequence[Value], places: Sequence[int]) -> None:
        for value, place in zip(values, places, strict=True):
            if value.nbytes:
                self._now.tape.deliver(self._now.slot(value), place)

    # ---- loops ----

    def _loop(
        self, node: ModelNode, inputs: list[Value | None], scope: Scope, body: Region, is_top: bool
    ) -> list[Value]:
        now, tape = self._now, self._now.tape
        trips, condition, *given = (*inputs, None, None)[: max(len(inputs), 2)]
        initial = [value for value in given if value is not None]
        ports = [port.name for port in body.graph.inputs]
        scans = len(node.output) - len(initial)
        if (
            len(initial) != len(given)
            or len(ports) != 2 + len(initial)
            or not 0 <= scans < len(body.outputs) - len(initial)
        ):
            raise WalkedError("its inputs are not those of its body")
        limit, limit_slot = _limit(trips, now)
        start = known(TRUE) if condition is None else condition
        _check_truth(start)
        going = tape.slot(1, is_fixed=True)
        tape.add("copy", a=going, b=now.slot(start), n=1)
        turns = _Turns(now, initial, scans)
        turn = tape.add("turn", a=turns.counter, c=going, d=limit_slot, n=limit)
        turns.begin()
        number, again = Value((), NUMBER), Value((), TRUTH)
        tape.add("count", a=turns.counter, b=now.own(number, is_fixed=True))
        now.slots[again] = going
        inner = Scope(dict(zip(ports, (number, again, *turns.inside), strict=True)), scope)
        carried = list(zip(turns.inside, initial, strict=True))
        bound_turns(body, self.model.opset, inner, number, carried, _most(trips, limit))
        results = self._body(body, inner)
        going_on, *results = results[: 1 + len(initial) + scans]
        _check_truth(going_on)
        is_endless = going_on is again or _is_true(going_on)
        is_sure = is_endless and _is_true(start) and limit >= 0
        if scans and not is_sure and not is_top:
            raise WalkedError("nobody knows its turns before")
        if not is_sure and not all(value.nbytes for value in results[len(initial) :]):
            raise WalkedError("nobody knows how many rows without elements it makes")
        made = turns.end(results, limit if is_sure else -1)
        if not is_endless:
            tape.add("copy", a=going, b=now.slot(going_on), n=1)
        turns.close(turn)
        if is_sure:
            tape.entries[turn].c = -1
        else:
            most = number.bounds[0][1] + 1 if number.bounds else None
            stacks = zip(node.output[len(initial) :], made[len(initial) :], strict=True)
            now.growing += [_Growing(*found, turns.counter, most) for found in stacks]
        return made

    def _scan(self, node: ModelNode, inputs: list[Value | None], scope: Scope, body: Region) -> list[Value]:
        now, tape = self._now, self._now.tape
        given = [value for value in inputs if value is not None]
        count = node.attrs.get("num_scan_inputs")
        if not isinstance(count, int) or not 0 < count <= len(given) or len(given) != len(inputs):
            raise WalkedError("its inputs are not those of its body")
        initial, sources = given[:-count], given[-count:]
        outs = len(node.output) - len(initial)
        ports = [port.name for port in body.graph.inputs]
        most = len(body.outputs) - len(initial)
        if len(ports) != len(given) or not 0 <= outs <= most or len({v.shape[:1] for v in sources}) != 1:
            raise WalkedError("its inputs are not those of its body")
        if any(_axes(node, "scan_input_axes")) or any(_axes(node, "scan_output_axes")) or not sources[0].shape:
            raise WalkedError("slices lie across")
        back, back_out = _axes(node, "scan_input_directions"), _axes(node, "scan_output_directions")
        turns = _Turns(now, initial, outs)
        wholes = [now.whole(source) if source.nbytes else -1 for source in sources]
        turn = tape.add("turn", a=turns.counter, c=-1, d=-1, n=sources[0].shape[0])
        turns.begin()
        slices = [Value(source.shape[1:], source.dtype) for source in sources]
        if not all(value.nbytes for value in slices) or min(wholes) < 0:
            raise WalkedError("a slice is empty")
        for i, (value, whole) in enumerate(zip(slices, wholes, strict=True)):
            slot = now.own(value, is_fixed=True)
            tape.slots[slot].row_of = whole
            tape.add("row", a=slot, b=whole, c=turns.counter, d=int(i < len(back) and back[i] > 0), n=value.nbytes)
        inner = Scope(dict(zip(ports, (*turns.inside, *slices), strict=True)), scope)
        pairs = list(zip(turns.inside, initial, strict=True))
        bound_turns(body, self.model.opset, inner, None, pairs, sources[0].shape[0])
        results = self._body(body, inner)
        made = turns.end(results[: len(initial) + outs], sources[0].shape[0], back_out)
        turns.close(turn)
        return made

    # ---- the end of a stretch ----

    def _finished(
        self,
        region: Region,
        scope: Scope,
        remaining: Nodes,
        live: dict[str, Value],
        action: Host | Read | Control | Turns | None,
    ) -> Stretch:
        """Return the stretch: values that are needed after it go to buffers of the caller's."""
        now, tape = self._now, self._now.tape
        stretch = Stretch(region, tape, scope, remaining, action=action)
        acting = region.reads[action.node] if isinstance(action, Host | Control) else set()
        needed = region.needed(remaining)
        made: dict[Value, str] = {}
        growing = {grown.value: grown for grown in now.growing}
        unread = {grown.name: grown.value for grown in now.growing if grown.name not in scope.own}
        for name in sorted({*scope.own, *unread}):
            value = scope.own.get(name) or unread[name]
            if live.get(name) is value or not (name in unread or name in acting or name in needed):
                continue
            if value in now.names:
                stretch.aliases[name] = now.names[value]
            elif value.array is not None:
                stretch.known[name] = value.array
            elif value in made:
                stretch.aliases[name] = made[value]
            else:
                made[value] = name
                shape, stacked = value.shape, growing.get(value)
                more = () if stacked is None else (stacked.counter, stacked.turns_max)
                stretch.outputs.append(Output(name, shape[1:] if more else shape, value.dtype, *more))
        for value in made:
            slot = tape.root(now.slots[value])
            if tape.slots[slot].is_fixed and value not in growing:
                copy = tape.slot(value.nbytes)
                tape.add("copy", a=copy, b=slot, n=value.nbytes)
                now.slots[value] = copy
        stretch.inputs = [name for name, _ in now.inputs]
        stretch.constants = [array for array, _ in now.constants]
        buffers = [slot for _, slot in (*now.inputs, *now.constants)]
        buffers += [tape.root(now.slots[value]) for value in made]
        for number, slot in enumerate(buffers):
            tape.slots[slot].buffer = number
        stretch.dropped = tuple(sorted({*live, *scope.own, *made.values()} - needed))
        return stretch


class _Turns:
    """The turns of a loop on the tape: a counter, carried values in two places each, rows of stacked values."""

    def __init__(self, now: _Session, initial: Sequence[Value], stacks: int) -> None:
        self._now, self._tape, self._stacks = now, now.tape, stacks
        if now.tape.counters >= COUNTERS_MAX:
            raise WalkedError("there are too many loops")
        self.counter = now.tape.counters
        now.tape.counters += 1
        self.inside = [Value(value.shape, value.dtype) for value in initial]
        self._first = [now.own(value, is_fixed=True) for value in self.inside]
        self._second = [self._tape.slot(value.nbytes, is_fixed=True) for value in self.inside]
        for value, place in zip(initial, self._first, strict=True):
            if value.nbytes:
                self._tape.add("copy", a=place, b=now.slot(value), n=value.nbytes)
        self._begin = self._tape.add("begin", a=self.counter)
        self._outer = self._tape.body
        self._rows: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Begin the body: rows of stacked values have their places, of sizes that ``end`` fills in."""
        self._tape.enter()
        for _ in range(self._stacks):
            slot = self._tape.slot(0, is_fixed=True)
            self._rows.append((self._tape.add("row", a=slot, c=self.counter), slot))

    def end(self, results: Sequence[Value], turns: int, back: Sequence[int] = ()) -> list[Value]:
        """End a turn: results go to their places, and the carried ones change places. Return the loop's outputs, whose
        stacked values have ``turns`` rows (-1: as many as there will be).
        """
        now, tape, count = self._now, self._tape, len(self.inside)
        if _forms(self.inside) != _forms(results[:count]):
            raise WalkedError("a carried value changes its shape")
        stacks = []
        for k, ((entry, slot), value) in enumerate(zip(self._rows, results[count:], strict=True)):
            stack = Value((turns, *value.shape), value.dtype)
            whole = tape.slot(max(stack.nbytes, 0), is_fixed=True)
            now.slots[stack] = whole
            tape.slots[whole].body = self._outer
            tape.slots[slot].nbytes, tape.slots[slot].row_of = value.nbytes, whole
            row = tape.entries[entry]
            row.b, row.d, row.n = whole, int(k < len(back) and back[k] > 0), value.nbytes
            stacks.append(stack)
        changed = [i for i, value in enumerate(self.inside) if results[i] is not value and value.nbytes]
        places = [self._second[i] for i in changed] + [slot for _, slot in self._rows]
        for value, place in zip([*(results[i] for i in changed), *results[count:]], places, strict=True):
            if value.nbytes:
                tape.deliver(now.slot(value), place)
        for i in changed:
            tape.add("swap", a=self._first[i], b=self._second[i])
        return [*(_unless_empty(value) for value in self.inside), *(_unless_empty(stack) for stack in stacks)]

    def close(self, turn: int) -> None:
        """End the loop whose turns begin at entry ``turn``."""
        tape = self._tape
        tape.add("next", a=self.counter, b=turn)
        tape.entries[turn].b = len(tape.entries)
        tape.loops.append((self._begin, len(tape.entries) - 1))
        tape.body = self._outer


def _limit(trips: Value | None, now: _Session) -> tuple[int, int]:
    """Return the most turns of a loop (-1: unknown), and the slot that says it (-1: none)."""
    if trips is None:
        return -1, -1
    if trips.size != 1 or trips.dtype.kind not in "iu":
        raise WalkedError("the trip count is not a single integer")
    if trips.array is not None:
        return max(0, int(trips.array.reshape(-1)[0])), -1
    if trips.dtype != NUMBER:
        raise WalkedError("the trip count is not of 64 bits")
    return -1, now.slot(trips)


def _most(trips: Value | None, limit: int) -> int | None:
    """Return the most turns that a trip count says; None: nobody knows."""
    if limit >= 0:
        return limit
    return max(0, trips.bounds[0][1]) if trips is not None and trips.bounds else None


def _forms(values: Sequence[Value]) -> list[tuple[Shape, np.dtype]]:
    return [(value.shape, value.dtype) for value in values]


def _check_truth(value: Value) -> None:
    if value.dtype != TRUTH or value.size != 1:
        raise WalkedError("a condition is not a single boolean")


def _is_true(value: Value) -> bool:
    return value.array is not None and bool(value.array.reshape(-1)[0])


def _axes(node: ModelNode, name: str) -> list[int]:
    value = node.attrs.get(name, [])
    return [v for v in value if isinstance(v, int)] if isinstance(value, list) else []


def _unless_empty(value: Value) -> Value:
    """Return the value; one without elements is known."""
    if not value.size:
        return known(np.zeros(value.shape, value.dtype), is_settled=True)
    return value
