"""Arrays for outputs: whose memory they are, and when it serves again."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn.graph.large import LARGE_BYTES
from flexnn.run.outputs import Outputs
from tests.support.sessions import write_wide_model

F32 = np.dtype(np.float32)
LARGE = (LARGE_BYTES // 4 + 1000,)


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), LARGE, (2, *LARGE)])
def test_arrays_are_as_asked_for(shape: tuple[int, ...]) -> None:
    for outputs in (Outputs(), Outputs(reuse=True)):
        x = outputs.array("x", shape, F32, ())
        assert (x.shape, x.dtype, x.flags.c_contiguous, x.flags.writeable) == (shape, F32, True, True)
        assert x.ctypes.data % 16 == 0 or not x.size


def test_what_is_dropped_serves_again() -> None:
    outputs = Outputs()
    x = outputs.array("x", LARGE, F32, ())
    place = x.ctypes.data
    del x
    assert outputs.array("x", LARGE, F32, ()).ctypes.data == place
    assert outputs.array("y", LARGE, F32, ()).ctypes.data != place


def test_two_take_turns_while_the_last_one_is_held() -> None:
    outputs = Outputs()
    places = []
    for _ in range(6):
        x = outputs.array("x", LARGE, F32, ())  # the one before is dropped only now
        places.append(x.ctypes.data)
    assert places == places[:2] * 3
    assert places[0] != places[1]


def test_nothing_of_another_size_is_kept() -> None:
    outputs = Outputs()
    x = outputs.array("x", LARGE, F32, ())
    mapping = weakref.ref(x.base)
    y = outputs.array("x", (2, *LARGE), F32, ())
    del x
    assert mapping() is None
    assert y.size


@pytest.mark.parametrize("hold", [lambda x: x, lambda x: x[5:9], memoryview, lambda x: x.reshape(2, -1).T])
def test_what_is_held_stays(hold: object) -> None:
    outputs = Outputs()
    x = outputs.array("x", LARGE, F32, ())
    x[:] = 1
    held = hold(x)  # type: ignore[operator]
    del x
    outputs.array("x", LARGE, F32, ())[:] = 2
    assert np.asarray(held).max() == 1


def test_reused_outputs_never_write_over_an_input() -> None:
    outputs = Outputs(reuse=True)
    state = outputs.array("state", (4,), F32, ())
    state[:] = 1
    outputs.array("state", (4,), F32, [state[1:]])[:] = 2
    assert state.tolist() == [1] * 4
    x = outputs.array("state", (4,), F32, [state])
    outputs.array("state", (4,), F32, [state])[:] = 3
    assert x.tolist() == [3] * 4


def test_a_session_that_reuses_outputs_needs_them_once(tmp_path: Path) -> None:
    artifact = flexnn.compile(write_wide_model(tmp_path / "wide.onnx"))
    feed = {"x": np.random.default_rng(0).standard_normal((1, 1, 512, 512)).astype(np.float32)}
    minimum = {}
    for reuse in (False, True):
        with flexnn.Session(artifact, threads=1, profile="analytic", reuse_outputs=reuse) as session:
            minimum[reuse] = session.plan.minimum_memory
            session.memory = minimum[reuse]
            (first,) = session.run(None, feed)
            np.testing.assert_array_equal(first[0, 3], feed["x"][0, 0])
            (second,) = session.run(None, {"x": -feed["x"]})
            np.testing.assert_array_equal(first, second if reuse else -second)
    assert minimum[False] - minimum[True] == 8 * 512 * 512 * 4
