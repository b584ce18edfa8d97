"""Arithmetic on shapes and strides: what is contiguous, which dimensions collapse, which reshapes are views."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from .ir import Shape, contiguous_strides

DIMS = 6
"""FX_DIMS of the C core."""

ROW_ELEMENTS_MIN = 512
"""Rows shorter than this are not kept apart when dimensions collapse."""


Equal = Callable[[int, int], bool]
"""Function that says whether two sizes are the same."""


def same(a: int, b: int, *, matters: bool = False) -> bool:
    """Return whether two sizes are the same, where what follows if they are not serves equal ones as well: of a
    template, only that they are is a condition. ``matters``: something better could follow.
    """
    if type(a) is type(b) is int:
        return a == b
    from .sizes import is_same  # only where shapes are open

    return is_same(a, b, matters=matters)


def alike(a: int, b: int) -> bool:
    """Return whether two sizes are the same, as ``same`` does where something better follows if they are."""
    return same(a, b, matters=True)


def same_shape(a: Shape, b: Shape) -> bool:
    """Return whether two shapes are the same, where what follows if they are not serves equal ones as well."""
    return len(a) == len(b) and all(map(alike, a, b))


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    """Row-major without gaps; strides of dimensions of size 1 do not matter."""
    expected = contiguous_strides(shape)
    return all(alike(s, e) or alike(d, 1) for d, s, e in zip(shape, strides, expected, strict=True))


def fits_inner(shape: Shape, strides: Shape) -> bool:
    """Whether the innermost dimension is contiguous."""
    return not shape or alike(strides[-1], 1) or alike(shape[-1], 1)


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """Numpy's broadcast shape, or None."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    found = []
    for x, y in zip(a, b, strict=True):
        both, other = (x, y) if type(y) is int else (y, x)  # a size says nothing where the other one is 1 always
        if not same(x, y) and other != 1:
            if both != 1:
                return None
            both = other
        found.append(both)
    return tuple(found)


def has_rows(shape: Shape, strides: Shape) -> bool:
    """Whether one stride walks all dimensions but the last, and the last has stride 1."""
    return merge_rows(shape, strides) is not None


def merge_rows(shape: Shape, strides: Shape) -> int | None:
    """The one stride that walks all dimensions but the last, if there is one and the last has stride 1."""
    if not shape or not fits_inner(shape, strides):
        return None
    groups = merge_groups(shape[:-1], (strides,), equal=alike)
    if len(groups) > 1:
        return None
    return strides[groups[0][-1]] if groups else shape[-1]


def merge_groups(
    shape: Shape,
    operands: Sequence[Sequence[int]],
    alone: Sequence[bool] = (),
    first: int = 0,
    equal: Equal = operator.eq,
) -> list[list[int]]:
    """Dimensions from ``first`` on in runs that every operand walks as one. Dimensions of size 1 are in no run;
    dimensions marked ``alone`` (of any size) are runs by themselves. ``equal``: ``same`` or ``alike`` where more runs
    are right, too.
    """
    groups: list[list[int]] = []
    for i in range(first, len(shape)):
        apart = bool(alone) and alone[i]
        if not apart and equal(shape[i], 1):
            continue
        last = groups[-1][-1] if groups else -1
        joins = last >= 0 and not apart and not (alone and alone[last])
        if joins and all(equal(o[last], o[i] * shape[i]) for o in operands):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


class Collapsed(NamedTuple):
    """Runs of dimensions that are walked as one, in ``rank`` places; an empty run is a dimension of size 1."""

    groups: list[list[int]]
    other: list[list[int]] | None = None
    """Runs that are right instead where ``is_other`` is 1, which a size may decide (graph/sizes.py)."""
    is_other: int = 0

    def _numbers(self, of: Callable[[list[int]], int]) -> list[int]:
        own = [of(group) for group in self.groups]
        if self.other is None:
            return own
        return [a + self.is_other * (of(group) - a) for a, group in zip(own, self.other, strict=True)]

    def sizes(self, shape: Sequence[int]) -> list[int]:
        """Elements of each run."""
        return self._numbers(lambda group: prod(shape[i] for i in group))

    def strides(self, strides: Sequence[int]) -> list[int]:
        """The stride that walks each run; 0 for an empty one."""
        return self._numbers(lambda group: strides[group[-1]] if group else 0)

    def sums(self, numbers: Sequence[int]) -> list[int]:
        """Return the sums of ``numbers`` (pads) over collapsed dimensions; only dimensions left alone have any."""
        return self._numbers(lambda group: sum(numbers[i] for i in group))


def collapse(
    shape: Shape,
    operands: Sequence[Sequence[int]],
    *,
    rank: int = DIMS,
    rows: bool = True,
    alone: Sequence[bool] = (),
    equal: Equal = operator.eq,
) -> Collapsed | None:
    """The dimensions of ``shape`` in exactly ``rank`` runs, right-aligned, or None where they do not collapse so far.

    With ``rows``, place 0 is for the rows, unless they are short: the outermost dimension; of [n,h,w,c] n and h where
    they are one run. ``equal``: as for ``merge_groups``.
    """
    outer = _outer(shape, equal) if rows else 0
    inner: Any = prod(shape[outer:]) if outer else 0
    if type(inner) is not int:
        runs, other = (_runs(shape, operands, (rank, n), alone, equal) for n in (outer, 0))
        if runs is None or other is None:
            return None
        return Collapsed(runs, other, inner.below(ROW_ELEMENTS_MIN)) if runs != other else Collapsed(runs)
    runs = _runs(shape, operands, (rank, outer if inner >= ROW_ELEMENTS_MIN else 0), alone, equal)
    return None if runs is None else Collapsed(runs)


def _runs(
    shape: Shape, operands: Sequence[Sequence[int]], places: tuple[int, int], alone: Sequence[bool], equal: Equal
) -> list[list[int]] | None:
    """Return the runs; ``places``: how many, and how many leading dimensions are the rows, where that is possible."""
    rank, outer = places
    head = merge_groups(shape[:outer], operands, alone[:outer], equal=equal)
    tail = merge_groups(shape, operands, alone, outer, equal)
    if len(head) + len(tail) > rank:
        head, tail = [], merge_groups(shape, operands, alone, equal=equal)
    if len(tail) > rank - len(head):
        return None
    empty: list[list[int]] = [[] for _ in range(rank - len(head) - len(tail))]
    return head + empty + tail


def _outer(shape: Shape, equal: Equal) -> int:
    """Return the number of leading dimensions that make the rows."""
    if len(shape) == 4:
        return 2
    for i, d in enumerate(shape[:-1]):
        if not equal(d, 1):
            return i + 1
    return 0


def reshape_strides(shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides of ``target``, a reshape of the strided box, when it is a view; else None."""
    if prod(shape) != prod(target):
        return None
    if is_contiguous(shape, strides):
        return contiguous_strides(target)
    groups = merge_groups(shape, (strides,), equal=alike)
    left, step = 1, 1
    result = [0] * len(target)
    for j in range(len(target) - 1, -1, -1):
        if same(left, 1) and not same(target[j], 1):
            group = groups.pop()
            left, step = prod(shape[i] for i in group), strides[group[-1]]
        result[j] = step
        if left % target[j]:
            return None
        left //= target[j]
        step *= target[j]
    return tuple(result)
