"""Shapes bound at run time: results, descriptions, memory given back, and what does not fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.run import open_shapes
from tests.support.hangs import HANG_SECONDS
from tests.support.regions import BOOL, F32, I64, check_run, graph_of, model_of, numbers, opened, value


def conv_model(channels: int = 24):
    """Two convolutions, an activation, a sum; height and width open."""
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "r"], ["y"]),
    ]
    constants = {
        "w0": numbers(channels, 3, 3, 3) / 5,
        "b0": numbers(channels),
        "w1": numbers(channels, channels, 3, 3, seed=1) / 15,
    }
    shape = [1, 3, "h", "w"]
    return model_of(graph_of(nodes, [value("x", F32, shape)], [value("y", F32, [1, channels, "h", "w"])], constants))


def test_any_shape_runs(tmp_path: Path) -> None:
    model = conv_model()
    with opened(tmp_path, model) as session:
        assert [(i.name, i.shape, i.type) for i in session.get_inputs()] == [("x", [1, 3, "h", "w"], "tensor(float)")]
        for h, w in ((16, 16), (33, 7), (16, 16), (1, 1)):
            check_run(session, model, {"x": numbers(1, 3, h, w)})
        with pytest.raises(ValueError, match="the model takes float32"):
            session.run(None, {"x": numbers(1, 4, 8, 8)})
        with pytest.raises(ValueError, match="does not fit into"):
            session.run(None, {"x": numbers(1, 3, 0, 8)})
        check_run(session, model, {"x": numbers(1, 3, 5, 6)})


def test_a_view_of_computed_constants(tmp_path: Path) -> None:
    """Positions computed for the shape, added to rows that a convolution takes as a map: a view of a tensor that had
    become a view itself was read at the wrong place.
    """
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Shape", ["c"], ["shape"]),
        helper.make_node("Slice", ["shape", "0", "2"], ["batch_channels"]),
        helper.make_node("Concat", ["batch_channels", "-1"], ["flat"], axis=0),
        helper.make_node("Reshape", ["c", "flat"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["tokens"], perm=[0, 2, 1]),
        helper.make_node("Slice", ["shape", "2", "4"], ["sides"]),
        helper.make_node("ReduceProd", ["sides"], ["count"], keepdims=0),
        helper.make_node("Range", ["start", "count", "step"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=F32),
        helper.make_node("Unsqueeze", ["numbers", "1"], ["column"]),
        helper.make_node("Mul", ["column", "frequencies"], ["angles"]),
        helper.make_node("Sin", ["angles"], ["positions"]),
        helper.make_node("Add", ["tokens", "positions"], ["y"]),
    ]
    constants = {str(i): np.array([i], np.int64) for i in (-1, 0, 1, 2, 4)}
    constants |= {"w": numbers(24, 3, 1, 1), "frequencies": numbers(24, seed=1)}
    constants |= {"start": np.array(0, np.int64), "step": np.array(1, np.int64)}
    ports = [value("x", F32, ["n", 3, "h", "w"])], [value("y", F32, ["n", "rows", 24])]
    model = model_of(graph_of(nodes, *ports, constants))
    with opened(tmp_path, model) as session:
        for h, w in ((14, 14), (9, 5)):
            check_run(session, model, {"x": numbers(1, 3, h, w)})


def test_a_batch_of_one_fuses_more(tmp_path: Path) -> None:
    """A token for each row of the batch: of one row it is a constant, which the product takes for its bias, of two rows
    it is not, and the product's weights are kept in another form.
    """
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "gamma"], ["b"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "0", "1"], ["batch"]),
        helper.make_node("Concat", ["batch", "1", "size"], ["wanted"], axis=0),
        helper.make_node("Expand", ["token", "wanted"], ["tokens"]),
        helper.make_node("Add", ["tokens", "b"], ["y"]),
    ]
    constants = {"w": numbers(64, 64) / 8, "gamma": numbers(64, seed=1), "token": numbers(1, 1, 64, seed=2)}
    constants |= {"0": np.array([0], np.int64), "1": np.array([1], np.int64), "size": np.array([64], np.int64)}
    model = model_of(graph_of(nodes, [value("x", F32, ["n", 1, 64])], [value("y", F32, ["n", 1, 64])], constants))
    with opened(tmp_path, model) as session:
        for n in (1, 2, 3):
            check_run(session, model, {"x": numbers(n, 1, 64)})


def test_sizes_out_of_several_inputs(tmp_path: Path) -> None:
    """PyTorch's expand to the sizes of a layer's output and of another input: known while binding, so that all is one
    program, and the compiler meets the layer behind it.
    """
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Shape", ["r"], ["shape"]),
        helper.make_node("Gather", ["shape", "0"], ["rows"]),
        helper.make_node("Shape", ["mask"], ["mask_shape"]),
        helper.make_node("Gather", ["mask_shape", "1"], ["columns"]),
        helper.make_node("Concat", ["columns", "rows", "twos"], ["wanted"], axis=0),
        helper.make_node("Equal", ["wanted", "-1"], ["is_open"]),
        helper.make_node("Where", ["is_open", "1", "wanted"], ["sizes"]),
        helper.make_node("Concat", ["rows", "twos"], ["parts"], axis=0),
        helper.make_node("Reshape", ["r", "parts"], ["deep"]),
        helper.make_node("Expand", ["deep", "sizes"], ["wide"]),
        helper.make_node("Reshape", ["wide", "flat"], ["lines"]),
        helper.make_node("MatMul", ["lines", "w"], ["y"]),
    ]
    constants = {str(i): np.array([i], np.int64) for i in (-1, 0, 1)} | {"w": numbers(64, 16)}
    constants |= {"twos": np.full(6, 2, np.int64), "flat": np.array([-1, 64], np.int64)}
    inputs = [value("x", F32, ["n", 64]), value("mask", I64, ["n", "t"])]
    model = model_of(graph_of(nodes, inputs, [value("y", F32, ["lines", 16])], constants))
    with opened(tmp_path, model) as session:
        for n, t in ((1, 5), (3, 7)):
            check_run(session, model, {"x": numbers(n, 64), "mask": np.ones((n, t), np.int64)})
            assert session.statistics()["segments_of_last_run"] == 1


@pytest.mark.parametrize("rows", ["n", 4])
@pytest.mark.parametrize("of", ["x", "constant"])
def test_noise_is_drawn_at_each_run(rows: str | int, of: str, tmp_path: Path) -> None:
    """Noise as text to speech (VITS) adds it, at open and at fixed shapes: no constant, even if its shape is one."""
    nodes = [
        helper.make_node("RandomNormalLike", [of], ["noise"], mean=3.0, scale=0.5),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]
    constants = {"constant": np.zeros((1, 5000), np.float32)} if of == "constant" else {}
    ports = [value("x", F32, [rows, 5000])], [value("y", F32, [rows, 5000])]
    with opened(tmp_path, model_of(graph_of(nodes, *ports, constants))) as session:
        x = np.zeros((4, 5000), np.float32)
        first, second = (session.run(None, {"x": x})[0] for _ in range(2))
    for noise in (first, second):
        assert abs(noise.mean() - 3) < 0.05
        assert abs(noise.std() - 0.5) < 0.05
    assert not np.array_equal(first, second)


def test_given_shapes_are_bound_when_compiling(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(conv_model().SerializeToString())
    with flexnn.Session(path, shapes={"x": (1, 3, 9, 9)}) as session:
        assert session.get_inputs()[0].shape == [1, 3, 9, 9]
        assert session.plan.minimum_memory > 0


def test_a_small_input_leaves_a_small_session(tmp_path: Path) -> None:
    with opened(tmp_path, conv_model()) as session:
        sizes = []
        for side in (64, 256, 64):
            session.run(None, {"x": numbers(1, 3, side, side)})
            sizes.append(session.session_bytes)
    assert sizes[2] - sizes[0] < 4 << 10  # the records of the kept shapes
    assert sizes[1] > sizes[0] + (8 << 20)


GROWS = """
import sys
import numpy, flexnn
def grown(file, name):
    with open("/proc/self/" + file) as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name)) - before
before = 0
name, *shapes = sys.argv[2:]
feeds = [numpy.ones(eval(shape), "int64" if name == "ids" else "float32") for shape in shapes]
for feed in feeds:
    feed.sum()  # zeros of numpy take no memory before they are touched
before = grown("smaps_rollup", "Rss:")  # counted page by page; the kernel's own count lags by some for each CPU
with flexnn.Session(sys.argv[1], threads=1) as session:  # of two, either may never touch its workspace
    for feed in feeds:
        session.run(None, {name: feed})
        print(grown("smaps_rollup", "Rss:"), grown("status", "VmHWM:"), session.session_bytes)
"""


def grown(artifact: str, name: str, *shapes: tuple[int, ...]) -> list[list[int]]:
    """Bytes that a process of its own has grown by after a run of each shape, its peak, and what the session claims."""
    command = [sys.executable, "-P", "-c", GROWS, artifact, name, *map(str, shapes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_SECONDS)
    return [[int(number) for number in line.split()] for line in done.stdout.splitlines()]


def decoder_model(width: int = 64, vocab: int = 4000) -> onnx.ModelProto:
    """A table of embeddings, attention of the whole sequence with itself, logits; the length open."""
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["x"]),
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "x"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "head"], ["y"]),
    ]
    constants = {"words": numbers(vocab, width) / 8, "head": numbers(width, vocab, seed=1) / 8}
    inputs, outputs = [value("ids", I64, [1, "tokens"])], [value("y", F32, [1, "tokens", vocab])]
    return model_of(graph_of(nodes, inputs, outputs, constants))


def test_memory_after_a_small_input_is_what_it_was_before_a_big_one(tmp_path: Path) -> None:
    """The process's, not the session's account of itself. The big one's binding is kept, and code that it ran first."""
    cases: list[tuple[onnx.ModelProto, str, list[tuple[int, ...]]]] = [
        (conv_model(), "x", [(1, 3, 64, 64), (1, 3, 640, 640)]),
        (decoder_model(), "ids", [(1, 16), (1, 512)]),
    ]
    for model, name, (small, big) in cases:
        path = tmp_path / "m.onnx"
        path.write_bytes(model.SerializeToString())
        rows = grown(flexnn.compile(path), name, small, big, small, small, big, small)
        after = [row[0] for row in rows]
        assert after[1] > after[0] + (6 << 20)
        assert after[2] <= after[0] + (1 << 20), after
        assert max(after[3], after[5]) <= after[2] + (256 << 10), after
        for _, peak, promised in (rows[0], rows[1]):
            assert peak <= promised + (1 << 20), rows


def test_a_budget_holds_for_every_shape(tmp_path: Path) -> None:
    model = conv_model()
    with opened(tmp_path, model) as session:
        session.run(None, {"x": numbers(1, 3, 64, 64)})
        budget = session.plan.minimum_memory + (200 << 10)
    with opened(tmp_path, model, memory=budget) as session:
        check_run(session, model, {"x": numbers(1, 3, 64, 64)})
        assert session.session_bytes <= budget
        with pytest.raises(flexnn.BudgetError) as error:
            session.run(None, {"x": numbers(1, 3, 256, 256)})
        check_run(session, model, {"x": numbers(1, 3, 48, 64)})
        session.memory = error.value.minimum
        check_run(session, model, {"x": numbers(1, 3, 256, 256)})
        assert session.session_bytes <= error.value.minimum


def test_sizes_computed_from_shapes(tmp_path: Path) -> None:
    """Flatten by Shape, Gather, Concat and Reshape, as exporters write it, then a product with constant weights."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "first"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    constants = {
        "zero": np.array(0, np.int64),
        "first": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
        "w": numbers(6, 40),
    }
    model = model_of(graph_of(nodes, [value("x", F32, ["n", 2, 3])], [value("y", F32, ["n", 40])], constants))
    with opened(tmp_path, model) as session:
        for n in (1, 5, 2):
            check_run(session, model, {"x": numbers(n, 2, 3)})


def test_shapes_that_depend_on_numbers(tmp_path: Path) -> None:
    """NonZero picks rows, a product follows, a Range as long as there are rows is added to it."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], axes=[1], keepdims=0),
        helper.make_node("Greater", ["top", "limit"], ["is"]),
        helper.make_node("NonZero", ["is"], ["at2"]),
        helper.make_node("Squeeze", ["at2", "first"], ["at"]),
        helper.make_node("Gather", ["x", "at"], ["rows"], axis=0),
        helper.make_node("MatMul", ["rows", "w"], ["z"]),
        helper.make_node("Shape", ["at"], ["count1"]),
        helper.make_node("Squeeze", ["count1", "first"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["numbers"]),
        helper.make_node("Cast", ["numbers"], ["floats"], to=F32),
        helper.make_node("Unsqueeze", ["floats", "last"], ["column"]),
        helper.make_node("Add", ["z", "column"], ["y"]),
    ]
    constants = {
        "limit": np.array(1.2, np.float32),
        "first": np.array([0], np.int64),
        "last": np.array([1], np.int64),
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "w": numbers(8, 20),
    }
    outputs = [value("y", F32, ["k", 20]), value("at", I64, ["k"])]
    model = model_of(graph_of(nodes, [value("x", F32, ["n", 8])], outputs, constants))
    with opened(tmp_path, model) as session:
        for n, seed in ((30, 0), (31, 1), (30, 2), (30, 0)):
            check_run(session, model, {"x": numbers(n, 8, seed=seed)})
        check_run(session, model, {"x": np.zeros((4, 8), np.float32)})  # no row at all


def test_a_slice_whose_bounds_are_inputs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Slice", ["x", "from", "to"], ["part"]),
        helper.make_node("Relu", ["part"], ["y"]),
    ]
    inputs = [value("x", F32, [64]), value("from", I64, [1]), value("to", I64, [1])]
    model = model_of(graph_of(nodes, inputs, [value("y", F32, ["k"])]))
    with opened(tmp_path, model) as session:
        for start in range(12):
            feed = {"x": numbers(64), "from": np.array([start]), "to": np.array([start * 3 + 2])}
            check_run(session, model, feed)


def test_what_sampling_does_not_reach_is_computed_all_the_same(tmp_path: Path) -> None:
    """No made-up length divides by 11, so the artifact has the product's weights as numbers only."""
    nodes = [
        helper.make_node("Reshape", ["x", "target"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["z"]),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    constants = {"target": np.array([11, -1], np.int64), "w": numbers(2, 9)}
    model = model_of(graph_of(nodes, [value("x", F32, ["n"])], [value("y", F32, [11, 9])], constants))
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": numbers(22)})
        with pytest.raises(ValueError, match="Reshape"):
            session.run(None, {"x": numbers(23)})
        check_run(session, model, {"x": numbers(22, seed=1)})


def test_bindings_that_are_kept_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_shapes, "KEPT_BYTES_MAX", 64 << 10)
    model = conv_model()
    with opened(tmp_path, model) as session:
        for side in (*range(4, 24), 4):
            check_run(session, model, {"x": numbers(1, 3, side, side)})
            found = session.statistics()
            templates = session._run._open.segments.templates_bytes  # type: ignore[attr-defined]
            kept = found["bytes"]["programs"] + found["bytes"]["kept"] - templates
            assert kept <= (64 << 10) + 20 * 1024
            assert found["kept_nodes"] <= 20
            assert found["segments"] <= 20


def test_empty_values(tmp_path: Path) -> None:
    """An empty input, a loop of no iterations over it, and types that only numpy computes."""
    body = graph_of(
        [helper.make_node("Add", ["c", "x"], ["c_out"]), helper.make_node("Identity", ["go"], ["go_out"])],
        [value("i", I64, []), value("go", BOOL, []), value("c", F32, ["n", 3])],
        [value("go_out", BOOL, []), value("c_out", F32, ["n", 3])],
        name="body",
    )
    nodes = [
        helper.make_node("Loop", ["times", "", "x"], ["l"], body=body),
        helper.make_node("ReduceSum", ["l", "axis"], ["s"], keepdims=0),
        helper.make_node("Concat", ["l", "x"], ["y"], axis=0),
        helper.make_node("Cast", ["s"], ["u"], to=TensorProto.UINT16),
    ]
    outputs = [value("y", F32, ["m", 3]), value("s", F32, [3]), value("u", TensorProto.UINT16, [3])]
    inputs = [value("x", F32, ["n", 3]), value("times", I64, [])]
    model = model_of(graph_of(nodes, inputs, outputs, {"axis": np.array([0])}))
    with opened(tmp_path, model) as session:
        for rows, times in ((2, 2), (0, 3), (2, 0), (0, 0), (3, 1)):
            check_run(session, model, {"x": np.abs(numbers(rows, 3)), "times": np.array(times)})


def test_a_longer_sequence_than_sampling_tried(tmp_path: Path) -> None:
    """Numpy computes positions of few tokens, binding those of many; the table stays one that is read by rows."""
    nodes = [
        helper.make_node("Shape", ["ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Range", ["zero", "length", "one"], ["positions"]),
        helper.make_node("Gather", ["places", "positions"], ["rows"]),
        helper.make_node("Gather", ["words", "ids"], ["embedded"]),
        helper.make_node("Add", ["embedded", "rows"], ["y"]),
    ]
    constants = {"places": numbers(2048, 192), "words": numbers(9, 192), "zero": np.array(0), "one": np.array(1)}
    inputs, outputs = [value("ids", I64, [1, "tokens"])], [value("y", F32, [1, "tokens", 192])]
    model = model_of(graph_of(nodes, inputs, outputs, constants))
    with opened(tmp_path, model) as session:
        for tokens in (8, 700, 2048, 1):
            check_run(session, model, {"ids": np.arange(tokens)[None] % 9})


def test_sizes_of_one_name_are_one_size(tmp_path: Path) -> None:
    """A graph's nodes and edges: the artifact has the products' weights as layers, not only as numbers."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Gather", ["h", "edges"], ["each"]),
        helper.make_node("ScatterElements", ["h", "places", "each"], ["sums"], axis=0, reduction="add"),
        helper.make_node("MatMul", ["sums", "w"], ["z"]),
        helper.make_node("Unsqueeze", ["kinds", "one"], ["columns"]),
        helper.make_node("Add", ["z", "columns"], ["y"]),
        helper.make_node("Unsqueeze", ["edges", "one"], ["column"]),
        helper.make_node("Expand", ["column", "wide"], ["places"]),
    ]
    nodes = [*nodes[:2], *nodes[6:], *nodes[2:6]]
    constants = {"w": numbers(9, 9), "one": np.array([1]), "wide": np.array([1, 9])}
    inputs = [value("x", F32, ["nodes", 9]), value("edges", I64, ["edges"]), value("kinds", F32, ["nodes"])]
    model = model_of(graph_of(nodes, inputs, [value("y", F32, ["nodes", 9])], constants))
    with opened(tmp_path, model) as session:
        for rows, links in ((3, 5), (6, 2)):
            feed = {"x": numbers(rows, 9), "edges": np.arange(links) % rows, "kinds": numbers(rows)}
            check_run(session, model, feed)
        assert "MatMul" not in session.statistics()["hosted_operators"]


def test_a_model_that_numpy_computes_alone(tmp_path: Path) -> None:
    """It has a plan without steps, and a smallest budget."""
    node = helper.make_node("Det", ["x"], ["y"])
    model = model_of(graph_of([node], [value("x", F32, ["n", 3, 3])], [value("y", F32, ["n"])]))
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": numbers(2, 3, 3)})
        assert not len(session.plan.steps)
        assert session.plan.minimum_memory >= session.session_bytes


def test_weights_are_not_found_where_slots_were_written(tmp_path: Path) -> None:
    """Weights that larger shapes moved are read or moved again for smaller ones, never taken from their old place."""
    body = [helper.make_node("Relu", ["c"], ["b"])], [helper.make_node("Neg", ["c"], ["b"])]
    ways = {
        f"{way}_branch": graph_of(nodes, [], [value("b", F32, None)], name=way)
        for way, nodes in zip(("then", "else"), body, strict=True)
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["is"]),
        helper.make_node("If", ["is"], ["y"], **ways),
    ]
    constants = {"w": numbers(64, 64, 3, 3) / 24, "zero": np.float32(0)}
    shape = [1, 64, "h", "w"]
    model = model_of(graph_of(nodes, [value("x", F32, shape)], [value("y", F32, shape)], constants))
    with opened(tmp_path, model) as session:
        for side in (40, 48, 24, 40):
            check_run(session, model, {"x": numbers(1, 64, side, side)})
