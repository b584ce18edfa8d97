"""Make the golden artifacts of the installed FlexNN's format: ``python -P tests/artifact/golden.py FOLDER``.

FOLDER gets ``graph-N.flexnn`` and ``model-N.flexnn``, N the format's version, and the outputs of a run beside each.
It needs nothing of FlexNN but ``compile`` and ``Session``, so it runs with older releases, too.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import flexnn

Array = np.ndarray
F32 = np.float32


def numbers(*shape: int, dtype: type = F32, scale: float = 1 / 16) -> Array:
    """Small numbers that float16 holds exactly and that git compresses."""
    values = np.arange(np.prod(shape)) * 7 % 17 - 8
    return (values if dtype is np.int8 else values * scale).astype(dtype).reshape(shape)


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def port(name: str, kind: int, dims: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def graph_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    made = [port(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(list(nodes), "golden", list(inputs), made, tensors)


def graph_model() -> tuple[onnx.GraphProto, dict[str, Array]]:
    """A bound graph: panels in each form, a depthwise and two grouped convolutions, a table, a recurrent layer."""
    constants = {
        "a": numbers(20, 3, 3, 3),
        "a_bias": numbers(20),
        "slope": numbers(20, 1, 1),
        "b": numbers(20, 1, 3, 3),
        "c_half": numbers(24, 20, 1, 1, dtype=np.float16),
        "d_int": numbers(16, 24, 3, 3, dtype=np.int8),
        "d_step": numbers(16, scale=1 / 64) + F32(0.5),
        "e": numbers(16, 2, 3, 3),
        "f": numbers(32, 4, 1, 1),
        "table": numbers(50, 32),
        "shape": np.array([1, 8, 32]),
        "w": numbers(1, 20, 32),
        "r": numbers(1, 20, 5),
        "inf": np.array(np.inf, F32),
        "zero": np.array(0, F32),
    }
    nodes = [
        node("Conv", "x a a_bias", "t0", pads=[1, 1, 1, 1]),
        node("PRelu", "t0 slope", "t1"),
        node("Conv", "t1 b", "t2", group=20, strides=[2, 2]),
        node("Clip", "t2 zero inf", "t3"),
        node("Cast", "c_half", "c", to=TensorProto.FLOAT),
        node("Conv", "t3 c", "t4"),
        node("DequantizeLinear", "d_int d_step", "d", axis=0),
        node("Conv", "t4 d", "t5", pads=[1, 1, 1, 1]),
        node("Conv", "t5 e", "t6", group=8, pads=[1, 1, 1, 1]),
        node("Conv", "t6 f", "t7", group=4),
        node("GlobalAveragePool", "t7", "t8"),
        node("Reshape", "t8 flat", "t9"),
        node("Gather", "table ids", "g"),
        node("Add", "g t9", "u"),
        node("Reshape", "u shape", "v"),
        node("LSTM", "v w r", "y last", hidden_size=5),
        node("Softmax", "v", "z", axis=2),
    ]
    constants["flat"] = np.array([1, 32])
    ports = [port("x", TensorProto.FLOAT, [1, 3, 8, 8]), port("ids", TensorProto.INT64, [8])]
    feeds = {"x": numbers(1, 3, 8, 8, scale=1 / 8), "ids": np.array([0, 49, 7, 7, 3, 20, 11, 30])}
    return graph_of(nodes, ports, ["y", "z", "last"], constants), feeds


def open_model() -> tuple[onnx.GraphProto, dict[str, Array]]:
    """A model with an open dimension, both kinds of control flow, panels, and a constant too large for the section."""
    then = graph_of([node("Relu", "h", "then_y")], [], ["then_y"])
    other = graph_of([node("Mul", "h two", "else_y")], [], ["else_y"], {"two": np.array(2, F32)})
    carried = [port("goes", TensorProto.BOOL, []), port("carried", TensorProto.FLOAT, None)]
    body = graph_of(
        [node("Add", "carried h", "next"), node("Identity", "goes", "still")],
        [port("i", TensorProto.INT64, []), *carried],
        ["still", "next"],
    )
    body.output[0].CopyFrom(port("still", TensorProto.BOOL, []))
    turn = graph_of(
        [node("Neg", "held", "turned"), node("Identity", "goes_on", "stays")],
        [
            port("turn", TensorProto.INT64, []),
            port("goes_on", TensorProto.BOOL, []),
            port("held", TensorProto.FLOAT, None),
        ],
        ["stays", "turned"],
    )
    turn.output[0].CopyFrom(port("stays", TensorProto.BOOL, []))
    constants = {
        "table": numbers(130, 130),
        "w": numbers(130, 20),
        "trips": np.array(3),
        "true": np.array(True),
        "zero": np.array(0, F32),
    }
    nodes = [
        node("Loop", "trips true table", "turned_table", body=turn),
        node("Gather", "turned_table ids", "g"),
        node("MatMul", "g w", "h"),
        node("If", "flag", "branch", then_branch=then, else_branch=other),
        node("Loop", "trips true branch", "y", body=body),
        node("Greater", "y zero", "is_positive"),
        node("NonZero", "is_positive", "where"),
        node("Cast", "where", "z", to=TensorProto.FLOAT),
    ]
    ports = [port("ids", TensorProto.INT64, ["n"]), port("flag", TensorProto.BOOL, [])]
    feeds = {"ids": np.array([0, 129, 64]), "flag": np.array(False)}
    return graph_of(nodes, ports, ["y", "z"], constants), feeds


MODELS = {"graph": graph_model, "model": open_model}


def main(folder: Path) -> None:
    for kind, make in MODELS.items():
        graph, feeds = make()
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        with tempfile.TemporaryDirectory() as scratch:
            source, target = Path(scratch, "m.onnx"), Path(scratch, "m.flexnn")
            source.write_bytes(model.SerializeToString())
            flexnn.compile(source, target)
            raw = target.read_bytes()
            with flexnn.Session(target) as session:
                outputs = dict(zip((p.name for p in session.get_outputs()), session.run(None, feeds), strict=True))
        version = int.from_bytes(raw[8:12], "little")
        (folder / f"{kind}-{version}.flexnn").write_bytes(raw)
        stored = {f"input {k}": v for k, v in feeds.items()} | {f"output {k}": v for k, v in outputs.items()}
        np.savez_compressed(folder / f"{kind}-{version}.npz", **stored)
        print(f"{kind}-{version}.flexnn", len(raw))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
