"""Chains of layers in bands of rows: the same numbers in less memory."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import flexnn
from flexnn.graph.ir import Graph
from flexnn.planning import Planner, Setting
from flexnn.planning.band_tables import BandTables
from flexnn.planning.banding import Region, rows_of
from flexnn.planning.bands import Ways, banded
from flexnn.planning.costs import graph_costs
from flexnn.planning.planner import TOLD
from flexnn.planning.types import Costs
from flexnn.planning.variant_planner import VariantPlanner
from flexnn.session import open_for_tests
from tests.support.plan_graphs import CLASSICS, random_graph
from tests.support.plans import ALIGNS, FAST_DISK, PI, checked, minimum_of
from tests.support.quantised import Quantised


def _costs_of(graph: Graph) -> Costs:
    return graph_costs(graph, Setting(FAST_DISK, threads=2))


def _whole(graph: Graph) -> VariantPlanner:
    return VariantPlanner(graph, Setting(FAST_DISK, threads=2))


@pytest.mark.parametrize(("name", "share"), [("vgg19", 0.5), ("mobilenet_v2", 0.85), ("squeezenet1_1", 0.85)])
def test_the_smallest_budget_falls(name: str, share: float) -> None:
    """VGG-19's first layers keep 24.5 MiB of activations; their input and what the pool leaves of them are 3 MiB."""
    graph = CLASSICS[name]()
    assert minimum_of(graph) <= share * _whole(graph).minimum
    for io_align in ALIGNS:
        for machine in (FAST_DISK, PI):
            minimum = minimum_of(graph, io_align=io_align, machine=machine)
            for factor in (1, 1.2, 3):
                checked(graph, int(minimum * factor), io_align=io_align, machine=machine)


def test_the_faster_form_is_taken() -> None:
    """At the smallest budget of the whole graph its bands leave weights room to be read ahead; with everything pinned
    rows are not computed twice.
    """
    graph = CLASSICS["mobilenet_v2"]()
    whole = _whole(graph)
    plan = checked(graph, whole.minimum)
    assert len(plan.graph.nodes) > len(graph.nodes)
    assert plan.predicted_ms < 0.9 * whole.plan(whole.minimum).predicted_ms
    assert checked(graph, None).graph is graph


def test_bands_are_looked_for_where_they_could_be_faster() -> None:
    """A plan that streams weights behind the fastest kernels needs no bands; a tighter one does."""
    graph = CLASSICS["resnet152"]()
    whole = _whole(graph)
    planner = Planner(graph, Setting(FAST_DISK, threads=2))
    plan = planner.plan(int(0.95 * whole.pinning_memory))
    assert plan.is_streaming
    assert plan.predicted_ms == pytest.approx(whole.fastest_ms)
    assert "_forms" not in vars(planner)
    assert len(planner.plan(planner.minimum).graph.nodes) > len(graph.nodes)
    assert plan.minimum_memory == planner.minimum


@pytest.mark.parametrize("name", ["vgg19", "mobilenet_v2", "squeezenet1_1"])
def test_sizes_tell_smallest_budgets_and_what_forms_compute(name: str) -> None:
    """So forms that do not fit, and those that repeat more than a plan waits, are not written out."""
    setting = Setting(FAST_DISK, threads=2)
    planner = Planner(CLASSICS[name](), setting)
    forms = planner._forms
    written = [VariantPlanner(graph, setting) for form in forms if (graph := planner.written(form))]
    for form, variant in zip(forms, written, strict=True):
        assert form.added == variant.graph.added
        assert 0.9 * variant.paired_memory <= planner._told(form) <= variant.paired_memory / TOLD
    assert [form.work for form in forms] == sorted((form.work for form in forms), reverse=True)
    times = [variant.fastest_ms for variant in written]
    assert times == pytest.approx(sorted(times, reverse=True), rel=0.02)


def test_a_form_that_is_sure_to_be_slower_is_not_written() -> None:
    graph = CLASSICS["squeezenet1_1"]()
    setting = Setting(FAST_DISK, threads=2)
    planner, other = Planner(graph, setting), Planner(graph, setting)
    memory = int(2.5 * other.minimum)
    plan, tight = planner.plan(memory), planner._forms[0]
    assert tight not in planner._minima
    assert plan.predicted_ms <= other.tightest.plan(memory).predicted_ms
    assert plan.minimum_memory == other.minimum == planner._minima[tight]


def test_at_the_smallest_budget_one_form_is_written() -> None:
    """Sizes tell that no other fits: where less than all they tell had to fit, a second one was written for nothing."""
    graph = CLASSICS["mobilenet_v2"]()
    setting = Setting(FAST_DISK, threads=2)
    planner = Planner(graph, setting)
    minimum = Planner(graph, setting).minimum
    planner.plan(minimum)
    assert planner._minima == {planner._forms[0]: minimum}


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(seed: int) -> None:
    """Rows of each band meet, and every plan of them is legal."""
    graph = random_graph(seed)
    costs = _costs_of(graph)
    ways = Ways(graph, costs, _costs_of)
    forms = banded(ways, _whole(graph).minimum)
    if not forms:
        return
    tiled = forms[0].written(ways)
    assert minimum_of(graph) <= _whole(graph).minimum
    for extra in (0, 10_000, 1_000_000):
        checked(graph, minimum_of(graph) + extra)
    for output in graph.outputs:
        rows = [
            (tensor.offset, tensor.shape[1])
            for node in tiled.nodes
            for tensor in (tiled.tensors[node.outputs[0]],)
            if tiled.root(node.outputs[0]) == output and len(tensor.shape) == 4
        ]
        if len(rows) > 1:
            pitch = graph.tensors[output].strides[1]
            assert [offset // pitch for offset, _ in rows] == np.cumsum([0, *(count for _, count in rows)])[
                :-1
            ].tolist()


@pytest.mark.parametrize("seed", range(30))
def test_tables_do_not_depend_on_graphs_before(seed: int) -> None:
    """Tables told with those of other graphs are the same as alone."""
    graph = random_graph(seed)
    ways = Ways(graph, _costs_of(graph), _costs_of)
    for _, way in ways.all():
        others = [BandTables(by_images=images).of(way.graph, way.costs)[1] for images in (False, True)]
        assert any(all(map(np.array_equal, way.tables, tables)) for tables in others)
    assert len(ways._seen) >= len(graph.nodes)


def _chain(seed: int, path: Path) -> tuple[int, int]:
    """A model of 4 to 8 windowed layers on a large map, with all that can be at their borders; height and width."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    height, width, channels = rng.randint(40, 90), rng.randint(20, 60), 8
    nodes, weights, name, rows, columns = [], [], "x", height, width
    for i in range(rng.randint(4, 8)):
        kind = rng.choice(["conv", "conv", "depthwise", "max", "average", "relu", "add"])
        kernel, stride, dilation = rng.choice([1, 2, 3, 5]), rng.choice([1, 1, 2]), rng.choice([1, 1, 2])
        span = (kernel - 1) * (dilation if kind in ("conv", "depthwise") else 1) + 1
        pads = [rng.randint(0, kernel // 2) for _ in range(4)]
        if min(rows + pads[0] + pads[2], columns + pads[1] + pads[3]) < 2 * span + stride:
            kind = "relu"
        after = f"t{i}"
        where = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
        if kind in ("conv", "depthwise"):
            out = channels if kind == "depthwise" else rng.choice([8, 24, 32])
            group = channels if kind == "depthwise" else 1
            values = numbers.standard_normal((out, channels // group, kernel, kernel)).astype(np.float32)
            weights.append(numpy_helper.from_array(values / np.float32(values[0].size) ** 0.5, f"w{i}"))
            dilations = [dilation] * 2
            nodes.append(helper.make_node("Conv", [name, f"w{i}"], [after], group=group, dilations=dilations, **where))
            channels = out
        elif kind == "max":
            nodes.append(helper.make_node("MaxPool", [name], [after], ceil_mode=rng.randint(0, 1), **where))
        elif kind == "average":
            count = rng.randint(0, 1)
            nodes.append(helper.make_node("AveragePool", [name], [after], count_include_pad=count, **where))
        elif kind == "add":
            nodes.append(helper.make_node("Mul", [name, name], [after]))
        else:
            nodes.append(helper.make_node("Relu", [name], [after]))
        name = after
        if kind not in ("add", "relu"):
            shape = onnx.shape_inference.infer_shapes(_model(nodes, weights, name, height, width), strict_mode=True)
            found = next(v for v in shape.graph.value_info if v.name == name) if shape.graph.value_info else None
            if found is not None:
                rows, columns = (d.dim_value for d in found.type.tensor_type.shape.dim[2:])
    onnx.save(_model(nodes, weights, name, height, width, output=True), path)
    return height, width


def _model(
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    name: str,
    height: int,
    width: int,
    output: bool = False,
) -> onnx.ModelProto:
    made = [helper.make_tensor_value_info(name if output else "unused", onnx.TensorProto.FLOAT, None)]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 8, height, width])
    every = nodes if output else [*nodes, helper.make_node("Identity", [name], ["unused"])]
    graph = helper.make_graph(every, "chain", [x], made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("images", [1, 3])
def test_bands_compute_the_same(seed: int, images: int, tmp_path: Path) -> None:
    """Any kernels, strides, paddings, dilations and pools; memory starts as NaN. Winograd's tiles may lie otherwise."""
    height, width = _chain(seed, tmp_path / "m.onnx")
    shape = images, 8, height, width
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn", shapes={"x": shape})
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        expected = session.run(None, {"x": x})[0]
        least, whole = session.plan.minimum_memory, len(session.plan.graph.nodes)
        session.memory = least  # from whole activations to bands, and back
        tiled = len(session.plan.graph.nodes) > whole
        for _ in range(2):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
        session.memory = None
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
    with open_for_tests(artifact, memory=least, threads=2, profile="analytic", poison=True) as session:
        assert (len(session.plan.graph.nodes) > whole) == tiled
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_maps_of_bytes_that_grow(mode: str, tmp_path: Path) -> None:
    """Resized, and made of channels, whose rows are several of the map: an OCR detector in bytes needed more than
    in floats, half as much again as in bands.
    """
    net = Quantised()
    small = net.round(net.add("Conv", [net.restore(net.given(1, 8, 32, 32)), net.weights(32, 8, 1, 1)]))
    scales = net.constant("scales", np.array([1, 1, 2, 2], np.float32))
    grown = net.round(net.add("Resize", [net.restore(small), "", scales], mode=mode), like=small)
    weights = net.weights(32, 24, 2, 2, axis=1)
    wide = net.round(net.add("ConvTranspose", [net.restore(grown), weights], strides=[2, 2]))
    factors = net.constant("factors", net.rng.uniform(0.5, 1, (24, 1, 1)).astype(np.float32))
    scaled = net.round(net.add("Relu", [net.add("Mul", [net.restore(wide), factors])]))
    out = net.round(net.add("Conv", [net.restore(scaled), net.weights(4, 24, 3, 3)], pads=[1] * 4))
    onnx.save(net.model(out), tmp_path / "m.onnx")
    feed = net.feeds()
    with open_for_tests(flexnn.compile(tmp_path / "m.onnx"), threads=2, profile="analytic", poison=True) as session:
        whole = VariantPlanner(session.plan.graph, Setting(FAST_DISK, threads=2)).minimum
        expected = session.run(None, feed)[0]
        session.memory = session.plan.minimum_memory
        assert session.memory < whole - 128 * 128 * 24 * 3  # most of the map of floats
        cut = {node.op for node in session.plan.graph.nodes if "[" in node.name}
        assert cut >= {"conv_u8", "resize_u8", "quantize"}
        np.testing.assert_array_equal(session.run(None, feed)[0], expected)


def test_one_image_at_a_time(tmp_path: Path) -> None:
    """A batch needs no more between its layers than an image does."""
    weights = [np.full((32, c, 3, 3), 0.01, np.float32) for c in (8, 32)]
    nodes = [helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"], pads=[1] * 4) for i in range(2)]
    nodes.append(helper.make_node("MaxPool", ["t2"], ["y"], kernel_shape=[8, 8], strides=[8, 8]))
    nodes[0].input[0] = "x"
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    onnx.save(_model(nodes, constants, "y", 96, 96, output=True), tmp_path / "m.onnx")
    images, between = 4, 32 * 96 * 96 * 4
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn", shapes={"x": (images, 8, 96, 96)})
    given = images * 8 * 96 * 96 * 4
    with flexnn.Session(artifact, threads=2, profile="analytic") as session:
        assert session.plan.minimum_memory < given + images * between


def test_output_over_rows_that_a_later_band_reads() -> None:
    """In place over the map that the walk begins with: rows below a band are still to be read."""
    graph = CLASSICS["mobilenet_v2"]()
    residual = next(
        i for i, node in enumerate(graph.nodes) if len(node.inputs) == 2 and graph.root(node.inputs[1]) >= 0
    )
    first = next(i for i in range(residual, -1, -1) if graph.nodes[i].inputs[0] == graph.nodes[residual].inputs[1])

    def rows(begin: int) -> np.ndarray:
        _, tables = BandTables().of(graph, _costs_of(graph))
        return rows_of(tables, Region(begin, residual, 4))[0]

    with pytest.raises(ValueError, match="no bands"):
        rows(first)
    rows(first + 1)
    graph.tensors[graph.nodes[residual].outputs[0]].root = -1
    rows(first)


def test_plans_keep_no_written_form() -> None:
    """A session that runs keeps neither the nodes in bands nor their costs; a plan writes them out when asked."""
    gc.collect()
    others = [found for found in gc.get_objects() if isinstance(found, Graph)]  # of other tests
    graph = CLASSICS["vgg19"]()
    planner = Planner(graph, Setting(FAST_DISK, threads=2))
    minimum = planner.minimum
    plan = planner.plan(minimum)
    assert len(plan.program.nodes) > len(graph.nodes)
    before = [(node.op, node.inputs, node.outputs) for node in planner.tightest.graph.nodes]
    planner.rest()
    gc.collect()
    graphs = [found for found in gc.get_objects() if isinstance(found, Graph)]
    assert not [found for found in graphs if found.added > 0 and not any(found is other for other in others)]
    assert [(node.op, node.inputs, node.outputs) for node in plan.graph.nodes] == before
    plan.check()
    assert planner.minimum == minimum
    again = planner.plan(minimum)
    assert (again.arena_bytes, again.predicted_ms) == (plan.arena_bytes, plan.predicted_ms)
    assert (again.program.steps == plan.program.steps).all()
