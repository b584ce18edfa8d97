"""A refusal names the budget of the whole run, which then runs; and a run tells the smallest budget that it has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from bench.budgets.dynamic_graphs import random_graph
from flexnn.graph.ir import Array, GraphError
from flexnn.run.ahead import Ahead, _zeros, absent
from flexnn.session import open_for_tests
from tests.support.regions import BOOL, F32, I64, check_run, graph_of, model_of, numbers, opened, value

node = helper.make_node
SEEDS = 0, 8, 12, 22, 34, 109, 8002
"""Graphs with stacks, counted outputs, branches of other shapes, loops that change shapes, operators of numpy, and a
size that grows as a count falls.
"""
Feed = dict[str, Array]


def refused(artifact: Path, feed: Feed, memory: int) -> int:
    """Return the budget that the refusal of ``memory`` bytes names."""
    with open_for_tests(artifact, memory=memory, threads=1) as session, pytest.raises(flexnn.BudgetError) as error:
        session.run(None, feed)
    assert error.value.minimum > memory
    return error.value.minimum


def ran(artifact: Path, feed: Feed, memory: int | None, times: int = 1) -> tuple[list[Array], int, int]:
    """Return the outputs of a run in a budget, the bytes that its session owns, and the smallest budget of the run."""
    with open_for_tests(artifact, memory=memory, threads=1, poison=True) as session:
        for _ in range(times):
            outputs = session.run(None, feed)
            assert memory is None or session.session_bytes <= memory
        return outputs, session.session_bytes, session.plan.minimum_memory


def check_exact(artifact: Path, feed: Feed) -> tuple[int, int]:
    """Assert that the first refusal's number works, and that the run's own number does and one byte less does not.
    Return both.
    """
    wanted, owned, smallest = ran(artifact, feed, None)
    named = refused(artifact, feed, 1)
    assert smallest <= min(named, owned)
    for memory in (named, smallest):
        got, _, own = ran(artifact, feed, memory, 2)
        assert own == smallest
        for mine, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
    assert refused(artifact, feed, smallest - 1) >= smallest
    return named, smallest


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_refusal_names_what_suffices(seed: int, tmp_path: Path) -> None:
    model, x = random_graph(seed)
    onnx.save(model, tmp_path / "m.onnx")
    artifact = flexnn.compile(tmp_path / "m.onnx")
    check_exact(artifact, {"x": x})
    with open_for_tests(artifact, memory=1, threads=1) as session:
        with pytest.raises(flexnn.BudgetError) as error:
            session.run(None, {"x": x})
        session.memory = error.value.minimum
        session.run(None, {"x": x})


@pytest.mark.parametrize("is_numpys", [False, True])
def test_memory_that_fails_is_told(is_numpys: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking ahead fails for want of memory: the error says so, and the session goes on."""
    model, x = random_graph(SEEDS[0])
    onnx.save(model, tmp_path / "m.onnx")

    def fail(*_: object) -> None:
        try:
            raise MemoryError
        except MemoryError:
            if not is_numpys:
                raise
            raise GraphError("Add: no memory") from None

    with open_for_tests(flexnn.compile(tmp_path / "m.onnx"), memory=1, threads=1) as session:
        with monkeypatch.context() as patch:
            patch.setattr(Ahead, "_walk", fail)
            with pytest.raises(flexnn.SessionError, match="the system has no memory to find the smallest budget"):
                session.run(None, {"x": x})
        with pytest.raises(flexnn.BudgetError):
            session.run(None, {"x": x})


def test_a_guess_beyond_memory_is_no_lack_of_it() -> None:
    with pytest.raises(GraphError, match="a guess is larger than memory"):
        _zeros(absent((1 << 60,), np.dtype(np.float32)))


def test_a_byte_less_than_the_smallest_is_refused(tmp_path: Path) -> None:
    """Also where only the next run, beside the outputs of this one, needs that byte."""
    model, x = random_graph(48)
    artifact = saved(tmp_path, model)
    named = refused(artifact, {"x": x}, 1)
    _, _, smallest = ran(artifact, {"x": x}, named, 3)
    assert refused(artifact, {"x": x}, smallest - 1) == smallest


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    onnx.save(model, folder / "m.onnx")
    return Path(flexnn.compile(folder / "m.onnx"))


def stacking(limit: str, *last: onnx.NodeProto) -> onnx.ModelProto:
    """A loop that multiplies by weights, and stacks its rows."""
    body = graph_of(
        [node("MatMul", ["v", "w"], ["m"]), node("Tanh", ["m"], ["u"]), *last, node("Identity", ["u"], ["row"])],
        [value("i", I64, []), value("going", BOOL, []), value("v", F32, [8, 256])],
        [value("again", BOOL, []), value("u", F32, [8, 256]), value("row", F32, [8, 256])],
    )
    nodes = [node("Loop", [limit, "", "x"], ["y", "rows"], body=body)]
    inputs = [value("x", F32, [8, 256]), value("trips", I64, [])]
    weights = {"w": numbers(256, 256) / 64, "limit": np.float32(1e-3), "endless": np.array(1 << 40)}
    return model_of(graph_of(nodes, inputs, [value("y", F32, [8, 256]), value("rows", F32, ["t", 8, 256])], weights))


@pytest.mark.parametrize("turns", [1, 300])
def test_stacks_have_room_beside_pinned_weights(turns: int, tmp_path: Path) -> None:
    """The number is exact where the caller says how many turns there are."""
    model = stacking("trips", node("Identity", ["going"], ["again"]))
    feed = {"x": numbers(8, 256), "trips": np.array(turns)}
    named, smallest = check_exact(saved(tmp_path, model), feed)
    assert named == smallest
    with opened(tmp_path, model) as session:
        check_run(session, model, feed)


@pytest.mark.parametrize("turns", [3, 40])
def test_stacks_share_what_is_left(turns: int, tmp_path: Path) -> None:
    """The first of two stacks took all that the budget had left for both, and the run was refused."""
    body = graph_of(
        [
            node("Identity", ["going"], ["again"]),
            node("Tanh", ["v"], ["u"]),
            node("Identity", ["u"], ["row"]),
            node("ReduceMax", ["u"], ["top"], axes=[0], keepdims=0),
        ],
        [value("i", I64, []), value("going", BOOL, []), value("v", F32, [3, 64])],
        [value(name, kind, dims) for name, kind, dims in (
            ("again", BOOL, []), ("u", F32, [3, 64]), ("row", F32, [3, 64]), ("top", F32, [64]),
        )],
    )  # fmt: skip
    nodes = [node("Loop", ["trips", "", "x"], ["y", "rows", "tops"], body=body)]
    inputs = [value("x", F32, [3, 64]), value("trips", I64, [])]
    outputs = [value("y", F32, [3, 64]), value("rows", F32, ["t", 3, 64]), value("tops", F32, ["t", 64])]
    model = model_of(graph_of(nodes, inputs, outputs))
    feed = {"x": numbers(3, 64), "trips": np.array(turns)}
    named, smallest = check_exact(saved(tmp_path, model), feed)
    assert named == smallest


def test_turns_that_nobody_knows_take_few_refusals(tmp_path: Path) -> None:
    """Turns go on until the numbers are small."""
    top = node("ReduceMax", ["u"], ["top"], keepdims=0)
    model = stacking("endless", top, node("Greater", ["top", "limit"], ["again"]))
    feed = {"x": numbers(8, 256), "trips": np.array(0)}
    artifact = saved(tmp_path, model)
    wanted, _, smallest = ran(artifact, feed, None)
    memory, refusals = 1, 0
    while True:
        try:
            got, _, own = ran(artifact, feed, memory)
            break
        except flexnn.BudgetError as error:
            assert error.minimum > memory
            memory, refusals = error.minimum, refusals + 1
    assert refusals <= 3
    assert own == smallest
    np.testing.assert_allclose(got[1], wanted[1], rtol=1e-5, atol=1e-6)


def test_sizes_without_a_bound_take_few_refusals(tmp_path: Path) -> None:
    """A count that an exponential makes has no bound; its number is known when the run comes to it."""
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("ReduceSum", ["e"], ["total"], keepdims=0),
        node("Cast", ["total"], ["count"], to=TensorProto.INT64),
        node("Range", ["zero", "count", "one"], ["places"]),
        node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"zero": np.array(0), "one": np.array(1)}
    artifact = saved(tmp_path, model_of(graph_of(nodes, [value("x", F32, ["n"])], [value("y", F32, ["k"])], constants)))
    feed = {"x": np.full(4, 13.0, np.float32)}
    memory, refusals = 1, 0
    while True:
        try:
            ran(artifact, feed, memory)
            break
        except flexnn.BudgetError as error:
            assert error.minimum > memory
            memory, refusals = error.minimum, refusals + 1
    assert refusals <= 3


def test_the_longer_branch_counts(tmp_path: Path) -> None:
    """Which branch runs is not known at the refusal, so its number suffices for both."""
    small = graph_of([node("Relu", ["x"], ["a"])], [], [value("a", F32, ["n", 64])])
    large = [node("Concat", ["x"] * 64, ["b"], axis=0), node("Relu", ["b"], ["c"])]
    branches = {"then_branch": small, "else_branch": graph_of(large, [], [value("c", F32, ["m", 64])])}
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["condition"]),
        node("If", ["condition"], ["made"], **branches),
        node("Neg", ["made"], ["y"]),
    ]
    inputs, outputs = [value("x", F32, ["n", 64])], [value("y", F32, ["k", 64])]
    artifact = saved(tmp_path, model_of(graph_of(nodes, inputs, outputs, {"zero": np.float32(0)})))
    named = [refused(artifact, {"x": np.full((256, 64), sign, np.float32)}, 1) for sign in (1, -1)]
    assert named[0] == named[1]
    smallest = [ran(artifact, {"x": np.full((256, 64), sign, np.float32)}, named[0])[2] for sign in (1, -1)]
    assert smallest[0] + (4 << 20) < smallest[1] <= named[0]


@pytest.mark.parametrize("way", ["input", "made"])
@pytest.mark.parametrize("flag", [True, False])
def test_a_loop_in_a_branch_needs_what_was_named_in_each_run(way: str, flag: bool, tmp_path: Path) -> None:
    """A flag was asked for, to lower the branch, which turned out to have a loop. The next run did not ask, so it was
    recorded in fewer and larger parts, and refused.
    """
    weights = {f"w{i}": numbers(256, 256, seed=i) / 16 for i in range(3)}

    def loop(weight: int, start: str, end: str) -> onnx.NodeProto:
        ports = [value("i", I64, []), value("going", BOOL, []), value("v", F32, [3, 256])]
        nodes = [node("Identity", ["going"], ["on"]), node("MatMul", ["v", f"w{weight}"], ["m"])]
        results = [value("on", BOOL, []), value("u", F32, [3, 256])]
        return node(
            "Loop", ["n", "", start], [end], body=graph_of([*nodes, node("Tanh", ["m"], ["u"])], ports, results)
        )

    made = [value("made", F32, [3, 256])]
    branches = {
        "then_branch": graph_of([loop(1, "a", "made")], [], made),
        "else_branch": graph_of([node("Neg", ["a"], ["made"])], [], made),
    }
    nodes = [
        *([node("Not", ["asked"], ["flag"])] if way == "made" else []),
        loop(0, "x", "a"),
        node("If", ["flag"], ["b"], **branches),
        loop(2, "b", "y"),
    ]
    name = "asked" if way == "made" else "flag"
    inputs = [value("x", F32, [3, 256]), value(name, BOOL, [1])]
    graph = graph_of(nodes, inputs, [value("y", F32, [3, 256])], weights | {"n": np.array(4)})
    feed = {"x": numbers(3, 256), name: np.array([flag])}
    with opened(tmp_path, model_of(graph)) as session:
        check_run(session, model_of(graph), feed)
    named, smallest = check_exact(tmp_path / "m.flexnn", feed)
    assert named == smallest


def test_a_model_that_numpy_computes_alone_is_refused(tmp_path: Path) -> None:
    model = model_of(graph_of([node("Identity", ["x"], ["y"])], [value("x", F32, ["n"])], [value("y", F32, ["n"])]))
    check_exact(saved(tmp_path, model), {"x": numbers(1 << 18)})
    model = model_of(graph_of([node("Det", ["x"], ["y"])], [value("x", F32, ["n", 3, 3])], [value("y", F32, ["n"])]))
    check_exact(saved(tmp_path, model), {"x": numbers(1000, 3, 3)})


@pytest.mark.parametrize("closed", ["small", "large"])
def test_what_lies_behind_a_closed_part_counts_where_it_lies(closed: str, tmp_path: Path) -> None:
    """A session gives back the arena only beyond the last part that is open."""
    nodes = [
        node("MatMul", ["x", "a"], ["p"]),
        node("NonZero", ["p"], ["n"]),
        node("Cast", ["n"], ["f"], to=F32),
        node("MatMul", ["r", "f"], ["q"]),
        node("MatMul", ["q", "b"], ["y"]),
    ]
    graph = graph_of(nodes, [value("x", F32, [1, 64]), value("r", F32, [64, 2])], [value("y", F32, [64, 8])])
    for name, shape in {"a": (64, 4096), "b": (4096, 8)}.items():
        graph.initializer.append(onnx.numpy_helper.from_array(numbers(*shape), name))
    artifact = saved(tmp_path, model_of(graph))
    feed = {"x": numbers(1, 64), "r": numbers(64, 2)}
    with open_for_tests(artifact, memory=64 << 20, threads=1) as session:
        session.run(None, feed)
        opened = session._run.stretches
        parts = sorted(opened._open, key=lambda segment: segment.working_bytes)
        assert len(parts) > 1
        opened._close(parts[0 if closed == "small" else -1])
        opened._engine.trim()
        opened.beside_values()
        taken = opened.bytes()
        assert opened._engine.nbytes <= taken["arena"] + taken["programs"] + taken["stacks"]


def test_a_tensor_of_more_bytes_than_there_are_addresses(tmp_path: Path) -> None:
    """The refusal was numpy's "iterator is too large"; it says what it would take, and without a limit, which node."""
    made = [node("Tile", ["x", "repeats"], ["y"], "tiles")]
    repeats = {"repeats": np.array([2**31, 2**31], np.int64)}
    model = model_of(graph_of(made, [value("x", F32, ["a", 3])], [value("y", F32, ["b", "c"])], repeats))
    feed = {"x": numbers(1, 3)}
    with opened(tmp_path, model, memory=64 << 20) as session, pytest.raises(flexnn.BudgetError) as error:
        session.run(None, feed)
    assert error.value.minimum > 12 << 62
    with opened(tmp_path, model) as session, pytest.raises(flexnn.FlexNNError, match=r"'tiles': .* too big"):
        session.run(None, feed)


def spoken() -> onnx.ModelProto:
    """Words, each of which takes 1 to 50 frames of sound, as its number tells; products make features of frames."""
    nodes = [
        node("Abs", ["words"], ["told"]),
        node("Clip", ["told", "least", "most"], ["frames"]),
        node("ReduceSum", ["frames"], ["total"], keepdims=0),
        node("Cast", ["total"], ["length"], to=I64),
        node("Range", ["nought", "length", "one"], ["times"]),
        node("Cast", ["times"], ["float"], to=F32),
        node("Unsqueeze", ["float", "last"], ["column"]),
        node("MatMul", ["column", "first"], ["rows"]),
        node("MatMul", ["rows", "weights"], ["features"]),
        node("ReduceMax", ["features"], ["y"], axes=[0], keepdims=0),
    ]
    constants = {
        "least": np.array(1, np.float32),
        "most": np.array(50, np.float32),
        "nought": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "last": np.array([1], np.int64),
        "first": np.abs(numbers(1, 512)),
        "weights": np.abs(numbers(512, 2048)),
    }
    return model_of(graph_of(nodes, [value("words", F32, ["n"])], [value("y", F32, [2048])], constants))


def test_what_all_words_may_take_is_no_budget(tmp_path: Path) -> None:
    """A text of 600 words was refused with a number for 30,000 frames, ten times what the session takes without a limit
    for its 2,500.
    """
    model, feed = spoken(), {"words": np.arange(600, dtype=np.float32) % 9}
    feed["words"][0] = 50
    with opened(tmp_path, model) as session:
        check_run(session, model, feed)
    artifact = tmp_path / "m.flexnn"
    wanted, owned, _ = ran(artifact, feed, None)
    named = refused(artifact, feed, 1)
    assert named <= 2 * owned
    np.testing.assert_allclose(ran(artifact, feed, named, 2)[0][0], wanted[0], rtol=1e-5)
