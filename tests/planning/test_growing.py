"""Maps that grow over others that end in the same walk: where they lie, that nothing is lost, and what it spares."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import flexnn
from bench.models import segmentation
from bench.models.net import Net
from flexnn.artifact import open_artifact
from flexnn.graph.ir import DTYPES, Graph, Node
from flexnn.planning import BudgetError, Planner, Setting, bands
from flexnn.planning.band_tables import BandTables
from flexnn.planning.banding import Region, rows_of, written
from flexnn.planning.bands import form_of
from flexnn.planning.check import check_plan
from flexnn.planning.costs import graph_costs
from flexnn.planning.growing import Pair, grown
from flexnn.planning.variant_planner import VariantPlanner
from flexnn.run import fixed
from flexnn.session import open_for_tests
from tests.support.plans import FAST_DISK

SETTING = Setting(FAST_DISK, threads=2)


def _chain(path: Path, *, strides: tuple[int, ...] = (1, 1, 1, 1), size: int = 64) -> Path:
    """Write and compile convolutions one after the other, whose maps are much larger than their weights."""
    net = Net("chain")
    x = net.input("x", 1, 3, size, size)
    for stride in strides:
        x = net.relu(net.conv(x, 16, 3, stride, pad=1))
    x = net.conv(x, 1, 1)
    net.output(x.name, x.shape)
    net.write(path / "m.onnx")
    return flexnn.compile(path / "m.onnx", path / "m.flexnn")


def _graph(artifact: Path) -> Graph:
    with open_artifact(artifact) as opened:
        assert isinstance(opened.graph, Graph)
        return opened.graph


def _bytes(graph: Graph, tensor: int) -> NDArray[np.int64]:
    """Return the bytes of its root in which a tensor lies, its elements' first ones."""
    view = graph.tensors[tensor]
    at = np.zeros(1, np.int64) + view.offset
    for size, stride in zip(view.shape, view.strides, strict=True):
        at = (at[:, None] + np.arange(size) * stride).ravel()
    return at * DTYPES[view.dtype].itemsize


def _lost(graph: Graph, banded: Graph) -> list[str]:
    """Return the nodes in bands that read something else than the same node of the whole graph does: each element of a
    root is known by the tensor and the place in it that wrote it last.
    """
    names = {t.name: i for i, t in enumerate(graph.tensors)}
    held: dict[int, dict[int, tuple[str, int]]] = {}

    def origin(tensor: int) -> tuple[str, NDArray[np.int64]]:
        """Return the tensor of the whole graph that some rows are of, and their first bytes in its root."""
        view = banded.tensors[tensor]
        name, _, rows = view.name.partition("[")
        if not rows:
            return name, _bytes(graph, names[name])
        low, high = (int(part) for part in rows.rstrip("]").split(":"))
        whole = graph.tensors[names[name]]
        axis = next(i for i, (a, b) in enumerate(zip(view.shape, whole.shape, strict=True)) if a != b or b == high)
        some = np.moveaxis(_bytes(graph, names[name]).reshape(whole.shape), axis, 0)[low:high]
        return name, np.moveaxis(some, 0, axis).ravel()

    lost = []
    for node in banded.nodes:
        for tensor in node.inputs:
            root = banded.root(tensor)
            if banded.tensors[root].weight >= 0 or root in banded.inputs:
                continue
            name, places = origin(tensor)
            whole_root = graph.root(names[name])
            for at, place in zip(_bytes(banded, tensor).tolist(), places.tolist(), strict=True):
                if held.get(root, {}).get(at) != (whole_root, place):
                    lost.append(node.name)
                    break
        name, places = origin(node.outputs[0])
        root, whole_root = banded.root(node.outputs[0]), graph.root(names[name])
        held.setdefault(root, {}).update(
            {at: (whole_root, place) for at, place in zip(_bytes(banded, node.outputs[0]).tolist(), places.tolist(), strict=True)}
        )
    return lost
