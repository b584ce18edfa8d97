"""Slices that a Squeeze follows have one element along its axes: they go onto the tape whatever their bounds are."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from tests.support.regions import BOOL, F32, I64, check_run, graph_of, is_taped, model_of, numbers, opened, value

node = helper.make_node
I32 = onnx.TensorProto.INT32
ROWS, WIDTH = 4, 3
FAR = 1_000_000_000
CONSTANTS = {
    "axis": np.array([0]), "behind": np.array([-3]), "one": np.array([1]), "both": np.array([0, 1], np.int32),
    "yes": np.array(True), "far": np.array([FAR, FAR], np.float32), "long": np.array([FAR, 1], np.int32),
    "begun": np.array([False, True]), "front": np.array([0], np.int32), "last": np.array(-FAR, np.int32),
    "next": np.array([1], np.int32), "far_f": np.array([FAR], np.float32), "far_i": np.array(FAR, np.int32),
}  # fmt: skip


def picking(axis: str = "axis", kind: int = I64, step: int = 1) -> onnx.ModelProto:
    """A model whose bounds are sums of what the caller says, so that only the run knows them."""
    added = [node("Add", [name, f"{name}0"], [f"{name}1"]) for name in "be"]
    picked = node("Slice", ["x", "b1", "e1", axis, "step"], ["row"], name="picked")
    nodes = [*added, picked, node("Squeeze", ["row", axis], ["r"]), node("Neg", ["r"], ["y"])]
    inputs = [value("x", F32, ["n", "m", WIDTH])] + [value(name, kind, [1]) for name in ("b", "e", "b0", "e0")]
    constants = CONSTANTS | {"step": np.array([step])}
    constants |= {name: array.astype(np.int64) for name, array in constants.items() if name in ("axis", "behind")}
    if kind == I32:
        constants |= {name: constants[name].astype(np.int32) for name in ("axis", "behind", "step")}
        nodes[3] = node("Squeeze", ["row", "axis_l"], ["r"])
        constants["axis_l"] = constants[axis].astype(np.int64)
    return model_of(graph_of(nodes, inputs, [value("y", F32, ["k", WIDTH])], constants))


def fed(begin: int, end: int, rows: int, kind: int = I64) -> dict[str, np.ndarray]:
    dtype = np.int64 if kind == I64 else np.int32
    given = {"b": begin - 1, "e": end + 1, "b0": 1, "e0": -1}
    return {"x": numbers(rows, 2, WIDTH)} | {name: np.array([number], dtype) for name, number in given.items()}


@pytest.mark.parametrize(
    ("axis", "kind", "step"),
    [("axis", I64, 1), ("behind", I64, 1), ("axis", I32, 2), ("axis", I64, ROWS), ("axis", I64, FAR)],
)
def test_every_pair_of_bounds_is_right_or_refused(axis: str, kind: int, step: int, tmp_path: Path) -> None:
    model = picking(axis, kind, step)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert is_taped(path, fed(1, 2, ROWS, kind))
    right = refused = 0
    with opened(tmp_path, model) as session:
        ends = (-(2**31) + 1, *range(-ROWS - 2, ROWS + 3), 2**31 - 2)
        for rows, begin, end in product((ROWS, ROWS + 1), ends, ends):
            feed = fed(begin, end, rows, kind)
            if len(feed["x"][slice(begin, end, step)]) == 1:
                check_run(session, model, feed)
                right += 1
            else:
                with pytest.raises(flexnn.FlexNNError, match="out of range"):
                    session.run(None, feed)
                refused += 1
    assert right > 20
    assert refused > 20


def test_an_axis_without_elements_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, picking()) as session:
        with pytest.raises(flexnn.FlexNNError):
            session.run(None, fed(0, 1, 0))
        assert session.run(None, fed(0, 1, 2))[0].shape == (2, WIDTH)


@pytest.mark.parametrize("case", ["read twice", "an output", "no axes", "another axis"])
def test_slices_that_may_be_longer_stay_what_they_are(case: str, tmp_path: Path) -> None:
    model = picking()
    graph = model.graph
    if case == "read twice":
        graph.node.append(node("Shape", ["row"], ["s"]))
        graph.output.append(value("s", I64, [3]))
    elif case == "an output":
        graph.output.append(value("row", F32, ["o", "k", WIDTH]))
    elif case == "no axes":
        del graph.node[3].input[1]
    else:
        graph.node[3].input[1] = "one"
        graph.node[2].input[0] = "narrow"
        graph.node.insert(0, node("Slice", ["x", "axis", "one", "one"], ["narrow"]))
    with opened(tmp_path, model) as session:
        check_run(session, model, fed(1, 2, ROWS))
        if case == "no axes" or case == "another axis":
            check_run(session, model, fed(1, 3, ROWS))


def converted() -> onnx.ModelProto:
    """A loop over rows as TensorFlow's converter writes a time-distributed layer: strides of 10⁹ where one row is."""
    body = [
        node("Add", ["i", "next"], ["i_"]),
        node("Concat", ["i", "front"], ["c"], axis=0),
        node("And", ["begun", "begun"], ["m"]),
        node("Where", ["m", "last", "c"], ["b0"]),
        node("Max", ["b0", "c"], ["b"]),
        node("Cast", ["c"], ["cf"], to=F32),
        node("Max", ["cf", "far"], ["ef"]),
        node("Cast", ["ef"], ["e"], to=I32),
        node("Slice", ["at", "b", "e", "both", "long"], ["w"]),
        node("Squeeze", ["w", "axis"], ["start"]),
        node("Cast", ["start"], ["sf"], to=F32),
        node("Max", ["sf", "far_f"], ["endf"]),
        node("Cast", ["endf"], ["end"], to=I32),
        node("Cast", ["wide"], ["wf"], to=F32),
        node("Max", ["wf", "far_f"], ["stepf"]),
        node("Cast", ["stepf"], ["step"], to=I32),
        node("Slice", ["x", "start", "end", "front", "step"], ["p"]),
        node("Squeeze", ["p", "axis"], ["row"]),
        node("Less", ["i_", "n"], ["less"]),
        node("Squeeze", ["less", "axis"], ["on"]),
        node("Identity", ["wide"], ["wide_"]),
    ]
    ports = [value("turn", I64, []), value("going", BOOL, []), value("i", I32, [1]), value("wide", I32, [1])]
    made = [value("on", BOOL, []), value("i_", I32, [1]), value("wide_", I32, [1]), value("row", F32, ["m", WIDTH])]
    nodes = [
        node("Shape", ["at"], ["shape"]),
        node("Slice", ["shape", "axis", "one"], ["n0"]),
        node("Cast", ["n0"], ["n"], to=I32),
        node(
            "Loop",
            ["", "yes", "front", "next"],
            ["i_last", "w_last", "y"],
            body=graph_of(body, ports, made, name="body"),
        ),
    ]
    inputs = [value("x", F32, ["r", "m", WIDTH]), value("at", I32, ["n", 1])]
    return model_of(graph_of(nodes, inputs, [value("y", F32, ["n", "m", WIDTH])], CONSTANTS))


def test_converted_time_distributed_layers_are_taped(tmp_path: Path) -> None:
    model = converted()
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    rows = {count: np.arange(count, dtype=np.int32)[::-1].reshape(count, 1).copy() for count in (1, 5, 90)}
    feed = {"x": numbers(5, 2, WIDTH), "at": rows[5]}
    assert is_taped(path, feed, grows=True)
    with opened(tmp_path, model) as session:
        for count, at in rows.items():
            check_run(session, model, {"x": numbers(count, 2, WIDTH), "at": at})
        behind = np.array([[-1], [-9], [2]], np.int32)  # a slice that begins before the front begins at the front
        check_run(session, model, {"x": numbers(5, 2, WIDTH), "at": behind})
        with pytest.raises(flexnn.FlexNNError, match="out of range"):
            session.run(None, {"x": numbers(5, 2, WIDTH), "at": np.array([[0], [5]], np.int32)})
        check_run(session, model, feed)
