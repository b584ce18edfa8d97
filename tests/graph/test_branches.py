"""Convolutions of one map whose results are added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import flexnn
from flexnn.graph.ir import Graph
from tests.support.compare import check_model, model_of, ops_of, weights
from tests.support.regions import check_run, opened, wanted

IMAGE = (1, 8, 9, 11)
Constants = dict[str, Any]


def conv(y: str, w: str, x: str = "x", **attrs: Any) -> Any:
    return helper.make_node("Conv", [x, w, f"{w}b"], [y], **attrs)


def add(a: str, b: str, y: str) -> Any:
    return helper.make_node("Add", [a, b], [y])


def normed(x: str, y: str, seed: int) -> tuple[Any, Constants]:
    """A BatchNormalization, and its constants."""
    names = [f"{y}{i}" for i in range(4)]
    vectors = [weights(8, seed=seed + i) for i in range(4)]
    vectors[3] = abs(vectors[3]) + 0.5
    return helper.make_node("BatchNormalization", [x, *names], [y]), dict(zip(names, vectors, strict=True))


def filled(kinds: dict[str, tuple[int, ...]]) -> Constants:
    found: Constants = {}
    for i, (name, shape) in enumerate(kinds.items()):
        found |= {name: weights(*shape, seed=i), f"{name}b": weights(shape[0], seed=20 + i)}
    return found


def convolutions(graph: Graph) -> int:
    return sum(op in ("conv", "dwconv") for op in ops_of(graph))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_block_with_branches(stride: int, turned: bool) -> None:
    """RepVGG's: a 3x3 and a 1x1 convolution, each with its BatchNormalization."""
    first, one = normed("c", "cn", 3)
    second, two = normed("d", "dn", 7)
    step = {"strides": [stride, stride]}
    nodes = [
        conv("c", "w", pads=[1, 1, 1, 1], **step),
        conv("d", "v", **step),
        first,
        second,
        add("dn", "cn", "s") if turned else add("cn", "dn", "s"),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    constants = filled({"w": (8, 8, 3, 3), "v": (8, 8, 1, 1)}) | one | two
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants), tolerance=1e-5)
    assert convolutions(graph) == 1
    assert "binary" not in ops_of(graph)


def depthwise() -> tuple[list[Any], Constants]:
    """5x5, 3x3 and 1x1, the map times a vector, and the map itself, all of them depthwise, between two layers."""
    scaled, constants = normed("x", "n", 5)
    nodes = [
        conv("x", "p", "i"),
        conv("a", "u", pads=[2, 2, 2, 2], group=8),
        conv("b", "v", pads=[1, 1, 1, 1], group=8),
        conv("c", "w", group=8),
        scaled,
        add("a", "b", "s"),
        add("c", "s", "t"),
        add("n", "t", "r"),
        add("r", "x", "m"),
        conv("y", "q", "m"),
    ]
    square = {"p": (8, 8, 1, 1), "q": (8, 8, 1, 1)}
    return nodes, constants | filled(square | {"u": (8, 1, 5, 5), "v": (8, 1, 3, 3), "w": (8, 1, 1, 1)})


def test_depthwise_branches_and_the_map() -> None:
    nodes, constants = depthwise()
    graph = check_model(model_of(nodes, {"i": IMAGE}, ["y"], constants), tolerance=1e-5)
    assert convolutions(graph) == 3
    assert "binary" not in ops_of(graph)


@pytest.mark.parametrize("memory", [None, "8MiB"])
def test_open_shapes(memory: str | None, tmp_path: Any) -> None:
    """The artifact holds the sum's weights; each size reads them."""
    nodes, constants = depthwise()
    model = model_of(nodes, {"i": (1, 8, "h", "w")}, ["y"], constants)
    with opened(tmp_path, model, memory=memory) as session:
        for height, width in ((9, 11), (4, 30), (17, 5)):
            check_run(session, model, {"i": weights(1, 8, height, width)})
        assert session.statistics()["hosted_operators"] == {}


def test_windows_that_are_not_centred() -> None:
    """The 2x2 windows begin one row below those of 3x3 and in the same column."""
    nodes = [conv("c", "w", pads=[1, 0, 1, 1]), conv("d", "v", pads=[0, 0, 1, 0]), add("c", "d", "y")]
    constants = filled({"w": (8, 8, 3, 3), "v": (8, 8, 2, 2)})
    graph = check_model(model_of(nodes, {"x": IMAGE}, ["y"], constants), tolerance=1e-5)
    assert convolutions(graph) == 1


SEVERAL = {
    "another map": [conv("c", "w", pads=[1] * 4), helper.make_node("Relu", ["x"], ["z"]), conv("d", "v", "z")],
    "another reader": [conv("c", "w", pads=[1] * 4), conv("d", "v"), helper.make_node("Relu", ["d"], ["e"])],
    "an activation": [conv("a", "w", pads=[1] * 4), helper.make_node("Relu", ["a"], ["c"]), conv("d", "v")],
    "dilations": [conv("c", "w", pads=[2] * 4, dilations=[2, 2]), conv("d", "v")],
    "windows beside each other": [conv("c", "w", pads=[2, 1, 0, 1]), conv("d", "w", pads=[0, 1, 2, 1])],
}


@pytest.mark.parametrize("why", SEVERAL)
def test_branches_that_stay(why: str) -> None:
    outputs = ["y", "e"] if why == "another reader" else ["y"]
    constants = filled({"w": (8, 8, 3, 3), "v": (8, 8, 1, 1)})
    graph = check_model(model_of([*SEVERAL[why], add("c", "d", "y")], {"x": IMAGE}, outputs, constants), tolerance=1e-5)
    assert convolutions(graph) == 2


@pytest.mark.parametrize("form", ["f16", "s8", "auto:1e-2"])
def test_sums_in_fewer_bits(form: str, tmp_path: Any) -> None:
    """The sum is stored in the form that the larger convolution's weights get, and is smaller by it."""
    channels, shape = 64, (1, 64, 9, 11)
    constants = filled({"w": (channels, channels, 3, 3), "v": (channels, channels, 1, 1)})
    model = model_of([conv("c", "w", pads=[1] * 4), conv("d", "v"), add("c", "d", "y")], {"x": shape}, ["y"], constants)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    whole, narrow = (
        Path(flexnn.compile(tmp_path / "m.onnx", tmp_path / f"{number}.flexnn", weights=name))
        for number, name in enumerate(("f32", form))
    )
    assert narrow.stat().st_size < 0.7 * whole.stat().st_size
    feed = {"x": weights(*shape)}
    (expected,) = wanted(model, feed)
    with flexnn.Session(narrow, threads=1) as session:
        (got,) = session.run(None, feed)
    assert np.linalg.norm(got - expected) < 2e-2 * np.linalg.norm(expected)
