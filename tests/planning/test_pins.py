"""Bytes of the file that programs pin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flexnn import _core
from flexnn.planning.pins import Pins


@pytest.mark.parametrize("seed", range(20))
def test_bytes_within_are_those_that_are_pinned(seed: int) -> None:
    random = np.random.default_rng(seed)
    held, loads, at = np.zeros(400, bool), [], 0
    while at < 300:
        lead, size = int(random.integers(0, 4)), int(random.integers(1, 30))
        loads.append((at, lead, size))
        held[at + lead : at + lead + size] = True
        at += lead + size + int(random.integers(0, 20))
    random.shuffle(loads)
    pinned = np.zeros(len(loads), _core.LOAD_DTYPE)
    pinned["file_offset"], pinned["check_lead"], pinned["check_bytes"] = np.array(loads).T
    program: Any = SimpleNamespace(pinned=pinned)
    offsets, sizes = random.integers(0, 350, 200), random.integers(0, 50, 200)
    wanted = [held[offset : offset + size].sum() for offset, size in zip(offsets, sizes, strict=True)]
    np.testing.assert_array_equal(Pins(program).bytes_within(offsets, sizes), wanted)
    assert not Pins(None).bytes_within(offsets, sizes).any()
