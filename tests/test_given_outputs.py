"""``run(out=…)``: outputs go into the caller's arrays, which the budget need not hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from tests.support.sessions import feed, smallest, write_branched_model, write_wide_model

F32 = TensorProto.FLOAT


@pytest.fixture(scope="module", params=[1, "n"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return flexnn.compile(write_branched_model(tmp_path_factory.mktemp("m") / "m.onnx", 6, batch=request.param))


def test_outputs_are_where_the_caller_wants_them(artifact: str) -> None:
    with flexnn.Session(artifact, threads=1) as session:
        (expected,) = session.run(None, feed())
        out = np.empty_like(expected)
        for given in ([out], (out,), {"y": out}):
            for names in (None, ["y"]):
                out[:] = 0
                (y,) = session.run(names, feed(), out=given)
                assert y is out
                np.testing.assert_array_equal(out, expected)
        (own,) = session.run(None, feed(), out={})
        assert own is not out
        np.testing.assert_array_equal(own, expected)


def test_other_shapes_other_arrays(tmp_path: Path) -> None:
    artifact = flexnn.compile(write_branched_model(tmp_path / "m.onnx", 6, batch="n"))
    with flexnn.Session(artifact, threads=1) as session:
        for count in (1, 3, 1, 3):
            x = np.random.default_rng(count).standard_normal((count, 128, 8, 8)).astype(np.float32)
            (expected,) = session.run(None, {"x": x})
            out = np.zeros_like(expected)
            for _ in range(2):
                session.run(None, {"x": x}, out=[out])
                np.testing.assert_array_equal(out, expected)
            with pytest.raises(ValueError, match="the output float32"):
                session.run(None, {"x": x}, out=[np.empty((count + 1, *out.shape[1:]), np.float32)])
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def frozen(y: np.ndarray) -> np.ndarray:
    y.flags.writeable = False
    return y


WRONG: dict[str, tuple[Callable[[np.ndarray, np.ndarray], Any], str]] = {
    "shape": (lambda y, x: [y[..., :1].copy()], "out: 'y' has shape"),
    "rank": (lambda y, x: [y[0]], "out: 'y' has shape"),
    "type": (lambda y, x: {"y": y.astype(np.float64)}, "out: 'y' is float64"),
    "order of bytes": (lambda y, x: {"y": y.astype(">f4")}, "out: 'y' is >f4"),
    "strided": (lambda y, x: [np.concatenate([y, y], axis=-1)[..., ::2]], "not contiguous"),
    "unaligned": (lambda y, x: [np.zeros(y.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(y.shape)], "not aligned"),
    "read-only": (lambda y, x: [frozen(y)], "not writable"),
    "overlap": (lambda y, x: [x.reshape(-1)[: y.size].reshape(y.shape)], "shares memory with an input"),
    "name": (lambda y, x: {"z": y}, "no output 'z'"),
    "number": (lambda y, x: [y, y], "out has 2 arrays for 1 outputs"),
    "list": (lambda y, x: [y.tolist()], "out: 'y' is a list"),
    "array": (lambda y, x: y, "out is a ndarray"),
    "text": (lambda y, x: 3, "out is a int"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_written_into_is_refused(artifact: str, wrong: str) -> None:
    make, message = WRONG[wrong]
    with flexnn.Session(artifact, threads=1) as session:
        (expected,) = session.run(None, feed())
        x = feed()["x"]
        with pytest.raises((ValueError, TypeError), match=message) as error:
            session.run(None, {"x": x}, out=make(expected.copy(), x))
        assert "\n" not in str(error.value)
        np.testing.assert_array_equal(session.run(None, feed())[0], expected)


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Outputs that the engine writes, that numpy computes, that are an input, a constant, and one another."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["twice"], ["again"]),
        helper.make_node("Shape", ["x"], ["shape"]),
    ]
    outputs = [helper.make_tensor_value_info(name, F32, ["n", 3]) for name in ("twice", "same", "again")]
    outputs += [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("places", "shape")]
    graph = helper.make_graph(nodes, "several", [helper.make_tensor_value_info("x", F32, ["n", 3])], outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_all_kinds_of_outputs(several: Path) -> None:
    x = np.array([[0, 1, 2], [3, 0, 5]], np.float32)
    with flexnn.Session(several, threads=1) as session:
        names = [output.name for output in session.get_outputs()]
        expected = dict(zip(names, session.run(None, {"x": x}), strict=True))
        for chosen in (names, names[::2], names[::-1], ["same"], ["places", "again"]):
            out = {name: np.zeros_like(expected[name]) for name in chosen}
            for given in (out, list(out.values())):
                for array in out.values():
                    array[...] = 9
                found = session.run(list(out), {"x": x}, out=given)
                assert all(one is other for one, other in zip(found, out.values(), strict=True))
                for name, array in out.items():
                    np.testing.assert_array_equal(array, expected[name])
        both = np.zeros_like(x)
        with pytest.raises(ValueError, match="shares memory with that for 'twice'"):
            session.run(None, {"x": x}, out={"twice": both, "again": both})
        with pytest.raises(ValueError, match="two arrays for output 'twice'"):
            session.run(["twice", "twice"], {"x": x}, out=[both, both.copy()])


def test_none_stands_for_an_array_of_the_session(several: Path) -> None:
    """In lists and mappings; where the session has none to give, it is refused."""
    x = np.array([[0, 1, 2], [3, 0, 5]], np.float32)
    with flexnn.Session(several, threads=1) as session:
        expected = session.run(["again", "places"], {"x": x})
        for names, out in (
            (["again", "places"], [np.zeros_like(x), None]),
            (["again", "places"], {"again": np.zeros_like(x), "places": None}),
            (["places", "again"], [None, np.zeros_like(x)]),
            (["again", "places"], [None, None]),
        ):
            found = dict(zip(names, session.run(names, {"x": x}, out=out), strict=True))
            given = out.get("again") if isinstance(out, dict) else out[names.index("again")]
            assert given is None or found["again"] is given
            np.testing.assert_array_equal(found["again"], expected[0])
            np.testing.assert_array_equal(found["places"], expected[1])
    with flexnn.Session(several, threads=1, own_outputs=False) as session:
        out = {port.name: None for port in session.get_outputs()}
        with pytest.raises(ValueError, match="out has none for 'twice'"):
            session.run(None, {"x": x}, out=out)


def test_the_budget_need_not_hold_them(tmp_path: Path) -> None:
    artifact = Path(flexnn.compile(write_wide_model(tmp_path / "wide.onnx")))
    x = np.ones((1, 1, 512, 512), np.float32)
    with flexnn.Session(artifact, threads=1) as session:
        (expected,) = session.run(None, {"x": x})
    least = smallest(artifact, threads=1)
    plan = flexnn.plan(artifact, threads=1, own_outputs=False)
    assert plan.minimum_memory <= least - 2 * expected.nbytes  # bands may be worth it beside less
    minima = [
        flexnn.plan(artifact, threads=1, deterministic=True, own_outputs=own).minimum_memory for own in (True, False)
    ]
    assert minima[0] - minima[1] == 2 * expected.nbytes  # no bands
    out = np.empty_like(expected)
    with flexnn.Session(artifact, plan.minimum_memory, threads=1, own_outputs=False) as session:
        assert session.session_bytes <= plan.minimum_memory
        (y,) = session.run(None, {"x": x}, out=[out])
        assert y is out
        np.testing.assert_allclose(out, expected, 1e-5)
        for call in (lambda: session.run(None, {"x": x}), lambda: session.run(None, {"x": x}, out={})):
            with pytest.raises(ValueError, match="own_outputs=False, and out has none for 'y'"):
                call()


def test_open_shapes_count_them_once(tmp_path: Path) -> None:
    artifact = flexnn.compile(write_branched_model(tmp_path / "m.onnx", 6, batch="n"))
    used = {}
    for options in ({}, {"reuse_outputs": True}, {"own_outputs": False}):
        with flexnn.Session(artifact, threads=1, **options) as session:
            session.run(None, feed(), out=[np.empty((1, 32, 8, 8), np.float32)])
            used[tuple(options)] = session.statistics()["bytes"]["values"]
    assert used[("own_outputs",)] == used[("reuse_outputs",)] < used[()]
