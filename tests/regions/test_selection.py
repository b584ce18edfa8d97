"""Operators whose output has as many elements as the data say, through a session, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import flexnn
from tests.support.regions import F32, I64, Binds, check_run, graph_of, model_of, opened, value

BOOL = TensorProto.BOOL


def out(name, kind, rank):
    return value(name, kind, [None] * rank)


def cases(rng):
    """Data with some, all, one and no element that is not zero."""
    x = rng.integers(-1, 2, (7, 300, 3)).astype(np.float32)
    one = np.zeros_like(x)
    one[3, 1, 2] = -1
    return [x, np.ones_like(x), one, x[:2], np.zeros_like(x), x * np.float32(-0.0), x[:, :5]]


def hosted(session):
    return session.statistics()["hosted_operators"]


def test_nonzero(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["i"]),
        helper.make_node("Transpose", ["i"], ["t"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "t"], ["y"]),
    ]
    model = model_of(graph_of(nodes, [value("x", F32, ["a", "b", 3])], [out("t", I64, 2), out("y", F32, 1)]))
    with opened(tmp_path, model) as session:
        for i, x in enumerate(cases(np.random.default_rng(0))):
            check_run(session, model, {"x": x})
            assert i or hosted(session) == {}


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(tmp_path, axis):
    attrs = {} if axis is None else {"axis": axis}
    nodes = [helper.make_node("Compress", ["x", "c"], ["y"], **attrs)]
    inputs = [value("x", F32, ["a", "b", 3]), value("c", BOOL, ["n"])]
    model = model_of(graph_of(nodes, inputs, [out("y", F32, 1 if axis is None else 3)]))
    rng = np.random.default_rng(0)
    with opened(tmp_path, model) as session:
        for x in cases(rng):
            size = x.size if axis is None else x.shape[axis]
            for share, length in ((0.5, size), (0, size), (1, size - 1)):
                check_run(session, model, {"x": x, "c": rng.random(length) < share})


def test_compress_with_a_constant_condition(tmp_path):
    nodes = [helper.make_node("Compress", ["x", "c"], ["y"], axis=1)]
    constants = {"c": np.array([True, False, True])}
    model = model_of(graph_of(nodes, [value("x", F32, ["a", 5])], [out("y", F32, 2)], constants))
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": np.ones((3, 5), np.float32)})
        assert hosted(session) == {}


@pytest.mark.parametrize(("op", "kind"), [("NonZero", BOOL), ("Unique", I64)])
def test_a_segment_knows_the_count_and_not_the_mask(tmp_path, op, kind):
    """Other few integers from the caller with the same count are the same segments."""
    nodes = [helper.make_node(op, ["c"], ["y"])]
    model = model_of(graph_of(nodes, [value("c", kind, ["n"])], [out("y", I64, 1 + (op == "NonZero"))]))
    rng = np.random.default_rng(0)
    c = np.array([0, 0, 1, 1, 1, 0, 0, 1], bool if kind == BOOL else np.int64)
    with opened(tmp_path, model) as session:
        check_run(session, model, {"c": c})
        segments = session.statistics()["segments"]
        for _ in range(5):
            check_run(session, model, {"c": rng.permutation(c)})
        assert session.statistics()["segments"] == segments > 0
        assert hosted(session) == {}


@pytest.mark.parametrize("outputs", [("y",), ("y", "i", "n", "c"), ("y", "", "n"), ("y", "", "", "c")])
@pytest.mark.parametrize("sorted_", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique(tmp_path, outputs, sorted_, axis):
    attrs = {"sorted": sorted_} | ({} if axis is None else {"axis": axis})
    nodes = [helper.make_node("Unique", ["x"], list(outputs), **attrs)]
    rank = 1 if axis is None else 3
    made = [out("y", F32, rank) if n == "y" else out(n, I64, 1) for n in outputs if n]
    model = model_of(graph_of(nodes, [value("x", F32, ["a", "b", 3])], made))
    with opened(tmp_path, model) as session:
        for x in cases(np.random.default_rng(0))[:5]:
            check_run(session, model, {"x": x[:, :40]})
            assert "Unique.groups" not in hosted(session)


def test_unique_of_integers(tmp_path):
    nodes = [helper.make_node("Unique", ["x"], ["y", "i", "n", "c"])]
    model = model_of(graph_of(nodes, [value("x", I64, ["a"])], [out(n, I64, 1) for n in "yinc"]))
    rng = np.random.default_rng(0)
    with opened(tmp_path, model) as session:
        for size in (2000, 1, 700):
            check_run(session, model, {"x": rng.integers(-(1 << 40), 1 << 40, 60)[rng.integers(0, 60, size)]})


def boxes_of(rng, batch, count, centered):
    low = rng.uniform(0, 10, (batch, count, 2))
    size = rng.uniform(1, 6, (batch, count, 2))
    return np.concatenate([low, size if centered else low + size], -1).astype(np.float32)


@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("limits", [0, 1, 2, 3])
def test_non_max_suppression(tmp_path, centered, limits):
    names = ["boxes", "scores", "most", "overlap", "least"]
    constants = {"most": np.array([4], np.int64), "overlap": np.array([0.4], np.float32)}
    constants |= {"least": np.array([0.3], np.float32)}
    used = names[: 2 + limits]
    nodes = [helper.make_node("NonMaxSuppression", used, ["y"], center_point_box=centered)]
    inputs = [value("boxes", F32, ["b", "n", 4]), value("scores", F32, ["b", "c", "n"])]
    given = {name: constants[name] for name in used[2:]}
    model = model_of(graph_of(nodes, inputs, [out("y", I64, 2)], given))
    rng = np.random.default_rng(centered)
    with opened(tmp_path, model) as session:
        for batch, classes, count in ((1, 2, 200), (2, 3, 50), (1, 1, 3)):
            scores = np.round(rng.random((batch, classes, count)), 2).astype(np.float32)  # some are equal
            for factor in (1.0, 0.0):
                feed = {"boxes": boxes_of(rng, batch, count, centered), "scores": scores * np.float32(factor)}
                check_run(session, model, feed)


def test_non_max_suppression_with_limits_of_the_run(tmp_path):
    names = ["boxes", "scores", "most", "overlap", "least"]
    nodes = [helper.make_node("NonMaxSuppression", names, ["y"])]
    inputs = [value("boxes", F32, [1, "n", 4]), value("scores", F32, [1, 2, "n"]), value("most", I64, [1])]
    inputs += [value("overlap", F32, [1]), value("least", F32, [1])]
    model = model_of(graph_of(nodes, inputs, [out("y", I64, 2)]))
    rng = np.random.default_rng(3)
    with opened(tmp_path, model) as session:
        for most in (3, 500, 0, 1, 3):
            feed = {"boxes": boxes_of(rng, 1, 60, False), "scores": rng.random((1, 2, 60)).astype(np.float32)}
            feed |= {"most": np.array([most]), "overlap": np.array([0.3], np.float32)}
            check_run(session, model, feed | {"least": np.array([0.5], np.float32)})


def test_top_k_of_a_number_of_the_run(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "last"], ["n"]),
        helper.make_node("Min", ["n", "k"], ["m"]),
        helper.make_node("TopK", ["x", "m"], ["v", "i"]),
    ]
    inputs = [value("x", F32, ["a", "b"]), value("k", I64, [1])]
    constants = {"last": np.array([-1])}
    model = model_of(graph_of(nodes, inputs, [out("v", F32, 2), out("i", I64, 2)], constants))
    rng = np.random.default_rng(0)
    with opened(tmp_path, model) as session:
        for size, k in ((900, 5), (3, 5), (900, 7), (50, 50)):
            check_run(session, model, {"x": rng.random((4, size)).astype(np.float32), "k": np.array([k])})
            assert "TopK" not in hosted(session)


@pytest.mark.parametrize("op", ["GatherND", "GatherElements", "ScatterND", "ScatterElements", "ReverseSequence"])
def test_an_index_out_of_range_names_the_node(tmp_path, op):
    rows = {"GatherND": [9, 1], "ScatterND": [9, 1], "GatherElements": [9, 6], "ScatterElements": [9, 6]}
    rank = 2
    names = ["x", "i", "u"] if "Scatter" in op else ["x", "i"]
    inputs = [value("x", F32, ["n", 6]), value("i", I64, rows.get(op, [6]))]
    inputs += [value("u", F32, [9, 6])] if "Scatter" in op else []
    model = model_of(graph_of([helper.make_node(op, names, ["y"], name="steered")], inputs, [out("y", F32, rank)]))
    feed = {
        "x": np.ones((2000, 6), np.float32),
        "i": np.full(rows.get(op, [6]), 1999),
        "u": np.ones((9, 6), np.float32),
    }
    feed = {port.name: feed[port.name] for port in inputs}
    with opened(tmp_path, model) as session:
        check_run(session, model, feed)
        assert hosted(session) == {}
        for wrong in (2001, -2001, 1 << 40):
            with pytest.raises(flexnn.FlexNNError, match=r"steered.*index"):
                session.run(None, feed | {"i": np.full_like(feed["i"], wrong)})
        check_run(session, model, feed)


def test_a_detector_at_its_smallest_budget(tmp_path):
    """Boxes picked by suppression, then gathered: at the smallest budget as without one."""
    nodes = [
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["rows"]),
        helper.make_node("Gather", ["rows", "two"], ["picked"], axis=1),
        helper.make_node("Squeeze", ["boxes", "zero"], ["flat"]),
        helper.make_node("Gather", ["flat", "picked"], ["y"]),
    ]
    constants = {"most": np.array([20]), "overlap": np.array([0.5], np.float32), "zero": np.array([0])}
    constants |= {"least": np.array([0.55], np.float32), "two": np.array(2)}
    inputs = [value("logits", F32, [1, 3, "n"]), value("boxes", F32, [1, "n", 4])]
    model = model_of(graph_of(nodes, inputs, [out("y", F32, 2), out("rows", I64, 2)], constants))
    rng = np.random.default_rng(2)
    feeds = [
        {"logits": rng.standard_normal((1, 3, 600)).astype(np.float32), "boxes": boxes_of(rng, 1, 600, False)}
        for _ in range(3)
    ]
    with opened(tmp_path, model) as session:
        for feed in feeds:
            check_run(session, model, feed)
        assert "NonMaxSuppression.rows" not in hosted(session)
    memory = 1
    for _ in range(6):
        try:
            with opened(tmp_path, model, memory=memory) as session:
                for feed in feeds:
                    check_run(session, model, feed)
            return
        except flexnn.BudgetError as error:
            assert error.minimum > memory
            memory = error.minimum
    raise AssertionError("no budget that a refusal named was enough")


def test_counts_that_are_asked_for_are_asked_for_together(tmp_path, monkeypatch):
    """Detection heads keep the best of what each class found: as many counts as classes decide the shapes behind them.
    Asking for one after the other bound all classes before it again each time.
    """
    heads, nodes = 24, []
    for i in range(heads):
        nodes += [
            helper.make_node("Greater", ["x", f"least{i}"], [f"is{i}"]),
            helper.make_node("Compress", ["x", f"is{i}"], [f"kept{i}"]),
            helper.make_node("Shape", [f"kept{i}"], [f"count{i}"]),
            helper.make_node("Min", [f"count{i}", "most"], [f"k{i}"]),
            helper.make_node("TopK", [f"kept{i}", f"k{i}"], [f"best{i}", f"at{i}"]),
        ]
    nodes.append(helper.make_node("Concat", [f"best{i}" for i in range(heads)], ["y"], axis=0))
    constants = {f"least{i}": np.float32(i / heads - 0.5) for i in range(heads)} | {"most": np.array([3])}
    model = model_of(graph_of(nodes, [value("x", F32, ["n"])], [out("y", F32, 1)], constants))
    with opened(tmp_path, model) as session:
        binds = Binds(monkeypatch)
        check_run(session, model, {"x": np.linspace(-1, 1, 40, dtype=np.float32)})
        assert binds.count < heads // 3
