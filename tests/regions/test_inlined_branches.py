"""Branches that shapes or small integers decide are lowered with what is around them; those of data are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import flexnn
from tests.support.regions import F32, I64, check_run, graph_of, model_of, numbers, opened, value


def segments(session: flexnn.Session) -> int:
    """Number of segments that the last run ran."""
    return int(session.statistics()["segments_of_last_run"])


def product(name: str, weights: str, kind: str = "Relu") -> onnx.GraphProto:
    """A branch; the name of what it computes inside is the same in all of them."""
    nodes = [helper.make_node("MatMul", ["h", weights], ["inside"]), helper.make_node(kind, ["inside"], [f"{name}.y"])]
    return graph_of(nodes, [], [value(f"{name}.y", F32, ["n", 24])], name=name)


def model(condition: list[onnx.NodeProto], *inputs: onnx.ValueInfoProto, then: onnx.GraphProto | None = None):
    """A product before and after an If on ``is``."""
    then = then or product("a", "wa")
    nodes = [
        *condition,
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("If", ["is"], ["z"], then_branch=then, else_branch=product("b", "wb", "Tanh")),
        helper.make_node("MatMul", ["z", "w1"], ["y"]),
    ]
    constants = {"w0": numbers(16, 24), "one": np.array(1, np.int64), "zero": np.array(0, np.float32)}
    constants |= {w: numbers(24, 24, seed=s) for s, w in enumerate(("wa", "wb", "w1", "wc"), 1)}
    ports = [value("x", F32, ["n", 16]), *inputs]
    return model_of(graph_of(nodes, ports, [value("y", F32, ["n", 24])], constants))


BY_SHAPE = [
    helper.make_node("Shape", ["x"], ["s"], end=1),
    helper.make_node("Squeeze", ["s"], ["n0"]),
    helper.make_node("Equal", ["n0", "one"], ["is"]),
]
BY_NUMBER = [helper.make_node("Equal", ["rate", "one"], ["is"])]
BY_DATA = [
    helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
    helper.make_node("Greater", ["sum", "zero"], ["is"]),
]


def test_shapes_decide(tmp_path: Path) -> None:
    m = model(BY_SHAPE)
    with opened(tmp_path, m) as session:
        for n in (1, 5, 1):
            check_run(session, m, {"x": numbers(n, 16)})
            assert segments(session) == 1


def test_a_number_of_the_caller_decides(tmp_path: Path) -> None:
    m = model(BY_NUMBER, value("rate", I64, []))
    with opened(tmp_path, m) as session:
        for rate in (1, 2, 1, 3):
            check_run(session, m, {"x": numbers(4, 16), "rate": np.array(rate)})
            assert segments(session) == 1


def test_data_decide(tmp_path: Path) -> None:
    """The nodes behind the branches are one segment for both, and both branches are on the tape."""
    m = model(BY_DATA)
    with opened(tmp_path, m) as session:
        for seed in range(6):
            check_run(session, m, {"x": numbers(4, 16, seed=seed)})
            assert segments(session) == 4
        assert session.statistics()["segments"] == 4


def test_branches_inside_one(tmp_path: Path) -> None:
    """A shape decides inside a branch that a number has decided; an If passes on what is outside."""
    inner = helper.make_node(
        "If",
        ["two"],
        ["q"],
        then_branch=graph_of(
            [helper.make_node("Identity", ["h"], ["same"])], [], [value("same", F32, ["n", 24])], name="as_it_is"
        ),
        else_branch=product("c", "wc", "Sigmoid"),
    )
    nodes = [
        helper.make_node("Shape", ["h"], ["s"], end=1),
        helper.make_node("Squeeze", ["s"], ["n1"]),
        helper.make_node("Equal", ["n1", "one"], ["two"]),
        inner,
        helper.make_node("Neg", ["q"], ["a.y"]),
    ]
    then = graph_of(nodes, [], [value("a.y", F32, ["n", 24])], name="a")
    m = model(BY_NUMBER, value("rate", I64, []), then=then)
    with opened(tmp_path, m) as session:
        for n, rate in ((1, 1), (3, 1), (3, 2), (1, 2), (1, 1)):
            check_run(session, m, {"x": numbers(n, 16), "rate": np.array(rate)})
            assert segments(session) == 1


def test_a_branch_that_cannot_be_lowered_stays_one(tmp_path: Path) -> None:
    """A sort inside it is numpy's."""
    nodes = [
        helper.make_node("MatMul", ["h", "wa"], ["m"]),
        helper.make_node("TopK", ["m", "k"], ["a.y", "at"], axis=1),
    ]
    then = graph_of(nodes, [], [value("a.y", F32, ["n", 24])], {"k": np.array([24])}, name="a")
    m = model(BY_NUMBER, value("rate", I64, []), then=then)
    with opened(tmp_path, m) as session:
        for rate in (1, 2, 1):
            check_run(session, m, {"x": numbers(4, 16), "rate": np.array(rate)})
