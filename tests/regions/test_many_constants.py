"""Models of many small constants, which nodes behind a branch read: their templates are stored and read, and the time
to bind them grows with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.regions import segment
from tests.support.regions import check_run


def model(count: int) -> onnx.ModelProto:
    """A model with so many sums of constants, each added behind an If that data decide."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", f"y{count}"))
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["x"], [op])], op, [], [helper.make_tensor_value_info(op, TensorProto.FLOAT, None)]
        )
        for op in ("Neg", "Abs")
    ]
    constants = [helper.make_tensor(f"k{i}", TensorProto.INT64, [1], [i + 3]) for i in range(count)]
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])
    nodes = [helper.make_node("Add", ["k0", f"k{i}"], [f"c{i}"]) for i in range(count)]
    nodes += [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["is"]),
        helper.make_node("If", ["is"], ["y0"], then_branch=branches[0], else_branch=branches[1]),
    ]
    for i in range(count):
        nodes.append(helper.make_node("Cast", [f"c{i}"], [f"d{i}"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Add", [f"y{i}", f"d{i}"], [f"y{i + 1}"]))
    graph = helper.make_graph(nodes, "many", [x], [y], [*constants, zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def compiled(count: int, folder: Path) -> str:
    onnx.save(model(count), str(folder / "m.onnx"))
    return flexnn.compile(str(folder / "m.onnx"), str(folder / "m.flexnn"))


@pytest.mark.parametrize("count", [100, 400, 2000])
def test_they_are_read_again(count: int, tmp_path: Path) -> None:
    """The list of their templates takes 17 times its bytes as Python's objects, as names are short."""
    with flexnn.Session(compiled(count, tmp_path)) as session:
        for size in (5, 9):
            check_run(session, model(count), {"x": np.linspace(-1, 2, size, dtype=np.float32)})


def test_looking_for_readers_grows_with_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, members = 0, segment.members

    def counted(nodes: int) -> Iterator[int]:
        nonlocal looks
        for index in members(nodes):
            looks += 1
            yield index

    monkeypatch.setattr(segment, "members", counted)
    found = []
    for count in (100, 200):
        looks = 0
        compiled(count, tmp_path)
        found.append(looks)
    assert found[1] <= 2.2 * found[0]
