"""Convolutions and pools over three spatial dimensions, against onnxruntime: they are those of images."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import flexnn
from tests.support.compare import check_model, load, model_of, ops_of, weights


def conv_model(x, w, *, bias=True, behind=(), more=None, **attrs):
    constants = {"w": weights(*w)} | ({"b": weights(w[0], seed=2)} if bias else {})
    node = helper.make_node("Conv", ["x", *constants], ["c"] if behind else ["y"], **attrs)
    return model_of([node, *behind], {"x": x}, ["y"], constants | (more or {}))


def draw_window(data, most):
    kernel = [data.draw(st.integers(1, most)) for _ in range(3)]
    dilations = [data.draw(st.integers(1, 2)) for _ in range(3)]
    pads = [data.draw(st.integers(0, 2)) for _ in range(6)]
    size = [(k - 1) * d + 1 + data.draw(st.integers(0, 4)) for k, d in zip(kernel, dilations, strict=True)]
    strides = [data.draw(st.integers(1, 3)) for _ in range(3)]
    return kernel, size, {"strides": strides, "pads": pads, "dilations": dilations}


@settings(max_examples=60)
@given(st.data())
def test_conv_of_random_volumes(data):
    group = data.draw(st.sampled_from([1, 1, 2, 3, 8]))
    cin, cout = group * data.draw(st.sampled_from([1, 2, 5, 19])), group * data.draw(st.integers(1, 5))
    kernel, size, attrs = draw_window(data, 4)
    x = (data.draw(st.integers(1, 3)), cin, *size)
    model = conv_model(x, (cout, cin // group, *kernel), bias=data.draw(st.booleans()), group=group, **attrs)
    assert {"conv", "dwconv"} & set(ops_of(check_model(model)))


@settings(max_examples=40)
@given(st.data())
def test_conv_of_volumes_smaller_than_its_kernel(data):
    kernel = [data.draw(st.sampled_from([1, 3, 5])) for _ in range(3)]
    size = [data.draw(st.integers(1, 3)) for _ in range(3)]
    attrs = {"pads": [k // 2 for k in kernel] * 2, "strides": [data.draw(st.integers(1, 2)) for _ in range(3)]}
    cin = data.draw(st.sampled_from([2, 20]))
    check_model(conv_model((1, cin, *size), (4, cin, *kernel), **attrs))


def test_depths_that_meet_padding_alone_are_left_out():
    graph = check_model(conv_model((1, 20, 1, 5, 5), (4, 20, 3, 3, 3), pads=[1] * 6))
    assert ops_of(graph).count("conv") == 1
    assert sum(w.nbytes for w in graph.weights) < 2 * 20 * 9 * 16 * 4


@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("strides", [[1, 1, 1], [2, 1, 3]])
def test_auto_pad(auto_pad, strides):
    check_model(conv_model((1, 20, 6, 10, 7), (4, 20, 3, 4, 3), auto_pad=auto_pad, strides=strides))
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 4, 3], auto_pad=auto_pad, strides=strides)
    check_model(model_of([pool], {"x": (1, 2, 6, 10, 7)}, ["y"]))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@settings(max_examples=40)
@given(st.data())
def test_pools_of_random_volumes(op, data):
    kernel, size, attrs = draw_window(data, 3)
    attrs["pads"] = [min(p, k - 1) for p, k in zip(attrs["pads"], kernel * 2, strict=True)]
    if op == "AveragePool":
        del attrs["dilations"]
        attrs["count_include_pad"] = data.draw(st.integers(0, 1))
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=kernel, **attrs)
    x = (data.draw(st.integers(1, 2)), data.draw(st.sampled_from([1, 3, 17])), *size)
    assert set(ops_of(check_model(model_of([node], {"x": x}, ["y"])))) <= {"pool", "copy"}


def test_what_stands_behind_becomes_part_of_the_sum():
    more = {f"s{i}": np.abs(weights(32, seed=3 + i)) + 0.5 for i in range(4)} | {"v": weights(32, 32, 1, 1, 1, seed=9)}
    behind = [
        helper.make_node("Conv", ["x", "v"], ["u"]),
        helper.make_node("BatchNormalization", ["c", *list(more)[:4]], ["n"]),
        helper.make_node("Add", ["n", "u"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    graph = check_model(conv_model((2, 32, 5, 6, 7), (32, 32, 3, 3, 3), pads=[1] * 6, behind=behind, more=more))
    ops = ops_of(graph)
    assert ops.count("conv") == 4
    assert not {"binary", "unary"} & set(ops)


def test_sums_of_two_convolutions_of_volumes():
    more = {"v": weights(24, 20, 3, 3, 3, seed=9)}
    behind = [
        helper.make_node("Conv", ["x", "v"], ["d"], pads=[1] * 6),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("Add", ["e", "c"], ["y"]),
    ]
    check_model(conv_model((1, 20, 4, 6, 5), (24, 20, 3, 3, 3), pads=[1] * 6, behind=behind, more=more))


def test_concatenated_volumes_and_mean():
    behind = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3, 3], pads=[1] * 6),
        helper.make_node("Concat", ["c", "p"], ["q"], axis=1),
        helper.make_node("GlobalAveragePool", ["q"], ["y"]),
    ]
    check_model(conv_model((1, 20, 4, 6, 5), (24, 20, 3, 1, 1), pads=[1, 0, 0] * 2, behind=behind))


def test_weights_of_every_depth_are_stored_once():
    graph = load(conv_model((1, 64, 8, 9, 9), (64, 64, 3, 3, 3), pads=[1] * 6))
    assert sum(w.nbytes for w in graph.weights) < 1.1 * 4 * 64 * 64 * 27


@pytest.mark.parametrize("budget", [None, 1.0, 1.5])
def test_open_volumes_run_native_at_every_budget(tmp_path, budget):
    behind = [
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
        helper.make_node("Conv", ["p", "v"], ["y"], pads=[1] * 6),
    ]
    more = {"v": weights(16, 24, 3, 3, 3, seed=9)}
    model = conv_model(
        ("n", 20, "d", "h", "w"), (24, 20, 3, 3, 3), pads=[1] * 6, strides=[1, 2, 1], behind=behind, more=more
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    rng = np.random.default_rng(7)
    inputs = [rng.uniform(-1, 1, s).astype(np.float32) for s in ((1, 20, 6, 9, 8), (2, 20, 3, 8, 5), (0, 20, 4, 8, 8))]
    memory = None
    if budget is not None:
        least = max(flexnn.plan(path, shapes={"x": x.shape}).minimum_memory for x in inputs[:2])
        memory = int(budget * least) + (64 << 10)
    reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with flexnn.Session(path, memory=memory, threads=2) as session:
        for x in inputs:
            try:
                (got,) = session.run(None, {"x": x})
            except flexnn.BudgetError as error:
                session.memory = error.minimum + (64 << 10)
                (got,) = session.run(None, {"x": x})
            (want,) = reference.run(None, {"x": x}) if x.size else (np.empty((0, 16, 2, 2, 4), np.float32),)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, atol=1e-4 * max(1.0, float(np.abs(want).max(initial=0))))
        assert session.statistics()["hosted_operators"] == {}


@settings(max_examples=40)
@given(st.data())
def test_transposed_convolutions_of_volumes(data):
    group = data.draw(st.sampled_from([1, 1, 2]))
    kernel = [data.draw(st.integers(1, 3)) for _ in range(3)]
    is_block = data.draw(st.booleans())
    attrs = {"strides": kernel if is_block else [data.draw(st.integers(1, 2)) for _ in range(3)], "group": group}
    if not is_block:
        attrs["pads"] = [data.draw(st.integers(0, k - 1)) for k in kernel * 2]
        attrs["output_padding"] = [data.draw(st.integers(0, s - 1)) for s in attrs["strides"]]
    x = (data.draw(st.integers(1, 2)), 6, *(data.draw(st.integers(3, 4)) for _ in range(3)))  # pads leave something
    constants = {"w": weights(6, 5, *kernel), "b": weights(5 * group, seed=2)}
    node = helper.make_node("ConvTranspose", ["x", *constants], ["y"], **attrs)
    assert {"conv", "dwconv"} & set(ops_of(check_model(model_of([node], {"x": x}, ["y"], constants))))


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("strides", [(2, 2, 2), (1, 2, 2), (2, 1, 1), (3, 1, 2)])
@pytest.mark.parametrize("kernel", [(3, 3, 3), (4, 4, 4), (1, 3, 2)])
def test_no_zeros_between_pixels(kernel, strides, group):
    """A decoder of volumes took five times as long as it does now."""
    constants = {"w": weights(6, 20, *kernel), "b": weights(20 * group, seed=2)}
    some = {"pads": [int(k > 1) for k in kernel] * 2, "output_padding": [s - 1 for s in strides], "group": group}
    node = helper.make_node("ConvTranspose", ["x", *constants], ["y"], strides=strides, **some)
    graph = check_model(model_of([node], {"x": (2, 6, 3, 4, 5)}, ["y"], constants))
    between = [node for node in graph.nodes if node.op == "pad" and any(node.attrs["interior"])]
    assert bool(between) == (group > 1 and np.prod(strides) > 4)


@pytest.mark.parametrize("kernel", [(2, 2, 2), (3, 2, 4), (1, 2, 2), (2, 1, 1)])
def test_transposed_convolutions_whose_kernel_is_their_stride(kernel):
    constants = {"w": weights(6, 5, *kernel), "b": weights(5, seed=2)}
    node = helper.make_node("ConvTranspose", ["x", *constants], ["y"], strides=kernel)
    assert "conv" in ops_of(check_model(model_of([node], {"x": (2, 6, 3, 4, 5)}, ["y"], constants)))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [[2, 2, 2], [1, 2, 3], [2, 1, 1], [0.5, 2, 1.5]])
def test_resized_volumes(mode, scales):
    constants = {"s": np.array([1, 1, *scales], np.float32)}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
    graph = check_model(model_of([node], {"x": (2, 3, 4, 6, 8)}, ["y"], constants))
    assert set(ops_of(graph)) <= {"resize", "copy"}


def test_instance_normalization_of_volumes():
    constants = {"s": weights(6), "b": weights(6, seed=2)}
    node = helper.make_node("InstanceNormalization", ["x", *constants], ["y"])
    assert "instance_norm" in ops_of(check_model(model_of([node], {"x": (2, 6, 4, 5, 3)}, ["y"], constants)))


def test_depths_of_large_maps_are_computed_some_at_a_time(tmp_path):
    behind = [
        helper.make_node("Conv", ["c", "v"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("MaxPool", ["e"], ["y"], kernel_shape=[1, 2, 2], strides=[1, 2, 2]),
    ]
    more = {"v": weights(48, 48, 3, 1, 1, seed=9)}
    model = conv_model((1, 3, 16, 64, 64), (48, 3, 1, 3, 3), pads=[0, 1, 1] * 2, behind=behind, more=more)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    before, after = 4 * 48 * 16 * 64 * 64, 4 * 48 * 14 * 64 * 64
    assert flexnn.plan(path).minimum_memory < 0.8 * (before + after)
