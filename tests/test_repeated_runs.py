"""Runs that come again: arrays like those of the last run go straight to the engine, all others through the checks."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn import _core
from flexnn.graph.large import LARGE_BYTES
from flexnn.run.outputs import Outputs


def write(path: Path, rows: int | str) -> Path:
    """Write y = a + b, z = -a, with an input that nothing reads."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 4]) for name in "abuyz"]
    nodes = [helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Neg", ["a"], ["z"])]
    graph = helper.make_graph(nodes, "net", values[:3], values[3:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def arrays(rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((rows, 4), np.float32) for name in "bua"}


def off_by_one(x: np.ndarray) -> np.ndarray:
    raw = bytearray(x.nbytes + 1)
    moved = np.frombuffer(raw, np.float32, x.size, 1).reshape(x.shape)
    moved[...] = x
    return moved


def frozen(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


KINDS = {
    "plain": lambda x: x,
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "unaligned": off_by_one,
    "frozen": frozen,
    "subclass": lambda x: x.view(np.matrix),
    "converted": lambda x: np.array(x.tolist(), np.float32),
}


@pytest.mark.parametrize("rows", [3, "n"])
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("reuse", [False, True])
def test_arrays_of_all_kinds(tmp_path: Path, rows: int | str, kind: str, reuse: bool) -> None:
    with flexnn.Session(write(tmp_path / "net.onnx", rows), threads=1, reuse_outputs=reuse) as session:
        for seed in range(6):
            feed = arrays(3, seed)
            y, z = session.run(None, {name: KINDS[kind](x) for name, x in feed.items()} if seed % 2 else feed)
            assert np.array_equal(y, feed["a"] + feed["b"])
            assert np.array_equal(z, -feed["a"])
            assert type(y) is np.ndarray
            assert set(session.last_run) == {"run_ns", "stall_ns", "bytes_read"}
        (z,) = session.run(["z"], MappingProxyType(feed))
        assert np.array_equal(z, -feed["a"])


@pytest.mark.parametrize("rows", [3, "n"])
def test_wrong_feeds_are_refused_after_right_ones(tmp_path: Path, rows: int | str) -> None:
    with flexnn.Session(write(tmp_path / "net.onnx", rows), threads=1) as session:
        feed = arrays(3, 0)
        for wrong in (
            feed | {"a": feed["a"].astype(np.float64)},
            feed | {"a": feed["a"].astype(">f4")},
            feed | {"u": feed["a"].view(np.int32)},
            feed | {"a": feed["a"][:, :3]},
            feed | {"a": feed["a"][0]},
            feed | {"more": feed["a"]},
            {"a": feed["a"], "b": feed["b"], "v": feed["u"]},
            {"a": feed["a"], "b": feed["b"]},
        ):
            for _ in range(2):
                assert np.array_equal(session.run(None, feed)[0], feed["a"] + feed["b"])
            with pytest.raises(ValueError, match="input"):
                session.run(None, wrong)
        with pytest.raises(TypeError):
            session.run(None, [feed])  # type: ignore[arg-type]


def test_shapes_change_between_repeated_runs(tmp_path: Path) -> None:
    with flexnn.Session(write(tmp_path / "net.onnx", "n"), threads=1) as session:
        for seed, rows in enumerate([3, 3, 5, 5, 3, 5, 5, 2, 3, 3]):
            feed = arrays(rows, seed)
            assert np.array_equal(session.run(None, feed)[0], feed["a"] + feed["b"])


def test_shapes_of_earlier_runs_go_straight_to_the_engine_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with flexnn.Session(write(tmp_path / "net.onnx", "n"), threads=1) as session:
        for rows in (3, 5, 3, 5):
            session.run(None, arrays(rows, 0))
        feeds = session._feeds
        monkeypatch.setattr(feeds, "arrays", None)
        for seed, rows in enumerate([3, 5, 5, 3, 5]):
            feed = arrays(rows, seed)
            y, z = session.run(None, feed)
            assert np.array_equal(y, feed["a"] + feed["b"])
            assert np.array_equal(z, -feed["a"])
        monkeypatch.undo()
        for wrong in ({"a": feed["a"].astype(np.float64)}, {"a": feed["a"][:, :3]}, {"more": feed["a"]}):
            with pytest.raises(ValueError, match="input"):
                session.run(None, arrays(3, 0) | wrong)
        for kind in sorted(KINDS):
            feed = {name: KINDS[kind](x) for name, x in arrays(3, 1).items()}
            session.run(None, arrays(5, 0))
            assert np.array_equal(session.run(None, feed)[0], feed["a"] + feed["b"])


def test_outputs_that_are_made_in_another_order_are_repeated(tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx", "n")
    model = onnx.load(path)
    model.graph.output.reverse()
    onnx.save(model, path)
    with flexnn.Session(path, threads=1) as session:
        for seed in range(4):
            feed = arrays(3, seed)
            z, y = session.run(None, feed)
            assert np.array_equal(z, -feed["a"])
            assert np.array_equal(y, feed["a"] + feed["b"])
            out = np.empty((3, 4), np.float32)
            assert session.run(["y"], feed, out={"y": out})[0] is out
            assert np.array_equal(out, feed["a"] + feed["b"])
        assert session._run._repeats.order == [1, 0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("rows", [LARGE_BYTES // 16, LARGE_BYTES // 16 - 1])
def test_large_outputs_are_not_overwritten(tmp_path: Path, rows: int) -> None:
    with flexnn.Session(write(tmp_path / "net.onnx", "n"), threads=1) as session:
        kept = []
        for seed in range(4):
            feed = arrays(rows, seed)
            kept.append((session.run(None, feed)[0], feed["a"] + feed["b"]))
        assert all(np.array_equal(y, wanted) for y, wanted in kept)


def test_outputs_fed_back_into_reused_memory(tmp_path: Path) -> None:
    with flexnn.Session(write(tmp_path / "net.onnx", "n"), threads=1, reuse_outputs=True) as session:
        feed = arrays(3, 0)
        total = feed["a"].copy()
        for _ in range(6):
            total = total + feed["b"]
            feed["a"] = session.run(["y"], feed)[0]
            assert np.allclose(feed["a"], total)


def test_a_signature_of_other_buffers_is_refused(tmp_path: Path) -> None:
    feed = {"x": np.zeros((3, 4), np.float32)}
    signature = Outputs().signature(feed, ["x"], [], [("y", (3, 4), np.dtype(np.float32))])
    assert signature.buffer_count == 2
    with flexnn.Session(write(tmp_path / "net.onnx", 3), threads=1) as session:
        session.run(None, arrays(3, 0))
        bound = session._run._bound.program.core  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="2 buffers, not 5"):
            bound.repeat(signature, feed)
        names = list("abu")
        small = np.zeros(1, np.float32)
        wrong = _core.Signature(names, [small] * 3, [0, 1, 2], [], [((1,), small.dtype)] * 2, np.empty)
        with pytest.raises(ValueError, match="4 bytes, not 48"):
            bound.repeat(wrong, dict.fromkeys(names, small))
        assert bound.repeat(wrong, {}) is None


def test_a_shape_is_not_taken_for_a_format(tmp_path: Path) -> None:
    """A size of 102 is the letter of float32 in memory."""
    small = np.zeros((3, ord("f")), np.float32)
    signature = _core.Signature(list("abu"), [small] * 3, [0, 1, 2], [], [((1,), small.dtype)] * 2, np.empty)
    with flexnn.Session(write(tmp_path / "net.onnx", 3), threads=1) as session:
        session.run(None, arrays(3, 0))
        bound = session._run._bound.program.core  # type: ignore[attr-defined]
        assert bound.repeat(signature, dict.fromkeys("abu", np.zeros(3, np.float32))) is None
        with pytest.raises(ValueError, match="1224 bytes, not 48"):
            bound.repeat(signature, dict.fromkeys("abu", small))


def test_numbers_that_decide_the_path_are_compared(tmp_path: Path) -> None:
    """A scalar input decides a branch: runs with the same number need no walk, those with another take the other."""
    rate = helper.make_tensor_value_info("rate", TensorProto.INT64, [])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        out = helper.make_tensor_value_info(op, TensorProto.FLOAT, ["n"])
        branches[name] = helper.make_graph([helper.make_node(op, ["x"], [op])], op, [], [out])
    nodes = [
        helper.make_node("Constant", [], ["high"], value_int=16000),
        helper.make_node("Equal", ["rate", "high"], ["is_high"]),
        helper.make_node("If", ["is_high"], ["r"], **branches),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "net", [x, rate], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    values, number = np.array([-2, 3], np.float32), np.array(16000)
    with flexnn.Session(tmp_path / "m.onnx", threads=1) as session:
        walks, whole = [], session._run._whole
        session._run._whole = lambda *arguments: walks.append(0) or whole(*arguments)
        for rate_hz, wanted in [(16000, [2, 0]), (16000, [2, 0]), (8000, [2, 3]), (8000, [2, 3]), (16000, [2, 0])]:
            number[...] = rate_hz
            (got,) = session.run(None, {"x": values, "rate": number})
            np.testing.assert_array_equal(got, wanted)
        assert len(walks) == 3
        (got,) = session.run(None, {"x": values, "rate": np.array([16000])[0]})  # no array
        np.testing.assert_array_equal(got, [2, 0])
