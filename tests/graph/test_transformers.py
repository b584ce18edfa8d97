"""Layer normalisation, attention and GELU, as operators and as exporters write them, against onnxruntime."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn.graph.bind import Binder
from flexnn.graph.evaluate import evaluate
from flexnn.graph.model import ModelNode
from flexnn.graph.passes import run_passes
from tests.support.compare import check_model, expected, feeds_of, load, model_of, ops_of, run_on_core, weights
from tests.support.reference import run_graph

F32 = np.float32
I64 = np.int64


class Writer:
    """Nodes and constants of a model, each value named by number."""

    def __init__(self):
        self.nodes, self.constants = [], {}

    def __call__(self, op, *inputs, **attrs):
        names = []
        for value in inputs:
            if not isinstance(value, str):
                self.constants[f"c{len(self.constants)}"] = np.asarray(value)
                value = f"c{len(self.constants) - 1}"
            names.append(value)
        self.nodes.append(helper.make_node(op, names, [f"v{len(self.nodes)}"], **attrs))
        return self.nodes[-1].output[0]

    def model(self, inputs, *outputs, opset=17):
        return model_of(self.nodes, inputs, list(outputs), self.constants, opset)


# ---- layer normalisation ----


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_normalization(axis, bias):
    w, shape = Writer(), (3, 5, 7)[axis:] if axis else (3, 5, 7)
    y = w("LayerNormalization", "x", weights(*shape), *([weights(*shape, seed=2)] if bias else []), axis=axis)
    graph = check_model(w.model({"x": (3, 5, 7)}, y))
    assert ops_of(graph) == ["layer_norm"]


def test_rms_normalization():
    w = Writer()
    y = w("RMSNormalization", "x", weights(7), epsilon=1e-3)
    graph = load(w.model({"x": (3, 5, 7)}, y, opset=23))
    assert ops_of(graph) == ["layer_norm"]
    assert graph.nodes[0].attrs["is_rms"] == 1


def layer_norm(w, x, axis=-1, size=24, power="Pow", twice=False, scale=True, bias=True):
    mean = w("ReduceMean", x, axes=[axis], keepdims=1)
    d = w("Sub", x, mean)
    below = w("Sub", x, mean) if twice else d
    square = w("Pow", below, F32(2)) if power == "Pow" else w("Mul", below, below)
    root = w("Sqrt", w("Add", w("ReduceMean", square, axes=[axis], keepdims=1), F32(1e-5)))
    y = w("Div", d, root) if power == "Pow" else w("Mul", d, w("Reciprocal", root))
    wide = (size,) + (1,) * (-1 - axis)
    y = w("Mul", y, weights(*wide)) if scale else y
    return w("Add", weights(*wide, seed=3), y) if bias else y


@pytest.mark.parametrize("power", ["Pow", "Mul"])
@pytest.mark.parametrize(("scale", "bias", "twice"), [(1, 1, 0), (1, 0, 1), (0, 0, 0), (0, 1, 1)])
def test_layer_norm_pattern(power, scale, bias, twice):
    w = Writer()
    y = layer_norm(w, "x", power=power, scale=scale, bias=bias, twice=twice)
    # Without a scale an added constant stays a sum of its own.
    graph = check_model(w.model({"x": (2, 9, 24)}, y))
    assert ops_of(graph)[0] == "layer_norm"
    assert len(graph.nodes) <= 1 + (bias and not scale)


def test_layer_norm_over_channels():
    """The norm of an image transposes channels to the end, where channels-last storage already has them."""
    w = Writer()
    x = w("Conv", "x", weights(24, 3, 3, 3))
    y = w("Conv", layer_norm(w, x, axis=-3), weights(4, 24, 1, 1))
    graph = check_model(w.model({"x": (1, 3, 9, 8)}, y))
    assert [op for op in ops_of(graph) if op != "copy"] == ["conv", "layer_norm", "conv"]
    assert "reduce" not in ops_of(graph)


@pytest.mark.parametrize("swapped", [False, True])
def test_rms_norm_pattern(swapped):
    w = Writer()
    square = w("Pow", "x", F32(2))
    root = w("Sqrt", w("Add", w("ReduceMean", square, axes=[-1], keepdims=1), F32(1e-6)))
    y = w("Mul", "x", w("Div", F32(1), root)) if swapped else w("Div", "x", root)
    y = w("Mul", weights(24), y)
    graph = check_model(w.model({"x": (2, 9, 24)}, y))
    assert ops_of(graph) == ["layer_norm"]
    assert graph.nodes[0].attrs["is_rms"] == 1


def test_not_a_layer_norm():
    """The tensor that is divided must be the one whose variance divides it."""
    w = Writer()
    d = w("Sub", "x", w("ReduceMean", "x", axes=[2], keepdims=1))
    root = w("Sqrt", w("Add", w("ReduceMean", w("Mul", d, d), axes=[2], keepdims=1), F32(1e-5)))
    graph = check_model(w.model({"x": (2, 9, 24)}, w("Div", "x", root)))
    assert "layer_norm" not in ops_of(graph)


# ---- GELU ----


def erf_gelu(w, x, order):
    z = w("Div", x, F32(math.sqrt(2))) if order else w("Mul", F32(math.sqrt(0.5)), x)
    gate = w("Add", w("Erf", z), F32(1))
    if order == 0:
        return w("Mul", w("Mul", x, gate), F32(0.5))
    return w("Mul", w("Mul", F32(0.5), x), gate) if order == 1 else w("Mul", x, w("Mul", gate, F32(0.5)))


def tanh_gelu(w, x, order):
    c = F32(math.sqrt(2 / math.pi))
    if order == 0:
        z = w("Mul", w("Add", x, w("Mul", w("Pow", x, F32(3)), F32(0.044715))), c)
    elif order == 1:
        cube = w("Mul", w("Mul", x, x), x)
        z = w("Mul", c, w("Add", w("Mul", F32(0.044715), cube), x))
    else:
        square = w("Mul", w("Mul", F32(0.044715), x), x)
        z = w("Mul", w("Mul", c, x), w("Add", F32(1), square))
    return w("Mul", w("Mul", F32(0.5), x), w("Add", F32(1), w("Tanh", z)))


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(("pattern", "kind"), [(erf_gelu, "gelu"), (tanh_gelu, "gelu_tanh")])
def test_gelu_pattern(order, pattern, kind):
    w = Writer()
    y = pattern(w, w("MatMul", "x", weights(6, 20)), order)
    graph = check_model(w.model({"x": (2, 5, 6)}, y))
    assert ops_of(graph) == ["conv"]
    assert graph.nodes[0].attrs["act"] == kind


def test_almost_gelu():
    w = Writer()
    y = w("Mul", w("Mul", "x", w("Add", w("Erf", w("Div", "x", F32(2))), F32(1))), F32(0.5))
    graph = check_model(w.model({"x": (2, 5)}, y))
    assert "erf" in [node.attrs.get("kind") for node in graph.nodes]


# ---- attention ----


def heads_of(w, x, heads, d, perm=(0, 2, 1, 3)):
    """[b, tokens, heads d] by a product with a constant, as [b, heads, tokens, d]."""
    x = w("MatMul", x, weights(24, heads * d, seed=len(w.nodes)) / F32(3))
    return w("Transpose", w("Reshape", x, np.array([0, 0, heads, d], I64)), perm=perm)


def self_attention(w, x, form, heads=3, d=8):
    q, v = heads_of(w, x, heads, d), heads_of(w, x, heads, d)
    scale = F32(1 / math.sqrt(d))
    if form == "keys transposed at once":
        k = heads_of(w, x, heads, d, (0, 2, 3, 1))
        scores = w("Mul", w("MatMul", q, k), scale)
    elif form == "both scaled":
        k = w("Transpose", heads_of(w, x, heads, d), perm=[0, 1, 3, 2])
        root = F32(math.sqrt(scale))
        scores = w("MatMul", w("Mul", q, root), w("Mul", k, root))
    else:
        k = w("Transpose", heads_of(w, x, heads, d), perm=[0, 1, 3, 2])
        scores = w("Div", w("MatMul", q, k), F32(math.sqrt(d)))
    if "capped" in form:
        scores = w("Mul", w("Tanh", w("Div", scores, F32(0.4))), F32(0.4))
    if "masked" in form:
        scores = w("Add", scores, "mask")
    y = w("MatMul", w("Softmax", scores, axis=-1), v)
    return w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, heads * d], I64))


@pytest.mark.parametrize(
    "form", ["plain", "masked", "both scaled", "keys transposed at once", "capped", "capped and masked"]
)
def test_attention_pattern(form):
    """Nothing is moved: queries, keys and values are read where the products put them."""
    w = Writer()
    y = self_attention(w, "x", form)
    inputs = {"x": (2, 7, 24)} | ({"mask": (2, 1, 1, 7)} if "masked" in form else {})
    graph = check_model(w.model(inputs, y))
    assert ops_of(graph) == ["conv", "conv", "conv", "attention"]
    assert (graph.nodes[-1].attrs["softcap"] == pytest.approx(0.4)) is ("capped" in form)


def test_attention_of_one_product():
    """Queries, keys and values of one projection: parts of it."""
    w = Writer()
    qkv = w("Reshape", w("MatMul", "x", weights(24, 72)), np.array([0, 0, 3, 3, 8], I64))
    parts = w("Transpose", qkv, perm=[2, 0, 3, 1, 4])
    q, k, v = (w("Gather", parts, I64(i), axis=0) for i in range(3))
    scores = w("Mul", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), F32(0.35))
    y = w("MatMul", w("Softmax", scores, axis=-1), v)
    y = w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, 24], I64))
    assert "attention" in ops_of(check_model(w.model({"x": (1, 7, 24)}, y)))


@pytest.mark.parametrize("shape", [(5, 8), (6, 5, 8)])
def test_attention_of_lower_rank(shape):
    w = Writer()
    perm = [1, 0] if len(shape) == 2 else [0, 2, 1]
    scores = w("Add", w("MatMul", "q", w("Transpose", "k", perm=perm)), weights(5, 5))
    y = w("MatMul", w("Softmax", scores, axis=-1), "v")
    graph = check_model(w.model({"q": shape, "k": shape, "v": shape}, y))
    assert "attention" in ops_of(graph)


def test_grouped_queries():
    """Keys and values that are repeated for their heads are read where they are."""
    w = Writer()
    q = heads_of(w, "x", 6, 4)
    repeated = []
    for _ in range(2):
        part = w("Unsqueeze", heads_of(w, "x", 2, 4), np.array([2], I64))
        part = w("Expand", part, np.array([1, 2, 3, 7, 4], I64))
        repeated.append(w("Reshape", part, np.array([1, 6, 7, 4], I64)))
    k, v = repeated
    scores = w("Mul", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), F32(0.5))
    y = w("MatMul", w("Softmax", scores, axis=-1), v)
    y = w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, 24], I64))
    graph = check_model(w.model({"x": (1, 7, 24)}, y))
    assert ops_of(graph) == ["conv", "conv", "conv", "attention"]


LOWEST = np.finfo(F32).min


@pytest.mark.parametrize("form", ["seen", "hidden", "and added", "computed", "not a triangle"])
def test_masks_by_where(form):
    """A triangle alone is causality; with another mask, or computed, it is added to the scores."""
    w, seen = Writer(), np.tril(np.ones((1, 1, 7, 7), np.bool_))
    if form == "not a triangle":
        seen[..., 3, 1] = False
    inputs, feeds = {"x": (2, 7, 24)}, None
    x = "x"
    for _ in range(2):
        q, v = heads_of(w, x, 3, 8), heads_of(w, x, 3, 8)
        k = heads_of(w, x, 3, 8, (0, 2, 3, 1))
        scores = w("Div", w("MatMul", q, k), F32(math.sqrt(8)))
        condition = seen
        if form == "computed":
            inputs["lengths"] = (2, 1, 1, 1)
            condition = w("Greater", "lengths", np.arange(7, dtype=F32))
        chosen = (~seen, LOWEST, scores) if form == "hidden" else (condition, scores, LOWEST)
        scores = w("Where", *chosen)
        if form == "and added":
            inputs["mask"] = (2, 1, 1, 7)
            scores = w("Add", "mask", scores)
        y = w("MatMul", w("Softmax", scores, axis=-1), v)
        x = w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, 24], I64))
    model = w.model(inputs, x)
    if form == "computed":
        feeds = feeds_of(load(model)) | {"lengths": np.array([3, 7], F32).reshape(2, 1, 1, 1)}
    if form == "and added":  # the first query sees nothing but what both masks hide
        feeds = feeds_of(load(model)) | {"mask": np.where(np.arange(14).reshape(2, 1, 1, 7) % 7 < 2, LOWEST, F32(0))}
    graph = check_model(model, feeds=feeds)
    nodes = [node for node in graph.nodes if node.op == "attention"]
    assert [node.attrs["is_causal"] for node in nodes] == [int(form in ("seen", "hidden"))] * 2
    assert "softmax" not in ops_of(graph)
    if form == "and added":
        assert ops_of(graph).count("binary") == 1  # for both layers
        assert nodes[0].inputs[3] == nodes[1].inputs[3]


def test_a_row_of_large_scores_that_sees_nothing():
    """All keys weigh alike then, however large their scores are beside the number that Where puts there."""
    w = Writer()
    scores = w("MatMul", "q", w("Transpose", "k", perm=[0, 2, 1]))
    scores = w("Where", w("Greater", "m", F32(0)), F32(-1e9), scores)
    model = w.model(dict.fromkeys("qkvm", (2, 5, 5)), w("MatMul", w("Softmax", scores, axis=-1), "v"))
    feeds = {name: 40 * array for name, array in feeds_of(load(model)).items()}
    feeds["m"][0, 2] = 1
    feeds["m"][1] = 1
    assert "attention" in ops_of(check_model(model, feeds=feeds))


@pytest.mark.parametrize("tokens", [1, 3])
def test_triangle_behind_a_past(tokens):
    """Keys and values of tokens before, as decoders keep them: new ones follow, and a slice of the triangle says so."""
    w, before = Writer(), 4
    q, k, v = (heads_of(w, "x", 3, 8) for _ in range(3))
    k, v = w("Concat", "past_k", k, axis=2), w("Concat", "past_v", v, axis=2)
    scores = w("Div", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), F32(math.sqrt(8)))
    seen = np.tri(tokens, before + tokens, before, dtype=np.bool_)
    y = w("MatMul", w("Softmax", w("Where", seen, scores, LOWEST), axis=-1), v)
    inputs = {"x": (1, tokens, 24)} | dict.fromkeys(("past_k", "past_v"), (1, 3, before, 8))
    graph = check_model(w.model(inputs, y, k, v))
    (node,) = (node for node in graph.nodes if node.op == "attention")
    assert (node.attrs["is_causal"], node.attrs["past"], len(node.inputs)) == (1, before, 3)


def test_a_finite_number_hides_nothing():
    """A Where with a finite number hides no key: all keys still weigh."""
    w = Writer()
    scores = w(
        "Where", np.tril(np.ones((5, 5), np.bool_)), w("MatMul", "q", w("Transpose", "k", perm=[0, 2, 1])), F32(-3)
    )
    y = w("MatMul", w("Softmax", scores, axis=-1), "v")
    graph = check_model(w.model(dict.fromkeys("qkv", (2, 5, 8)), y))
    assert "attention" not in ops_of(graph)


def test_rows_that_see_nothing_are_zeros():
    """Torch's scaled product with a boolean mask replaces rows that would be NaN by zeros."""
    w = Writer()
    scores = w(
        "Add",
        w("MatMul", "q", w("Transpose", "k", perm=[0, 2, 1])),
        w("Where", w("Greater", "m", F32(0)), F32(0), F32(-np.inf)),
    )
    shares = w("Softmax", scores, axis=-1)
    shares = w("Where", w("IsNaN", shares), F32(0), shares)
    model = w.model(dict.fromkeys("qkv", (2, 5, 8)) | {"m": (2, 5, 5)}, w("MatMul", shares, "v"))
    mask = weights(2, 5, 5)
    mask[0, 2] = -1
    graph = check_model(model, feeds=feeds_of(load(model)) | {"m": mask})
    assert "attention" in ops_of(graph)
    assert "softmax" not in ops_of(graph)


def test_scores_that_are_read_stay():
    w = Writer()
    shares = w("Softmax", w("MatMul", "q", w("Transpose", "k", perm=[0, 2, 1])), axis=-1)
    graph = check_model(w.model({"q": (2, 5, 8), "k": (2, 5, 8), "v": (2, 5, 8)}, w("MatMul", shares, "v"), shares))
    assert "attention" not in ops_of(graph)


def test_scores_never_exist_whole(tmp_path):
    """The smallest budget is below what the scores alone would take."""
    w, path = Writer(), str(tmp_path / "m.onnx")
    model = w.model({"x": (1, 600, 24)}, self_attention(w, "x", "plain", heads=8))
    onnx.save(model, path)
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.Session(path, memory=1 << 16)
    assert refused.value.minimum < 8 * 600 * 600 * 4 / 2
    feeds = feeds_of(load(model))
    with flexnn.Session(path, memory=refused.value.minimum) as session:
        (y,) = session.run(None, feeds)
    (want,) = expected(model, feeds).values()
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("form", ["packed", "causal", "floats", "booleans", "past", "grouped"])
def test_attention_operator(form):
    w, heads, groups, tokens, past = Writer(), 6, 2 if form in ("grouped", "past") else 6, 5, 3
    attrs = {"is_causal": int(form in ("causal", "past")), "scale": 0.3}
    keys = tokens + past * (form == "past")
    if form in ("packed", "grouped"):
        attrs |= {"q_num_heads": heads, "kv_num_heads": groups}
        inputs = {"q": (2, tokens, heads * 4), "k": (2, tokens, groups * 4), "v": (2, tokens, groups * 8)}
    else:
        inputs = {"q": (2, heads, tokens, 4), "k": (2, groups, tokens, 4), "v": (2, groups, tokens, 8)}
    names = ["q", "k", "v"]
    if form in ("floats", "booleans"):
        mask = weights(2, 1, tokens, keys) > 0
        mask[..., 0] = True  # onnxruntime gives no zeros where nothing is seen
        names.append(mask if form == "booleans" else np.where(mask, F32(0), F32(-np.inf)))
    if form == "past":
        inputs |= {"past_k": (2, groups, past, 4), "past_v": (2, groups, past, 8)}
        names += ["", "past_k", "past_v"]
    y = w("Attention", *names, **attrs)
    outputs = [y]
    if form == "past":
        w.nodes[-1].output.extend(["present_k", "present_v"])
        outputs += ["present_k", "present_v"]
    graph = check_model(w.model(inputs, *outputs, opset=23))
    assert "attention" in ops_of(graph)


@pytest.mark.parametrize(
    "attrs",
    [
        {"softcap": 0.5},
        {"softcap": 0.5, "is_causal": 1, "left_window_size": 4},
        {"is_causal": 1, "left_window_size": 0},
        {"is_causal": 1, "left_window_size": 300, "right_window_size": 3},
    ],
)
@pytest.mark.parametrize(("tokens", "keys"), [(1, 30), (45, 45), (600, 600), (40, 8)])
@pytest.mark.parametrize("is_masked", [False, True])
def test_capped_scores_and_windows_of_keys(attrs, tokens, keys, is_masked):
    """Numbers of numpy's operator, which had them before; queries that see no key give zeros."""
    heads, groups = 4, 2
    shapes = {"q": (2, heads, tokens, 8), "k": (2, groups, keys, 8), "v": (2, groups, keys, 16)}
    mask = weights(2, 1, tokens, keys, seed=7)
    mask[mask > 0.7] = -np.inf
    if is_masked:
        shapes["mask"] = mask.shape
    binder, attrs = Binder(23), attrs | {"scale": 2.0}
    for name, shape in shapes.items():
        binder.add_input(name, shape, "f32")
    binder.add(ModelNode("Attention", "", [*shapes], ["y"], attrs))
    binder.set_outputs(["y"])
    graph = run_passes(binder.graph)
    assert "attention" in ops_of(graph)
    feeds = feeds_of(graph) | ({"mask": mask} if is_masked else {})
    given = [feeds["q"], feeds["k"], feeds["v"], mask if is_masked else None]
    (want,) = evaluate("Attention", attrs, given, 23, 1)
    for run in (run_graph, run_on_core):
        np.testing.assert_allclose(run(graph, feeds)["y"], want, rtol=0, atol=5e-6)


# ---- rotary embedding ----


def rotated(w, x, cosines, sines, half, swapped=False):
    front, back = (
        w("Slice", x, np.array([a], I64), np.array([b], I64), np.array([3], I64)) for a, b in ((0, half), (half, 99))
    )
    turned = w("Concat", w("Neg", front if swapped else back), back if swapped else front, axis=-1)
    return w("Add", w("Mul", x, cosines), w("Mul", turned, sines))


@pytest.mark.parametrize("is_computed", [False, True])
def test_rotary_pattern(is_computed):
    """Cosines and sines may differ between the halves, and be one for each text."""
    w, shape = Writer(), (2, 1, 7, 8) if is_computed else (1, 1, 7, 8)
    inputs = {"x": (2, 7, 24)} | (dict.fromkeys(("c", "s"), shape) if is_computed else {})
    c, s = ("c", "s") if is_computed else (weights(*shape, seed=3), weights(*shape, seed=4))
    q, k = (rotated(w, heads_of(w, "x", 3, 8), c, s, 4) for _ in range(2))
    v = heads_of(w, "x", 3, 8)
    scores = w("Mul", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), F32(0.3))
    y = w("MatMul", w("Softmax", scores, axis=-1), v)
    y = w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, 24], I64))
    graph = check_model(w.model(inputs, y))
    assert sorted(ops_of(graph)) == ["attention", "conv", "conv", "conv", "rotary", "rotary"]


@pytest.mark.parametrize("what", ["order", "halves", "read"])
def test_not_rotary(what):
    w = Writer()
    y = rotated(
        w, "x", weights(7, 8).reshape(1, 1, 7, 8), weights(1, 1, 7, 8), 3 if what == "halves" else 4, what == "order"
    )
    outputs = [y, w.nodes[-2].output[0]] if what == "read" else [y]
    graph = check_model(w.model({"x": (2, 3, 7, 8)}, *outputs))
    assert "rotary" not in ops_of(graph)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("form", ["heads", "packed", "positions", "a part"])
def test_rotary_operator(form, interleaved):
    w, turned = Writer(), 4 if form == "a part" else 8
    attrs = {"interleaved": interleaved}
    if form == "a part":
        attrs |= {"rotary_embedding_dim": 4, "num_heads": 3}
    if form == "packed":
        attrs["num_heads"] = 3
    x = (2, 7, 24) if form == "packed" else (2, 3, 7, 8)
    caches = (50, turned // 2) if form == "positions" else (2, 7, turned // 2)
    names = ["x", weights(*caches, seed=3), weights(*caches, seed=4)]
    if form == "positions":
        names.append(np.random.default_rng(0).integers(0, 50, (2, 7)))
    graph = check_model(w.model({"x": x}, w("RotaryEmbedding", *names, **attrs), opset=23))
    assert "rotary" in ops_of(graph)


# ---- a whole block ----


def test_residual_of_tokens():
    """A projection takes the sum behind it, though it computes rows and the sum is of tokens."""
    w = Writer()
    x = w("Add", "x", self_attention(w, layer_norm(w, "x"), "plain"))
    h = erf_gelu(w, w("Add", w("MatMul", layer_norm(w, x), weights(24, 50)), weights(50)), 1)
    y = w("Add", w("MatMul", h, weights(50, 24)), x)
    graph = check_model(w.model({"x": (2, 7, 24)}, layer_norm(w, y)))
    assert ops_of(graph).count("binary") == 1
    assert [len(node.inputs) for node in graph.nodes if node.op == "conv"] == [1, 1, 1, 1, 2]
