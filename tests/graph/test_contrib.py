"""onnxruntime's own operators: each against onnxruntime, which has them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from flexnn.graph import load_model
from flexnn.graph.ir import GraphError
from tests.support.compare import check_model, load, numbers_of_type, weights
from tests.support.reference import run_graph

F32 = np.float32
KINDS = {
    "f": TensorProto.FLOAT,
    "u": TensorProto.UINT8,
    "i": TensorProto.INT8,
    "w": TensorProto.INT32,
    "l": TensorProto.INT64,
    "b": TensorProto.BOOL,
}
DTYPES = {"f": F32, "u": np.uint8, "i": np.int8, "w": np.int32, "l": np.int64, "b": np.bool_}


def numbers(kind, *shape, seed=3):
    return weights(*shape, seed=seed) if kind == "f" else numbers_of_type(DTYPES[kind], *shape, seed=seed)


def check(operator, inputs, outputs="f", tolerance=1e-5, **attrs):
    """Compare with onnxruntime."""
    model, feeds = one_node(operator, inputs, outputs, **attrs)
    return check_model(model, feeds=feeds, tolerance=tolerance)


def one_node(operator, inputs, outputs="f", **attrs):
    """The model of one node, and feeds. ``inputs``: an array, which is constant, or (kind, shape) or (kind, values),
    which is given; None: absent.
    ``outputs``: their kinds; a space: absent.
    """
    names, ports, constants, feeds = [], [], [], {}
    for i, value in enumerate(inputs):
        names.append("" if value is None else f"v{i}")
        if isinstance(value, np.ndarray):
            constants.append(numpy_helper.from_array(value, f"v{i}"))
        elif value is not None:
            kind, given = value
            feeds[f"v{i}"] = given if isinstance(given, np.ndarray) else numbers(kind, *given, seed=i)
            ports.append(helper.make_tensor_value_info(f"v{i}", KINDS[kind], feeds[f"v{i}"].shape))
    made = [helper.make_tensor_value_info(f"y{i}", KINDS[k], None) for i, k in enumerate(outputs) if k != " "]
    node = helper.make_node(
        operator, names, ["" if k == " " else f"y{i}" for i, k in enumerate(outputs)], domain="com.microsoft", **attrs
    )
    graph = helper.make_graph([node], "test", ports, made, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds


def scale(value):
    return np.array(value, F32)


def zero(kind, value):
    return np.array(value, DTYPES[kind])


def steps(n):
    return np.linspace(0.01, 0.03, n).astype(F32)


def forms(graph):
    return [node.attrs.get("wtype", node.op) for node in graph.nodes if node.weight >= 0]


@pytest.mark.parametrize("kind", "ui")
def test_there_and_back(kind):
    check("QuantizeLinear", [("f", (3, 4)), scale(0.02), zero(kind, 7)], kind, 0.01)
    check("DequantizeLinear", [(kind, (3, 4)), scale(0.02), zero(kind, 7)])


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("is_wide", [False, True])
def test_dynamic_lstm(direction, is_wide):
    """A scale for each direction, or for each gate of it. onnxruntime quantises what meets the weights, too."""
    count, hidden, given = 1 + (direction == "bidirectional"), 8, 12
    scales = np.linspace(0.002, 0.004, 4 * hidden * count).astype(F32).reshape(count, -1)
    scales = scales if is_wide else scales[:, 0]
    zeros = np.zeros_like(scales, np.int8)
    inputs = [("f", (7, 3, given)), numbers("i", count, given, 4 * hidden), numbers("i", count, hidden, 4 * hidden)]
    inputs += [weights(count, 8 * hidden), None, None, None, None, scales, zeros, scales, zeros]
    graph = check("DynamicQuantizeLSTM", inputs, "fff", 0.02, direction=direction, hidden_size=hidden)
    assert [node.op for node in graph.nodes].count("recurrent") == 1


def test_products():
    q = numbers("i", 40, 33)
    assert forms(
        check("DynamicQuantizeMatMul", [("f", (5, 40)), q, steps(33), np.zeros(33, np.int8), weights(33)])
    ) == ["conv_u8"]
    inputs = [("u", (5, 40)), q, scale(0.02), steps(33), zero("u", 100), np.zeros(33, np.int8), weights(33)]
    assert forms(check("MatMulIntegerToFloat", inputs)) == ["conv_u8"]
    assert forms(check("MatMulIntegerToFloat", inputs[:5])) == ["conv_u8"]


@pytest.mark.parametrize("turned", [0, 1])
def test_general_product(turned):
    b = numbers("i", 33, 40) if turned else numbers("i", 40, 33)
    inputs = [("u", (5, 40)), scale(0.02), zero("u", 100), b, steps(33), np.zeros(33, np.int8), numbers("w", 33) >> 20]
    assert forms(check("QGemm", inputs, transB=turned, alpha=0.5)) == ["conv_u8"]
    check("QGemm", [*inputs, scale(0.4), zero("u", 128)], "u", 0.01, transB=turned)


def test_quantised_elementwise():
    one = [("u", (1, 4, 6, 6)), scale(0.02), zero("u", 100)]
    to = [scale(0.05), zero("u", 90)]
    for operator in ("QLinearAdd", "QLinearMul"):
        check(operator, [*one, ("u", (4, 1, 1)), scale(0.03), zero("u", 120), *to], "u", 0.01)
    check("QLinearSigmoid", [*one, scale(1 / 256), zero("u", 0)], "u", 0.01)
    check("QLinearLeakyRelu", [*one, *to], "u", 0.01, alpha=0.1)
    for of_softmax in ({"axis": -1, "opset": 13}, {"axis": 2, "opset": 12}, {"opset": 11}):
        check("QLinearSoftmax", [*one, scale(1 / 256), zero("u", 0)], "u", 0.01, **of_softmax)
    check("QLinearGlobalAveragePool", [*one, *to], "u", 0.01)
    check("QLinearAveragePool", [*one, *to], "u", 0.01, kernel_shape=[2, 2], strides=[2, 2])
    check("QLinearConcat", [*to, *one, ("u", (1, 2, 6, 6)), scale(0.03), zero("u", 120)], "u", 0.01, axis=1)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize("k", [128, 112])
def test_few_bits(bits, has_zeros, block, k):
    """Blocks of a multiple of 32 are stored as they are, so that only the order of sums differs."""
    n, blocks = 33, -(-k // block)
    packed = numbers("u", n, blocks, block * bits // 8)
    zeros = numbers("u", n * (-(-blocks * bits // 8)), seed=9) if has_zeros else None
    exact = not has_zeros if bits == 8 else block > 16
    graph = check(
        "MatMulNBits", [("f", (5, k)), packed, np.resize(steps(7), n * blocks), *([zeros] if has_zeros else [])], "f",
        2e-5 if exact else 2e-3, K=k, N=n, bits=bits, block_size=block,
    )  # fmt: skip
    whole = "s8b16f" if block == 16 else "s8bf"
    form = "f16" if not exact else whole if bits == 8 else "q4mf" if has_zeros else "q4f"
    assert forms(graph) == [form]


def test_two_bits_are_stored_in_four():
    k, n = 96, 17
    packed, scales = numbers("u", n, 3, 8), np.resize(steps(7), n * 3)
    model, feeds = one_node("MatMulNBits", [("f", (1, k)), packed, scales], K=k, N=n, bits=2, block_size=32)
    graph = load(model)
    assert forms(graph) == ["q4f"]
    whole = (packed.reshape(n, -1, 1) >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(n, k).astype(F32) - 2
    want = next(iter(feeds.values())) @ (whole * np.repeat(scales.reshape(n, 3), 32, axis=1)).T
    (made,) = run_graph(graph, feeds).values()
    np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-4)


def test_activations():
    check("Gelu", [("f", (3, 8))])
    check("BiasGelu", [("f", (3, 8)), weights(8)])
    check("FastGelu", [("f", (3, 8)), weights(8)], tolerance=1e-4)
    check("FastGelu", [("f", (3, 8))], tolerance=1e-4)
    check("QuickGelu", [("f", (3, 8))], alpha=1.5)


def test_fused_products_and_convolutions():
    check("FusedMatMul", [("f", (3, 8)), weights(5, 8)], alpha=0.3, transB=1)
    check("FusedMatMul", [("f", (2, 3, 8)), ("f", (2, 8, 4))])
    check("FusedMatMul", [("f", (2, 8, 3)), ("f", (2, 5, 8))], transA=1, transB=1, alpha=0.5)
    check("FusedMatMul", [("f", (2, 8, 3)), weights(8, 5)], transA=1)
    check("FusedMatMul", [weights(8, 3), ("f", (2, 2, 8, 5))], transA=1, alpha=-2.0)
    check("FusedMatMul", [("f", (8,)), ("f", (8, 5))], alpha=3.0)
    check("FusedGemm", [("f", (3, 8)), weights(8, 5), weights(5)], activation="LeakyRelu", activation_alpha=0.2)
    inputs = [("f", (1, 4, 6, 6)), weights(5, 4, 3, 3), weights(5)]
    check("FusedConv", inputs, activation="HardSigmoid", activation_params=[0.3, 0.4], pads=[1, 1, 1, 1])
    check("FusedConv", [*inputs, ("f", (1, 5, 6, 6))], activation="Relu", pads=[1, 1, 1, 1])
    check("FusedConv", inputs, activation="Clip", activation_params=[-0.1, 0.2])


@pytest.mark.parametrize("trans", [{}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1}])
@pytest.mark.parametrize("batch", [{"transBatchA": 1}, {"transBatchA": 1, "transBatchB": 1}, {"transBatchB": 1}])
def test_products_of_turned_batches(trans, batch):
    a, b = (3, 8) if not trans.get("transA") else (8, 3), (8, 5) if not trans.get("transB") else (5, 8)
    a, b = ((x[0], 2, 4, x[1]) if batch.get(f"transBatch{side}") else (2, 4, *x) for side, x in (("A", a), ("B", b)))
    check("FusedMatMul", [("f", a), ("f", b)], **trans, **batch)


@pytest.mark.parametrize("bias", [False, True])
def test_normalised_sums(bias):
    x = [("f", (2, 3, 8)), ("f", (2, 3, 8)), weights(8)]
    last = [weights(8, seed=4)] if bias else []
    check("SkipLayerNormalization", [*x, weights(8, seed=2), *last], "f  f", epsilon=1e-5)
    check("SkipSimplifiedLayerNormalization", [*x, *last], "f  f", epsilon=1e-5)


def test_embeddings():
    ids, segments = np.array([[1, 4, 2], [0, 3, 1]], np.int32), np.array([[0, 0, 1], [0, 1, 1]], np.int32)
    tables = [weights(6, 8), weights(5, 8, seed=2), weights(2, 8, seed=3), weights(8), weights(8, seed=5)]
    mask = np.array([[1, 1, 1], [1, 1, 0]], np.int32)
    check("EmbedLayerNormalization", [("w", ids), ("w", segments), *tables, ("w", mask)], "fw")


@pytest.mark.parametrize("mask", ["none", "mask", "lengths", "added"])
def test_attention(mask):
    heads, width = 2, 8
    masks = {"none": [], "mask": [("w", np.array([[1, 1, 1], [1, 1, 0]], np.int32))]}
    masks["added"] = [None, None, ("f", (2, heads, 3, 3))]
    qkv = [("f", (2, 3, width)), weights(width, 3 * width), weights(3 * width)]
    if mask == "lengths":
        _embedded_attention(heads, width)
    else:
        check("Attention", [*qkv, *masks[mask]], num_heads=heads, tolerance=1e-4)
        parts = [("f", (2, 3, width))] * 3
        check("MultiHeadAttention", [*parts, weights(3 * width), *masks[mask][-1:]][:5] if mask != "added" else
              [*parts, None, None, ("f", (2, heads, 3, 3))], num_heads=heads, tolerance=1e-4)  # fmt: skip


@pytest.mark.parametrize("is_masked", [False, True])
def test_quantised_attention(is_masked):
    mask = [("w", np.array([[1, 1, 1], [1, 1, 0]], np.int32))] if is_masked else [None]
    inputs = [("u", (2, 3, 8)), numbers("i", 8, 24), weights(24), scale(0.02), scale(0.01), *mask]
    graph = check("QAttention", [*inputs, zero("u", 120), zero("i", 0)], num_heads=2, tolerance=1e-4)
    assert forms(graph) == ["conv_u8"]


def test_attention_to_what_came_before():
    qkv = [("f", (2, 3, 8)), weights(8, 24), weights(24)]
    check("Attention", [*qkv, ("w", np.array([[1, 1, 1], [1, 1, 0]], np.int32))], num_heads=2, unidirectional=1,
          tolerance=1e-4)  # fmt: skip
    parts = [("f", (2, 3, 8))] * 3
    check("MultiHeadAttention", parts, num_heads=2, unidirectional=1, scale=0.3, tolerance=1e-4)
    past = [None, None, None, ("f", (2, 2, 5, 4)), ("f", (2, 2, 5, 4))]
    check("MultiHeadAttention", [*parts, *past], "fff", num_heads=2, tolerance=1e-4)
    check("MultiHeadAttention", [*parts, *past], "fff", num_heads=2, unidirectional=1, tolerance=1e-4)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [np.array([4]), np.array([[0, 1, 2], [7, 3, 4]])])
def test_rotary_embeddings(interleaved, positions):
    caches = [weights(9, 4), weights(9, 4, seed=2)]
    for shape in ((2, 3, 16), (2, 2, 3, 8)):
        check("RotaryEmbedding", [("f", shape), ("l", positions), *caches], interleaved=interleaved)
    check("RotaryEmbedding", [("f", (2, 3, 24)), ("l", positions), *caches], num_heads=2, rotary_embedding_dim=8)


def _embedded_attention(heads, width):
    """Lengths that an embedding counts."""
    tables = [weights(6, width), weights(5, width, seed=2), weights(2, width, seed=3), weights(width), weights(width)]
    constants = {f"t{i}": t for i, t in enumerate(tables)} | {"w": weights(width, 3 * width), "b": weights(3 * width)}
    nodes = [
        helper.make_node("EmbedLayerNormalization", ["ids", "segments", *list(constants)[:5], "mask"], ["x", "lengths"],
                         domain="com.microsoft"),
        helper.make_node("Attention", ["x", "w", "b", "lengths"], ["y"], num_heads=heads, domain="com.microsoft"),
    ]  # fmt: skip
    feeds = {"ids": np.array([[1, 4, 2], [0, 3, 1]], np.int32), "segments": np.zeros((2, 3), np.int32)}
    feeds["mask"] = np.array([[1, 1, 1], [1, 1, 0]], np.int32)
    ports = [helper.make_tensor_value_info(n, TensorProto.INT32, v.shape) for n, v in feeds.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    initializers = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "test", ports, outputs, initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    check_model(helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds=feeds, tolerance=1e-4)


@pytest.mark.parametrize("kind", "ui")
def test_channels_that_are_last(kind):
    """Pictures that onnxruntime's tools have turned; their weights have not been."""
    picture = (kind, numbers(kind, 2, 9, 8, 6))
    given, made = [scale(0.02), zero(kind, 3)], [scale(0.05), zero(kind, 7)]
    weight = [numbers("i", 4, 6, 3, 3), steps(4), np.zeros(4, np.int8)]
    window = {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    inputs = [picture, *given, *weight, *made, numbers("w", 4) >> 20]
    assert forms(check("QLinearConv", inputs, kind, 0.01, channels_last=1, **window)) == ["conv_u8"]
    check("NhwcMaxPool", [picture], kind, 0, **window)
    for operator, rest in (("QLinearAveragePool", window), ("QLinearGlobalAveragePool", {})):
        # these steps leave no mean between two numbers, which may be rounded either way
        check(operator, [picture, scale(0.0213), given[1], *made], kind, 0.01, channels_last=1, **rest)
    turned = (kind, np.ascontiguousarray(picture[1].transpose(0, 3, 1, 2)))
    check("QLinearConv", [turned, *inputs[1:]], kind, 0.01, **window)


@pytest.mark.parametrize("kind", "ui")
def test_one_of_two_quantised_operands(kind):
    given = [("b", np.arange(24).reshape(2, 3, 4) % 3 == 0), (kind, (2, 3, 4)), scale(0.02), zero(kind, 3)]
    check("QLinearWhere", [*given, (kind, (3, 1)), scale(0.03), zero(kind, 5), scale(0.05), zero(kind, 7)], kind, 0.01)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("blocks", [1, 3])
def test_rows_of_a_packed_table(bits, has_zeros, blocks):
    table, scales = numbers("u", 20, blocks * 32 * bits // 8), np.abs(weights(20, blocks)) + F32(0.1)
    zeros = [numbers("u", 20, -(-blocks * bits // 8), seed=4)] if has_zeros else []
    for indices in (np.array([3, 0, 19]), np.array([[5, -1], [2, 2]])):
        rest = {"bits": bits, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
        graph = check("GatherBlockQuantized", [table, ("l", indices), scales, *zeros], **rest)
        assert all(t.size < table.size * 8 // bits or t.weight >= 0 for t in graph.tensors), "the table is unpacked"


def test_embeddings_of_8_bits():
    words = np.random.default_rng(0).integers(0, 30, (2, 7)).astype(np.int32)
    segments, mask = (np.random.default_rng(i).integers(0, 2, (2, 7)).astype(np.int32) for i in (1, 2))
    tables = [numbers("u", *shape, seed=i) for i, shape in enumerate([(30, 16), (10, 16), (2, 16), (16,), (16,)])]
    scales, zeros = [scale(s) for s in (0.02, 0.03, 0.01, 0.01, 0.01)], [zero("u", z) for z in (120, 130, 127, 2, 99)]
    inputs = [("w", words), ("w", segments), *tables, ("w", mask), *scales, *zeros]
    check("QEmbedLayerNormalization", inputs, "fw", epsilon=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric):
    check("CDist", [("f", (7, 5)), weights(3, 5)], metric=metric)
    check("CDist", [("f", (7, 5)), ("f", (1, 5))], metric=metric)


def test_operators_that_the_default_domain_has_too():
    for upper in (0, 1):
        check("Trilu", [("f", (3, 4, 5))], upper=upper)
        check("Trilu", [("f", (3, 4, 5)), np.array(1)], upper=upper)
    for axis in (np.array([1], np.int32), np.array(-1, np.int32)):
        check("ExpandDims", [("f", (3, 4)), axis])
    for mode in ("constant", "reflect", "edge"):
        check("Pad", [("f", (3, 4)), np.array([1, 2, 0, 1])], mode=mode)
    grid = (np.random.default_rng(0).random((2, 4, 3, 2)) * 2.4 - 1.2).astype(F32)
    for mode in ("bilinear", "nearest"):
        check("GridSample", [("f", (2, 3, 6, 5)), ("f", grid)], mode=mode, padding_mode="border", tolerance=1e-4)


def test_nodes_that_share_a_name(tmp_path):
    """onnxruntime refuses that. Each value is made once all the same."""
    nodes = [
        helper.make_node("QuickGelu", [a], [b], name="same", domain="com.microsoft", alpha=alpha)
        for a, b, alpha in (("x", "t", 1.0), ("t", "u", 2.0), ("x", "y", 3.0))
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "u", "y")]
    graph = helper.make_graph(nodes, "test", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    model = load_model(str(path)).graph
    made = [*model.constants, *(name for node in model.nodes for name in node.output)]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize(
    ("operator", "attrs", "says"),
    [
        ("Attention", {"num_heads": 2, "do_rotary": 1}, "do_rotary"),
        ("RotaryEmbedding", {"is_packed_batching": 1}, "is_packed_batching"),
        ("Attention", {"num_heads": 3}, "3 heads"),
        ("FusedConv", {"activation": "Softsign"}, "Softsign"),
        ("FusedMatMul", {"alpha": "a"}, "attribute alpha has the wrong type"),
        ("MatMulNBits", {"K": 8, "N": 4, "bits": 3, "block_size": 16}, "bits=3"),
        ("GatherBlockQuantized", {"bits": 2}, "bits=2"),
        ("CDist", {"metric": "cosine"}, "cosine"),
        ("QGemm", {}, "input 2 is missing|input 3 is missing"),
        ("Gelu", {"strange": 1}, "strange"),
        ("NoSuchOperator", {}, "com.microsoft"),
    ],
)
def test_what_is_not_supported_says_so(operator, attrs, says):
    given = {
        "RotaryEmbedding": ["x", "p", "w", "w"],
        "MatMulNBits": ["x", "b", "w"],
        "GatherBlockQuantized": ["b", "p", "w"],
    }
    inputs = given.get(operator, ["x", "w"])
    node = helper.make_node(operator, inputs, ["y"], domain="com.microsoft", name="n", **attrs)
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3, 8]) for n in ("x", "y")]
    constants = {"w": weights(8, 24), "p": np.zeros(1, np.int64), "b": np.zeros((8, 1, 16), np.uint8)}
    made = [numpy_helper.from_array(array, name) for name, array in constants.items() if name in inputs]
    graph = helper.make_graph([node], "test", ports[:1], ports[1:], made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(GraphError, match=says) as refused:
        load(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    assert "\n" not in str(refused.value)
