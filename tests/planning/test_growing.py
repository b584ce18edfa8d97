"""Maps that grow over others that end in the same walk: where they lie, that nothing is lost, and what it spares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import flexnn
from bench.models import segmentation
from bench.models.net import Net
from flexnn.artifact import open_artifact
from flexnn.graph.ir import Graph
from flexnn.planning import Planner, Setting, bands, decisions, late
from flexnn.planning.band_tables import BandTables
from flexnn.planning.banding import Region, rows_of, written
from flexnn.planning.bands import form_of
from flexnn.planning.check import check_plan
from flexnn.planning.costs import graph_costs
from flexnn.planning.growing import Pair, grown, more_bytes
from flexnn.planning.twice import Twice
from flexnn.planning.types import I64, Costs
from flexnn.planning.variant_planner import VariantPlanner
from flexnn.run import fixed
from flexnn.session import open_for_tests
from tests.support.plans import FAST_DISK

SETTING = Setting(FAST_DISK, threads=2)
SIZE = 48


def _chain(folder: Path, strides: tuple[int, ...], widths: tuple[int, ...]) -> Path:
    """Write and compile convolutions one after the other, whose maps are larger than their weights."""
    net = Net("chain")
    x = net.input("x", 1, 3, SIZE, SIZE)
    for stride, width in zip(strides, widths, strict=True):
        x = net.relu(net.conv(x, width, 3, stride, pad=1))
    net.output(x.name, x.shape)
    net.write(folder / "m.onnx")
    return flexnn.compile(folder / "m.onnx", folder / "m.flexnn")


def _opened(artifact: Path) -> tuple[Graph, Costs, tuple[I64, I64, I64]]:
    with open_artifact(artifact) as opened:
        assert isinstance(opened.graph, Graph)
        graph = opened.graph
    costs = graph_costs(graph, SETTING)
    return graph, costs, BandTables().of(graph, costs)[1]


def _touched(tables: tuple[I64, I64, I64], node: int, root: int, rows: tuple[int, int]) -> list[tuple[int, int, bool]]:
    """Return the bytes of a root that a node touches for rows of its output, first and behind the last, and whether it
    writes them: read off the tables, as planner/band_pairs.c does not.
    """
    nodes, uses, roots = (table.tolist() for table in tables)
    found = []
    for number, use in enumerate(uses[nodes[node][0] : nodes[node][0] + nodes[node][1]]):
        owner, at, step, thick, height, num, low, high, den = use[:9]
        if owner == root:
            first, last = rows[0], rows[1] - 1
            if number:
                first = min(max((num * first + low) // den, 0), height - 1)
                last = min(max((num * last + high) // den, 0), height - 1)
            size = roots[root][0]
            found.append(((at + step * first) * size, (at + step * last + thick) * size, not number))
    return found


def _is_kept(tables: tuple[I64, I64, I64], region: Region, rows: NDArray[np.int64], pair: Pair) -> bool:
    """Whether no band writes over bytes that it or a later one still reads."""
    reached = 0
    for band in rows.tolist():
        written_now = reached
        for node, some in zip(range(region.first, region.last + 1), band, strict=True):
            if some[0] >= some[1]:
                continue
            for _, high, writes in _touched(tables, node, pair.grows, some):
                written_now = max(written_now, high) if writes else written_now
            for low, _, _ in _touched(tables, node, pair.ends, some):
                if pair.shift + low < written_now:
                    return False
        reached = written_now
    return True


CHAINS = [
    ((1, 1, 1, 1, 1), (16, 16, 16, 16, 16)),
    ((1, 1, 2, 1, 1), (8, 16, 32, 16, 8)),
    ((1, 2, 1, 1, 2), (32, 16, 64, 16, 16)),
]


@pytest.mark.parametrize(("strides", "widths"), CHAINS)
@pytest.mark.parametrize("count", [2, 3, 7, 12, 24])
def test_nothing_is_written_over_before_it_is_read(
    strides: tuple[int, ...], widths: tuple[int, ...], count: int, tmp_path: Path
) -> None:
    """And the two maps lie as near to each other as that allows, to within a line of 64 bytes."""
    graph, costs, tables = _opened(_chain(tmp_path, strides, widths))
    seen = 0
    for first in range(1, len(graph.nodes) - 1):
        for last in range(first, len(graph.nodes) - 1):
            region = Region(first, last, min(count, graph.tensors[graph.nodes[last].outputs[0]].shape[1]), 1)
            rows, pairs = rows_of(tables, region)
            for pair in pairs:
                seen += 1
                size = costs.root_bytes[pair.ends], costs.root_bytes[pair.grows]
                assert pair.nbytes == max(pair.shift + size[0], size[1]) < sum(size)
                assert _is_kept(tables, region, rows, pair)
                assert pair.shift < 64 or not _is_kept(tables, region, rows, pair._replace(shift=pair.shift - 64))
    assert seen > 2


@pytest.mark.parametrize(("strides", "widths"), CHAINS)
def test_chains_of_maps_compute_the_same(
    strides: tuple[int, ...], widths: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each convolution is a walk of its own, over the map that the one before left; memory starts as NaN."""
    artifact = _chain(tmp_path, strides, widths)
    graph, costs, tables = _opened(artifact)
    walks, _ = BandTables().of(graph, costs)
    regions = [Region(i, i, 6, 1) for i in range(1, len(graph.nodes) - 1)]
    banded = written(graph, costs, walks, tables, regions)
    joined = [t.name for t in banded.tensors if " over " in t.name]
    assert len(joined) == 1, "all maps lie over each other"
    assert joined[0].count(" over ") == len(regions) - 1 + (costs.first_node[0] == 0)
    x = np.random.default_rng(0).standard_normal((1, 3, SIZE, SIZE)).astype(np.float32)
    with open_for_tests(artifact, threads=2, profile="analytic") as session:
        (whole,) = session.run(None, {"x": x})
    plan = VariantPlanner(banded, SETTING).plan(None)
    check_plan(plan.graph, plan.program)
    monkeypatch.setattr(fixed.Planner, "plan", lambda self, memory: plan)
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        for _ in range(2):
            difference = session.run(None, {"x": x})[0] - whole
            assert np.linalg.norm(difference) <= 1e-6 * np.linalg.norm(whole)  # Winograd's tiles begin elsewhere


def test_what_a_chain_takes_beyond_what_was_counted() -> None:
    """Three maps: the second one is small, so that its nodes count less than the chain takes."""
    roots = [(0, 100, 0, 3, 1), (0, 10, 3, 5, 1), (0, 60, 5, 8, 1)]
    one, other = Pair(0, 1, 20, 120), Pair(1, 2, 30, 60)
    assert more_bytes([(2, 3, [one])], roots, 10) == [20, 20, 0, 0, 110, 110, 0, 0, 0, 0]
    both = more_bytes([(2, 3, [one]), (5, 5, [other])], roots, 10)
    assert both == [50, 50, 30, 30, 140, 90, 90, 90, 90, 0]  # 150 bytes, less what is counted


def test_roots_are_views_of_one(tmp_path: Path) -> None:
    graph, costs, _ = _opened(_chain(tmp_path, *CHAINS[0]))
    a, b, c = costs.roots[1:4]
    made = grown(graph, costs, [Pair(1, 2, 64, costs.root_bytes[1] + 64), Pair(2, 3, 128, costs.root_bytes[2] + 128)])
    own = made.tensors[c].root
    assert own == len(graph.tensors)
    assert [(made.tensors[t].root, made.tensors[t].offset) for t in (c, b, a)] == [(own, 0), (own, 32), (own, 48)]
    assert made.tensors[own].nbytes == costs.root_bytes[1] + 192
    assert grown(graph, costs, []) is graph


def test_smallest_budget_of_nested_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map that a block begins with takes the place of what the block reads."""
    net = Net("u2net")
    result = segmentation.u2net(net, size=256, base=16)
    net.output(result.name, result.shape)
    net.write(tmp_path / "m.onnx")
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    with open_artifact(artifact) as opened:
        assert isinstance(opened.graph, Graph)
        planner = Planner(opened.graph, SETTING)
        least = planner.minimum
        told = planner.plan(least).decisions
        assert told is not None
        assert any(pairs for *_, pairs in told.regions or [])
        again = decisions.read(told.described())
        assert again == told
        followed = Planner(opened.graph, SETTING).follow(again, least)
        assert followed is not None
        assert followed.program.arena_bytes == planner.plan(least).program.arena_bytes
        with monkeypatch.context() as alone:
            alone.setattr(bands, "WORTH_PAIRS", 0)
            alone.setattr(late, "late", lambda graph, waiting: Twice(graph, 0))  # which spares as much here
            assert least < 0.9 * Planner(opened.graph, SETTING).minimum
    x = np.random.default_rng(0).standard_normal((1, 3, 256, 256)).astype(np.float32)
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        expected = session.run(None, {"input": x})[0]
        for factor in (1.0, 1.05, 1.2):
            session.memory = int(factor * session.plan.minimum_memory)
            np.testing.assert_allclose(session.run(None, {"input": x})[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("row", [(0, 1, 2, 2), (0, 1, 2, -1)])
def test_kept_plans_with_other_numbers_are_refused(row: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="no walk"):
        form_of(0, [row])
