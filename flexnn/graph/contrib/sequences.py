"""Sequences and optional values, where the model alone says what they hold: nodes read their parts instead.

A sequence that a loop builds, or that a caller hands in or gets, stays unsupported.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .expansion import Expansion, Held, Items, Nothing, Parts, expands, numbers_of


def _held(e: Expansion, index: int = 0) -> Held:
    found = e.shared.sequences.get(e.input(index))
    if found is None:
        raise e.error(f"input {e.input(index)!r} is not a sequence that the model itself builds")
    return found


def _items(e: Expansion) -> tuple[str, ...]:
    held = _held(e)
    if not isinstance(held, Items):
        raise e.error(f"the number of parts of {e.input(0)!r} is not known, which is not supported")
    return held.names


def _position(e: Expansion, index: int, count: int, past: int = 0) -> int:
    """The constant position at an input, counted from the front; ``past``: how far behind the last it may be."""
    numbers = numbers_of(e.constant(index, "its position")).reshape(-1)
    if numbers.size != 1 or not -count <= int(numbers[0]) < count + past:
        raise e.error(f"position {numbers.tolist()} is outside a sequence of {count}")
    return int(numbers[0]) + (count if numbers[0] < 0 else 0)


def _hold(e: Expansion, held: Held) -> None:
    e.shared.sequences[e.output(0)] = held


@expands("SequenceEmpty", domain="")
def sequence_empty(e: Expansion) -> None:
    """Nothing, of a type that does not matter."""
    e.attr("dtype", 1)
    _hold(e, Items(()))


@expands("SequenceConstruct", domain="")
def sequence_construct(e: Expansion) -> None:
    """All inputs, in order."""
    _hold(e, Items(tuple(e.input(i) for i in range(len(e.node.input)))))


@expands("SequenceInsert", domain="")
def sequence_insert(e: Expansion) -> None:
    """A value before a position, by default at the end."""
    names = _items(e)
    place = _position(e, 2, len(names), past=1) if e.optional(2) else len(names)
    _hold(e, Items((*names[:place], e.input(1), *names[place:])))


@expands("SequenceErase", domain="")
def sequence_erase(e: Expansion) -> None:
    """All but one, by default the last."""
    names = _items(e)
    place = _position(e, 1, len(names)) if e.optional(1) else len(names) - 1
    _hold(e, Items((*names[:place], *names[place + 1 :])))


@expands("SplitToSequence", domain="")
def split_to_sequence(e: Expansion) -> None:
    """Parts of one size, or of each a constant size."""
    axis, keeps = e.integer("axis", 0), bool(e.integer("keepdims", 1))
    if not e.optional(1):
        _hold(e, Parts(e.input(0), axis, 1, keeps))
        return
    sizes = numbers_of(e.constant(1, "its sizes"))
    if not sizes.ndim:
        _hold(e, Parts(e.input(0), axis, int(sizes), keeps=True))
        return
    ends = [0, *(int(n) for n in np.cumsum(sizes))]
    names = [_slice(e, e.input(0), start, end, axis) for start, end in pairwise(ends)]
    _hold(e, Items(tuple(names)))


def _slice(e: Expansion, x: str, start: int, end: int, axis: int, output: str = "") -> str:
    return e.add("Slice", x, *(e.array(np.array([v], np.int64)) for v in (start, end, axis)), output=output)


@expands("SequenceAt", domain="")
def sequence_at(e: Expansion) -> None:
    """One value of a sequence; of parts of size one also at a position that is computed."""
    held = _held(e)
    if isinstance(held, Items):
        e.add("Identity", held.names[_position(e, 1, len(held.names))], output=e.output(0))
    elif isinstance(held, Parts) and held.size == 1:
        shape = e.array(np.array([1] if held.keeps else [], np.int64))
        e.add("Gather", held.x, e.add("Reshape", e.input(1), shape), output=e.output(0), axis=held.axis)
    elif isinstance(held, Parts):
        place = int(numbers_of(e.constant(1, "its position")).reshape(()))
        if place < 0:
            raise e.error(f"position {place} among parts whose number is not known is not supported")
        _slice(e, held.x, place * held.size, (place + 1) * held.size, held.axis, e.output(0))
    else:
        raise e.error("its input is an optional value without an element")


@expands("SequenceLength", domain="")
def sequence_length(e: Expansion) -> None:
    """Number of values."""
    held = _held(e)
    if isinstance(held, Items):
        e.add("Identity", e.array(np.array(len(held.names), np.int64)), output=e.output(0))
    elif isinstance(held, Parts):
        count = e.add("Gather", e.add("Shape", held.x), e.array(np.array(held.axis, np.int64)))
        more, size = (e.array(np.array(n, np.int64)) for n in (held.size - 1, held.size))
        e.add("Div", e.add("Add", count, more), size, output=e.output(0))
    else:
        raise e.error("its input is an optional value without an element")


@expands("ConcatFromSequence", domain="")
def concat_from_sequence(e: Expansion) -> None:
    """All values joined along an axis, or stacked along a new one."""
    held, axis, stacks = _held(e), e.integer("axis", 0), bool(e.integer("new_axis", 0))
    if isinstance(held, Parts) and axis == held.axis and stacks != held.keeps:
        e.add("Identity", held.x, output=e.output(0))
        return
    names = list(_items(e))
    if stacks:
        names = [e.unsqueezed(name, axis) for name in names]
    e.add("Concat", *names, output=e.output(0), axis=axis)


@expands("Optional", domain="")
def optional(e: Expansion) -> None:
    """The input, or nothing."""
    e.attr("type", "")
    name = e.optional(0)
    held = e.shared.sequences.get(name) if name else Nothing()
    if held is not None:
        _hold(e, held)
    else:
        e.add("Identity", name, output=e.output(0))


@expands("OptionalHasElement", domain="")
def optional_has_element(e: Expansion) -> None:
    """Whether there is something: the model says."""
    name = e.optional(0)
    has = bool(name) and not isinstance(e.shared.sequences.get(name), Nothing)
    e.add("Identity", e.array(np.array(has, np.bool_)), output=e.output(0))


@expands("OptionalGetElement", domain="")
def optional_get_element(e: Expansion) -> None:
    """The element."""
    held = e.shared.sequences.get(e.input(0))
    if isinstance(held, Nothing):
        raise e.error(f"the optional value {e.input(0)!r} has no element")
    if held is not None:
        _hold(e, held)
    else:
        e.add("Identity", e.input(0), output=e.output(0))
