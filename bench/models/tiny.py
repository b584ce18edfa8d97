"""Small models of what the trained ones have little of, for bench.faults files: most of their bytes say structure."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench import MODELS
from bench.models.subjects import Subject

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _numbers(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(np.float32)


def _port(name: str, kind: int, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    constants: dict[str, np.ndarray],
    opsets: dict[str, int],
) -> bytes:
    made = [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, [_port(name, FLOAT, None) for name in outputs], made)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    content = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    assert isinstance(content, bytes)
    return content


def recurrent() -> bytes:
    """An LSTM of both directions, a GRU and an RNN behind each other, over an open number of steps."""
    given, hidden, batch = 5, 4, 2
    constants = {
        "lw": _numbers(0, 2, 4 * hidden, given),
        "lr": _numbers(1, 2, 4 * hidden, hidden),
        "lb": _numbers(2, 2, 8 * hidden),
        "gw": _numbers(3, 1, 3 * hidden, 2 * hidden),
        "gr": _numbers(4, 1, 3 * hidden, hidden),
        "gb": _numbers(5, 1, 6 * hidden),
        "rw": _numbers(6, 1, hidden, hidden),
        "rr": _numbers(7, 1, hidden, hidden),
        "wide": np.array([0, batch, -1]),
        "first": np.array([1]),
    }
    nodes = [
        helper.make_node(
            "LSTM", ["x", "lw", "lr", "lb", "", "h"], ["l"], hidden_size=hidden, direction="bidirectional"
        ),
        helper.make_node("Transpose", ["l"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "wide"], ["rows"]),
        helper.make_node("GRU", ["rows", "gw", "gr", "gb"], ["g"], hidden_size=hidden, linear_before_reset=1),
        helper.make_node("Squeeze", ["g", "first"], ["s"]),
        helper.make_node("RNN", ["s", "rw", "rr"], ["y", "last"], hidden_size=hidden, direction="reverse"),
    ]
    inputs = [_port("x", FLOAT, ["steps", batch, given]), _port("h", FLOAT, [2, batch, hidden])]
    return _model(nodes, inputs, ["y", "last"], constants, {"": 17})


def control() -> bytes:
    """A Loop, a Scan and an If that data decide, over an open number of rows. The input's shape says how often the loop
    runs: a number that is damaged would make it run for hours, which is right and tells nothing.
    """
    times = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("MatMul", ["state", "w"], ["product"]),
            helper.make_node("Tanh", ["product"], ["next"]),
            helper.make_node("ReduceSum", ["next"], ["total"], keepdims=0),
        ],
        "times",
        [_port("i", INT64, []), _port("go", BOOL, []), _port("state", FLOAT, ["rows", 4])],
        [_port("go_on", BOOL, []), _port("next", FLOAT, ["rows", 4]), _port("total", FLOAT, [])],
    )
    rows = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["more"]), helper.make_node("Mul", ["more", "row"], ["each"])],
        "rows",
        [_port("sum", FLOAT, [4]), _port("row", FLOAT, [4])],
        [_port("more", FLOAT, [4]), _port("each", FLOAT, [4])],
    )
    ways = [
        helper.make_graph([helper.make_node(op, ["scanned", "v"], ["out"])], op, [], [_port("out", FLOAT, None)])
        for op in ("MatMul", "Mul")
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["times"]),
        helper.make_node("Loop", ["times", "", "x"], ["looped", "totals"], body=times),
        helper.make_node("Scan", ["zeros", "looped"], ["sum", "scanned"], body=rows, num_scan_inputs=1),
        helper.make_node("ReduceMax", ["sum"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["above"]),
        helper.make_node("If", ["above"], ["y"], then_branch=ways[0], else_branch=ways[1]),
    ]
    constants = {
        "w": _numbers(0, 4, 4),
        "v": _numbers(1, 4, 4)[:, :4],
        "one": np.array(1),
        "zeros": np.zeros(4, np.float32),
        "zero": np.array(0, np.float32),
    }
    return _model(nodes, [_port("x", FLOAT, ["rows", 4])], ["y", "totals"], constants, {"": 17})


def trees() -> bytes:
    """A TreeEnsemble of three full trees."""
    count, branches, leaves = 3, 7, 8
    child = np.arange(branches)[:, None] * 2 + [1, 2]
    is_leaf = np.tile(child >= branches, (count, 1)).astype(int)
    offset = np.arange(count)[:, None, None]
    ways = np.where(child >= branches, child - branches + offset * leaves, child + offset * branches).reshape(-1, 2)
    rng = np.random.default_rng(0)
    tensors = {
        "nodes_splits": _numbers(1, count * branches),
        "nodes_modes": np.zeros(count * branches, np.uint8),
        "leaf_weights": _numbers(2, count * leaves),
    }
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=2,
        tree_roots=(np.arange(count) * branches).tolist(),
        nodes_featureids=rng.integers(0, 5, count * branches).tolist(),
        nodes_truenodeids=ways[:, 0].tolist(),
        nodes_falsenodeids=ways[:, 1].tolist(),
        nodes_trueleafs=is_leaf[:, 0].tolist(),
        nodes_falseleafs=is_leaf[:, 1].tolist(),
        leaf_targetids=rng.integers(0, 2, count * leaves).tolist(),
        **{name: numpy_helper.from_array(values, name) for name, values in tensors.items()},
    )
    return _model([node], [_port("x", FLOAT, ["rows", 5])], ["y"], {}, {"": 17, "ai.onnx.ml": 5})


TINY = tuple(
    Subject(name, MODELS / f"{name}.onnx", (shapes,), build=build)
    for name, build, shapes in (
        ("tiny_recurrent", recurrent, {"x": (3, 2, 5), "h": (2, 2, 4)}),
        ("tiny_control", control, {"x": (4, 4)}),
        ("tiny_trees", trees, {"x": (6, 5)}),
    )
)
