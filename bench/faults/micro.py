"""Models of one to three nodes for bench.faults mutants: one for each kind of section and weight that an artifact may
have, so small that a mutation costs little beside what it tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
ROWS, WIDTH = 512, 64
"""Sizes of the table, which has checksums by rows and stays in the file where the budget is small."""
MAPS, SIDE = 8, 128
"""Sizes of maps so large that bands of them spare more than the records of their steps take."""


def _numbers(*shape: int) -> NDArray[np.float32]:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / 2).astype(np.float32)


def _port(name: str, kind: int, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


Outputs = Sequence[str | onnx.ValueInfoProto]
Parts = tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto], Outputs, Mapping[str, NDArray[np.generic]]]
"""Nodes, inputs, outputs and constants of a model. Outputs that are only named are of FLOAT."""


def _layer() -> Parts:
    """A convolution of fixed shapes."""
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
    return [node], [_port("x", FLOAT, [1, 2, 3, 3])], ["y"], {"w": _numbers(17, 2, 3, 3), "b": _numbers(17)}


def _narrow() -> Parts:
    """A product with a weight of 8 bits, which has a scale."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    weight = (_numbers(9, 17) * 60).astype(np.int8)
    scales, zeros = np.full(17, 0.01, np.float32), np.zeros(17, np.int8)
    return nodes, [_port("x", FLOAT, [2, 9])], ["y"], {"q": weight, "s": scales, "z": zeros}


def _half() -> Parts:
    """A product with a weight of binary16, over an open number of rows."""
    nodes = [
        helper.make_node("Cast", ["h"], ["w"], to=FLOAT),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return nodes, [_port("x", FLOAT, ["rows", 9])], ["y"], {"h": _numbers(9, 17).astype(np.float16)}


def _volume() -> Parts:
    """A convolution of volumes, which becomes sums over depths, and a pool."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 6, strides=[2, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[1, 2, 2]),
    ]
    return nodes, [_port("x", FLOAT, [1, 6, 3, 4, 4])], ["y"], {"w": _numbers(17, 6, 3, 3, 3), "b": _numbers(17)}


def _dilated() -> Parts:
    """A convolution that has taps outside the map at most of its pixels, over an open number of images."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[4] * 4, dilations=[4, 4])
    return [node], [_port("x", FLOAT, ["n", 3, 6, 6])], ["y"], {"w": _numbers(17, 3, 3, 3)}


def _constants() -> Parts:
    """Products of constants, which are made while compiling, over an open number of rows."""
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["ab"]),
        helper.make_node("Transpose", ["ab"], ["w"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return nodes, [_port("x", FLOAT, ["rows", 9])], ["y"], {"a": _numbers(17, 5), "b": _numbers(5, 9)}


def _blocks() -> Parts:
    """A product with a weight in blocks of 4 bits, which have scales of their own."""
    node = helper.make_node(
        "MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", K=64, N=17, bits=4, block_size=32
    )
    weight = np.random.default_rng(0).integers(0, 256, (17, 2, 16), np.uint8)
    return [node], [_port("x", FLOAT, ["rows", 64])], ["y"], {"q": weight, "s": _numbers(17 * 2) / 8}


def _table() -> Parts:
    """Rows of a table, picked by a number."""
    nodes = [helper.make_node("Gather", ["t", "i"], ["y"])]
    return nodes, [_port("i", INT64, [2])], ["y"], {"t": _numbers(ROWS, WIDTH)}


def _branch() -> Parts:
    """An If that data decide."""
    ways = [
        helper.make_graph([helper.make_node(op, ["x", "v"], ["out"])], op, [], [_port("out", FLOAT, None)])
        for op in ("MatMul", "Add")
    ]
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["above"]),
        helper.make_node("If", ["above"], ["y"], then_branch=ways[0], else_branch=ways[1]),
    ]
    constants = {"v": _numbers(4, 4)[:, :4], "zero": np.array(0, np.float32)}
    return nodes, [_port("x", FLOAT, [4, 4])], ["y"], constants


def _loop() -> Parts:
    """A Scan over an open number of rows: its body is a graph of its own, and its turns are those of the input."""
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["more"]), helper.make_node("Mul", ["more", "g"], ["each"])],
        "body",
        [_port("sum", FLOAT, [4]), _port("row", FLOAT, [4])],
        [_port("more", FLOAT, [4]), _port("each", FLOAT, [4])],
    )
    nodes = [helper.make_node("Scan", ["none", "x"], ["s", "y"], body=body, num_scan_inputs=1)]
    constants = {"none": np.zeros(4, np.float32), "g": _numbers(4)}
    return nodes, [_port("x", FLOAT, ["rows", 4])], ["s", "y"], constants


def _recurrent() -> Parts:
    """A GRU over an open number of steps."""
    node = helper.make_node("GRU", ["x", "w", "r", "b"], ["y"], hidden_size=3)
    constants = {"w": _numbers(1, 9, 4), "r": _numbers(1, 9, 3), "b": _numbers(1, 18)}
    return [node], [_port("x", FLOAT, ["steps", 1, 4])], ["y"], constants


def _pictures() -> Parts:
    """An open number of pictures with a gate that is reshaped: the template of several is told by that of one."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Reshape", ["p", "flat"], ["f"]),
        helper.make_node("MatMul", ["f", "g"], ["m"]),
        helper.make_node("Sigmoid", ["m"], ["q"]),
        helper.make_node("Reshape", ["q", "image"], ["k"]),
        helper.make_node("Mul", ["r", "k"], ["y"]),
    ]
    flat, image = np.array([0, -1]), np.array([0, -1, 1, 1])
    constants = {"w": _numbers(3, 2, 3, 3), "g": _numbers(3, 3), "flat": flat, "image": image}
    return nodes, [_port("x", FLOAT, ["n", 2, "h", "w"])], ["y"], constants


def _phases() -> Parts:
    """Products that share two weights, whose slices stay for a phase of the run where the budget is small."""
    order, width = "aaaaaabbbbbb", 256
    nodes = [helper.make_node("MatMul", [f"t{i}" if i else "x", name], [f"t{i + 1}"]) for i, name in enumerate(order)]
    nodes.append(helper.make_node("Tanh", [f"t{len(order)}"], ["y"]))
    return (
        nodes,
        [_port("x", FLOAT, [2, width])],
        ["y"],
        {"a": _numbers(width, width) / 8, "b": _numbers(width, width)[::-1] / 9},
    )


def _bands() -> Parts:
    """Convolutions of a large map, which goes in bands where the budget is small."""
    nodes = [helper.make_node("Conv", ["x", "w0"], ["t1"], pads=[1, 1, 1, 1])]
    nodes += [
        helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"], pads=[1, 1, 1, 1], group=MAPS) for i in (1, 2)
    ]
    nodes.append(helper.make_node("GlobalMaxPool", ["t3"], ["y"]))
    constants = {f"w{i}": _numbers(MAPS, 1 if i else 2, 3, 3) for i in range(3)}
    return nodes, [_port("x", FLOAT, [1, 2, SIDE, SIDE])], ["y"], constants


def _queries() -> Parts:
    """An attention over many tokens, whose queries and output go in bands where the budget is small."""
    tokens, heads, size, read = 128, 8, 64, 32
    width = heads * size
    nodes = [helper.make_node("LayerNormalization", ["x", "g"], ["n"])]
    for name in "qkv":
        nodes.append(helper.make_node("MatMul", ["n", f"w{name}"], [f"m{name}"]))
        nodes.append(helper.make_node("Reshape", [f"m{name}", "split"], [f"r{name}"]))
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(helper.make_node("Transpose", [f"r{name}"], [f"h{name}"], perm=perm))
    nodes += [
        helper.make_node("MatMul", ["hq", "hk"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["parts"], axis=-1),
        helper.make_node("MatMul", ["parts", "hv"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "join"], ["joined"]),
        helper.make_node("MatMul", ["joined", "wo"], ["projected"]),
        helper.make_node("Add", ["projected", "x"], ["y"]),
    ]
    constants: dict[str, NDArray[np.generic]] = {f"w{name}": _numbers(read, width) / 3 for name in "qkv"}
    constants |= {"wo": _numbers(width, read) / 9, "g": np.ones(read, np.float32)}
    constants |= {"scale": np.array(size**-0.5, np.float32)}
    constants |= {"split": np.array([1, tokens, heads, size]), "join": np.array([1, tokens, width])}
    return nodes, [_port("x", FLOAT, [1, tokens, read])], ["y"], constants


def _sound() -> Parts:
    """Convolutions over samples, a map of one line, which goes in bands where the budget is small."""
    nodes = [
        helper.make_node("ConvTranspose", ["x", "up"], ["a"], strides=[4], pads=[2, 2]),
        helper.make_node("LeakyRelu", ["a"], ["r"], alpha=0.1),
        helper.make_node("Conv", ["r", "c"], ["b"], kernel_shape=[3], dilations=[2], pads=[2, 2], group=MAPS),
        helper.make_node("Add", ["a", "b"], ["s"]),
        helper.make_node("Conv", ["s", "d"], ["e"], kernel_shape=[5], pads=[2, 2]),
        helper.make_node("Tanh", ["e"], ["y"]),
    ]
    constants: dict[str, NDArray[np.generic]] = {
        "up": _numbers(4, MAPS, 8) / 4,
        "c": _numbers(MAPS, 1, 3),
        "d": _numbers(1, MAPS, 5) / 4,
    }
    return nodes, [_port("x", FLOAT, [1, 4, SIDE * SIDE // 4])], ["y"], constants


def _speech() -> Parts:
    """Parts of a run whose sizes data decide: one is planned as the last of its kind was, of other sizes."""
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], kernel_shape=[3], pads=[1, 1]),
        helper.make_node("ReduceMax", ["c"], ["most"], axes=[0, 1], keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["is_loud"]),
        helper.make_node("Compress", ["c", "is_loud"], ["loud"], axis=2),
        helper.make_node("Conv", ["loud", "b"], ["d"], kernel_shape=[3], pads=[1, 1]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("Conv", ["r", "e"], ["y"], kernel_shape=[3], pads=[1, 1]),
    ]
    constants: dict[str, NDArray[np.generic]] = {"a": _numbers(4, 2, 3), "zero": np.array(0.6, np.float32)}
    constants |= {"b": _numbers(16, 4, 3), "e": _numbers(3, 16, 3)}
    return nodes, [_port("x", FLOAT, [1, 2, "n"])], ["y"], constants


def _blocks_of_maps() -> Parts:
    """A block of a U-net whose sum waits for a concatenation, and lies over the map that ends with it; of its two
    outputs one is kept.
    """
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["first"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["first"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["half", "w1"], ["low"], pads=[1, 1, 1, 1], group=MAPS),
        helper.make_node("Resize", ["low", "", "twice"], ["high"], mode="nearest"),
        helper.make_node("Concat", ["high", "first"], ["both"], axis=1),
        helper.make_node("Conv", ["both", "w2"], ["last"], pads=[1, 1, 1, 1], group=MAPS),
        helper.make_node("Add", ["last", "first"], ["sum"]),
        helper.make_node("MaxPool", ["sum"], ["half2"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["half2", "w1"], ["low2"], pads=[1, 1, 1, 1], group=MAPS),
        helper.make_node("Resize", ["low2", "", "twice"], ["high2"], mode="nearest"),
        helper.make_node("Concat", ["high2", "sum"], ["both2"], axis=1),
        helper.make_node("Conv", ["both2", "w3"], ["map"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["map"], ["y"]),
        helper.make_node("GlobalAveragePool", ["both2"], ["side"]),
    ]
    constants: dict[str, NDArray[np.generic]] = {
        "w0": _numbers(MAPS, 2, 3, 3),
        "w1": _numbers(MAPS, 1, 3, 3),
        "w2": _numbers(MAPS, 2, 3, 3),
    }
    constants |= {"w3": _numbers(1, 2 * MAPS, 3, 3) / 4, "twice": np.array([1, 1, 2, 2], np.float32)}
    return nodes, [_port("x", FLOAT, [1, 2, SIDE, SIDE])], ["y", "side"], constants


def _texts() -> Parts:
    """Texts that are looked up, and texts that numbers stand for, as the model's last weight tells."""
    ml, colors = "ai.onnx.ml", ["red", "green", "blue"]
    nodes = [
        helper.make_node("OneHotEncoder", ["x"], ["y"], domain=ml, cats_strings=colors),
        helper.make_node(
            "LabelEncoder", ["x"], ["name"], domain=ml, keys_strings=colors, values_strings=["rot", "grün", "blau"]
        ),
    ]
    outputs = [_port("y", FLOAT, ["rows", 3]), _port("name", TensorProto.STRING, ["rows"])]
    return nodes, [_port("x", TensorProto.STRING, ["rows"])], outputs, {}


MICRO = {
    "layer": _layer,
    "narrow": _narrow,
    "half": _half,
    "volume": _volume,
    "dilated": _dilated,
    "constants": _constants,
    "blocks": _blocks,
    "table": _table,
    "branch": _branch,
    "loop": _loop,
    "recurrent": _recurrent,
    "pictures": _pictures,
    "phases": _phases,
    "bands": _bands,
    "queries": _queries,
    "sound": _sound,
    "speech": _speech,
    "blocks_of_maps": _blocks_of_maps,
    "texts": _texts,
}
TIGHT = {"table": 0, "phases": 404 << 10, "bands": 0, "queries": 0, "sound": 0, "speech": 0, "blocks_of_maps": 0}
"""Bytes beside their smallest budgets in which models run: a table then stays in the file, slices stay for a phase, and
maps go in bands.
"""
SEVERAL = {"pictures": (1, 2), "speech": (300, 200, 260)}
"""Models that run at several sizes: what is bound or planned for one serves the next."""
KEPT = {"blocks_of_maps": ["y"]}
"""Outputs that are kept of models that have more."""


def write_micro(name: str, path: Path) -> Path:
    """Write one of these models."""
    nodes, inputs, outputs, constants = MICRO[name]()
    made = [numpy_helper.from_array(values, key) for key, values in constants.items()]
    declared = [_port(key, FLOAT, None) if isinstance(key, str) else key for key in outputs]
    opsets = [helper.make_opsetid(*domain) for domain in (("", 17), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
    graph = helper.make_graph(nodes, name, inputs, declared, made)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path
