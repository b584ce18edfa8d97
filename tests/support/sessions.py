"""A small convolutional model for tests of sessions and of the command line: an ONNX file and its artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import flexnn

CHANNELS = 128
LAYERS = 8
SIDE = 8


def write_model(path: Path, output: str = "y") -> Path:
    """Eight 3x3 convolutions of 128 channels: 4.5 MiB of weights over activations of 32 KiB."""
    rng = np.random.default_rng(1)
    nodes, weights, name = [], [], "x"
    for i in range(LAYERS):
        w = rng.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype(np.float32) / np.float32(CHANNELS * 9) ** 0.5
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        after = output if i == LAYERS - 1 else f"t{i}"
        nodes.append(helper.make_node("Conv", [name, f"w{i}"], [after], name=f"conv{i}", pads=[1, 1, 1, 1]))
        name = after
    shape = [1, CHANNELS, SIDE, SIDE]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, shape)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def write_choosing_model(path: Path) -> Path:
    """y is the square root of x where ``rate`` is 16000, else x as rows of 7, which needs 7 numbers in x."""

    def body(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        made = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"])
        return helper.make_graph([node], name, [], [made])

    yes = body("yes", helper.make_node("Sqrt", ["x"], ["yes"], name="root"))
    no = body("no", helper.make_node("Reshape", ["x", "seven"], ["no"], name="seventh"))
    nodes = [
        helper.make_node("Equal", ["rate", "wanted"], ["is"], name="equal"),
        helper.make_node("If", ["is"], ["y"], name="choose", then_branch=yes, else_branch=no),
    ]
    constants = [
        helper.make_tensor("wanted", onnx.TensorProto.INT64, [], [16000]),
        helper.make_tensor("seven", onnx.TensorProto.INT64, [1], [7]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("rate", onnx.TensorProto.INT64, []),
    ]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["m"])]
    graph = helper.make_graph(nodes, "choosing", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def write_branched_model(path: Path, branches: int = 6, *, batch: int | str = 1) -> Path:
    """A convolution, 3x3 convolutions of its output beside each other, their outputs joined, and a convolution of it
    all: layers of 1, ``branches`` and 1 nodes.
    """
    rng = np.random.default_rng(1)
    weights = []

    def conv(name: str, data: str, out: str, outputs: int, inputs: int, kernel: int) -> onnx.NodeProto:
        w = (
            rng.standard_normal((outputs, inputs, kernel, kernel)).astype(np.float32)
            / np.float32(inputs * kernel) ** 0.5
        )
        weights.append(numpy_helper.from_array(w, f"w_{name}"))
        return helper.make_node("Conv", [data, f"w_{name}"], [out], name=name, pads=[kernel // 2] * 4)

    parts = [f"part{i}" for i in range(branches)]
    nodes = [conv("first", "x", "t", 32, CHANNELS, 1)]
    nodes += [conv(f"branch{i}", "t", part, 64, 32, 3) for i, part in enumerate(parts)]
    nodes.append(helper.make_node("Concat", parts, ["joined"], name="joined", axis=1))
    nodes.append(conv("last", "joined", "y", 32, 64 * branches, 1))
    graph = helper.make_graph(
        nodes,
        "branched",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, CHANNELS, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, 32, SIDE, SIDE])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def write_wide_model(path: Path) -> Path:
    """One 1x1 convolution whose output, 8 MiB, is nearly all that there is."""
    weight = numpy_helper.from_array(np.ones((8, 1, 1, 1), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, 512, 512])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 512, 512])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def feed() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(2).standard_normal((1, CHANNELS, SIDE, SIDE)).astype(np.float32)}


def smallest(artifact: Path, threads: int = 2) -> int:
    """The smallest budget in bytes."""
    try:
        flexnn.Session(artifact, memory=1, threads=threads).close()
    except flexnn.BudgetError as error:
        return error.minimum
    raise AssertionError("one byte was enough")


BRANCHED_FEED = {"x": np.ones((1, 128, 8, 8), np.float32)}
"""Inputs of ``branched_artifact``."""


def branched_artifact(folder: Path, **options: Any) -> str:
    """The artifact of a branched model of six layers; options as for ``write_branched_model``."""
    return flexnn.compile(write_branched_model(folder / "m.onnx", 6, **options))


def lost_segments(session: flexnn.Session) -> list[Any]:
    """Segments that a session keeps and no run of it can find; none of a closed model."""
    run: Any = session._run
    if not hasattr(run, "stretches"):
        return []
    found = set[Any]()

    def look(stretch: Any) -> None:
        found.update(stretch.tape.segments)
        for after in stretch.following.values():
            look(after)

    for stretch in run._first.values():
        look(stretch)
    return [bound for bound in run.stretches.segments if bound.segment not in found]
