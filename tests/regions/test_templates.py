"""Templates: the segment of other shapes, computed from a segment's sizes, is the one that binding makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from flexnn import _core
from flexnn.artifact.model_section import weight_key
from flexnn.graph import operators
from flexnn.graph.dump import dump
from flexnn.graph.ir import Graph, Weight
from flexnn.graph.sizes import Trail
from flexnn.graph.sources import HeldSource
from flexnn.regions import templates
from flexnn.regions.scope import Value
from flexnn.regions.segment import Segment, build_segment
from flexnn.regions.templates import Templates
from tests.support.regions import BOOL, F32, I64, check_run, graph_of, model_of, numbers, opened, value

node = helper.make_node


def everything(graph: Graph) -> list[object]:
    tensors = [(t.name, t.shape, t.dtype, t.root, t.offset, t.strides, t.weight) for t in graph.tensors]
    nodes = [(n.name, n.op, n.inputs, n.outputs, n.attrs, n.weight) for n in graph.nodes]
    weights = [(w.name, w.kind, w.nbytes, w.chunk_bytes) for w in graph.weights]
    params = [_core.encode_params(n.op, operators.encode(graph, n)).tolist() for n in graph.nodes]
    return [dump(graph), tensors, nodes, weights, params, graph.inputs, graph.outputs]


def same_numbers(mine: Weight, wanted: Weight) -> bool:
    if mine.origin is not None and wanted.origin is not None and mine.origin.key == wanted.origin.key:
        return True
    if isinstance(mine.source, HeldSource):
        return weight_key(mine) == weight_key(wanted)
    assert mine.source is not None
    assert wanted.source is not None
    return np.array_equal(mine.source.load().reshape(-1), wanted.source.load().reshape(-1))


def walk(op: str, params: Any) -> object:
    """Parameters of a node; of what walks boxes, which elements it reaches in order, as sizes of 1 have any stride, and
    runs that could be one may be two.
    """
    fields = dict(zip([name for name, _ in _core.FIELDS[op]], np.asarray(params).tolist(), strict=False))
    dims, kinds = [f"d{i}" for i in range(6)], ("xs", "as", "bs", "ys")
    if op == "matmul":
        dims, kinds = ["b0", "b1"], ("a_s", "b_s", "y_s")
    if not set(dims) <= fields.keys() or op == "pad":
        return fields
    sizes = [fields.pop(name) for name in dims]
    picked = np.linspace(0, np.prod(sizes) - 1, 997).astype(np.int64)  # all would take minutes
    grid = np.stack(np.unravel_index(picked, sizes))
    places = []
    for kind in kinds:
        steps = [fields.pop(f"{kind}{i}", 0) for i in range(len(dims))]
        places.append((np.array(steps) @ grid).tolist())
    return fields, places


class Checked:
    """Counts segments that came from templates, and compares each segment with the one that binding makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = self.found = 0
        own = Templates.segment

        def segment(templates: Templates, region: Any, *args: Any, **options: Any) -> Segment:
            marks = [set(region.forced), set(region.hosted), set(region.apart)]
            before = templates.nodes, len(templates._found)
            mine = own(templates, region, *args, **options)
            after = [set(region.forced), set(region.hosted), set(region.apart)]
            region.forced, region.hosted, region.apart = marks
            wanted = build_segment(region, *args, templates._opset)
            assert [region.forced, region.hosted, region.apart] == after
            self.compare(mine, wanted)
            self.made += before != (templates.nodes, len(templates._found))
            self.found += before == (templates.nodes, len(templates._found))
            return mine

        monkeypatch.setattr(Templates, "segment", segment)

    def compare(self, mine: Segment, wanted: Segment) -> None:
        template, sizes = mine.template, mine.numbers
        if template is not None and sizes is not None and not template.template.replay.is_best(sizes):
            return  # another graph that is right, too: check_run compares what it computes
        assert everything(mine.graph) == everything(wanted.graph)
        for i, (made, bound) in enumerate(zip(mine.graph.nodes, wanted.graph.nodes, strict=True)):
            assert walk(made.op, made.params) == walk(bound.op, bound.params), i
        assert all(map(same_numbers, mine.graph.weights, wanted.graph.weights))
        for name in ("nodes", "feeds", "makes", "aliases", "inlined"):
            assert getattr(mine, name) == getattr(wanted, name)
        for own, other in ((mine.constants, wanted.constants), (mine.consumed, wanted.consumed)):
            assert own.keys() == other.keys()
            assert all(np.array_equal(own[name], other[name]) and own[name].dtype == other[name].dtype for name in own)


def images() -> onnx.ModelProto:
    """A pyramid: convolutions, a resize to the shape of another map, pooling, a concat, a reshape by computed sizes."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c", "w1"], ["d"], pads=[1, 1, 1, 1]),
        node("HardSigmoid", ["d"], ["gate"], alpha=0.2, beta=0.5),
        node("Mul", ["d", "gate"], ["e"]),
        node("Resize", ["e", "", "twice"], ["f"], mode="nearest", nearest_mode="floor"),
        node("Shape", ["b"], ["shape"]),
        node("Gather", ["shape", "two"], ["height"], axis=0),
        node("Slice", ["f", "zero", "height", "two"], ["cut"]),
        node("Add", ["cut", "b"], ["g"]),
        node("GlobalAveragePool", ["g"], ["mean"]),
        node("Mul", ["g", "mean"], ["h"]),
        node("Concat", ["h", "b"], ["i"], axis=1),
        node("Slice", ["shape", "zero", "one"], ["batch"]),
        node("Concat", ["batch", "flat"], ["target"], axis=0),
        node("Reshape", ["i", "target"], ["j"]),
        node("Transpose", ["j"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["k", "w2"], ["l"]),
        node("Softmax", ["l"], ["y"], axis=-1),
    ]
    constants = {
        "w0": numbers(8, 3, 3, 3) / 5,
        "w1": numbers(8, 8, 3, 3, seed=1) / 9,
        "w2": numbers(16, 5, seed=2) / 4,
        "twice": np.array([1, 1, 2, 2], np.float32),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "flat": np.array([16, -1], np.int64),
    }
    inputs = [value("x", F32, ["n", 3, "h", "w"])]
    return model_of(graph_of(nodes, inputs, [value("y", F32, ["n", "p", 5])], constants))


def tokens() -> onnx.ModelProto:
    """Attention over a growing past: positions cut from a table, and a mask of a computed shape."""
    nodes = [
        node("Concat", ["past", "x"], ["all"], axis=1),
        node("Shape", ["all"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Slice", ["places", "zero", "length", "one"], ["place"]),
        node("Gather", ["table", "place"], ["embedded"], axis=0),
        node("Add", ["all", "embedded"], ["keys"]),
        node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["x", "turned"], ["scores"]),
        node("Concat", ["one", "one", "length"], ["wide"], axis=0),
        node("ConstantOfShape", ["wide"], ["ones"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.25])),
        node("Add", ["scores", "ones"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "keys"], ["y"]),
    ]
    constants = {
        "places": np.arange(64, dtype=np.int64).reshape(1, 64),
        "table": numbers(64, 16),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
    }
    inputs = [value("past", F32, [1, "past", 16]), value("x", F32, [1, "t", 16])]
    return model_of(graph_of(nodes, inputs, [value("y", F32, [1, "t", 16])], constants))


def recurrent() -> onnx.ModelProto:
    """A recurrent layer in two directions whose initial state is zeros of the batch's size."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["batch"], axis=0),
        node("Concat", ["two", "batch", "six"], ["states"], axis=0),
        node("ConstantOfShape", ["states"], ["zeros"]),
        node("GRU", ["x", "w", "r", "", "", "zeros"], ["out", ""], hidden_size=6, direction="bidirectional"),
        node("Transpose", ["out"], ["moved"], perm=[0, 2, 1, 3]),
        node("Reshape", ["moved", "joined"], ["y"]),
    ]
    constants = {
        "w": numbers(2, 18, 4) / 3,
        "r": numbers(2, 18, 6, seed=1) / 3,
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "six": np.array([6], np.int64),
        "joined": np.array([0, 0, -1], np.int64),
    }
    inputs = [value("x", F32, ["t", "n", 4])]
    return model_of(graph_of(nodes, inputs, [value("y", F32, ["t", "n", 12])], constants))


def computed_sizes() -> onnx.ModelProto:
    """Shapes computed in every way: ranges, divisions, minima, comparisons that choose, floats and back."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "axis"], ["n"], axis=0),
        node("Div", ["n", "two"], ["half"]),
        node("Mod", ["n", "two"], ["odd"]),
        node("Add", ["half", "odd"], ["up"]),
        node("Min", ["up", "five"], ["few"]),
        node("Less", ["n", "five"], ["is_short"]),
        node("Where", ["is_short", "n", "few"], ["count"]),
        node("Cast", ["n"], ["wide"], to=TensorProto.FLOAT),
        node("Mul", ["wide", "portion"], ["part"]),
        node("Floor", ["part"], ["low"]),
        node("Cast", ["low"], ["start"], to=TensorProto.INT64),
        node("Sub", ["n", "one"], ["last"]),
        node("Squeeze", ["n"], ["scalar"]),
        node("Range", ["nought", "scalar", "unit"], ["steps"]),
        node("Cast", ["steps"], ["slopes"], to=TensorProto.FLOAT),
        node("Add", ["x", "slopes"], ["sloped"]),
        node("Slice", ["sloped", "start", "n", "one"], ["end"]),
        node("Slice", ["sloped", "zero", "count", "one"], ["front"]),
        node("Slice", ["sloped", "last", "back", "one", "minus"], ["reversed"]),
        node("Concat", ["end", "front"], ["y"], axis=1),
        node("Relu", ["reversed"], ["z"]),
    ]
    constants = {
        "axis": np.array([1], np.int64),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "five": np.array([5], np.int64),
        "portion": np.array([0.3], np.float32),
        "nought": np.array(0, np.int64),
        "unit": np.array(1, np.int64),
        "back": np.array([-(1 << 40)], np.int64),
        "minus": np.array([-1], np.int64),
    }
    outputs = [value("y", F32, ["m", "k"]), value("z", F32, ["m", "n"])]
    return model_of(graph_of(nodes, [value("x", F32, ["m", "n"])], outputs, constants))


def picks() -> onnx.ModelProto:
    """Elements by index, the best ones, those that are not zero, and sums of products of any dimensions."""
    nodes = [
        node("TopK", ["x", "three"], ["best", "places"], axis=1),
        node("GatherElements", ["x", "places"], ["same"], axis=1),
        node("GatherND", ["x", "corners"], ["two"]),
        node("ScatterElements", ["x", "places", "best"], ["moved"], axis=1, reduction="add"),
        node("ScatterND", ["moved", "corners", "two"], ["set"]),
        node("Einsum", ["set", "x"], ["grams"], equation="ij,kj->ik"),
        node("Tile", ["grams", "often"], ["tiled"]),
        node("NonZero", ["set"], ["found"]),
        node("Transpose", ["found"], ["pairs"], perm=[1, 0]),
        node("GatherND", ["x", "pairs"], ["values"]),
        node("Greater", ["values", "level"], ["above"]),
        node("Compress", ["values", "above"], ["kept"]),
        node("Unique", ["kept"], ["y", "", "", "members"]),
        node("Unsqueeze", ["x", "front"], ["picture"]),
        node("Unsqueeze", ["grid", "nought"], ["at"]),
        node("GridSample", ["picture", "at"], ["sampled"]),
    ]
    constants = {
        "three": np.array([3], np.int64),
        "corners": np.array([[0, 1], [1, 0]], np.int64),
        "often": np.array([1, 2], np.int64),
        "level": np.array(0.0, np.float32),
        "front": np.array([0, 1], np.int64),
        "nought": np.array([0], np.int64),
    }
    outputs = [value("same", F32, ["m", 3]), value("tiled", F32, ["m", "2m"]), value("y", F32, ["u"])]
    outputs += [value("members", I64, ["u"]), value("sampled", F32, [1, 1, "p", "q"])]
    inputs = [value("x", F32, ["m", "n"]), value("grid", F32, ["p", "q", 2])]
    return model_of(graph_of(nodes, inputs, outputs, constants))


def turned(name: str, x: str, width: int) -> list[onnx.NodeProto]:
    """A loop over the rows of x [n, 1, width], whose condition says when it ends: it keeps [n, 1, 16]."""
    inside = [
        node("Gather", [x, "i"], ["row"]),
        node("MatMul", ["row", f"{name}_w"], ["a"]),
        node("MatMul", ["h", f"{name}_r"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Tanh", ["c"], ["after"]),
        node("Add", ["i", "one"], ["next"]),
        node("Less", ["next", "count"], ["goes_on"]),
        node("Add", ["count", "zero"], ["same"]),
        node("Identity", ["after"], ["kept"]),
    ]
    ports = [value("turn", I64, []), value("on", BOOL, []), value("i", I64, []), value("count", I64, [])]
    ends = [value("goes_on", BOOL, []), value("next", I64, []), value("same", I64, [])]
    body = graph_of(
        inside, [*ports, value("h", F32, [1, 16])], [*ends, value("after", F32, [1, 16]), value("kept", F32, [1, 16])]
    )
    return [
        node("Shape", [x], [f"{name}_shape"]),
        node("Gather", [f"{name}_shape", "zero"], [f"{name}_count"]),
        node(
            "Loop",
            ["", "yes", "zero", f"{name}_count", "start"],
            [f"{name}_i", f"{name}_n", f"{name}_last", f"{name}_y"],
            body=body,
        ),
    ]


def turned_round() -> onnx.ModelProto:
    """Rows in the reverse order, as one direction of a layer reads them."""
    nodes = [node("Slice", ["x", "last", "none", "axis", "back"], ["r"]), node("Concat", ["x", "r"], ["y"], axis=1)]
    numbers_of = {"last": [-1], "none": [-(1 << 40)], "axis": [0], "back": [-1]}
    constants = {name: np.array(v, np.int64) for name, v in numbers_of.items()}
    return model_of(graph_of(nodes, [value("x", F32, ["t", 4])], [value("y", F32, ["t", 8])], constants))


def loops_in_turn() -> onnx.ModelProto:
    """Two loops, one behind the other, whose turns only a run knows, and a product of what the second keeps."""
    nodes = [*turned("first", "x", 4), node("Relu", ["first_y"], ["between"]), *turned("second", "between", 16)]
    nodes += [node("MatMul", ["second_y", "w"], ["y"])]
    constants = {
        "first_w": numbers(4, 16),
        "first_r": numbers(16, 16, seed=1) / 8,
        "second_w": numbers(16, 16, seed=2),
        "second_r": numbers(16, 16, seed=3) / 8,
        "w": numbers(16, 3, seed=4),
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "yes": np.array(True),
        "start": np.zeros((1, 16), np.float32),
    }
    return model_of(graph_of(nodes, [value("x", F32, ["t", 1, 4])], [value("y", F32, ["t", 1, 3])], constants))


CASES: dict[str, tuple[Callable[[], onnx.ModelProto], list[dict[str, tuple[int, ...]]], int]] = {
    "images": (images, [{"x": (n, 3, h, w)} for n in (2, 3) for h, w in ((32, 48), (40, 64), (64, 44), (16, 16))], 4),
    "tokens": (tokens, [{"past": (1, n, 16), "x": (1, 2, 16)} for n in range(2, 30, 3)], 4),
    "recurrent": (recurrent, [{"x": (t, n, 4)} for n in (2, 5, 3) for t in (3, 7)], 4),
    "turned_round": (turned_round, [{"x": (t, 4)} for t in (2, 5, 9, 31, 64)], 3),
    "loops_in_turn": (loops_in_turn, [{"x": (t, 1, 4)} for t in (3, 7, 12, 40)], 12),
    "computed_sizes": (computed_sizes, [{"x": (m, n)} for m in (2, 3) for n in (6, 7, 9, 12, 20, 33)], 40),
    "picks": (picks, [{"x": (m, n), "grid": (m, 4, 2)} for m in (2, 3, 5) for n in (6, 7, 9, 12)], 60),
}


@pytest.mark.parametrize("name", CASES)
def test_segments_of_templates_are_those_that_binding_makes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, shapes, most = CASES[name]
    model = build()
    checked = Checked(monkeypatch)
    with opened(tmp_path, model) as session:
        checked.made = checked.found = 0  # those of compiling
        for sizes in shapes:
            check_run(session, model, {key: numbers(*shape) for key, shape in sizes.items()})
    assert checked.made <= most
    assert checked.found > 0


def test_numbers_that_the_caller_gives_are_sizes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Reshape", ["x", "target"], ["a"]), node("Relu", ["a"], ["b"]), node("Add", ["b", "b"], ["y"])]
    inputs = [value("x", F32, ["n"]), value("target", I64, [2])]
    model = model_of(graph_of(nodes, inputs, [value("y", F32, ["a", "b"])], {}))
    checked = Checked(monkeypatch)
    with opened(tmp_path, model) as session:
        for target in ((2, 6), (3, 4), (3, 8), (2, 9)):
            feed = {"x": numbers(target[0] * target[1]), "target": np.array(target, np.int64)}
            check_run(session, model, feed)
    assert checked.found > 0


def test_a_branch_that_sizes_decide_is_another_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    then = graph_of([node("Relu", ["x"], ["r"])], [], [value("r", F32, ["n"])], {})
    other = graph_of([node("Neg", ["x"], ["s"])], [], [value("s", F32, ["n"])], {})
    nodes = [
        node("Size", ["x"], ["n"]),
        node("Greater", ["n", "eight"], ["is_long"]),
        node("If", ["is_long"], ["a"], then_branch=then, else_branch=other),
        node("Add", ["a", "a"], ["y"]),
    ]
    constants = {"eight": np.array(8, np.int64)}
    model = model_of(graph_of(nodes, [value("x", F32, ["n"])], [value("y", F32, ["n"])], constants))
    checked = Checked(monkeypatch)
    with opened(tmp_path, model) as session:
        checked.made = checked.found = 0
        for n in (4, 6, 12, 5, 30, 13, 2):
            check_run(session, model, {"x": numbers(n)})
    assert checked.made <= 4
    assert checked.found >= 3


def test_templates_are_kept_where_no_budget_counts_them(tmp_path: Path) -> None:
    feed = {"x": numbers(2, 3, 32, 48)}
    with opened(tmp_path, images()) as session:
        session.run(None, feed)
        assert session._run._recorder.templates.nodes > 0  # type: ignore[attr-defined]
        session.memory = session.session_bytes
        assert session._run._recorder.templates is None  # type: ignore[attr-defined]
        session.run(None, feed)


def padded() -> onnx.ModelProto:
    """Rows and columns padded to a multiple of 4, as a model does that halves its maps twice; a convolution."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "places"], ["sizes"], axis=0),
        node("Add", ["sizes", "three"], ["more"]),
        node("Div", ["more", "four"], ["blocks"]),
        node("Mul", ["blocks", "four"], ["whole"]),
        node("Sub", ["whole", "sizes"], ["after"]),
        node("Concat", ["zeros", "after"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["p"]),
        node("Conv", ["p", "w"], ["y"], strides=[4, 4]),
    ]
    constants = {
        "places": np.array([2, 3], np.int64),
        "three": np.array([3], np.int64),
        "four": np.array([4], np.int64),
        "zeros": np.array([0, 0, 0, 0, 0, 0], np.int64),
        "w": numbers(5, 3, 4, 4) / 7,
    }
    inputs = [value("x", F32, [1, 3, "h", "w"])]
    return model_of(graph_of(nodes, inputs, [value("y", F32, [1, 5, "p", "q"])], constants))


@pytest.mark.parametrize(("first", "traced"), [((6, 7), 0), ((8, 8), 1)])
def test_padding_of_nothing_needs_no_other_template(tmp_path: Path, first: tuple[int, int], traced: int) -> None:
    model = padded()
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": numbers(1, 3, *first)})
        templates = session._run._recorder.templates  # type: ignore[attr-defined]
        before = templates.nodes
        seen = []
        for h, w in ((5, 6), (8, 5), (9, 12), (12, 12), (16, 5), (8, 8)):
            check_run(session, model, {"x": numbers(1, 3, h, w)})
            seen.append(templates.nodes)
        assert len({before, *seen}) <= 1 + traced, (before, seen)


def scattered() -> onnx.ModelProto:
    """Positive numbers, doubled, in a vector of zeros as long as x: which they are, and how many, a run finds."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("ConstantOfShape", ["shape"], ["zeros"]),
        node("Greater", ["x", "zero"], ["is_positive"]),
        node("NonZero", ["is_positive"], ["places"]),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["x", "rows"], ["found"]),
        node("Add", ["found", "found"], ["doubled"]),
        node("ScatterND", ["zeros", "rows", "doubled"], ["y"]),
    ]
    constants = {"zero": np.array(0, np.float32)}
    return model_of(graph_of(nodes, [value("x", F32, ["n"])], [value("y", F32, ["n"])], constants))


@pytest.mark.parametrize("most", [9.0, 0.0])
def test_numbers_that_sizes_decide_are_no_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: float
) -> None:
    """The zeros were a constant of their segment, which so served vectors of that length only. Where nothing is
    positive, a message that named the length made it a condition.
    """
    model, traced = scattered(), []
    own = templates._with_trail
    monkeypatch.setattr(templates, "_with_trail", lambda *args: traced.append(args[1]) or own(*args))
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": np.minimum(numbers(30), most)})
        traced.clear()
        for n in (52, 37, 61, 30):
            check_run(session, model, {"x": np.minimum(numbers(n), most)})
    assert not traced


@pytest.mark.parametrize(
    ("array", "is_constant"),
    [(numbers(1, 1, 40), False), (numbers(8), True), (np.arange(40), True), (np.arange(40) > 3, False)],
)
def test_many_numbers_are_no_constant_of_a_template(array: np.ndarray, is_constant: bool) -> None:
    """Zeros as long as a sentence would make the template serve that length alone."""
    settled = Value(array.shape, array.dtype, array, is_settled=True)
    assert templates.Given(Trail(), settled).is_settled == is_constant
