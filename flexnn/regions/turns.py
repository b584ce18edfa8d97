"""Turns: bounds of the integers that a loop hands from turn to turn, such as those that count its turns.

The nodes that make them are bound once, for integers anywhere within wide bounds. What grows by the same number each
turn has bounds where it is known how many turns there can be: from the trip count, or from a number that the condition
compares. By induction all bounds hold as long as they are narrower than those that were taken for granted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from flexnn.graph.bind import Binder
from flexnn.graph.element import Bounds, Element, Truth
from flexnn.graph.elements import FOLLOWED
from flexnn.graph.ir import Array, GraphError
from flexnn.quick_dataclass import quick_dataclass

from .region import Region
from .scope import Value
from .segment import KNOWN_MAX, admit_value

NUMBERS_MAX = 8
"""Most integers of a carried value."""
WIDE = 1 << 23
"""Most that a carried integer is taken for at first: float32 has all whole numbers up to its double."""
ROUNDS_MAX = 4
"""Most times that bounds are made narrower by what the bounds before them prove."""
NODES_MAX = 256
"""Most nodes that are looked at."""


@quick_dataclass(slots=True, eq=False)
class _Carried:
    """Integers that a loop hands from turn to turn: ``port`` becomes ``made``."""

    port: str
    made: str
    value: Value
    first: Bounds


def bound_turns(
    body: Region,
    opset: int,
    values: Mapping[str, Value],
    number: Value | None,
    carried: Sequence[tuple[Value, Value]],
    limit: int | None,
) -> None:
    """Give bounds to the number of the turn (None: the loop is a Scan) and to integers that are carried: pairs of the
    value inside and the first one. ``values``: those that the body sees; ``limit``: the most turns, None if unknown.
    """
    ports = [port.name for port in body.graph.inputs][0 if number is None else 2 :]
    outputs = body.outputs[0 if number is None else 1 :]
    followed = []
    for port, made, (value, initial) in zip(ports, outputs, carried, strict=False):
        first = _first(initial)
        is_wide = value.dtype.kind == "i" and value.dtype.itemsize >= 4
        if first is not None and is_wide and 0 < value.size <= NUMBERS_MAX:
            followed.append(_Carried(port, made, value, first))
    if number is not None:
        followed.append(_Carried(body.graph.inputs[0].name, "", number, ((0, 0),)))
    granted = [((-WIDE, WIDE),) * own.value.size for own in followed]
    for _ in range(ROUNDS_MAX + len(followed)):
        bounds, is_exact = _bounded(_Trial(body, opset, values, followed, granted), followed, limit)
        if not all(bounds):  # without those that have none, all begins again
            followed = [own for own, found in zip(followed, bounds, strict=True) if found]
            granted = [((-WIDE, WIDE),) * own.value.size for own in followed]
            continue
        proved = [found for found in bounds if found]
        for own, found in zip(followed, proved, strict=True):
            own.value.bounds = found
        if is_exact or proved == granted:
            return
        granted = proved


def _first(value: Value) -> Bounds | None:
    if value.array is not None and value.dtype.kind == "i" and value.size <= NUMBERS_MAX:
        return tuple([(int(v), int(v)) for v in value.array.reshape(-1)])
    return value.bounds


class _Trial:
    """The nodes that make carried integers and the condition, bound."""

    def __init__(
        self,
        body: Region,
        opset: int,
        values: Mapping[str, Value],
        followed: Sequence[_Carried],
        granted: Sequence[Bounds],
    ) -> None:
        self._binder = binder = Binder(opset)
        binder.constants = body.constants
        wide = {own.port: bounds for own, bounds in zip(followed, granted, strict=True)}
        self.condition = body.outputs[0] if any(not own.made for own in followed) else ""
        for i in _makers(body, {self.condition, *(own.made for own in followed)}):
            with suppress(GraphError):
                for name in body.nodes[i].input:
                    if name and binder.value(name) is None and name in values:
                        self._admit(name, values[name], wide)
                    elif name and binder.value(name) is None and body.nodes[i].op_type == "And":
                        binder.add_input(name, (), "bool")  # whatever else the condition is
                binder.add(body.nodes[i])
        for own in followed:
            if binder.values.get(own.port) is None:
                self._admit(own.port, own.value, wide)

    def _admit(self, name: str, value: Value, wide: Mapping[str, Bounds]) -> None:
        is_known = value.array is not None and value.size <= KNOWN_MAX
        admit_value(self._binder, name, value, is_known and name not in wide)
        if name in wide:
            tensor = self._binder.values[name]
            assert isinstance(tensor, int)
            self._binder.elements.bound(tensor, wide[name])

    def of(self, name: str) -> list[Element | Truth | None]:
        """Return the elements of a value."""
        found: Array | None = self._binder.elements.of(self._binder.value(name)) if name else None
        return [] if found is None else found.reshape(-1).tolist()


def _makers(body: Region, names: set[str]) -> list[int]:
    """Return the nodes that make these values of few integers, in order."""
    wanted, found = set(names), list[int]()
    for i in reversed(range(len(body.nodes))):
        node = body.nodes[i]
        if wanted.intersection(node.output) and node.op_type in FOLLOWED and len(found) < NODES_MAX:
            found.append(i)
            if node.op_type not in ("Shape", "Size"):
                wanted.update(node.input)
    return found[::-1]


def _bounded(trial: _Trial, followed: Sequence[_Carried], limit: int | None) -> tuple[list[Bounds | None], bool]:
    """Return the bounds of each value, None where it has none, and whether all grow by known numbers for a known number
    of turns: these do not depend on the bounds that were taken for granted, so narrower ones prove no more.
    """
    ports = {own.port: [e for e in trial.of(own.port) if isinstance(e, Element)] for own in followed}
    first: dict[int, tuple[int, int]] = {}
    steps: dict[int, int] = {}
    after: dict[int, tuple[int, int]] = {}
    for own in followed:
        made = trial.of(own.made) if own.made else [e.plus(1) for e in ports[own.port]]
        for before, behind, start in zip(ports[own.port], made, own.first, strict=False):
            first[before.base] = start
            if isinstance(behind, Element) and behind.base == before.base:
                steps[before.base] = behind.offset
            elif isinstance(behind, Element):
                after[before.base] = behind.least, behind.most
    limit = _limit(trial.of(trial.condition), first, steps, limit)
    bounds = [
        _all([_range(e.base, first, steps, after, limit) if e.base else (e.least, e.most) for e in ports[own.port]])
        for own in followed
    ]
    return bounds, not after and limit is not None


def _limit(
    condition: Sequence[Element | Truth | None],
    first: Mapping[int, tuple[int, int]],
    steps: Mapping[int, int],
    limit: int | None,
) -> int | None:
    """Return the most turns, of which all but the last leave the condition true."""
    truth = condition[0] if len(condition) == 1 else None
    for base, least, most in truth.bounds if isinstance(truth, Truth) else ():
        step = steps.get(base, 0)
        room = most - first[base][0] if step > 0 and most is not None else None
        room = first[base][1] - least if step < 0 and least is not None else room
        if room is not None:
            turns = max(room // abs(step), -1) + 2
            limit = turns if limit is None else min(limit, turns)
    return limit


def _range(
    base: int,
    first: Mapping[int, tuple[int, int]],
    steps: Mapping[int, int],
    after: Mapping[int, tuple[int, int]],
    limit: int | None,
) -> tuple[int, int] | None:
    """Return the bounds of a number in all turns, None where they are too wide to tell."""
    if base not in first:
        return None
    least, most = first[base]
    if base in after:
        least, most = min(least, after[base][0]), max(most, after[base][1])
    elif base not in steps or (steps[base] and limit is None):
        return None
    elif limit is not None:
        way = steps[base] * max(limit - 1, 0)
        least, most = least + min(way, 0), most + max(way, 0)
    return (least, most) if least >= -WIDE and most <= WIDE else None


def _all(bounds: Sequence[tuple[int, int] | None]) -> Bounds | None:
    found = tuple([pair for pair in bounds if pair is not None])
    return found if found and len(found) == len(bounds) else None
