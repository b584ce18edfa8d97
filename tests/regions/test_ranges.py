"""Ranges contain the numbers that runs make, and know what decides sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from flexnn.graph import load_model
from flexnn.graph.ir import Array
from flexnn.regions import Region
from flexnn.regions.ranges import Ranges
from tests.support.regions import BOOL, F32, I64, graph_of, model_of, numbers, value

node = helper.make_node
CONSTANTS = {
    "low": np.float32(-3), "high": np.float32(5), "eight": np.array(8), "three": np.array([3]), "first": np.array([0]),
    "flat": np.array([1]), "two": np.array(2), "x4": np.float32(4), "twice": np.float32([2]),
}  # fmt: skip


def ranges(nodes: list[onnx.NodeProto], x: Array, tmp: object) -> tuple[Ranges, Region]:
    kind = I64 if {other.op_type for other in nodes} & {"Mod", "ArgMax", "NonZero"} else F32
    graph = graph_of(nodes, [value("x", F32, ["n"])], [value("y", kind, ["k"])], CONSTANTS)
    path = f"{tmp}/m.onnx"
    onnx.save(model_of(graph), path)
    model = load_model(path)
    region = Region(model.graph)
    found = Ranges(region, model.opset, {"x": x})
    found.note(region, "x", x.shape)
    return found, region


@pytest.mark.parametrize(
    ("nodes", "least", "most"),
    [
        ([node("Clip", ["x", "low", "high"], ["y"])], -3, 5),
        ([node("Clip", ["x", "low", "high"], ["c"]), node("Abs", ["c"], ["y"])], 0, 5),
        ([node("Clip", ["x", "low", "high"], ["c"]), node("Mul", ["c", "x4"], ["y"])], -12, 20),
        ([node("Clip", ["x", "low", "high"], ["c"]), node("Sub", ["x4", "c"], ["y"])], -1, 7),
        ([node("Clip", ["x", "low", "high"], ["c"]), node("Div", ["c", "x4"], ["y"])], -1, 2),
        ([node("Exp", ["x"], ["e"]), node("Cast", ["e"], ["i"], to=I64), node("Mod", ["i", "eight"], ["y"])], 0, 7),
        ([node("Sigmoid", ["x"], ["s"]), node("Neg", ["s"], ["y"])], -1, 0),
        ([node("Tanh", ["x"], ["t"]), node("ReduceSum", ["t"], ["y"], keepdims=0)], -100, 100),
        ([node("Clip", ["x", "low", "high"], ["c"]), node("Resize", ["c", "", "twice"], ["y"])], -3, 5),
        ([node("Clip", ["x", "low", "high"], ["c"]), node("Resize", ["c", "", "twice"], ["y"], mode="linear")], -3, 5),
        ([node("ArgMax", ["x"], ["y"], axis=0)], 0, 100),
        ([node("NonZero", ["x"], ["y"])], 0, 100),
    ],
)
def test_ranges_of_operators(nodes: list[onnx.NodeProto], least: float, most: float, tmp_path: object) -> None:
    found, region = ranges(nodes, 100 * numbers(100), tmp_path)
    for other in nodes[:-1]:
        found.note(region, other.output[0], (100,))
    got = found.of(region, "y")
    assert (got.least.min(), got.most.max()) == (least, most)


def test_few_numbers_have_ranges_of_their_own(tmp_path: object) -> None:
    nodes = [
        node("Cast", ["x"], ["i"], to=I64),
        node("Mod", ["i", "eight"], ["m"]),
        node("ReduceMax", ["m"], ["top"], keepdims=1),
        node("Concat", ["three", "top", "three"], ["c"], axis=0),
        node("Add", ["c", "two"], ["y"]),
    ]
    found, region = ranges(nodes, numbers(100), tmp_path)
    for name, shape in (("top", (1,)), ("c", (3,)), ("y", (3,)), ("m", (100,)), ("i", (100,))):
        found.note(region, name, shape)
    most = found.most(region, "y")
    assert most is not None
    assert most.tolist() == [5, 9, 5]
    assert found.of(region, "y").least.tolist() == [5, 2, 5]


def test_what_goes_into_itself_is_unknown_or_clipped(tmp_path: object) -> None:
    """A carried value that a body clips has the range of the clip and of what came in."""
    for last, most in ((["t", "low", "high"], 6.0), (["t"], np.inf)):
        body = graph_of(
            [node("Add", ["v", "x4"], ["t"]), node("Clip", last, ["w"]), node("Identity", ["c"], ["again"])],
            [value("i", I64, []), value("c", BOOL, []), value("v", F32, ["n"])],
            [value("again", BOOL, []), value("w", F32, ["n"])],
        )
        nodes = [node("Loop", ["eight", "", "x"], ["y"], body=body)]
        found, region = ranges(nodes, np.full(3, 6, np.float32), tmp_path)
        assert found.of(region, "y").most.max() == most
        assert found.turns(region, 0) == 8
