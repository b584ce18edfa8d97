"""Loops that pick elements by numbers of the turn go onto the tape where binding knows how many elements they pick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.regions import BOOL, F32, I64, check_run, graph_of, is_taped, model_of, numbers, opened, value

node = helper.make_node
ROWS, WIDTH = 7, 4
CONSTANTS = {
    "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "minus": np.array([-1]), "three": np.array([3]),
    "five": np.array([5]), "six": np.array([6]), "seven": np.array([7]), "one_f": np.ones(1, np.float32),
    "none": np.array(0), "yes": np.array(True), "limit": np.array(100.0, np.float32), "last": np.array(6),
    "far": np.array(2**62), "axis": np.array([1]), "turns": np.array(7), "single": np.array(1),
    "five_turns": np.array(5), "two_turns": np.array(2), "six_turns": np.array(6),
}  # fmt: skip
SUMMED = [node("ReduceSum", ["picked"], ["part"], keepdims=0), node("Add", ["sum", "part"], ["sum_"])]
ALWAYS = [node("Identity", ["yes"], ["on"])]
NEXT = [node("Add", ["i", "one"], ["i_"])]


def loop(body: list[onnx.NodeProto], first: str = "zero", trips: str = "turns") -> onnx.ModelProto:
    """A model of a loop that carries a number i and a sum."""
    inputs = [value("turn", I64, []), value("going", BOOL, []), value("i", I64, [1]), value("sum", F32, [])]
    outputs = [value("on", BOOL, []), value("i_", I64, [1]), value("sum_", F32, [])]
    inner = graph_of(body, inputs, outputs, name="body")
    nodes = [node("ReduceSum", ["x"], ["start"], keepdims=0)]
    nodes.append(node("Loop", [trips, "", first, "start"], ["i_last", "sum_last"], body=inner))
    made = [value("i_last", I64, [1]), value("sum_last", F32, [])]
    return model_of(graph_of(nodes, [value("x", F32, ["n", WIDTH])], made, CONSTANTS))


def sliced(begin: str, end: str, axis: str = "zero") -> list[onnx.NodeProto]:
    return [node("Slice", ["x", begin, end, axis], ["picked"]), *SUMMED]


def check(folder: Path, model: onnx.ModelProto, *, taped: bool = True, rows: int = ROWS) -> None:
    feed = {"x": numbers(rows, WIDTH)}
    path = folder / "taped.onnx"
    path.write_bytes(model.SerializeToString())
    assert is_taped(path, feed) == taped
    with opened(folder, model) as session:
        for count in (rows, rows + 2):
            check_run(session, model, {"x": numbers(count, WIDTH)})


FLOATING = [node("Cast", ["i"], ["f"], to=F32), node("Add", ["f", "one_f"], ["g"]), node("Cast", ["g"], ["i_"], to=I64)]
BOUNDED = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"]), node("Min", ["n", "i_"], ["end"])]
TURN = [node("Reshape", ["turn", "one"], ["t"]), node("Add", ["t", "one"], ["t_"])]


def placed(*operators: str) -> list[onnx.NodeProto]:
    """Nodes that make the bounds b and e, each "OP a b -> y"."""
    rows = [text.split() for text in operators]
    return [*NEXT, *(node(op, inputs, [y]) for op, *inputs, _, y in rows), *sliced("b", "e"), *ALWAYS]


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ([*NEXT, *sliced("i", "i_"), *ALWAYS], {}),
        ([*FLOATING, *BOUNDED, *sliced("i", "end"), *ALWAYS], {}),
        ([*TURN, *NEXT, *sliced("t", "t_"), *ALWAYS], {}),
        ([node("Add", ["i", "minus"], ["i_"]), *sliced("i_", "i"), *ALWAYS], {"first": "seven"}),
        (placed("Sub minus i -> e", "Sub e one -> b"), {"trips": "five_turns"}),
        (placed("Mod i three -> b", "Add b two -> e"), {}),
        (placed("Clip i none last -> b", "Add b one -> e"), {"first": "five"}),
        (placed("Max i zero -> m", "Min m five -> b", "Add b two -> e"), {}),
        (placed("Div i two -> b", "Add b three -> e"), {}),
    ],
)
def test_slices_of_known_size_are_taped(body: list[onnx.NodeProto], options: dict[str, Any], tmp_path: Path) -> None:
    check(tmp_path, loop(body, **options))


@pytest.mark.parametrize("kind", ["Less", "LessOrEqual"])
def test_conditions_bound_the_turns(kind: str, tmp_path: Path) -> None:
    limit = "seven" if kind == "Less" else "six"
    on = [node(kind, ["i_", limit], ["c"]), node("Cast", ["c"], ["n1"], to=I64), node("Add", ["n1", "zero"], ["n2"])]
    on += [node("Cast", ["n2"], ["b"], to=BOOL), node("Squeeze", ["b", "zero"], ["on"])]
    check(tmp_path, loop([*NEXT, *sliced("i", "i_"), *on], trips="far"))


def test_part_of_a_condition_bounds_the_turns(tmp_path: Path) -> None:
    on = [node("Greater", ["seven", "i_"], ["c"]), node("Squeeze", ["c", "zero"], ["d"])]
    on += [node("Less", ["sum_", "limit"], ["e"]), node("And", ["d", "e"], ["on"])]
    check(tmp_path, loop([*NEXT, *sliced("i", "i_"), *on], trips="far"))


def test_ranges_of_known_length_are_taped(tmp_path: Path) -> None:
    body = [
        node("Squeeze", ["i", "zero"], ["b"]),
        node("Add", ["i", "three"], ["i3"]),
        node("Squeeze", ["i3", "zero"], ["e"]),
    ]
    body += [node("Range", ["b", "e", "single"], ["r"]), node("Cast", ["r"], ["picked"], to=F32)]
    check(tmp_path, loop([*NEXT, *body, *SUMMED, *ALWAYS]))


def test_rows_are_written_in_place_of_others(tmp_path: Path) -> None:
    """A row is sliced, changed, and scattered back by a range of one, as in table recognisers."""
    constants = CONSTANTS | {"wide": np.array([1, -1, 1]), "ones": np.array([0.5], np.float32)}
    inputs = [value("turn", I64, []), value("going", BOOL, []), value("i", I64, [1]), value("t", F32, [1, "n", WIDTH])]
    body = [
        *FLOATING,
        node("Shape", ["t"], ["s"]),
        node("Gather", ["s", "axis"], ["n"]),
        node("Min", ["n", "i_"], ["end"]),
    ]
    body += [node("Slice", ["t", "i", "end", "axis", "one"], ["row"]), node("Shape", ["row"], ["rs"])]
    body += [node("Add", ["row", "ones"], ["more"]), node("Squeeze", ["i"], ["b"]), node("Squeeze", ["end"], ["e"])]
    body += [node("Range", ["b", "e", "single"], ["r"]), node("Reshape", ["r", "wide"], ["places"])]
    body += [node("Expand", ["places", "rs"], ["all"]), node("ScatterElements", ["t", "all", "more"], ["t_"], axis=1)]
    body += [node("Less", ["i_", "five"], ["c"]), node("Squeeze", ["c", "zero"], ["on"])]
    outputs = [value("on", BOOL, []), value("i_", I64, [1]), value("t_", F32, [1, "n", WIDTH])]
    inner = graph_of(body, inputs, outputs, name="body")
    nodes = [node("Unsqueeze", ["x", "zero"], ["table"])]
    nodes.append(node("Loop", ["far", "", "zero", "table"], ["i_last", "y"], body=inner))
    made = [value("i_last", I64, [1]), value("y", F32, [1, "n", WIDTH])]
    check(tmp_path, model_of(graph_of(nodes, [value("x", F32, ["n", WIDTH])], made, constants)))


def test_an_index_that_data_say_has_bounds(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", ["x", "axis"], ["s"], keepdims=0), node("ArgMax", ["s"], ["k"], axis=0)]
    nodes += [node("Add", ["k", "one"], ["e"]), node("Slice", ["x", "k", "e", "zero"], ["y"])]
    model = model_of(graph_of(nodes, [value("x", F32, ["n", WIDTH])], [value("y", F32, [1, WIDTH])], CONSTANTS))
    check(tmp_path, model)


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ([*NEXT, *sliced("zero", "i_"), *ALWAYS], {}),  # grows
        ([*NEXT, *sliced("i", "i_"), *ALWAYS], {"first": "six"}),  # beyond the end
        ([*NEXT, node("Add", ["i", "five"], ["e"]), *sliced("i", "e"), *ALWAYS], {}),  # is cut at the end
        ([*NEXT, node("Add", ["i", "minus"], ["b"]), *sliced("b", "i"), *ALWAYS], {}),  # begins at the end
    ],
)
def test_slices_of_other_sizes_are_walked(body: list[onnx.NodeProto], options: dict[str, Any], tmp_path: Path) -> None:
    check(tmp_path, loop(body, **options), taped=False)


def test_conditions_that_are_not_true_in_time_do_not_bound(tmp_path: Path) -> None:
    """The condition compares what is before the turn, so that there is a turn more than it says."""
    on = [node("Less", ["i", "seven"], ["c"]), node("Squeeze", ["c", "zero"], ["on"])]
    check(tmp_path, loop([*NEXT, *sliced("i", "i_"), *on], trips="far"), taped=False)


def test_numbers_of_the_outer_turn_bound_the_inner(tmp_path: Path) -> None:
    ports = [value("t2", I64, []), value("g2", BOOL, []), value("j", I64, [1]), value("p", F32, [])]
    inner = [node("Add", ["j", "one"], ["j_"]), node("Slice", ["x", "j", "j_", "zero"], ["r"])]
    inner += [node("ReduceSum", ["r"], ["q"], keepdims=0), node("Add", ["p", "q"], ["p_"])]
    inner.append(node("Identity", ["yes"], ["on2"]))
    made = [value("on2", BOOL, []), value("j_", I64, [1]), value("p_", F32, [])]
    again = graph_of(inner, ports, made, name="in")
    body = [node("Loop", ["two_turns", "", "i", "sum"], ["j_last", "sum_"], body=again)]
    check(tmp_path, loop([*NEXT, *body, *ALWAYS], trips="six_turns"))
