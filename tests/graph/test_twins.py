"""Nodes that apply the same weights to several values are joined, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from flexnn.graph.ir import Graph
from tests.support.compare import check_model, model_of, ops_of, weights
from tests.support.regions import F32, check_run, graph_of, numbers, opened, value
from tests.support.regions import model_of as open_model_of

node = onnx.helper.make_node
CHANNELS = 64
IMAGE = (1, CHANNELS, 6, 6)


def convs(graph: Graph) -> int:
    """Number of convolutions."""
    return ops_of(graph).count("conv")


def half(x: str, end: str) -> list[onnx.NodeProto]:
    """One half of a siamese network: convolutions, a pool, and a sum over what the pool gives."""
    names = [f"{end}{i}" for i in range(6)]
    return [
        node("Conv", [x, "w0", "b"], [names[0]], pads=[1] * 4),
        node("Relu", [names[0]], [names[1]]),
        node("MaxPool", [names[1]], [names[2]], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", [names[2], "w1"], [names[3]], pads=[1] * 4),
        node("Sigmoid", [names[3]], [names[4]]),
        node("Add", [names[4], names[2]], [names[5]]),
        node("Conv", [names[5], "w2"], [end], pads=[1] * 4),
    ]


def square(count: int, side: int = 3) -> dict[str, np.ndarray]:
    """Weights of convolutions, w0 and so on, and a bias."""
    found = {f"w{i}": weights(CHANNELS, CHANNELS, side, side, seed=i + 1) / np.float32(24) for i in range(count)}
    return found | {"b": weights(CHANNELS)}


@pytest.mark.parametrize("images", [(1, 1), (2, 2), (1, 3)])
def test_halves_of_a_siamese_network(images: tuple[int, int]) -> None:
    ends = [node("GlobalAveragePool", ["p"], ["y"]), node("GlobalAveragePool", ["q"], ["z"])]
    inputs = {"u": (images[0], *IMAGE[1:]), "v": (images[1], *IMAGE[1:])}
    graph = check_model(model_of([*half("u", "p"), *half("v", "q"), *ends], inputs, ["y", "z"], square(3)))
    assert convs(graph) == 3
    assert ops_of(graph).count("pool") == 1


def test_what_is_joined_may_be_an_output() -> None:
    nodes = [*half("u", "p"), *half("v", "q"), node("Sub", ["p", "q"], ["y"])]
    graph = check_model(model_of(nodes, {"u": IMAGE, "v": IMAGE}, ["y", "p", "q5"], square(3)))
    assert convs(graph) == 3


def test_steps_that_were_unrolled_multiply_their_inputs_at_once() -> None:
    steps, width = 6, 160
    constants: dict[str, Any] = {"w": weights(width, width) / np.float32(12), "v": weights(width, width, seed=2) / 12}
    nodes = [node("Split", ["x"], [f"x{i}" for i in range(steps)], axis=0)]
    last = "h"
    for i in range(steps):
        nodes += [node("MatMul", [f"x{i}", "w"], [f"m{i}"]), node("MatMul", [last, "v"], [f"r{i}"])]
        nodes += [node("Add", [f"m{i}", f"r{i}"], [f"s{i}"]), node("Tanh", [f"s{i}"], [f"h{i}"])]
        last = f"h{i}"
    constants["v"] = constants["v"].astype(np.float32)
    model = model_of(nodes, {"x": (2 * steps, width), "h": (2, width)}, [last], constants)
    assert convs(check_model(model)) == 1 + steps


def test_what_follows_the_same_weights_is_not_joined_with_them() -> None:
    nodes = [node("Conv", ["x", "w0"], ["a"], pads=[1] * 4), node("Conv", ["a", "w0"], ["y"], pads=[1] * 4)]
    assert convs(check_model(model_of(nodes, {"x": IMAGE}, ["y"], square(1)))) == 2


def test_weights_in_another_order_are_not_joined_in_a_circle() -> None:
    nodes = [
        node("Conv", ["u", "w0"], ["a"], pads=[1] * 4),
        node("Conv", ["a", "w1"], ["y"], pads=[1] * 4),
        node("Conv", ["v", "w1"], ["c"], pads=[1] * 4),
        node("Conv", ["c", "w0"], ["z"], pads=[1] * 4),
    ]
    assert convs(check_model(model_of(nodes, {"u": IMAGE, "v": IMAGE}, ["y", "z"], square(2)))) == 4


@pytest.mark.parametrize("side", [1, 20])
def test_small_weights_are_not_joined(side: int) -> None:
    """They are a few KiB, or smaller than the maps."""
    shape = 1, CHANNELS, side, side
    constants = square(1, 1) if side == 1 else square(1)
    nodes = [node("Conv", [x, "w0"], [y]) for x, y in (("u", "y"), ("v", "z"))]
    assert convs(check_model(model_of(nodes, {"u": shape, "v": shape}, ["y", "z"], constants))) == 2


@pytest.mark.parametrize("seed", range(12))
def test_any_network_of_few_weights(seed: int) -> None:
    """Layers of random weights over random values, some of them sums."""
    rng = np.random.default_rng(seed)
    values, nodes = ["u", "v", "t"], []
    for i in range(14):
        a, b = rng.choice(values[-6:], 2)
        kind = rng.integers(4)
        if kind < 2:
            nodes.append(node("Conv", [a, f"w{rng.integers(2)}"], [f"n{i}"], pads=[1] * 4))
        elif kind == 2:
            nodes.append(node("Add", [a, b], [f"n{i}"]))
        else:
            nodes.append(node("Tanh", [a], [f"n{i}"]))
        values.append(f"n{i}")
    read = {i for n in nodes for i in n.input}
    outputs = [f"n{i}" for i in range(14) if f"n{i}" not in read]
    inputs = {name: IMAGE for name in ("u", "v", "t") if name in read}
    model = model_of(nodes, inputs, outputs, {n: w for n, w in square(2).items() if n in read})
    check_model(model, tolerance=1e-4)


def test_numbers_of_images_may_be_open(tmp_path: Path) -> None:
    nodes = [*half("u", "p"), *half("v", "q"), node("ReduceMean", ["p"], ["y"], axes=[0, 2, 3], keepdims=0)]
    nodes.append(node("ReduceMean", ["q"], ["z"], axes=[0, 2, 3], keepdims=0))
    inputs = [value("u", F32, ["n", *IMAGE[1:]]), value("v", F32, ["m", *IMAGE[1:]])]
    outputs = [value(name, F32, [CHANNELS]) for name in "yz"]
    model = open_model_of(graph_of(nodes, inputs, outputs, square(3)))
    with opened(tmp_path, model) as session:
        for n, m in ((1, 1), (1, 2), (3, 1), (2, 2), (1, 1)):
            check_run(session, model, {"u": numbers(n, *IMAGE[1:], seed=n), "v": numbers(m, *IMAGE[1:], seed=9 + m)})
        assert session.plan.graph is not None
        assert convs(session.plan.graph) == 3
        memory = session.plan.minimum_memory
    with opened(tmp_path, model, memory=memory) as session:
        check_run(session, model, {"u": numbers(*IMAGE), "v": numbers(*IMAGE, seed=4)})
        assert session.session_bytes <= memory
