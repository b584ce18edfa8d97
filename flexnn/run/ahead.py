"""Looking ahead where a run of a model with open shapes is refused: the smallest budget that all of it needs.

The run is walked over shapes alone. What it found before it was refused is taken as it was; what data decide after that
is as large as it can be (flexnn/regions/ranges.py), and where nobody can know, a guess. Nothing runs, and each stretch
is forgotten when its bytes are known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from flexnn.graph.evaluate import MemoryNeededError
from flexnn.graph.ir import DTYPES, Array, GraphError
from flexnn.graph.model import ModelNode
from flexnn.quick_dataclass import quick_dataclass
from flexnn.regions import Control, Output, Read, Region, Stretch
from flexnn.regions.control import carried_count
from flexnn.regions.ranges import Ranges

from .engine import SessionError
from .growing import GUESS
from .needs import alone_bytes, live_bytes, without_programs
from .open_shapes import OpenShapesRun
from .recording import ready
from .repeats import Found
from .segments import BoundSegments

TURNS_MAX = 256
"""Most turns of a loop that are walked one by one."""
MOST = 1 << 31
"""Numbers above this are no sizes that a run makes, but stand for endless ones."""
LOADED_BYTES_MAX = 1 << 20
"""Most bytes of a constant whose numbers are looked at."""

GUESSED_BYTES = 1 << 30
"""Bytes from which zeros that the system has no room for say that a guess is too large, not that memory is out."""
NO_MEMORY = "the system has no memory to find the smallest budget of this run"


class Absent(np.ndarray[Any, np.dtype[Any]]):
    """An array whose numbers nobody knows. It takes no memory."""


def absent(shape: Sequence[int], dtype: np.dtype) -> Array:
    """Return an array of which only the shape matters. Raises GraphError for more bytes than there are addresses."""
    try:
        return np.broadcast_to(np.zeros((), dtype).view(Absent), tuple(shape), subok=True)
    except ValueError:
        raise GraphError(f"an array of shape {list(shape)} is too large") from None


@quick_dataclass(slots=True)
class Tally:
    """Bytes that the parts of a run need, each with nothing else open."""

    segments: BoundSegments
    times: int
    """Sets of outputs that there are: those of this run, and those that the caller holds of the one before."""
    needed: int = 0
    once: int = 0
    """Bytes that a part needs beside one set of outputs only."""
    held_bytes: int = 0
    """Bytes of values outside the region that is walked (Needs.held_bytes)."""
    _sizes: dict[Stretch, tuple[int, int]] = field(default_factory=dict)
    """Bytes that stretches need, live values not counted, and how many of them the caller holds."""

    def meet(self, stretch: Stretch, live: Mapping[str, Array], stacks_bytes: int) -> None:
        """Count a stretch beside live values, and stacks that grow while it runs."""
        sizes = self._sizes.get(stretch)
        if sizes is None:
            bound, parts = self.segments, stretch.tape.segments
            try:
                found = ready(stretch, [bound.of(part) for part in parts])
                found.values_bytes = self.times * found.output_bytes
                sizes = self._sizes[stretch] = alone_bytes(bound, found), (self.times - 1) * found.output_bytes
            finally:  # no stretch of the session has them, so nothing else would forget them
                for part in parts:
                    bound.pop(part)
            parts.clear()
        beside = self.held_bytes + live_bytes(live) + sizes[0]
        self.needed = max(self.needed, beside + (1 if stretch.region.path else 2) * stacks_bytes)
        self.once = max(self.once, beside - sizes[1] + stacks_bytes)

    def give(self, nbytes: int) -> None:
        """Count the outputs of the run, which the caller may hold while the next one runs."""
        self.needed = max(self.needed, self.once + (self.times - 1) * nbytes)

    def hold(self, nbytes: int, live_bytes: int) -> None:
        """Count values that are made outside the arena, beside live ones."""
        needed = self.held_bytes + live_bytes + nbytes + without_programs(self.segments)
        self.needed, self.once = max(self.needed, needed), max(self.once, needed)


class Ahead(OpenShapesRun):
    """A run that only counts."""

    def __init__(self, run: OpenShapesRun, inputs: Sequence[Array]) -> None:
        self.inputs, self.outputs = run.inputs, run.outputs
        self._recorder = run.new_recorder()
        self._recorder.templates = None
        self._root = self._recorder.region
        self._first = OrderedDict()
        self._hosted = {}
        self.tally = Tally(run.stretches.segments, run.output_sets)
        self._hold = self.tally.hold
        self._findings = iter(run.found)
        self.told = next(self._findings, None)
        """Finding of the run at this point; None: it had been refused."""
        self._inputs = dict(zip([port.name for port in self.inputs], inputs, strict=True))
        self._ranges = Ranges(self._root, self._recorder.model.opset, self._inputs)
        self._seen = max([GUESS, *(d for array in inputs for d in array.shape)])
        """The largest dimension so far that nobody guessed."""

    def needed(self) -> int:
        """Return the smallest budget of the run, as far as it can be walked. Raises SessionError if memory is out."""
        try:
            shapes = tuple([array.shape for array in self._inputs.values()])
            outputs = self._walk(self._root, dict(self._inputs), shapes)
            self.tally.give(sum(array.nbytes for array in outputs))
        except MemoryError:
            raise SessionError(NO_MEMORY) from None
        except (GraphError, RecursionError) as error:  # shapes that are too large need not fit together
            if isinstance(error.__context__, MemoryError):  # what numpy could not take
                raise SessionError(NO_MEMORY) from None
        return self.tally.needed

    # ---- what the run found before it was refused ----

    def take(self) -> Found | None:
        """Return what the run found here, or None where it had been refused."""
        found, self.told = self.told, next(self._findings, None)
        return found

    def _keep(self, found: Found) -> None:
        """Nothing is kept: it was told, or is made up."""

    def _forget(self, stretch: Stretch) -> None:
        """Forget what follows a stretch; there is nothing of it in the engine."""
        stretch.following.clear()

    # ---- parts of a run ----

    def _run(self, stretch: Stretch, live: dict[str, Array]) -> None:
        """Count a stretch; put what it would make among the live values."""
        for segment in stretch.tape.segments:
            self._ranges.meet(segment)
        self._note(stretch.region, live)
        made: dict[str, Array] = {}
        stacks = 0
        growing = [output for output in stretch.outputs if output.counter >= 0]
        known = self.told if growing and isinstance(self.told, tuple) else None
        for output in stretch.outputs:
            shape = output.shape
            if output.counter >= 0:
                if known is not None:
                    shape = known[growing.index(output)][0]
                else:
                    shape = (self._turns(stretch.region, output), *shape)
                stacks += prod(shape) * output.dtype.itemsize
            made[output.name] = absent(shape, output.dtype)
        self.tally.meet(stretch, live, stacks)
        live.update(made)
        self._note(stretch.region, live)

    def _note(self, region: Region, live: Mapping[str, Array]) -> None:
        for name, array in live.items():
            self._ranges.note(region, name, array.shape, None if isinstance(array, Absent) else array)

    def _turns(self, region: Region, output: Output) -> int:
        """Return the most turns of the loop that stacks a value."""
        i = next(i for i in region.children if output.name in region.nodes[i].output)
        known = [turns for turns in (self._ranges.turns(region, i), output.turns_max) if turns is not None]
        turns = min(known, default=MOST + 1)
        return GUESS * self._seen if turns > MOST else turns

    def _act(self, stretch: Stretch, live: dict[str, Array]) -> Found:
        """Do what comes after a stretch, on shapes."""
        action, region = stretch.action, stretch.region
        for name in stretch.known:
            self._ranges.note(region, name, live[name].shape, live[name])
        if isinstance(action, Read):
            told = self.take()
            for number, name in enumerate(action.names):
                if told is not None:
                    array, numbers = live[name], told[number]
                    if not isinstance(numbers, bytes):
                        raise GraphError("the run went another way")
                    live[name] = np.frombuffer(numbers, array.dtype).reshape(array.shape)
                elif isinstance(live[name], Absent):
                    live[name] = self._numbers(region, name, live[name])
                self._ranges.note(region, name, live[name].shape, live[name])
            return tuple([live[name].tobytes() for name in action.names])
        found = super()._act(stretch, live)
        told = self.take()
        if isinstance(told, tuple):
            node = region.nodes[action.node] if action is not None and hasattr(action, "node") else None
            names = [name for name in node.output if name in live] if node else []
            for name, (shape, _) in zip(names, told, strict=False):
                if live[name].shape != shape:
                    live[name] = absent(shape, live[name].dtype)
            found = told
        self._note(region, live)
        return found

    def _numbers(self, region: Region, name: str, array: Array) -> Array:
        """Return the most that numbers can be which only the data know, or a guess."""
        most = self._ranges.most(region, name)
        if array.dtype == np.bool_:
            return np.ones(array.shape, np.bool_)
        if most is None or (most > MOST).any():
            return np.full(array.shape, GUESS * self._seen if array.dtype.kind in "iu" else 1).astype(array.dtype)
        self._ranges.doubt(region, name)
        return np.array(most).astype(array.dtype)

    # ---- operators that numpy computes ----

    def _host(self, region: Region, node: ModelNode, live: Mapping[str, Array]) -> list[Array]:
        """Count a node that numpy computes; return its outputs."""
        inputs = [self._input(region, live, name) if name else None for name in node.input]
        try:
            self._recorder.evaluated(node, inputs, -1)
        except MemoryNeededError as error:
            self.tally.hold(error.needed, live_bytes(live))
            if len(error.made) >= len(node.output):
                return [absent(shape, dtype) for shape, dtype in error.made]
            if error.made or error.needed > LOADED_BYTES_MAX:
                raise GraphError(f"{node.where}: its outputs are not known before") from None
        known = not any(isinstance(live.get(name), Absent) for name in node.input)
        made = self._recorder.evaluated(node, inputs, None)
        return made if known else [absent(array.shape, array.dtype) for array in made]

    def _input(self, region: Region, live: Mapping[str, Array], name: str) -> Array:
        """Return an input: its numbers where they are known, else the most of few integers, else zeros, which take no
        memory before they are written.
        """
        array = live.get(name)
        if array is None:
            constant = region.constants[name]
            if prod(constant.shape) <= LOADED_BYTES_MAX >> 3:
                return self._array(region, live, name)
            array = self._array(region, live, name, idle=True)
        if not isinstance(array, Absent) and array.flags.c_contiguous:
            return array
        if array.dtype.kind in "iu" and array.size <= TURNS_MAX:
            most = self._ranges.most(region, name)
            if most is not None:
                return np.array(most).astype(array.dtype)
        return _zeros(array)

    # ---- bodies that Python walks ----

    def _control(self, stretch: Stretch, live: Mapping[str, Array]) -> list[Array]:
        """Return the outputs of a node with bodies, as large as they can be."""
        assert isinstance(stretch.action, Control)
        region, i = stretch.region, stretch.action.node
        node, bodies = region.nodes[i], region.children[i]
        held = self.tally.held_bytes
        self.tally.held_bytes += live_bytes(live)
        try:
            if node.op_type == "If":
                return self._branches(node, bodies, live)
            inputs = [self._array(region, live, name) if name else None for name in node.input]
            most = self._ranges.turns(region, i) if node.op_type == "Loop" else None
            return _Turns(self, node, bodies["body"], live, inputs).walked(most if (most or 0) <= MOST else None)
        finally:
            self.tally.held_bytes = held

    def _branches(self, node: ModelNode, bodies: Mapping[str, Region], live: Mapping[str, Array]) -> list[Array]:
        """Return the outputs of the branch that was taken, or the larger ones of both."""
        if isinstance(self.told, str):
            path = str(self.take())
            taken = [name for name, body in bodies.items() if body.path == path]
        else:
            condition = live.get(node.input[0])
            taken = ["then_branch", "else_branch"]
            if condition is not None and not isinstance(condition, Absent):
                taken = [taken[not condition.reshape(-1)[0]]]
        made = [self.walked(bodies[name], {}, live) for name in taken]
        return [larger(arrays) for arrays in zip(*made, strict=True)] if len(made) > 1 else made[0]

    def walked(self, body: Region, values: Mapping[str, Array], live: Mapping[str, Array]) -> list[Array]:
        """Return the outputs of a body."""
        inner = {name: live[name] for name in sorted(body.needed(body.all)) if name in live} | dict(values)
        self._note(body, inner)
        shapes = tuple([(name, array.dtype.num, array.shape) for name, array in inner.items()])
        return self._walk(body, inner, shapes)


class _Turns:
    """The turns of a Loop or Scan that Python walks, on shapes."""

    def __init__(
        self, ahead: Ahead, node: ModelNode, body: Region, live: Mapping[str, Array], inputs: Sequence[Array | None]
    ) -> None:
        self._ahead, self._node, self._body, self._live = ahead, node, body, live
        self._ports = [port.name for port in body.graph.inputs]
        self._carried = carried_count(node) - (node.op_type == "Loop")
        self._slices: list[Array] = []
        self._limit: int | None = None
        """Most turns, None if nobody knows."""
        self._is_begun = True
        if node.op_type == "Loop":
            trips, condition, *values = (*inputs, None, None)[: max(len(inputs), 2)]
            if trips is not None and not isinstance(trips, Absent):
                self._limit = max(0, int(trips.reshape(-1)[0]))
            self._is_begun = condition is None or isinstance(condition, Absent) or bool(condition.reshape(-1)[0])
        else:
            values = list(inputs)
            sources = [array for array in values[self._carried :] if array is not None]
            axes = axes_of(node, "scan_input_axes") or [0] * len(sources)
            moved = [np.moveaxis(source, axis, 0) for source, axis in zip(sources, axes, strict=True)]
            self._limit = len(moved[0])
            self._slices = [absent(source.shape[1:], source.dtype) for source in moved]
        self._values = [array for array in values[: self._carried] if array is not None]
        self._row_bytes = 0

    def walked(self, most: int | None) -> list[Array]:
        """Return the outputs after at most ``most`` turns (None: nobody knows how many)."""
        limit = most if self._limit is None or self._limit > MOST else self._limit
        largest, rows, turns = self._values, list[Array](), 0
        while self._is_begun and (limit is None or turns < limit) and not isinstance(self._ahead.told, tuple):
            before = self._values
            going, rows = self._turn(turns)
            turns += 1
            if not isinstance(going, Absent) and not going.reshape(-1)[0]:
                break
            largest = [larger(pair) for pair in zip(largest, self._values, strict=True)]
            if self._ahead.told is None and [a.shape for a in before] == [a.shape for a in self._values]:
                turns = self._rest(turns, limit)
                break
            if self._ahead.told is None and turns >= TURNS_MAX:
                break
        if not rows and len(self._node.output) > self._carried:
            rows = self._rows()
        return [*largest, *(self._stack(k, turns, row) for k, row in enumerate(rows))]

    def _turn(self, turn: int) -> tuple[Array, list[Array]]:
        """Walk a turn; return whether another one follows, and the rows that are stacked."""
        ahead = self._ahead
        if isinstance(ahead.told, str):
            ahead.take()
        given = [np.array(turn, np.int64), np.array(True)] if self._node.op_type == "Loop" else []
        ports = dict(zip(self._ports, [*given, *self._values, *self._slices], strict=True))
        results = ahead.walked(self._body, ports, self._live)
        going, results = (results[0], results[1:]) if given else (np.array(True), results)
        self._values = [absent(array.shape, array.dtype) for array in results[: self._carried]]
        rows = results[self._carried : len(self._node.output)]
        self._row_bytes = 2 * sum(array.nbytes for array in results[self._carried :])  # when they are stacked, too
        ahead.tally.hold(self._row_bytes, 0)
        ahead.tally.held_bytes += self._row_bytes
        return going, rows

    def _rows(self) -> list[Array]:
        """Return the rows of a loop without turns."""
        if not isinstance(self._ahead.told, tuple):
            return self._turn(0)[1]
        ports = self._body.graph.outputs[-(len(self._node.output) - self._carried) :]  # it knew them
        return [absent([d if isinstance(d, int) else 0 for d in p.dims or ()], DTYPES[str(p.dtype)]) for p in ports]

    def _rest(self, turns: int, limit: int | None) -> int:
        """Count the turns after ``turns``, which are all alike, and the last of them; return how many there are."""
        total = GUESS * max(turns, GUESS) if limit is None else limit
        if self._row_bytes and total > turns:
            self._ahead.tally.held_bytes += self._row_bytes * (total - turns - 1)
            self._turn(total - 1)
        return total

    def _stack(self, k: int, turns: int, row: Array) -> Array:
        axes = axes_of(self._node, "scan_output_axes")
        axis = axes[k] % (row.ndim + 1) if k < len(axes) else 0
        return absent((*row.shape[:axis], turns, *row.shape[axis:]), row.dtype)


def _zeros(array: Array) -> Array:
    """Return zeros of an array's shape. Raises GraphError where no system has room for a guess, MemoryError."""
    try:
        return np.zeros(array.shape, array.dtype)
    except (MemoryError, ValueError):
        if array.nbytes < GUESSED_BYTES:
            raise
    raise GraphError("a guess is larger than memory")


def axes_of(node: ModelNode, name: str) -> list[int]:
    """Return an attribute that is a list of axes."""
    value = node.attrs.get(name, [])
    return [v for v in value if isinstance(v, int)] if isinstance(value, list) else []


def larger(arrays: Sequence[Array]) -> Array:
    """Return an array as large as each of these."""
    largest = max(arrays, key=lambda array: array.nbytes)
    if any(array.ndim != largest.ndim for array in arrays):
        return absent(largest.shape, largest.dtype)
    return absent([max(dims) for dims in zip(*(array.shape for array in arrays), strict=True)], largest.dtype)


def smallest_budget(run: OpenShapesRun, inputs: Sequence[Array]) -> int:
    """Return the smallest budget that a refused run needs, as far as it can be known."""
    return Ahead(run, inputs).needed()
