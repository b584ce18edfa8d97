"""Sizes that stand for other sizes: what is computed and decided is done again, and nothing is seen past that."""

from __future__ import annotations

import operator
import struct
from math import prod
from typing import Any

import numpy as np
import pytest

from flexnn import _core
from flexnn.graph.sizes import SizeError, Trail, is_same, is_size, least, most, preferring


def test_what_was_computed_is_computed_again() -> None:
    trail = Trail()
    height, width = trail.given(7), trail.given(12)
    results = [
        height + 3,
        3 - height,
        2 * height * width,
        prod((height, width, 4)),
        sum([height, width]),
        (width + 1) // 2 % 5,
        -(-width // 5),
        abs(height - width),
        max(height, width, 5),
        round_half(width * 1.5),
    ]
    indices = [trail.index(result) for result in results]
    replay = trail.replay()
    for h, w in ((7, 12), (9, 20), (1, 30)):
        values = replay.at((h, w))
        assert values is not None
        wanted = [h + 3, 3 - h, 2 * h * w, h * w * 4, h + w, (w + 1) // 2 % 5, -(-w // 5), abs(h - w), max(h, w, 5)]
        assert [values[i] for i in indices] == [*wanted, round_half(w * 1.5)]
    assert replay.at((20, 7)) is None  # the larger one was the second


def test_the_least_of_sizes_is_no_condition() -> None:
    trail = Trail()
    height, width = trail.given(7), trail.given(12)
    single = (height * 0.1).as_single()
    results = [
        least(height, width),
        most(height, width),
        least(width, 9),
        most(9, width),
        least(height, height),
        most(single, 1.5),
    ]
    indices = [trail.index(result) for result in results]
    replay = trail.replay()
    assert not len(replay.conditions)
    for h, w in ((7, 12), (12, 7), (9, 9), (30, 1)):
        values = replay.at((h, w))
        assert values is not None
        wanted = [min(h, w), max(h, w), min(w, 9), max(9, w), h, max(float(np.float32(0.1 * h)), 1.5)]
        assert [values[i] for i in indices] == wanted


def test_only_that_sizes_are_the_same_is_a_condition() -> None:
    trail = Trail()
    a, b, c = trail.given(7), trail.given(12), trail.given(7)
    assert not is_same(a, b)
    assert not trail.conditions
    assert is_same(a, c)
    assert is_same(3, 3)
    assert trail.conditions == {(operator.eq, a.index, c.index): True}


def round_half(value: float) -> int:
    return (value + 0.5).__floor__()


@pytest.mark.parametrize(
    "look",
    [
        int,
        float,
        str,
        repr,
        hash,
        range,
        bytes,
        lambda n: f"{n:04d}",
        lambda n: [1] * n,
        lambda n: "abcdefgh"[n],
        lambda n: (1, 2, 3, 4, 5, 6)[:n],
        lambda n: {n: 1},
        lambda n: np.array([n], np.int64),
        lambda n: np.zeros(n),
        lambda n: np.broadcast_to(np.zeros(1), (n,)),
        lambda n: np.arange(9)[n],
        lambda n: struct.pack("i", n),
        lambda n: float(n) > 2**0.5,
    ],
)
def test_whatever_looks_at_a_number_makes_it_a_condition(look: object) -> None:
    trail = Trail()
    size = trail.given(4)
    assert callable(look)
    look(size + 1)
    replay = trail.replay()
    assert replay.at((4,)) is not None
    assert replay.at((5,)) is None


def test_comparisons_are_conditions() -> None:
    trail = Trail()
    a, b = trail.given(4), trail.given(4)
    assert a == b
    assert a != 3
    assert (a, 1) == (b, 1)
    assert not a > 8
    assert bool(a)
    assert a is not b
    replay = trail.replay()
    assert replay.at((6, 6)) is not None
    assert replay.at((6, 5)) is None
    assert replay.at((3, 3)) is None
    assert replay.at((9, 9)) is None
    assert replay.at((0, 0)) is None


def test_division_by_what_became_zero_is_refused() -> None:
    trail = Trail()
    assert is_size(12 // trail.given(4))
    assert trail.replay().at((0,)) is None


def test_a_size_means_nothing_after_its_trail() -> None:
    trail, other = Trail(), Trail()
    size = trail.given(4)
    with pytest.raises(SizeError, match="two trails"):
        size + other.given(4)
    trail.replay()
    with pytest.raises(SizeError, match="closed"):
        int(size)


def test_random_trails_give_what_python_computes() -> None:
    rng, same = np.random.default_rng(0), 0
    for _ in range(40):
        trail = Trail()
        given = [trail.given(int(v)) for v in rng.integers(1, 90, 3)]
        chosen = rng.integers(0, 1 << 30, (25, 3)).tolist()
        made = computed(chosen, given)
        indices = [trail.index(value) for value in made]
        replay = trail.replay()
        for _ in range(20):
            numbers = [int(v) for v in rng.integers(0, 90, 3)]
            values = replay.at(numbers)
            if values is not None:
                wanted = computed(chosen, numbers)
                own = [values[i] for i in indices]
                assert own == wanted
                assert list(map(type, own)) == list(map(type, wanted))
                same += 1
    assert same > 40


def computed(chosen: list[list[int]], given: list[Any]) -> list[Any]:
    """Numbers made of others: integers and floats of every function that a trail knows."""
    values, floats = list(given), [given[0] * 0.37]
    for what, first, second in chosen:
        a, b = values[first % len(values)], values[second % len(values)]
        x, y = floats[first % len(floats)], floats[second % len(floats)]
        kind = what % 9
        if kind == 3 and b != 0:
            values.append(a // b)
        elif kind == 4 and b != 0:
            values += [a % b, -a % b]
        elif kind == 5 and b != 0:
            floats.append(a / b)
        elif kind == 6 and abs(x) < 1e9:
            values += [x.__floor__(), x.__ceil__()]
        elif kind == 7:
            floats.append(x.as_single() if is_size(x) else float(np.float32(x)))
            values.append(a.below(7) if is_size(a) else int(a < 7))
        elif kind == 8:
            floats += [x + b, x - y if a < b else x * 1.5]
        elif abs(a) < 1 << 20 and abs(b) < 1 << 20:
            values.append((a + b, a - b, a * b)[kind % 3])
    return [*values, *floats]


def test_numbers_that_64_bits_do_not_hold_are_refused() -> None:
    trail = Trail()
    size = trail.given(3)
    assert is_size(size * (1 << 62) // (1 << 61))
    with pytest.raises(SizeError, match="too large"):
        (trail.computed(operator.mul, size, 1 << 70), trail.replay())
    trail = Trail()
    size = trail.given(3)
    is_size(size * (1 << 61))
    replay = trail.replay()
    assert replay.at((3,)) is not None
    assert replay.at((4,)) is None
    assert replay.at((1 << 80,)) is None


ROWS = [(13, 0, 1, 2), (-1, 0, 1, 2), (1 << 10, 0, 1, 2), (0, 3, 1, 2), (0, 0, -1, 2), (0, 0, 1, 3), (10, 0, 1, 2)]


@pytest.mark.parametrize("row", ROWS)
def test_rows_out_of_range_are_refused(row: tuple[int, int, int, int]) -> None:
    none, values, rows = np.zeros((0, 4), np.int32), np.zeros(3, np.int64), np.array([row], np.int32)
    for operations, conditions in ((rows, none), (none, rows)):
        with pytest.raises(ValueError, match="out of its range"):
            _core.trail_replay(operations, conditions, values)


def test_preferences_are_no_conditions() -> None:
    trail = Trail()
    size = trail.given(7)
    with preferring([3, size]):
        assert size < 10
    assert size > 2
    replay = trail.replay()
    for given, is_best in ((9, True), (12, False)):
        numbers = replay.at((given,))
        assert numbers is not None
        assert replay.is_best(numbers) is is_best
    assert replay.at((2,)) is None
    assert replay.traced == [7]


def test_a_preference_that_decides_more_is_a_condition() -> None:
    trail = Trail()
    size = trail.given(7)
    with preferring([size]):
        assert size < 10
    assert size < 10
    replay = trail.replay()
    assert replay.at((12,)) is None


def columns_of(
    shapes: list[list[int]], strides: list[list[int]], offsets: list[int], roots: list[int], widths: list[int]
) -> tuple[Any, ...]:
    rows = [np.array(found, np.int32) for found in (shapes, strides, offsets, roots)]
    return (*rows, np.array(widths, np.int64))


def extents(columns: tuple[Any, ...], values: list[int]) -> tuple[list[int], list[int], bool]:
    count = len(columns[4])
    nbytes, starts = np.zeros((2, count), np.int64)
    holds = _core.trail_extents(columns, np.array(values, np.int64), nbytes, starts)
    return nbytes.tolist(), starts.tolist(), holds


def test_extents_are_bytes_and_starts_of_tensors() -> None:
    """A tensor of 3 by 4 floats, its second row, and one without dimensions; an index of -1 is a 1."""
    columns = columns_of([[0, 1], [-1, 1], [-1, -1]], [[1, -1], [1, -1], [2, 2]], [2, 1, 2], [0, 0, 2], [4, 4, 8])
    assert extents(columns, [3, 4, 0]) == ([48, 16, 8], [0, 16, 0], True)
    assert extents(columns, [1, 4, 0])[2] is False  # there is no second row
    assert extents(columns, [0, 4, 0])[2] is False  # nor a first
    assert extents(columns, [3, 0, 0]) == ([0, 0, 8], [0, 0, 0], True)


@pytest.mark.parametrize("values", [[-1, 4], [1 << 31, 1], [1 << 30, 1 << 30], [3, 1 << 62], [0, 1 << 62]])
def test_extents_of_no_tensor_do_not_hold(values: list[int]) -> None:
    columns = columns_of([[0, 1]], [[1, -1]], [2], [0], [8])
    assert extents(columns, [3, 4, 0])[2] is True
    assert extents(columns, [*values, 0])[2] is False


@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("index", [-2, 2, 1 << 30])
def test_extents_of_indices_out_of_range_are_refused(column: int, index: int) -> None:
    columns = columns_of([[0, 1]], [[1, -1]], [0], [0], [4])
    columns[column][...] = index
    with pytest.raises(ValueError, match="out of its range"):
        extents(columns, [3, 4])


def test_extents_agree_with_numpy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        rank, count = int(rng.integers(0, 5)), 6
        sizes = [0, 1, *rng.integers(0, 9, 20).tolist()]
        columns = columns_of(
            rng.integers(-1, 22, (count, rank)).tolist(),
            rng.integers(-1, 22, (count, rank)).tolist(),
            rng.integers(0, 22, count).tolist(),
            list(range(count)),
            rng.choice([1, 2, 4, 8], count).tolist(),
        )
        shapes, strides, offsets, _, widths = columns
        words = np.array([*sizes, 1], np.int64)
        elements = words[shapes].prod(axis=1)
        last = words[offsets] + ((words[shapes] - 1) * words[strides]).sum(axis=1)
        nbytes, starts, holds = extents(columns, sizes)
        assert nbytes == (elements * widths).tolist()
        assert starts == (words[offsets] * widths).tolist()
        assert holds == bool(((last < elements) | (elements == 0)).all())


def test_parameters_are_numbers_that_32_bits_hold() -> None:
    words = np.array([[0, 1], [3, 0], [2, 0]], np.int32)
    params = np.zeros((2, _core.PARAM_WORDS), np.int32)
    assert _core.trail_params(words, np.array([5, 0, -7]), 2, params)
    assert params[0, 3] == -7
    assert params[1, 0] == 5
    assert np.count_nonzero(params) == 2
    for number in (1 << 31, -(1 << 31) - 1):
        assert not _core.trail_params(words, np.array([number, 0, 0]), 2)
    assert _core.trail_params(words, np.array([-(1 << 31), 0, (1 << 31) - 1]), 2)


@pytest.mark.parametrize(("row", "index"), [(0, 2), (0, -1), (1, _core.PARAM_WORDS), (1, -1), (2, 3), (2, -1)])
def test_places_of_parameters_out_of_range_are_refused(row: int, index: int) -> None:
    words = np.zeros((3, 2), np.int32)
    words[row, 1] = index
    with pytest.raises(ValueError, match="out of its range"):
        _core.trail_params(words, np.zeros(3, np.int64), 2)


def test_constants_of_new_tensors_begin_at_lines() -> None:
    """Two lie in the first new tensor, one in the second; a part lies as far behind as its whole."""
    nbytes = np.array([100, 8, 64, 65, 4, 0, 0])
    starts = np.array([0, 0, 0, 0, 12, 99, 99])
    members, ends, parts = (np.array(found, np.int32) for found in ([0, 2, 3], [2, 3], [[4, 2]]))
    _core.trail_pack(members, ends, parts, nbytes, starts)
    assert nbytes.tolist() == [100, 8, 64, 65, 4, 192, 128]
    assert starts.tolist() == [0, 0, 128, 0, 140, 0, 0]
    for which, wrong in ((0, [0, 2, 5]), (0, [0, -1, 3]), (1, [2, 4]), (1, [2, 1]), (2, [[4, 5]]), (2, [[-1, 0]])):
        given = [members, ends, parts]
        given[which] = np.array(wrong, np.int32)
        with pytest.raises(ValueError, match="out of its range"):
            _core.trail_pack(*given, nbytes.copy(), starts.copy())


def test_what_is_told_is_in_range() -> None:
    """Sizes are no floats, and roots and ports own their storage."""
    columns = columns_of([[0, 1], [-1, 1]], [[1, -1], [1, -1]], [2, 2], [0, 0], [4, 4])
    none, order, also = np.zeros(0, np.int32), np.array([1, 0]), np.array([[1], [0]])
    ports = np.array([1], np.int32)
    _core.check_told(columns, none, order, also, ports, 3)
    good = [columns, none, order, also, ports, 3]
    rows = [column.copy() for column in columns]
    for which, wrong in (
        (1, np.array([1], np.int32)),
        (1, np.array([3], np.int32)),
        (2, np.array([1, 2])),
        (2, np.array([-1, 0])),
        (3, np.array([[1], [2]])),
        (4, np.array([0], np.int32)),
        (4, np.array([2], np.int32)),
        (5, 2),
        (0, (*rows[:3], np.array([0, 2], np.int32), rows[4])),
        (0, (*rows[:3], np.array([1, 0], np.int32), rows[4])),
        (0, (rows[0] - 1, *rows[1:])),
    ):
        with pytest.raises(ValueError, match="is told"):
            _core.check_told(*[wrong if i == which else part for i, part in enumerate(good)])
