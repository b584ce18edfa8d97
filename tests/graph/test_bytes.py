"""Operators on bytes: what stands between restoring and rounding, against onnxruntime, within a step."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import flexnn
from tests.support.compare import expected, load, model_of, numbers_of_type, ops_of
from tests.support.quantised import TYPES, Quantised, check_steps

F32 = np.float32
BOTH = pytest.mark.parametrize("dtype", [np.uint8, np.int8])


def floats_in(graph) -> list[str]:
    """Operators that read or write float32."""
    tensors = graph.tensors
    return [
        node.op
        for node in graph.nodes
        if any(tensors[i].dtype == "f32" and tensors[i].weight < 0 for i in (*node.inputs, *node.outputs))
    ]


@BOTH
@pytest.mark.parametrize(("cin", "cout", "kernel", "attrs"), [
    (16, 32, 3, {"pads": [1, 1, 1, 1]}),
    (3, 24, 7, {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    (21, 17, 1, {}),
    (5, 20, 3, {"dilations": [2, 2]}),
    (24, 24, 3, {"group": 24, "pads": [1, 1, 1, 1]}),
    (20, 20, 5, {"group": 20, "strides": [2, 2]}),
])  # fmt: skip
@pytest.mark.parametrize("act", ["", "Relu", "Clip"])
def test_a_convolution(dtype, cin, cout, kernel, attrs, act):
    net = Quantised(dtype)
    x = net.restore(net.given(1, cin, 11, 13))
    bias = net.constant("b", net.rng.uniform(-1, 1, cout).astype(F32))
    y = net.add("Conv", [x, net.weights(cout, cin // attrs.get("group", 1), kernel, kernel), bias], **attrs)
    if act:
        bounds = [net.constant("low", F32(-1)), net.constant("high", F32(2))] if act == "Clip" else []
        y = net.add(act, [y, *bounds])
    out = net.round(y, 0.06)
    graph = check_steps(net.model(out), net.feeds(), levels=["scalar"])
    assert not floats_in(graph)
    assert [op for op in ops_of(graph) if "conv" in op] == ["dwconv_u8" if attrs.get("group") else "conv_u8"]


@BOTH
def test_a_residual_is_one_with_its_convolution(dtype):
    net = Quantised(dtype)
    first = net.round(net.add("Conv", [net.restore(net.given(1, 5, 9, 9)), net.weights(16, 5, 1, 1)]), 0.05)
    y = net.round(net.add("Conv", [net.restore(first), net.weights(16, 16, 3, 3)], pads=[1, 1, 1, 1]), 0.08)
    total = net.add("Relu", [net.add("Add", [net.restore(y), net.restore(first)])])
    graph = check_steps(net.model(net.round(total, 0.06)), net.feeds(), levels=["scalar"])
    assert not floats_in(graph)
    assert "binary_u8" not in ops_of(graph)


@BOTH
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_a_product_with_weights(dtype, rows):
    net = Quantised(dtype)
    x = net.restore(net.given(2, rows, 33))
    y = net.add("MatMul", [x, net.weights(33, 20, axis=1)])
    y = net.add("Add", [y, net.constant("b", net.rng.uniform(-1, 1, 20).astype(F32))])
    graph = check_steps(net.model(net.round(y), y), net.feeds(), levels=["scalar"])
    assert "conv_u8" in ops_of(graph)


@BOTH
@pytest.mark.parametrize("op", ["Sigmoid", "Relu", "Erf", "LeakyRelu", "HardSwish", "Exp", "Tanh"])
def test_a_function_is_a_table(dtype, op):
    net = Quantised(dtype)
    y = net.round(net.add(op, [net.restore(net.given(1, 6, 5, 4))]), 0.02)
    graph = check_steps(net.model(y), net.feeds())
    assert {op for op in ops_of(graph) if op not in ("copy", "cast")} == {"table_u8"}


def test_a_chain_of_functions_of_one_tensor_is_one_table():
    net = Quantised()
    x = net.given(2, 30, scale=0.02)
    erf = net.round(net.add("Erf", [net.add("Div", [net.restore(x), net.constant("c", F32(2**0.5))])]), 0.008)
    plus = net.round(net.add("Add", [net.restore(erf), net.constant("c", F32(1))]), 0.009)
    gelu = net.round(net.add("Mul", [net.restore(plus), net.restore(x)]), 0.02)
    graph = check_steps(
        net.model(net.round(net.add("Mul", [net.restore(gelu), net.constant("c", F32(0.5))]), 0.01)), net.feeds()
    )
    assert ops_of(graph) == ["table_u8"]


def test_steps_without_a_ratio_stay_floats():
    net = Quantised()
    a, b = net.given(1, 4, 5, 5, scale=1e30), net.given(1, 4, 5, 5, scale=1e30)
    y = net.round(net.add("Add", [net.restore(a), net.restore(b)]), 1e-30)
    z = net.round(net.add("Conv", [net.restore(a), net.weights(3, 4, 1, 1)]), 1e-30)
    graph = check_steps(net.model(y, z), net.feeds())
    assert {"binary", "quantize"} <= set(ops_of(graph))


@BOTH
def test_moves_move_bytes(dtype):
    net = Quantised(dtype)
    given = net.given(1, 6, 4, 8)
    moved = net.add("Transpose", [net.restore(given)], perm=[0, 2, 3, 1])
    same = net.round(moved, like=given)
    flat = net.add("Reshape", [net.restore(same), net.constant("to", np.array([4, 48], np.int64))])
    padded = net.add("Pad", [flat, net.constant("by", np.array([1, 0, 0, 2], np.int64))])
    graph = check_steps(net.model(net.round(padded, like=given)), net.feeds())
    assert not floats_in(graph)
    assert "quantize" not in ops_of(graph)


@BOTH
def test_parts_of_a_concat_have_steps_of_their_own(dtype):
    net = Quantised(dtype)
    a, b = net.given(1, 6, 4, 4), net.given(1, 10, 4, 4, scale=0.05)
    conv = net.round(net.add("Conv", [net.restore(b), net.weights(8, 10, 1, 1)]), 0.04)
    y = net.add("Concat", [net.restore(a), net.restore(conv), net.restore(b)], axis=1)
    graph = check_steps(net.model(net.round(y, 0.045)), net.feeds())
    assert not floats_in(graph)


@BOTH
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "GlobalAveragePool"])
def test_a_pool(dtype, kind):
    net = Quantised(dtype)
    given = net.round(net.add("Conv", [net.restore(net.given(1, 5, 9, 11)), net.weights(20, 5, 1, 1)]), 0.05)
    attrs = {} if kind.startswith("Global") else {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    y = net.round(net.add(kind, [net.restore(given)], **attrs), 0.05, like=given if kind == "MaxPool" else "")
    graph = check_steps(net.model(y), net.feeds(), levels=["scalar"])
    assert not floats_in(graph)


@BOTH
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_two_operands(dtype, op):
    net = Quantised(dtype)
    a, b = net.given(2, 6, 5, 4), net.given(2, 6, 1, 1, scale=0.07)
    y = net.add("Relu", [net.add(op, [net.restore(a), net.restore(b)])])
    graph = check_steps(net.model(net.round(y, 0.04)), net.feeds(), levels=["scalar"])
    assert "binary_u8" in ops_of(graph)
    assert not floats_in(graph)


@BOTH
def test_a_constant_that_the_model_states_in_steps(dtype):
    net = Quantised(dtype)
    bias = net.constant("q", net.rng.integers(0, 100, (1, 20)).astype(dtype))
    net.steps[bias] = net.constant("s", F32(0.02)), net.constant("z", net.zero())
    y = net.round(net.add("MatMul", [net.restore(net.given(7, 33)), net.weights(33, 20, axis=1)]), 0.06)
    y = net.round(net.add("Add", [net.restore(y), net.restore(bias)]), 0.07)
    graph = check_steps(net.model(y), net.feeds(), levels=["scalar"])
    assert not floats_in(graph)
    assert "binary_u8" not in ops_of(graph)


@BOTH
@pytest.mark.parametrize("op", ["LayerNormalization", "Softmax"])
def test_a_function_of_rows(dtype, op):
    net = Quantised(dtype)
    constants = [net.constant("c", net.rng.uniform(-1, 1, 33).astype(F32)) for _ in range(2)] if op[0] == "L" else []
    y = net.add(op, [net.restore(net.given(2, 7, 33)), *constants], axis=-1)
    graph = check_steps(net.model(net.round(y, 0.02)), net.feeds(), levels=["scalar"])
    assert "rows_u8" in ops_of(graph)
    assert not {"quantize", "layer_norm", "softmax"} & set(ops_of(graph))


@BOTH
@pytest.mark.parametrize("is_rounded", [True, False])
def test_two_computed_matrices(dtype, is_rounded):
    net = Quantised(dtype)
    a, b = net.given(2, 3, 9, 17), net.given(2, 3, 11, 17, scale=0.02)
    turned = net.add("Transpose", [net.restore(b)], perm=[0, 1, 3, 2])
    y = net.add("MatMul", [net.restore(a), turned])
    graph = check_steps(net.model(net.round(y, 0.09) if is_rounded else y), net.feeds(), levels=["scalar"])
    assert "matmul_u8" in ops_of(graph)


def random_net(net: Quantised, length: int) -> str:
    """Layers of every kind one after the other, some of which read what an earlier one made."""
    made = [(net.given(1, 8, 10, 10), (8, 10, 10))]
    for _ in range(length):
        x, (c, h, w) = made[-1] if net.rng.random() < 0.7 else made[net.rng.integers(len(made))]
        twins = [name for name, shape in made if shape == (c, h, w) and name != x]
        kind = str(net.rng.choice(["conv", "depth", "max", "avg", "add", "mul", "act", "concat", "pair"]))
        shape, like, f = (c, h, w), "", net.restore(x)
        if kind == "conv":
            shape = (int(net.rng.integers(3, 40)), h, w)
            y = net.add("Conv", [f, net.weights(shape[0], c, 3, 3)], pads=[1, 1, 1, 1])
            y = net.add("Relu", [y]) if net.rng.random() < 0.5 else y
        elif kind == "depth":
            y = net.add("Conv", [f, net.weights(c, 1, 3, 3)], pads=[1, 1, 1, 1], group=c)
        elif kind in ("max", "avg"):
            like = x if kind == "max" else ""
            name = "MaxPool" if kind == "max" else "AveragePool"
            y = net.add(name, [f], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        elif kind in ("add", "mul"):
            other = net.restore(twins[0]) if twins else net.add("Relu", [f])
            y = net.add(kind.capitalize(), [f, other])
        elif kind == "act":
            y = net.add(str(net.rng.choice(["Sigmoid", "HardSwish", "LeakyRelu"])), [f])
        elif kind == "concat":
            other, depth = next(((n, s[0]) for n, s in made if s[1:] == (h, w) and n != x), (x, c))
            shape = (c + depth, h, w)
            y = net.add("Concat", [f, net.restore(other)], axis=1)
        else:
            like, y = x, net.add("Identity", [f])
        made.append((net.round(y, 0.05, like), shape))
    return made[-1][0]


@BOTH
@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(dtype, seed):
    net = Quantised(dtype, seed)  # a convolution makes several steps of one
    check_steps(net.model(random_net(net, 8)), net.feeds(), steps=20, share=0.4, levels=["scalar"])


@BOTH
@pytest.mark.parametrize("coord", ["asymmetric", "half_pixel", "align_corners"])
@pytest.mark.parametrize("sizes", [None, [22, 26], [7, 30]])
def test_bytes_are_resized_as_they_are(dtype, coord, sizes, tmp_path):
    """Bytes that QLinear operators leave: numpy resized them, and models with open shapes were refused."""
    attrs = {"coordinate_transformation_mode": coord, "mode": "nearest", "nearest_mode": "floor"}
    of = ["x", "", "", "n"] if sizes else ["x", "", "f"]
    constants = {"n": np.array([2, 5, *(sizes or [0, 0])])} if sizes else {"f": np.array([1, 1, 2, 2], F32)}
    kind, shape = TYPES[dtype], (2, 5, 11, 13)
    node = helper.make_node("Resize", of, ["y"], **attrs)
    for given in (shape, ("n", 5, "h", "w")):
        if sizes and given != shape:
            continue
        model = model_of([node], {"x": given}, ["y"], constants, types={"x": kind, "y": kind})
        feeds = {"x": numbers_of_type(dtype, *shape)}
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        with flexnn.Session(flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn"), threads=1) as session:
            (got,) = session.run(None, feeds)
            assert not session.statistics()["hosted_operators"]
        np.testing.assert_array_equal(got, expected(model, feeds)["y"])


def test_linear_resizing_of_bytes_is_left_to_numpy(tmp_path):
    """Its sums are no choice among bytes."""
    constants = {"f": np.array([1, 1, 2, 2], F32)}
    node = helper.make_node("Resize", ["x", "", "f"], ["y"], mode="linear")
    kinds = dict.fromkeys("xy", TYPES[np.uint8])
    with pytest.raises(flexnn.FlexNNError, match="of 8 bits the nearest"):
        load(model_of([node], {"x": (1, 2, 4, 4)}, ["y"], constants, types=kinds))
