"""Forms of weights with a scale for each block of 32: packed, read by every kernel, and chosen only where they fit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn import _core
from flexnn.graph import pack
from flexnn.graph.ir import GraphError
from flexnn.graph.pack import PanelSource
from flexnn.graph.rounding import exactly, rounded, widened
from flexnn.graph.sources import ArraySource
from flexnn.graph.weight_form import FORMS
from tests.support.compare import check_model, feeds_of, load, model_of, weights
from tests.support.reference import run_graph

BLOCKED = sorted(name for name, form in FORMS.items() if form.block and form.bits in (4, 8) and not form.shared)
FIVE = "q5", "q5m"
DOUBLE = sorted(name for name, form in FORMS.items() if form.shared)


def net(rows: int = 1) -> onnx.ModelProto:
    """Products whose channels are blocks, and one whose last block is a part; few rows and many."""
    constants = {
        "dense": weights(96, 64, 3, 3),
        "point": weights(40, 96, 1, 1),
        "fc": weights(40, 33),
        "last": weights(33, 20),
    }
    nodes = [
        helper.make_node("Conv", ["x", "dense"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "point"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("MatMul", ["e", "fc"], ["f"]),
        helper.make_node("MatMul", ["f", "last"], ["y"]),
    ]
    return model_of(nodes, {"x": (rows, 64, 5, 6)}, ["y"], constants)


@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("form", BLOCKED)
def test_every_operator_reads_them(form: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "STORED_AS", form)
    graph = check_model(net(rows), tolerance=2e-2 if FORMS[form].bits == 8 else 0.4)
    assert [node.attrs["wtype"] for node in graph.nodes if node.weight >= 0] == [form] * 4


@pytest.mark.parametrize("form", BLOCKED)
def test_end_to_end(form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """Through the file and the engine, at the smallest budget too; as exact as the stored weights allow."""
    model, path = f"{tmp_path}/net.onnx", f"{tmp_path}/net.flexnn"
    onnx.save(net(), model)
    monkeypatch.setattr(pack, "STORED_AS", form)
    flexnn.compile(model, path)
    graph = load(net())
    feeds = feeds_of(graph)
    want = run_graph(graph, feeds)["y"]
    with flexnn.Session(path) as session:
        (y,) = session.run(None, feeds)
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-5 * float(np.abs(want).max()))
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.Session(path, memory=1 << 16)
    with flexnn.Session(path, memory=refused.value.minimum) as session:
        (tight,) = session.run(None, feeds)
    np.testing.assert_array_equal(tight, y)


@pytest.mark.parametrize("form", [*BLOCKED, *FIVE])
def test_a_block_is_rounded_to_what_its_integers_hold(form: str) -> None:
    """No weight is further from its own than half a step, or what a block of 4 bits cuts off to gain elsewhere."""
    body = np.random.default_rng(3).standard_normal((70, 16)).astype(np.float32)
    made = rounded(body, FORMS[form])
    assert made.scales.shape == (-(-70 // FORMS[form].block), 16)
    error = np.linalg.norm(widened(made, FORMS[form]) - body) / np.linalg.norm(body)
    assert error < (0.007 if FORMS[form].bits == 8 else 0.1)
    again = exactly(widened(made, FORMS[form]), FORMS[form], made.scales, made.minima)
    np.testing.assert_array_equal(again.integers, made.integers)


def test_blocks_that_are_all_zeros_or_large_stay_what_they_are() -> None:
    body = np.zeros((64, 16), np.float32)
    body[32:, 3] = 9
    for name in BLOCKED:
        np.testing.assert_allclose(widened(rounded(body, FORMS[name]), FORMS[name]), body, rtol=2e-3)
    with pytest.raises(GraphError, match="16 bits"):
        rounded(body * 1e8, FORMS["s8b"])
    with pytest.raises(GraphError, match="4 bits"):
        exactly(body, FORMS["q4"], np.ones((2, 16), np.float32), None)


def test_where_blocks_do_not_fit_a_channel_has_one_scale() -> None:
    """Channels that are no blocks in a convolution of several taps, groups of few channels, depthwise."""
    for shape, group, form in (
        ((8, 40, 3, 3), 1, "s8"), ((8, 64, 3, 3), 1, "q4"), ((8, 40, 1, 1), 1, "q4"), ((64, 4, 1, 1), 16, "s8"),
        ((8, 100, 1, 1), 1, "q4"),
    ):  # fmt: skip
        source = PanelSource("conv", shape, group, ArraySource(np.ones(shape, np.float32)), wtype="q4")
        assert source.form.name == form, shape
    depth = PanelSource("dwconv", (32, 1, 3, 3), 32, ArraySource(np.ones((32, 1, 3, 3), np.float32)), wtype="q4m")
    assert depth.form.name == "s8"


@pytest.mark.parametrize("form", ["q4", "q4mf"])
def test_given_steps_are_kept_and_scaled(form: str) -> None:
    """Integers with their own steps are stored exactly; where they are scaled, by numbers that hold the product."""
    rng = np.random.default_rng(0)
    least = rng.uniform(-1, 0, (20, 3)).astype(np.float32) if FORMS[form].minimum else np.zeros((20, 3), np.float32)
    step = rng.uniform(0.01, 0.02, (20, 3)).astype(np.float16).astype(np.float32)
    whole = rng.integers(0, 16, (20, 96)) if FORMS[form].minimum else rng.integers(-8, 8, (20, 96))
    values = (whole * np.repeat(step, 32, axis=1) + np.repeat(least, 32, axis=1)).astype(np.float32)
    shape = (20, 96, 1, 1)
    source = PanelSource("conv", shape, 1, ArraySource(values.reshape(shape)), wtype=form, step=ArraySource(step))
    source.least = ArraySource(least) if FORMS[form].minimum else None
    for before, after in source.widened():
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-7)
    source.scale = ArraySource(np.full(20, 1 / 3, np.float32))
    assert source.form.scales == 4
    assert {panel.nbytes for panel in source} == {source.panel_bytes}


def double_source(form: str, rng: np.random.Generator, columns: int = 512) -> tuple[PanelSource, np.ndarray]:
    """Panels of 20 channels in double blocks of any integers, and their weights."""
    bits, block = FORMS[form].bits, FORMS[form].block
    half = (rng.standard_normal((20, columns // 256, 2)) / 100).astype(np.float16).astype(np.float32)
    half[3, 0] = 0
    counts = (20, columns // 256, 256 // block)
    whole = rng.integers(-(1 << bits - 1), 1 << bits - 1, (20, columns))
    if FORMS[form].minimum:
        whole += 1 << bits - 1
        step = (half[..., :1] * rng.integers(0, 64, counts)).reshape(20, -1)
        least = (-half[..., 1:] * rng.integers(0, 64, counts)).reshape(20, -1)
        factors = np.concatenate([half[..., 0], half[..., 1]], axis=1)
    else:
        step = (half[..., :1] * rng.integers(-128, 128, counts)).reshape(20, -1)
        least, factors = np.zeros_like(step), half[..., 0]
    values = (whole * np.repeat(step, block, axis=1) + np.repeat(least, block, axis=1)).astype(np.float32)
    shape = (20, columns, 1, 1)
    source = PanelSource("conv", shape, 1, ArraySource(values.reshape(shape)), wtype=form)
    source.step, source.factors = ArraySource(step.astype(np.float32)), ArraySource(factors)
    source.least = ArraySource(least.astype(np.float32)) if FORMS[form].minimum else None
    return source, values


@pytest.mark.parametrize("form", DOUBLE)
def test_double_blocks_are_stored_exactly(form: str) -> None:
    """C reads the same numbers again, row by row; where scales are multiplied, single blocks hold them."""
    source, values = double_source(form, np.random.default_rng(7))
    assert source.form.name == form
    panels = list(source)
    assert {panel.nbytes for panel in panels} == {source.panel_bytes}
    fields = {"index_bytes": 8, "rows": 20, "inner": 512, "count": 20, "wtype": list(FORMS).index(form)}
    out = np.zeros((20, 512), np.float32)
    params = _core.encode_params("gather_panels", fields)
    _core.run_op("gather_panels", "", params, [np.concatenate(panels), np.arange(20)], out)
    np.testing.assert_array_equal(out, values)
    source.scale = ArraySource(np.full(20, 1 / 3, np.float32))
    assert not source.form.shared
    assert {panel.nbytes for panel in source} == {source.panel_bytes}


@pytest.mark.parametrize("form", DOUBLE)
def test_scales_that_are_no_multiples_are_refused(form: str) -> None:
    source, _ = double_source(form, np.random.default_rng(8))
    assert source.factors is not None
    source.factors = ArraySource(source.factors.load() * np.float32(1.25))
    with pytest.raises(GraphError, match="scales"):
        list(source)


@pytest.mark.parametrize("form", DOUBLE)
def test_runs_of_256_are_whole_and_of_one_tap(form: str) -> None:
    assert FORMS[form].fits(1, 512, 64)
    assert not FORMS[form].fits(1, 480, 480)
    assert not FORMS[form].fits(9, 512, 64)
    params = {"index_bytes": 8, "rows": 20, "inner": 480, "count": 20, "wtype": list(FORMS).index(form)}
    with pytest.raises(ValueError, match="param"):
        _core.op_check("gather_panels", "", _core.encode_params("gather_panels", params))
