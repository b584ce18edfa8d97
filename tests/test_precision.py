"""Maps in 16 bits by choice: what gets them, how far outputs are off, what is refused, and less memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn import _core
from flexnn.graph import bind_shapes, load_model
from flexnn.graph.bind import bind_model
from flexnn.graph.ir import Graph
from flexnn.graph.passes import run_passes
from tests.support.compare import model_of, weights
from tests.support.reference import run_graph

FEED = {"x": np.random.default_rng(5).standard_normal((2, 3, 37, 29)).astype(np.float32)}
ERROR = 5e-3
"""Relative L2 error of outputs: ten roundings to 11 bits, and those of the weights."""


def net(scale: float = 1.0) -> onnx.ModelProto:
    """All operators that know 16 bits, odd sizes, a squeeze-excite gate, and one operator between that knows none."""
    constants = {
        "stem": weights(32, 3, 3, 3) * np.float32(scale), "depth": weights(32, 1, 5, 5), "point": weights(48, 32, 1, 1),
        "wide": weights(32, 32, 3, 3), "gate": weights(32, 32, 1, 1), "grouped": weights(32, 8, 3, 3),
        "sizes": np.array([2, 112, 17, 13], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("HardSwish", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "depth"], ["c"], pads=[2, 2, 2, 2], group=32),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "gate"], ["e"]),
        helper.make_node("Sigmoid", ["e"], ["f"]),
        helper.make_node("Mul", ["c", "f"], ["g"]),
        helper.make_node("Conv", ["g", "wide"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["h", "b"], ["i"]),
        helper.make_node("Conv", ["i", "point"], ["j"]),
        helper.make_node("MaxPool", ["i"], ["k"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("Conv", ["k", "grouped"], ["l"], pads=[1, 1, 1, 1], group=4),
        helper.make_node("Softmax", ["l"], ["m"], axis=1),
        helper.make_node("Concat", ["j", "k", "l"], ["n"], axis=1),
        helper.make_node("Resize", ["n", "", "", "sizes"], ["o"], mode="linear"),
        helper.make_node("AveragePool", ["o"], ["p"], kernel_shape=[2, 2], strides=[2, 2], count_include_pad=1),
        helper.make_node("ReduceMean", ["p"], ["y"], axes=[2, 3]),
        helper.make_node("Conv", ["m", "gate"], ["z"]),
    ]
    return model_of(nodes, {"x": (2, 3, 37, 29)}, ["y", "z"], constants)


def compiled(model: onnx.ModelProto, folder: Path, precision: str = "f16") -> str:
    onnx.save(model, str(folder / "net.onnx"))
    return flexnn.compile(str(folder / "net.onnx"), str(folder / f"{precision}.flexnn"), precision=precision)


def graph_of(model: onnx.ModelProto, folder: Path) -> Graph:
    onnx.save(model, str(folder / "net.onnx"))
    loaded = load_model(str(folder / "net.onnx"))
    bind_shapes(loaded, {})
    return run_passes(bind_model(loaded), precision="f16")


def errors(got: list[np.ndarray], wanted: list[np.ndarray]) -> list[float]:
    return [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(got, wanted, strict=True)]


def test_maps_have_16_bits_and_inputs_and_outputs_do_not(tmp_path: Path) -> None:
    graph = graph_of(net(), tmp_path)
    assert {graph.tensors[i].dtype for i in (*graph.inputs, *graph.outputs)} == {"f32"}
    ops = {node.op for node in graph.nodes}
    assert {"conv_f16", "dwconv_f16", "pool_f16", "binary_f16", "resize_f16"} <= ops
    large = {t.name: t.dtype for t in graph.tensors if t.weight < 0 and t.root < 0 and t.size > 4096}
    assert {name for name, dtype in large.items() if dtype == "f32"} <= {"x", "l", "m", "z"}
    assert large["n"] == large["o"] == "f16"  # though a softmax reads a part of n


def test_the_graph_means_what_the_operators_are_defined_to(tmp_path: Path) -> None:
    graph = graph_of(net(), tmp_path)
    with flexnn.Session(compiled(net(), tmp_path)) as session:
        got = session.run(None, FEED)
    wanted = run_graph(graph, FEED)
    assert max(errors(got, [wanted[name] for name in ("y", "z")])) < ERROR


@pytest.mark.parametrize("level", _core.isa_levels())
@pytest.mark.parametrize("threads", [1, 2])
def test_outputs_are_near_those_of_float32(
    tmp_path: Path, level: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide, half = compiled(net(), tmp_path, "f32"), compiled(net(), tmp_path)
    with flexnn.Session(wide) as session:
        wanted = session.run(None, FEED)
    monkeypatch.setenv("FLEXNN_ISA", level)
    least = flexnn.plan(half, threads=threads).minimum_memory
    for memory in (None, least):
        with flexnn.Session(half, threads=threads, memory=memory) as session:
            assert 0 < max(errors(session.run(None, FEED), wanted)) < ERROR


def test_a_number_beyond_16_bits_fails_the_run_and_names_its_node(tmp_path: Path) -> None:
    with flexnn.Session(compiled(net(1e6), tmp_path)) as session:
        with pytest.raises(flexnn.FlexNNError, match="beyond 65,504"):
            session.run(None, FEED)
        (small,) = ({"x": FEED["x"] * np.float32(1e-6)},)
        assert all(np.isfinite(y).all() for y in session.run(None, small))


def test_infinite_inputs_stay_infinite(tmp_path: Path) -> None:
    model = model_of(
        [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2]),
         helper.make_node("Conv", ["b", "v"], ["y"])],
        {"x": (1, 1, 40, 40)}, ["y"], {"w": np.ones((4, 1, 1, 1), np.float32), "v": np.ones((4, 4, 1, 1), np.float32)},
    )  # fmt: skip
    feed = np.ones((1, 1, 40, 40), np.float32)
    feed[0, 0, 3, 3] = np.inf
    with flexnn.Session(compiled(model, tmp_path)) as session:
        (y,) = session.run(None, {"x": feed})
    assert np.isinf(y).sum() == 4 * 4
    assert np.isfinite(y).sum() == y.size - 16


def test_another_precision_is_refused(tmp_path: Path) -> None:
    onnx.save(net(), str(tmp_path / "net.onnx"))
    with pytest.raises(ValueError, match="precision is 'bf16'"):
        flexnn.compile(str(tmp_path / "net.onnx"), precision="bf16")


def test_a_model_of_large_maps_takes_less(tmp_path: Path) -> None:
    names = ["x", *"abcd", "y"]
    nodes = [
        helper.make_node("Conv", [source, f"w{source}"], [made], pads=[1, 1, 1, 1]) for source, made in pairwise(names)
    ]
    nodes[-1].input[0] = "s"
    nodes.insert(-1, helper.make_node("Add", ["d", "a"], ["s"]))
    constants = {"wx": weights(32, 3, 3, 3), "wd": weights(2, 32, 3, 3)} | {
        f"w{n}": weights(32, 32, 3, 3) for n in "abc"
    }
    model = model_of(nodes, {"x": (1, 3, 160, 160)}, ["y"], constants)
    wide, half = (flexnn.plan(compiled(model, tmp_path, p), memory=None, threads=1) for p in ("f32", "f16"))
    assert half.activation_bytes < 0.6 * wide.activation_bytes
    assert half.minimum_memory < wide.minimum_memory


def test_names_of_a_model_are_not_those_of_conversions(tmp_path: Path) -> None:
    """A node that is named as a conversion of the compiler's stays where it is."""
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Softmax", ["a"], ["b"], axis=1),
        helper.make_node("Sin", ["b"], ["c"], name="act.wide"),
        helper.make_node("Softmax", ["c"], ["y"], axis=1),
    ]
    model = model_of(nodes, {"x": (2, 3, 37, 29)}, ["y"], {"stem": weights(32, 3, 3, 3) * np.float32(8)})
    with flexnn.Session(compiled(model, tmp_path)) as session:
        [got] = session.run(None, FEED)
    with flexnn.Session(compiled(model, tmp_path, "f32")) as session:
        [wanted] = session.run(None, FEED)
    assert np.linalg.norm(got - wanted) < ERROR * np.linalg.norm(wanted)
