"""Placement of slices that may come early: against an exhaustive definition of the earliest start, on the circle."""

from __future__ import annotations

import random

import numpy as np
import pytest

from flexnn import _core


def _place(steps: int, arena: int, align: int, fixed: np.ndarray, sizes: list[int], use: list[int], forced: list[int]):
    address, waits = np.full(len(sizes), -1, np.int64), np.zeros(len(sizes), np.int64)
    numbers = (np.array(values, np.int64) for values in (sizes, use, forced))
    _core.place_streams(steps, arena, align, fixed, *numbers, address, waits)
    return address.tolist(), waits.tolist()


def _meets(a: tuple[int, int, int, int], b: tuple[int, int, int, int], steps: int) -> bool:
    """Whether (start, end, first, last) overlap in memory and time, in any run."""
    if a[0] >= b[1] or b[0] >= a[1]:
        return False
    return any(a[2] <= b[3] + turn and b[2] + turn <= a[3] for turn in (-2 * steps, -steps, 0, steps, 2 * steps))


def _random_case(rng: random.Random) -> tuple:
    """Fixed blocks that leave room at every step, and slices of which the largest always finds some."""
    steps, align = rng.randint(1, 12), rng.choice((1, 4, 16))
    rows, at = [], 0
    for _ in range(rng.randint(0, 6)):
        size, first = rng.randint(1, 20), rng.randrange(steps)
        rows.append((at, at + size, first, rng.randrange(first, steps)))
        at += rng.choice((0, size))
    rows = [r for i, r in enumerate(rows) if not any(_meets(r, other, steps) for other in rows[:i])]
    arena = max((r[1] for r in rows), default=0) + 3 * 16 + rng.randint(0, 100)
    use = sorted(rng.randrange(steps) for _ in range(rng.randint(0, 8)))
    # One slice at a step, so that each finds room above the fixed blocks.
    use = sorted(set(use))
    sizes = [rng.randint(1, 16) for _ in use]
    fixed = np.array(rows, np.int64).reshape(-1, 4).T.copy()
    return steps, arena, align, fixed, sizes, use


@pytest.mark.parametrize("seed", range(200))
def test_slices_never_meet_what_is_in_use(seed: int) -> None:
    steps, arena, align, fixed, sizes, use = _random_case(random.Random(seed))
    address, waits = _place(steps, arena, align, fixed, sizes, use, [-1] * len(sizes))
    slices = [(a, a + s, w, u) for a, s, w, u in zip(address, sizes, waits, use, strict=True)]
    blocks = [tuple(column) for column in fixed.T.tolist()]
    # What a wait promises holds for the slice and all that come before it: loads have one order.
    started = [(a, e, max([w, *(p[2] for p in slices[:i])]), u) for i, (a, e, w, u) in enumerate(slices)]
    for i, placed in enumerate(started):
        assert placed[0] >= 0
        assert placed[1] <= arena
        assert placed[0] % align == 0
        assert placed[3] - steps < placed[2] <= placed[3]
        assert not any(_meets(placed, block, steps) for block in blocks)
        assert not any(_meets(placed, other, steps) for other in started[:i])


@pytest.mark.parametrize("seed", range(200))
def test_a_single_piece_starts_as_early_as_any_address_allows(seed: int) -> None:
    steps, arena, align, fixed, sizes, use = _random_case(random.Random(seed))
    if not sizes:
        return
    blocks = [tuple(column) for column in fixed.T.tolist()]
    (at,), (wait,) = _place(steps, arena, align, fixed, sizes[:1], use[:1], [-1])
    starts = {}
    for address in range(0, arena - sizes[0] + 1, align):
        start = use[0]
        free = not any(_meets((address, address + sizes[0], start, use[0]), b, steps) for b in blocks)
        while free and start > use[0] + 1 - steps:
            free = not any(_meets((address, address + sizes[0], start - 1, use[0]), b, steps) for b in blocks)
            start -= free
        if start < use[0] or free:
            starts[address] = start
    earliest = min(starts.values(), default=use[0])
    assert wait == earliest
    assert starts.get(at, use[0]) == earliest


def test_a_forced_piece_keeps_its_place() -> None:
    fixed = np.array([[0], [64], [0], [1]], np.int64)
    assert _place(4, 256, 64, fixed, [64, 64], [2, 3], [0, -1]) == ([0, 64], [2, 2])


def test_slices_of_the_head_start_in_the_run_before() -> None:
    fixed = np.array([[0], [64], [2], [2]], np.int64)  # fullest at step 2
    address, waits = _place(4, 192, 64, fixed, [64, 64], [0, 3], [-1, -1])
    assert waits[0] < 0
    assert address[0] != 0 or waits[0] >= 3 - 4


def test_no_room_and_hostile_arguments_are_refused() -> None:
    fixed = np.array([[0], [64], [0], [0]], np.int64)
    with pytest.raises(ValueError, match=r"placement"):
        _place(1, 64, 64, fixed, [64], [0], [-1])
    good = (2, 256, 64, fixed, [64], [0], [-1])
    _place(*good)
    for position, bad in (
        (0, -1), (0, 1 << 40), (1, -1), (1, 32), (1, 1 << 50), (2, 0), (2, 48),
        (3, np.array([[0], [64], [0], [2]], np.int64)), (3, np.array([[64], [0], [0], [0]], np.int64)),
        (3, np.array([[0], [64], [1], [0]], np.int64)), (3, np.array([[-1], [64], [0], [0]], np.int64)),
        (4, [0]), (4, [1 << 50]), (5, [2]), (5, [-1]), (6, [-2]), (6, [255]),
    ):  # fmt: skip
        args = [*good]
        args[position] = bad
        with pytest.raises(ValueError, match=r"placement"):
            _place(*args)
    with pytest.raises(ValueError, match=r"placement"):
        _place(2, 256, 64, fixed, [64, 64], [1, 0], [-1, -1])


def _crowd(rng: random.Random) -> tuple:
    """Many fixed blocks and slices, several at a step, forced ones among them, in an arena that most of them fill."""
    steps, align = rng.randint(20, 120), rng.choice((1, 16))
    ends, rows = [0] * steps, []
    for _ in range(rng.randint(0, 120)):
        first = rng.randrange(steps)
        last = min(first + rng.choice((0, 1, 3, 30)), steps - 1)
        start = max(ends[first : last + 1]) + rng.choice((0, 0, 5, 40))
        rows.append((start, start + rng.randint(1, 60), first, last))
        ends[first : last + 1] = [rows[-1][1]] * (last + 1 - first)
    use = sorted(rng.randrange(steps) for _ in range(rng.randint(1, 80)))
    sizes = [rng.randint(1, 64) for _ in use]
    most = [sum(s + 2 * align for s, u in zip(sizes, use, strict=True) if u == step) for step in range(steps)]
    arena = max(e + m for e, m in zip(ends, most, strict=True)) + rng.choice((0, 100, 2000))
    return steps, arena, align, np.array(rows, np.int64).reshape(-1, 4).T.copy(), sizes, use


@pytest.mark.parametrize("seed", range(300))
def test_rows_and_trees_of_spans_place_alike(seed: int) -> None:
    rng = random.Random(seed)
    steps, arena, align, fixed, sizes, use = _crowd(rng)
    forced = np.array([arena - 64 if rng.random() < 0.02 else -1 for _ in sizes], np.int64)
    found = []
    for is_large in (False, True):
        address, waits = np.full(len(sizes), -1, np.int64), np.zeros(len(sizes), np.int64)
        numbers = np.array(sizes, np.int64), np.array(use, np.int64), forced
        try:
            _core.place_streams(
                steps, arena, align, fixed, *numbers, address, waits, from_top=bool(seed % 2), is_large=is_large
            )
            found.append((address.tolist(), waits.tolist()))
        except ValueError as error:  # a forced place is taken
            found.append((str(error),))
    assert found[0] == found[1]
