"""Passes on small nets: which nodes are left, and that the result stays right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from flexnn.graph import operators
from flexnn.graph.bind import bind_model
from flexnn.graph.dump import dump
from flexnn.graph.importer import import_onnx
from flexnn.graph.onnx_file import open_onnx
from flexnn.graph.passes import EARLY_PASSES, IN_PLACE_PASSES, run_passes
from tests.support.compare import check_model, model_of, ops_of, weights

F32 = np.float32
IMAGE = (1, 8, 6, 6)


def node(op, inputs, output, **attrs):
    return helper.make_node(op, inputs, [output], **attrs)


def conv(x, y, w="w", **attrs):
    return node("Conv", [x, w], y, **attrs)


def acts(graph):
    return [n.attrs["act"] for n in graph.nodes if n.op in ("conv", "dwconv")]


SQUARE = {"w": weights(8, 8, 1, 1), "v": weights(8, 8, 3, 3, seed=7)}


def test_batch_normalization_goes_into_the_convolution():
    constants = SQUARE | {
        "s": weights(8),
        "b": weights(8, seed=2),
        "m": weights(8, seed=3),
        "r": abs(weights(8, seed=4)),
    }
    nodes = [conv("x", "c"), node("BatchNormalization", ["c", "s", "b", "m", "r"], "n"), node("Relu", ["n"], "y")]
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants))
    assert ops_of(graph) == ["copy", "conv", "copy"]
    assert acts(graph) == ["relu"]


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 8, 1, 1), (1,), ()])
def test_arithmetic_behind_a_convolution(kind, swapped, shape):
    nodes = [conv("x", "c"), node(kind, ["k", "c"] if swapped else ["c", "k"], "y")]
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], SQUARE | {"k": weights(*shape) + F32(2)}), tolerance=1e-4)
    assert ("binary" in ops_of(graph)) == (kind == "Div" and swapped)


@pytest.mark.parametrize("group", [1, 2, 8])
def test_product_before_a_convolution(group):
    constants = {"w": weights(8, 8 // group, 3, 3), "k": weights(8, 1, 1), "j": weights(1)}
    nodes = [node("Mul", ["x", "k"], "a"), node("Mul", ["j", "a"], "b"), conv("b", "y", pads=[1, 1, 1, 1], group=group)]
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants))
    assert "binary" not in ops_of(graph)


def test_sum_before_a_padded_convolution_stays():
    nodes = [node("Add", ["x", "k"], "a"), conv("a", "y", "v", pads=[1, 1, 1, 1])]
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], SQUARE | {"k": weights(8, 1, 1)}))
    assert "binary" in ops_of(graph)


RELU6 = [node("Add", ["three", "c"], "a"), node("Clip", ["a", "zero", "six"], "l")]
ACTIVATIONS = [
    ("relu", [node("Relu", ["c"], "y")]),
    ("clip", [node("Clip", ["c", "zero", "six"], "y")]),
    ("clip", [node("Max", ["c", "zero"], "m"), node("Min", ["six", "m"], "y")]),
    ("leaky_relu", [node("LeakyRelu", ["c"], "y", alpha=0.2)]),
    ("prelu", [node("PRelu", ["c", "slope"], "y")]),
    ("prelu", [node("PRelu", ["c", "slope1"], "y")]),
    ("sigmoid", [node("Sigmoid", ["c"], "y")]),
    ("tanh", [node("Tanh", ["c"], "y")]),
    ("hardsigmoid", [node("HardSigmoid", ["c"], "y", alpha=0.3)]),
    ("hardswish", [node("HardSwish", ["c"], "y")]),
    ("hardswish", [node("HardSigmoid", ["c"], "h", alpha=1 / 6), node("Mul", ["c", "h"], "y")]),
    ("hardswish", [*RELU6, node("Mul", ["c", "l"], "m"), node("Div", ["m", "six"], "y")]),
    ("hardswish", [*RELU6, node("Mul", ["l", "sixth"], "m"), node("Mul", ["m", "c"], "y")]),
    ("hardsigmoid", [*RELU6, node("Div", ["l", "six"], "y")]),
    ("silu", [node("Sigmoid", ["c"], "h"), node("Mul", ["h", "c"], "y")]),
]  # fmt: skip


@pytest.mark.parametrize("hosted", ["Conv", "depthwise", "Gemm", "MatMul"])
@pytest.mark.parametrize(("act", "nodes"), ACTIVATIONS, ids=range(len(ACTIVATIONS)))
def test_activation_goes_into_its_host(act, nodes, hosted):
    constants = {"zero": F32(0), "six": F32(6), "three": F32(3), "sixth": F32(1 / 6), "slope1": weights(1)}
    constants |= {"slope": weights(8, 1, 1), "w": weights(8, 8, 1, 1), "d": weights(8, 1, 3, 3), "m8": weights(8, 8)}
    if hosted in ("Gemm", "MatMul"):
        constants["slope"] = weights(8)
    first = {
        "Conv": conv("x", "c"),
        "depthwise": conv("x", "c", "d", group=8),
        "Gemm": node("Gemm", ["x", "m8"], "c"),
        "MatMul": node("MatMul", ["x", "m8"], "c"),
    }[hosted]
    graph = check_model(
        model_of([first, *nodes], {"x": (5, 8) if hosted in ("Gemm", "MatMul") else IMAGE}, ["y"], constants)
    )
    assert acts(graph) == [act]
    assert set(ops_of(graph)) <= {"copy", "conv", "dwconv"}


def test_activation_goes_into_a_sum():
    nodes = [node("Add", ["a", "b"], "s"), node("Relu", ["s"], "y")]
    assert ops_of(check_model(model_of(nodes, {"a": (2, 3), "b": (2, 3)}, ["y"]))) == ["binary"]


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_pad_before_a_convolution(value):
    nodes = [node("Pad", ["x", "p", "k"], "q"), conv("q", "y", "v", strides=[2, 2])]
    constants = SQUARE | {"p": np.array([0, 0, 1, 0, 0, 0, 2, 3]), "k": F32(value)}
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants))
    assert ("pad" in ops_of(graph)) == (value != 0)


@pytest.mark.parametrize("mode", ["constant", "edge"])
@pytest.mark.parametrize("positive", [True, False])
def test_pad_before_a_max_pool(mode, positive):
    nodes = [
        node("Relu" if positive else "Neg", ["x"], "r"),
        node("Pad", ["r", "p"], "q", mode=mode),
        node("MaxPool", ["q"], "y", kernel_shape=[3, 3], strides=[2, 2]),
    ]
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], {"p": np.array([0, 0, 1, 0, 0, 0, 1, 2])}))
    assert ("pad" in ops_of(graph)) == (mode == "constant" and not positive)


@pytest.mark.parametrize("counted", [0, 1])
def test_pad_before_an_average_pool(counted):
    nodes = [
        node("Pad", ["x", "p"], "q"),
        node(
            "AveragePool", ["q"], "y", kernel_shape=[3, 2], strides=[2, 1], count_include_pad=counted, pads=[0, 1, 0, 0]
        ),
    ]
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], {"p": np.array([0, 0, 1, 0, 0, 0, 1, 1])}))
    assert ("pad" in ops_of(graph)) == (not counted)


def test_softmax_works_in_place():
    nodes = [
        helper.make_node("MatMul", ["x", "y"], ["m"]),
        helper.make_node("Softmax", ["m"], ["s"], axis=-1),
        helper.make_node("Exp", ["s"], ["z"]),
    ]
    graph = check_model(model_of(nodes, {"x": (2, 9, 37), "y": (2, 37, 37)}, ["z"]))
    softmax = next(node for node in graph.nodes if node.op == "softmax")
    assert graph.root(softmax.inputs[0]) == graph.root(softmax.outputs[0])


def test_residual_block_works_in_place():
    nodes = [
        conv("x", "a"), node("Relu", ["a"], "r"),
        conv("r", "b", "v", pads=[1, 1, 1, 1]), node("Relu", ["b"], "c"), conv("c", "d"),
        node("Add", ["r", "d"], "s"), node("Relu", ["s"], "t"), node("GlobalAveragePool", ["t"], "y"),
    ]  # fmt: skip
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], SQUARE))
    assert ops_of(graph) == ["copy", "conv", "conv", "conv", "reduce"]
    last = graph.nodes[3]
    assert len(last.inputs) == 2
    assert last.attrs["act"] == "relu"
    assert graph.root(last.outputs[0]) == graph.root(last.inputs[1])


def test_residual_that_lives_on_is_not_overwritten():
    nodes = [conv("x", "a"), conv("a", "b"), node("Add", ["a", "b"], "s"), node("Mul", ["s", "a"], "y")]
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], SQUARE))
    host = next(n for n in graph.nodes if n.op == "conv" and len(n.inputs) == 2)
    assert graph.root(host.outputs[0]) != graph.root(host.inputs[1])


def test_convolution_of_its_own_residual():
    nodes = [node("Relu", ["x"], "r"), conv("r", "c", "v", pads=[1, 1, 1, 1]), node("Add", ["c", "r"], "y")]
    check_model(model_of(nodes, {"x": IMAGE}, ["y"], SQUARE))


def test_two_convolutions_meet_in_a_sum():
    nodes = [
        conv("x", "a"),
        conv("x", "b", "v", pads=[1, 1, 1, 1]),
        node("Add", ["a", "b"], "s"),
        node("Relu", ["s"], "y"),
    ]
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], SQUARE))
    assert "binary" not in ops_of(graph)


def test_flattened_image_needs_no_transpose():
    nodes = [
        conv("x", "c"),
        node("Flatten", ["c"], "f"),
        node("Gemm", ["f", "g", "b"], "h", transB=1),
        node("Relu", ["h"], "y"),
    ]
    constants = SQUARE | {"g": weights(10, 8 * 36), "b": weights(10)}
    graph = check_model(model_of(nodes, {"x": (3, *IMAGE[1:])}, ["y"], constants))
    assert ops_of(graph) == ["copy", "conv", "conv"]
    assert graph.nodes[-1].attrs["kernel"] == [6, 6]
    nodes[1:3] = [node("Reshape", ["c", "s"], "f"), node("MatMul", ["f", "g"], "h")]
    constants |= {"s": np.array([3, -1]), "g": weights(8 * 36, 10)}
    assert ops_of(check_model(model_of(nodes, {"x": (3, *IMAGE[1:])}, ["y"], constants))) == ["copy", "conv", "conv"]


def test_concat_and_split_copy_nothing():
    nodes = [
        conv("x", "a"), helper.make_node("Split", ["a", "parts"], ["p", "q"], axis=1),
        conv("p", "b", "u"), node("Relu", ["q"], "r"), node("Concat", ["b", "r"], "k", axis=1),
        node("Concat", ["k", "a"], "l", axis=1), conv("l", "y", "z"),
    ]  # fmt: skip
    constants = {
        "w": weights(8, 8, 1, 1),
        "u": weights(4, 4, 1, 1),
        "z": weights(3, 16, 1, 1),
        "parts": np.array([4, 4]),
    }
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants))
    assert sorted(ops_of(graph)) == ["conv", "conv", "conv", "copy", "copy", "unary"]


@pytest.mark.parametrize("channels", [(4, 6), (1, 1), (2, 1)])
def test_groups_as_separate_convolutions_become_one(channels):
    cin, cout = channels
    count = 5
    parts = [f"p{i}" for i in range(count)]
    nodes = [conv("x", "a"), helper.make_node("Split", ["a"], parts, axis=1)]
    nodes += [conv(p, f"c{i}", f"w{i}", pads=[1, 1, 1, 1]) for i, p in enumerate(parts)]
    nodes += [
        node("Concat", [f"c{i}" for i in range(count)], "k", axis=1),
        node("Mul", ["k", "s"], "m"),
        node("Relu", ["m"], "y"),
    ]
    constants = {f"w{i}": weights(cout, cin, 3, 3, seed=i) for i in range(count)}
    constants |= {"w": weights(cin * count, 8, 1, 1), "s": weights(cout * count, 1, 1)}
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants))
    assert ops_of(graph) == ["copy", "conv", "dwconv" if channels == (1, 1) else "conv", "copy"]
    nodes[-3] = node("Concat", [f"c{i}" for i in reversed(range(count))], "k", axis=1)
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants))
    assert len(ops_of(graph)) > 4


def test_channel_shuffle_moves_channels_only():
    nodes = [
        conv("x", "a"), node("Reshape", ["a", "five"], "b"), node("Transpose", ["b"], "c", perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["c", "four"], "d"), conv("d", "y"),
    ]  # fmt: skip
    constants = SQUARE | {"five": np.array([1, 2, 4, 6, 6]), "four": np.array([1, 8, 6, 6])}
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants))
    assert ops_of(graph) == ["copy", "conv", "copy", "conv", "copy"]


def test_detection_head_is_one_copy():
    nodes = [
        conv("x", "a"), conv("x", "b", "v", pads=[1, 1, 1, 1]),
        node("Reshape", ["a", "s"], "c"), node("Reshape", ["b", "s"], "d"), node("Concat", ["c", "d"], "e", axis=2),
        node("Transpose", ["e"], "y", perm=[0, 2, 1]),
    ]  # fmt: skip
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], SQUARE | {"s": np.array([1, 8, -1])}))
    assert ops_of(graph) == ["copy", "conv", "conv"]


def test_slices_get_their_order_on_the_way_into_a_concat():
    constants = {
        "end": np.array([6, 6]),
        "axes": np.array([2, 3]),
        "steps": np.array([2, 2]),
        "w": weights(3, 32, 1, 1),
    }
    corners = {f"s{i}": np.array([i % 2, i // 2]) for i in range(4)}
    nodes = [node("Slice", ["x", start, "end", "axes", "steps"], f"of_{start}") for start in corners]
    nodes += [node("Concat", [f"of_{start}" for start in corners], "k", axis=1), conv("k", "y")]
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants | corners))
    assert ops_of(graph) == ["copy"] * 4 + ["conv", "copy"]


def test_order_lowers_the_peak():
    # Two branches that first grow, then shrink: one after the other, not both at once.
    nodes = [
        node("Relu", ["x"], "r"), conv("r", "a", "wide"), conv("r", "b", "wide"), conv("a", "c", "small"),
        conv("b", "d", "small"), node("Add", ["c", "d"], "y"),
    ]  # fmt: skip
    graph = check_model(
        model_of(nodes, {"x": IMAGE}, ["y"], {"wide": weights(64, 8, 1, 1), "small": weights(1, 64, 1, 1)})
    )
    couts = [n.attrs["cout"] for n in graph.nodes if n.op == "conv"]
    assert couts == [64, 1, 64, 1]


def test_every_pass_can_be_dumped(tmp_path):
    nodes = [conv("x", "c"), node("Relu", ["c"], "r"), node("Concat", ["r", "x"], "y", axis=1)]
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(nodes, {"x": IMAGE}, ["y"], SQUARE).SerializeToString())
    seen = {}
    graph = run_passes(
        bind_model(import_onnx(open_onnx(str(path)))), lambda name, graph: seen.setdefault(name, dump(graph))
    )
    names = [*(p.__name__ for p in EARLY_PASSES), "layout", *(p.__name__ for p in IN_PLACE_PASSES)]
    assert list(seen) == list(dict.fromkeys(names))
    assert "= unary %" in seen["layout"]
    assert "= unary %" not in seen["fuse_activations"]
    assert len(dump(graph).splitlines()) == len(graph.nodes) + 2


KINDS = [
    "conv",
    "conv",
    "dw",
    "relu",
    "neg",
    "add",
    "concat",
    "split",
    "slice",
    "mul",
    "reshape",
    "transpose",
    "gap",
    "affine",
    "softmax",
    "matmul",
    "out",
]


@settings(max_examples=150)
@given(st.data())
def test_random_nets(data):
    """Random nets of convolutions, views, sums and concats: whatever the passes share, the result is onnxruntime's."""
    size = 4
    nodes, constants = [], {}
    values = {"x": (1, 4, size, size)}
    shapes = {}

    def constant(name, value):
        constants[name] = value
        return name

    for i in range(data.draw(st.integers(3, 12))):
        kind = data.draw(st.sampled_from(KINDS))
        x = data.draw(st.sampled_from(sorted(values)))
        shape, y = values[x], f"t{i}"
        image = len(shape) == 4
        if kind == "conv" and image:
            cout = data.draw(st.sampled_from([2, 4, 8]))
            k = data.draw(st.sampled_from([1, 3]))
            w = constant(f"w{i}", weights(cout, shape[1], k, k, seed=i) / (shape[1] * k))
            nodes.append(node("Conv", [x, w], y, pads=[k // 2] * 4))
            values[y] = (shape[0], cout, *shape[2:])
        elif kind == "dw" and image:
            w = constant(f"w{i}", weights(shape[1], 1, 3, 3, seed=i))
            nodes.append(node("Conv", [x, w], y, pads=[1] * 4, group=shape[1]))
            values[y] = shape
        elif kind in ("relu", "neg"):
            nodes.append(node("Relu" if kind == "relu" else "Neg", [x], y))
            values[y] = shape
        elif kind in ("add", "mul"):
            other = data.draw(st.sampled_from(sorted(n for n, s in values.items() if s == shape)))
            nodes.append(node("Add" if kind == "add" else "Mul", [x, other], y))
            values[y] = shape
        elif kind == "affine":
            k = constant(f"k{i}", weights(shape[1] if len(shape) > 1 else 1, *([1] * (len(shape) - 2)), seed=i))
            nodes.append(node(data.draw(st.sampled_from(["Add", "Mul"])), [x, k], y))
            values[y] = shape
        elif kind == "concat":
            axis = data.draw(st.integers(0, len(shape) - 1))
            rest = shape[:axis] + shape[axis + 1 :]
            fits = sorted(n for n, s in values.items() if len(s) == len(shape) and s[:axis] + s[axis + 1 :] == rest)
            parts = [x] + [data.draw(st.sampled_from(fits)) for _ in range(data.draw(st.integers(1, 2)))]
            values[y] = (*shape[:axis], sum(values[p][axis] for p in parts), *shape[axis + 1 :])
            nodes.append(node("Concat", parts, y, axis=axis))
        elif kind == "split":
            axis = data.draw(st.integers(0, len(shape) - 1))
            if shape[axis] < 2:
                continue
            cut = data.draw(st.integers(1, shape[axis] - 1))
            s = constant(f"s{i}", np.array([cut, shape[axis] - cut]))
            nodes.append(helper.make_node("Split", [x, s], [y, y + "b"], axis=axis))
            values[y] = (*shape[:axis], cut, *shape[axis + 1 :])
            values[y + "b"] = (*shape[:axis], shape[axis] - cut, *shape[axis + 1 :])
        elif kind == "slice":
            axis = data.draw(st.integers(0, len(shape) - 1))
            step = data.draw(st.sampled_from([1, 2]))
            first = data.draw(st.integers(0, min(shape[axis], 99) - 1))
            bounds = [
                constant(f"{n}{i}", np.array([v])) for n, v in (("b", first), ("e", 99), ("a", axis), ("p", step))
            ]
            nodes.append(node("Slice", [x, *bounds], y))
            values[y] = (*shape[:axis], len(range(first, shape[axis], step)), *shape[axis + 1 :])
        elif kind == "reshape":
            total = int(np.prod(shape))
            targets = [(shape[0], total // shape[0]), (total,), (1, total // size**2, size, size), (*shape, 1)]
            targets += [(2, 1, total // 2), (shape[0], 2, total // shape[0] // 2)]
            target = data.draw(st.sampled_from([t for t in targets if int(np.prod(t)) == total]))
            nodes.append(node("Reshape", [x, constant(f"r{i}", np.array(target))], y))
            values[y] = target
        elif kind == "transpose":
            perm = data.draw(st.permutations(range(len(shape))))
            nodes.append(node("Transpose", [x], y, perm=perm))
            values[y] = tuple(shape[p] for p in perm)
        elif kind == "gap" and image:
            nodes.append(node("GlobalAveragePool", [x], y))
            values[y] = (*shape[:2], 1, 1)
        elif kind == "softmax":
            nodes.append(node("Softmax", [x], y, axis=data.draw(st.integers(0, len(shape) - 1))))
            values[y] = shape
        elif kind == "matmul" and len(shape) > 1:
            perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            nodes += [node("Transpose", [x], y + "t", perm=perm), node("MatMul", [x, y + "t"], y)]
            values[y] = (*shape[:-1], shape[-2])
        elif kind == "out" and x != "x":
            shapes[x] = True
        if len(values.get(y, ())) > 5:
            del values[y]
            nodes.pop()
    computed = [n for n in values if n != "x"]
    if not computed:
        return
    outputs = sorted({*shapes, computed[-1]})
    graph = check_model(model_of(nodes, {"x": (1, 4, size, size)}, outputs, constants), tolerance=1e-4)
    for n in graph.nodes:
        operators.check(n)
