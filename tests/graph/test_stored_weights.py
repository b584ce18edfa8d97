"""Weights stored as float16 and as 8-bit integers: from packing through the artifact to the engine."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn.graph import pack
from flexnn.graph.ir import GraphError
from flexnn.graph.pack import PanelSource
from flexnn.graph.sources import ArraySource
from tests.support.compare import check_model, feeds_of, load, model_of, weights
from tests.support.reference import run_graph

# Of the largest output: rounding each weight once to 11 bits, or to 1/254 of its channel's largest.
TOLERANCE = {"f16": 1e-3, "s8": 2e-2, "s8b": 2e-2, "q4": 0.3, "q4m": 0.3}


def net():
    """Every way to read panels: dense with blocks, few rows, depthwise, narrow and wide groups, slopes."""
    constants = {
        "dense": weights(40, 70, 3, 3), "depth": weights(40, 1, 3, 3), "narrow": weights(40, 4, 3, 3),
        "wide": weights(20, 20, 3, 3), "slope": weights(20, 1, 1), "point": weights(24, 20, 1, 1),
        "fc": weights(24 * 36, 33),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "dense"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "depth"], ["b"], pads=[1, 1, 1, 1], group=40),
        helper.make_node("Conv", ["b", "narrow"], ["c"], pads=[1, 1, 1, 1], group=10),
        helper.make_node("Conv", ["c", "wide"], ["d"], pads=[1, 1, 1, 1], group=2),
        helper.make_node("PRelu", ["d", "slope"], ["e"]),
        helper.make_node("Conv", ["e", "point"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("MatMul", ["g", "fc"], ["y"]),
    ]
    return model_of(nodes, {"x": (1, 70, 6, 6)}, ["y"], constants)


@pytest.mark.parametrize("wtype", ["f16", "s8"])
def test_every_operator_reads_them(wtype, monkeypatch):
    monkeypatch.setattr(pack, "STORED_AS", wtype)
    graph = check_model(net(), tolerance=TOLERANCE[wtype])
    assert {node.attrs["wtype"] for node in graph.nodes if node.weight >= 0} == {wtype}


@pytest.mark.parametrize("wtype", ["f16", "s8"])
def test_end_to_end(wtype, monkeypatch, tmp_path):
    """Through the file and the engine, at the smallest budget too; as exact as the stored weights allow."""
    model, path = tmp_path / "net.onnx", tmp_path / f"{wtype}.flexnn"
    onnx.save(net(), str(model))
    flexnn.compile(str(model), str(tmp_path / "f32.flexnn"))
    monkeypatch.setattr(pack, "STORED_AS", wtype)
    flexnn.compile(str(model), str(path))
    saved = (tmp_path / "f32.flexnn").stat().st_size - path.stat().st_size
    assert saved > sum(weight.size for weight in net_weights()) * {"f16": 1.8, "s8": 2.7}[wtype]
    graph = load(net())
    feeds = feeds_of(graph)
    want = run_graph(graph, feeds)["y"]
    with flexnn.Session(str(path)) as session:
        smallest = session.minimum_memory if hasattr(session, "minimum_memory") else None
        (y,) = session.run(None, feeds)
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-5 * float(np.abs(want).max()))
    if smallest is None:
        with pytest.raises(flexnn.BudgetError) as refused:
            flexnn.Session(str(path), memory=1 << 16)
        smallest = refused.value.minimum
    with flexnn.Session(str(path), memory=smallest) as session:
        (tight,) = session.run(None, feeds)
    np.testing.assert_array_equal(tight, y)


def net_weights():
    return [onnx.numpy_helper.to_array(t) for t in net().graph.initializer if t.name not in ("slope",)]


def test_given_steps_are_kept():
    """Weights that are integers times a step of their channel are stored exactly, whatever their largest."""
    rng = np.random.default_rng(0)
    whole = rng.integers(-100, 100, (20, 5, 3, 3)).astype(np.float32)
    step = rng.uniform(0.01, 0.02, 20).astype(np.float32)
    values = whole * step[:, None, None, None]
    source = PanelSource("conv", values.shape, 1, ArraySource(values), wtype="s8", step=ArraySource(step))
    first = next(iter(source))
    np.testing.assert_array_equal(first[16:32], step[:16])
    stored = first[32:].view(np.int8)[: 9 * 5 * 16].reshape(9, 5, 16)
    np.testing.assert_array_equal(stored, whole[:16].reshape(16, 5, 9).transpose(2, 1, 0))


@pytest.mark.parametrize("vectors", [(), ("bias",), ("scale", "slope"), ("bias", "scale", "slope")])
@pytest.mark.parametrize(
    "shape", [(40, 70, 3, 3, 1), (5, 200, 1, 1, 1), (40, 1, 3, 3, 40), (40, 4, 3, 1, 10), (64, 20, 1, 3, 2)]
)
def test_panels_that_are_made_at_once(shape, vectors, monkeypatch):
    """They are those that were made one by one."""
    *dims, group = shape
    given = {name: ArraySource(weights(dims[0])) for name in vectors}
    op = "dwconv" if dims[1] == 1 else "conv"
    source = PanelSource(op, tuple(dims), group, ArraySource(weights(*dims)), **given)
    wanted = []
    for c0, c1, part in source._parts():
        heads = [given[name].load()[c0:c1] if name in given else np.zeros(0) for name in ("bias", "slope")]
        heads = [np.pad(head, (0, 16 - head.size)) for head in heads[: 1 + ("slope" in given)]]
        factors = given["scale"].load()[c0:c1] if "scale" in given else np.ones(len(part), np.float32)
        panel = np.concatenate([*heads, source._body(part * factors[:, None, None, None], c0)])
        wanted.append(np.pad(panel, (0, source.panel_bytes // 4 - panel.size)).astype(np.float32))
    for most in (1, 3 * source.panel_bytes, 1 << 20):
        monkeypatch.setattr(pack, "AT_ONCE_BYTES", most)
        assert np.array_equal(np.array(list(source)).view(np.uint32), np.array(wanted).view(np.uint32))


def test_what_does_not_fit_is_refused():
    values = np.full((16, 1, 1, 1), 1e5, np.float32)
    with pytest.raises(GraphError, match="16 bits"):
        list(PanelSource("conv", values.shape, 1, ArraySource(values), wtype="f16"))
    one = ArraySource(np.ones(16, np.float32))
    with pytest.raises(GraphError, match="8 bits"):
        list(PanelSource("conv", values.shape, 1, ArraySource(values), wtype="s8", step=one))
    with pytest.raises(ValueError, match="stored as"):
        PanelSource("conv", values.shape, 1, ArraySource(values), wtype="f8")
