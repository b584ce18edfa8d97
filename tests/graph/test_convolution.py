"""Conv, ConvTranspose and pools, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.support.compare import check_model, load, model_of, ops_of, weights


def conv_model(x, w, *, bias=True, op="Conv", opset=17, **attrs):
    cout = w[0] if op == "Conv" else w[1] * attrs.get("group", 1)
    constants = {"w": weights(*w)} | ({"b": weights(cout, seed=2)} if bias else {})
    node = helper.make_node(op, ["x", *constants], ["y"], **attrs)
    return model_of([node], {"x": x}, ["y"], constants, opset)


@pytest.mark.parametrize("opset", [6, 11, 17, 22])
def test_conv_of_every_opset(opset):
    check_model(conv_model((2, 3, 9, 11), (5, 3, 3, 3), opset=opset, pads=[1, 0, 2, 1], strides=[2, 1]))


@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("strides", [[1, 1], [2, 3]])
def test_auto_pad(auto_pad, strides):
    check_model(conv_model((1, 2, 10, 7), (4, 2, 4, 3), auto_pad=auto_pad, strides=strides))
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[4, 3], auto_pad=auto_pad, strides=strides)
    check_model(model_of([pool], {"x": (1, 2, 10, 7)}, ["y"]))


@settings(max_examples=60)
@given(st.data())
def test_conv_of_random_shapes(data):
    group = data.draw(st.sampled_from([1, 1, 2, 3, 8]))
    cin, cout = group * data.draw(st.integers(1, 5)), group * data.draw(st.integers(1, 7))
    kernel = [data.draw(st.integers(1, 4)) for _ in range(2)]
    dilations = [data.draw(st.integers(1, 2)) for _ in range(2)]
    pads = [data.draw(st.integers(0, 3)) for _ in range(4)]
    size = [(k - 1) * d + 1 + data.draw(st.integers(0, 6)) for k, d in zip(kernel, dilations, strict=True)]
    strides = [data.draw(st.integers(1, 3)) for _ in range(2)]
    x = (data.draw(st.integers(1, 2)), cin, *size)
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    check_model(conv_model(x, (cout, cin // group, *kernel), bias=data.draw(st.booleans()), **attrs))


@settings(max_examples=60)
@given(st.data())
def test_borders_between_convolutions(data):
    """Reflected ones behind an ELU, as codecs of sound have them, and others, added or cut off at both ends."""
    mode = data.draw(st.sampled_from(["reflect", "reflect", "edge", "constant"]))
    n, channels, wide = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 20)), data.draw(st.integers(7, 60))
    size = [high, wide] if (high := data.draw(st.sampled_from([0, 7, 9]))) else [wide]
    before, after = ([data.draw(st.integers(-2, 4)) for _ in size] for _ in range(2))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Elu", ["c"], ["e"], alpha=data.draw(st.sampled_from([1.0, 0.3]))),
        helper.make_node("Pad", ["e", "pads"], ["p"], mode=mode),
        helper.make_node("Conv", ["p", "v"], ["y"]),
        helper.make_node("Add", ["c", "c"], ["z"]),  # a second reader
    ]
    constants = {
        "w": weights(channels, 2, *[1] * len(size)),
        "v": weights(3, channels, *[3] * len(size), seed=2),
        "pads": np.array([0, 0, *before, 0, 0, *after], np.int64),
    }
    check_model(model_of(nodes, {"x": (n, 2, *size)}, ["y", "z"], constants))


@settings(max_examples=80)
@given(st.data())
def test_conv_of_maps_smaller_than_its_kernel(data):
    kernel = [data.draw(st.integers(1, 9)) for _ in range(2)]
    dilations = [data.draw(st.integers(1, 3)) for _ in range(2)]
    strides = [data.draw(st.integers(1, 3)) for _ in range(2)]
    size = [data.draw(st.integers(1, 4)) for _ in range(2)]
    lacking = [max((k - 1) * d + 1 - n, 0) for k, d, n in zip(kernel, dilations, size, strict=True)]
    before = [data.draw(st.integers(0, n + 1)) for n in lacking]
    after = [n - p + data.draw(st.integers(0, 2)) if n > p else 0 for n, p in zip(lacking, before, strict=True)]
    group = data.draw(st.sampled_from([1, 2, 8]))
    attrs = {"strides": strides, "pads": [*before, *after], "dilations": dilations, "group": group}
    check_model(conv_model((2, 8, *size), (8, 8 // group, *kernel), **attrs))


@pytest.mark.parametrize(
    ("size", "kernel", "attrs", "left"),
    [
        ((1, 1), (3, 3), {"pads": [1, 1, 1, 1]}, (1, 1)),
        ((1, 9), (3, 3), {"pads": [1, 1, 1, 1]}, (1, 3)),
        ((2, 2), (3, 3), {"pads": [1, 1, 1, 1]}, (3, 3)),
        ((2, 1), (7, 7), {"pads": [3, 3, 3, 3]}, (3, 1)),
        ((2, 2), (5, 5), {"pads": [2, 2, 2, 2], "strides": [2, 2]}, (2, 2)),
        ((1, 1), (3, 3), {"pads": [2, 2, 2, 2], "dilations": [2, 2]}, (1, 1)),
        ((1, 4), (5, 3), {"auto_pad": "SAME_UPPER"}, (1, 3)),
    ],
)
@pytest.mark.parametrize("group", [1, 8])
def test_taps_that_only_meet_padding_are_not_stored(size, kernel, attrs, left, group):
    graph = check_model(conv_model((1, 8, *size), (8, 8 // group, *kernel), group=group, **attrs))
    (conv,) = [n for n in graph.nodes if "conv" in n.op]
    assert tuple(conv.attrs["kernel"]) == left


def test_conv_of_one_dimension():
    graph = check_model(conv_model((2, 6, 20), (4, 3, 5), pads=[2, 3], strides=[2], dilations=[2], group=2))
    assert "pad" not in ops_of(graph)


def test_depthwise_is_its_own_operator():
    graph = check_model(conv_model((1, 20, 9, 9), (20, 1, 3, 3), group=20, pads=[1, 1, 1, 1]))
    assert ops_of(graph) == ["copy", "dwconv", "copy"]


def test_depthwise_with_multiplier():
    check_model(conv_model((1, 6, 9, 9), (18, 1, 3, 3), group=6))


@pytest.mark.parametrize("wide", [2, 4, 8])
@pytest.mark.parametrize("group", [2, 3, 16])
def test_narrow_groups_hold_no_zeros(wide, group):
    channels = wide * group
    model = conv_model((1, channels, 9, 9), (channels, wide, 3, 3), bias=True, group=group, pads=[1, 1, 1, 1])
    graph = check_model(model)
    (conv,) = [n for n in graph.nodes if n.op == "conv"]
    weight = graph.weights[conv.weight]
    assert weight.nbytes == 4 * 16 * (1 + 9 * wide) * -(-channels // 16)
    numbers = np.concatenate(list(weight.panels))
    assert np.count_nonzero(numbers) == channels * (1 + 9 * wide)


@settings(max_examples=60)
@given(st.data())
def test_conv_transpose_of_random_shapes(data):
    group = data.draw(st.sampled_from([1, 1, 2, 4]))
    cin, cout_group = group * data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    kernel = [data.draw(st.integers(1, 4)) for _ in range(2)]
    strides = [data.draw(st.integers(1, 3)) for _ in range(2)]
    dilations = [data.draw(st.integers(1, 2)) for _ in range(2)]
    extra = [data.draw(st.integers(0, s - 1)) for s in strides]
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = [data.draw(st.integers(0, r)) for r in reach + reach]
    size = [data.draw(st.integers(1, 6)) for _ in range(2)]
    for i in (0, 1):  # something must be left
        if (size[i] - 1) * strides[i] + reach[i] + 1 + extra[i] - pads[i] - pads[i + 2] < 1:
            pads[i] = pads[i + 2] = 0
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "output_padding": extra, "group": group}
    model = conv_model((2, cin, *size), (cin, cout_group, *kernel), op="ConvTranspose", **attrs)
    check_model(model)


@pytest.mark.parametrize("attrs", [
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"auto_pad": "VALID", "strides": [2, 3]},
    {"output_shape": [10, 8], "strides": [3, 2]},
    {"output_shape": [10, 8], "strides": [3, 2], "auto_pad": "SAME_UPPER"},
    {"output_shape": [9, 7], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
])  # fmt: skip
def test_conv_transpose_shapes(attrs):
    check_model(conv_model((1, 3, 4, 4), (3, 2, 3, 3), op="ConvTranspose", **attrs))


def test_conv_transpose_in_blocks_needs_no_zeros():
    graph = check_model(conv_model((1, 5, 4, 3), (5, 4, 2, 3), op="ConvTranspose", strides=[2, 3]))
    assert set(ops_of(graph)) == {"conv", "depth_to_space", "copy"}
    check_model(conv_model((1, 5, 7), (5, 4, 2), op="ConvTranspose", strides=[2]))


@settings(max_examples=60)
@given(st.data())
def test_conv_transpose_in_blocks_of_random_shapes(data):
    """Pads beyond a block and beyond the kernel, kernels longer and shorter than the stride, few and many channels."""
    rank = data.draw(st.integers(1, 2))
    draw = [[data.draw(st.integers(*ends)) for _ in range(rank)] for ends in ((1, 9), (1, 5), (1, 5), (0, 4))]
    kernel, strides, size, extra = draw
    extra = [e % s for e, s in zip(extra, strides, strict=True)]
    whole = [(n - 1) * s + k + e for n, s, k, e in zip(size, strides, kernel, extra, strict=True)]
    before = [data.draw(st.integers(0, min(k + 2, d - 1))) for k, d in zip(kernel, whole, strict=True)]
    after = [data.draw(st.integers(0, min(k + 2, d - 1 - b))) for k, d, b in zip(kernel, whole, before, strict=True)]
    group, cin, cout = data.draw(st.sampled_from([(1, 3, 1), (1, 3, 3), (1, 3, 16), (1, 3, 18), (3, 6, 5), (8, 8, 1)]))
    attrs = {"strides": strides, "pads": before + after, "output_padding": extra, "group": group}
    check_model(conv_model((2, cin, *size), (cin, cout, *kernel), bias=True, op="ConvTranspose", **attrs))


def test_zeros_between_rows_of_which_as_many_are_cropped():
    """The padded map has as many rows as the input; places in a block of groups are too many for own convolutions."""
    attrs = {"strides": [2, 3], "pads": [3, 0, 6, 0], "group": 3}
    check_model(conv_model((2, 6, 4, 1), (6, 5, 4, 1), op="ConvTranspose", **attrs))


@pytest.mark.parametrize(("kernel", "cout"), [(4, 4), (4, 24), (3, 24), (5, 24)])
def test_conv_transpose_stores_its_weights_once(kernel, cout):
    model = conv_model((1, 5, 6, 6), (5, cout, kernel, kernel), bias=False, op="ConvTranspose", strides=[2, 2])
    graph = check_model(model)
    numbers = sum(np.count_nonzero(np.concatenate(list(w.panels))) for w in graph.weights)
    assert numbers == 5 * cout * kernel * kernel
    assert "pad" not in ops_of(graph)


@pytest.mark.parametrize("kernel", [3, 4])
def test_what_follows_a_conv_transpose_is_part_of_it(kernel):
    """A BatchNormalization and an activation, where places of a block are computed together and apart."""
    norm = {name: np.abs(weights(24, seed=i)) for i, name in enumerate(("scale", "shift", "mean", "var"))}
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", *norm], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    graph = check_model(model_of(nodes, {"x": (2, 5, 6, 4)}, ["y"], norm | {"w": weights(5, 24, kernel, kernel)}))
    assert set(ops_of(graph)) <= {"conv", "concat", "depth_to_space", "copy"}
    assert all(node.attrs["act"] == "relu" for node in graph.nodes if node.op == "conv")


@settings(max_examples=80)
@given(st.data())
def test_pools_of_random_shapes(data):
    kernel = [data.draw(st.integers(1, 4)) for _ in range(2)]
    strides = [data.draw(st.integers(1, 4)) for _ in range(2)]
    pads = [data.draw(st.integers(0, k - 1)) for k in kernel + kernel]
    kind = data.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    size = [k + data.draw(st.integers(0, 7)) for k in kernel]
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": data.draw(st.integers(0, 1))}
    if kind == "AveragePool":
        attrs["count_include_pad"] = data.draw(st.integers(0, 1))
    else:
        wide = [2 * k - 1 <= s for k, s in zip(kernel, size, strict=True)]
        attrs["dilations"] = [data.draw(st.integers(1, 2)) if w else 1 for w in wide]
    node = helper.make_node(kind, ["x"], ["y"], **attrs)
    check_model(model_of([node], {"x": (1, 3, *size)}, ["y"], opset=19))


def test_pools_of_one_dimension_and_global():
    for kind in ("MaxPool", "AveragePool"):
        node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[3], strides=[2], pads=[1, 0])
        check_model(model_of([node], {"x": (2, 3, 12)}, ["y"]))
    for kind in ("GlobalAveragePool", "GlobalMaxPool"):
        for shape in ((2, 3, 4, 5), (2, 3, 7)):
            check_model(model_of([helper.make_node(kind, ["x"], ["y"])], {"x": shape}, ["y"]))


def test_maxpool_indices_are_refused():
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], name="pool7", kernel_shape=[2, 2])
    model = model_of([node], {"x": (1, 1, 4, 4)}, ["y", "i"], types={"i": 7})
    with pytest.raises(ValueError, match=r"MaxPool node 'pool7': its output 'i' is not supported"):
        load(model)


def test_weights_computed_at_run_time_are_refused():
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="c")
    model = model_of([node], {"x": (1, 1, 4, 4), "w": (1, 1, 3, 3)}, ["y"])
    with pytest.raises(ValueError, match=r"Conv node 'c': its weight \(input 'w'\) is computed at run time"):
        load(model)


def test_four_spatial_dimensions_are_refused():
    with pytest.raises(ValueError, match="only one, two or three spatial dimensions"):
        load(conv_model((1, 1, 4, 4, 4, 4), (1, 1, 3, 3, 3, 3)))


def test_weights_shared_by_two_convolutions():
    nodes = [
        helper.make_node("Identity", ["w"], ["v"]),
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "v"], ["y"]),
    ]
    check_model(model_of(nodes, {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3)}))


def test_float64_weights_are_refused():
    model = model_of(
        [helper.make_node("Conv", ["x", "w"], ["y"])], {"x": (1, 1, 4, 4)}, ["y"], {"w": np.ones((1, 1, 3, 3))}
    )
    with pytest.raises(ValueError, match=r"'w' is tensor\(double\)"):
        load(model)
