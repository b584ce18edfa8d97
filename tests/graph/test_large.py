"""Large arrays are mappings of their own, whose memory the system has again when they are dropped."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from flexnn.graph.large import LARGE_BYTES, empty, stacked


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [1, 300])
def test_stacks_are_those_of_numpy(count: int, axis: int) -> None:
    rng = np.random.default_rng(count)
    rows = [rng.integers(-9, 9, (3, 500)) for _ in range(count)]
    got = stacked(rows, axis)
    assert got.dtype == rows[0].dtype
    assert np.array_equal(got, np.stack(rows, axis))


def test_memory_goes_back_at_once() -> None:
    first = empty((LARGE_BYTES,), np.dtype(np.float32))  # 4 MiB
    first[...] = 1
    beside = [np.ones(1000) for _ in range(100)]  # on the heap, above what a heap array would leave
    before = resident()
    del first
    assert before - resident() > 3 * LARGE_BYTES
    assert len(beside) == 100


@pytest.mark.parametrize("shape", [(), (0, 5), (3, 4), (LARGE_BYTES // 4,), (2, LARGE_BYTES // 2)])
def test_arrays_are_writable_and_of_the_shape(shape: tuple[int, ...]) -> None:
    made = empty(shape, np.dtype(np.float32))
    made[...] = 7
    assert made.shape == shape
    assert made.flags.c_contiguous
    assert (made == 7).all()
