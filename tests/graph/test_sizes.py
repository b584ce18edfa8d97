"""Sizes that stand for other sizes: what is computed and decided is done again, and nothing is seen past that."""

from __future__ import annotations

import struct
from math import prod

import numpy as np
import pytest

from flexnn.graph.sizes import Replay, SizeError, Trail, is_size


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
    replay = Replay(trail)
    for h, w in ((7, 12), (9, 20), (1, 30)):
        values = replay.at((h, w))
        assert values is not None
        wanted = [h + 3, 3 - h, 2 * h * w, h * w * 4, h + w, (w + 1) // 2 % 5, -(-w // 5), abs(h - w), max(h, w, 5)]
        assert [values[i] for i in indices] == [*wanted, round_half(w * 1.5)]
    assert replay.at((20, 7)) is None  # the larger one was the second


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
    replay = Replay(trail)
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
    replay = Replay(trail)
    assert replay.at((6, 6)) is not None
    assert replay.at((6, 5)) is None
    assert replay.at((3, 3)) is None
    assert replay.at((9, 9)) is None
    assert replay.at((0, 0)) is None


def test_division_by_what_became_zero_is_refused() -> None:
    trail = Trail()
    assert is_size(12 // trail.given(4))
    assert Replay(trail).at((0,)) is None


def test_a_size_means_nothing_after_its_trail() -> None:
    trail, other = Trail(), Trail()
    size = trail.given(4)
    with pytest.raises(SizeError, match="two trails"):
        size + other.given(4)
    Replay(trail)
    with pytest.raises(SizeError, match="closed"):
        int(size)
