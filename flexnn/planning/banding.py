"""Nodes that are walked in bands of rows, written out: a graph in which each band of a node is a node of its own.

A tensor that lives inside the walked nodes alone becomes, in each band, a tensor of the rows that the band reads. Views
of other tensors are views of some of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Attr, Graph, Node, Tensor
from flexnn.graph.operators import OPERATORS
from flexnn.graph.operators.rows import Cut, Need

from .band_tables import Use, Walk
from .types import I64, Costs

Rows = tuple[int, int]


class Region(NamedTuple):
    """Nodes ``first`` to ``last``, walked in ``bands`` bands of each image."""

    first: int
    last: int
    bands: int


def rows_of(tables: tuple[I64, I64, I64], region: Region) -> I64:
    """Return the rows of the output that each node computes: [bands, nodes, 2]."""
    rows = np.zeros((region.bands, region.last - region.first + 1, 2), np.int64)
    _core.bands_rows(tables, region.first, region.last, region.bands, rows)
    return rows


def split(graph: Graph, costs: Costs, walks: Sequence[Walk | None], rows: I64, region: Region) -> Graph:
    """Return the graph with the region's nodes band by band."""
    lives = dict(zip(costs.roots, zip(costs.first_node, costs.last_node, strict=True), strict=True))
    inner = {root for root, (begin, end) in lives.items() if begin >= region.first and end <= region.last}
    writer = _Writer(graph, inner, list(walks[region.first : region.last + 1]), region)
    walk = walks[region.first]
    assert walk is not None
    for image in range(walk.images):
        for band in rows.tolist():
            writer.write(image, walk.images, band)
    every = [*graph.nodes[: region.first], *writer.nodes, *graph.nodes[region.last + 1 :]]
    added = graph.added + len(every) - len(graph.nodes)
    return replace(graph, tensors=writer.tensors, nodes=every, added=added)


class _Writer:
    """Writes the nodes of a region, band by band."""

    def __init__(self, graph: Graph, inner: set[int], walks: list[Walk | None], region: Region) -> None:
        self.tensors, self.nodes = list(graph.tensors), list[Node]()
        self._graph, self._inner, self._walks, self._region = graph, inner, walks, region
        self._attrs: dict[int, dict[str, Attr]] = {}
        """Attributes of the last band of each node: most bands share them."""

    def write(self, image: int, images: int, band: list[Rows]) -> None:
        """Add the nodes of a band of an image. ``band``: the rows of each node's output."""
        held = self._held(band)
        made: dict[int, int] = {}
        for index, (rows, walk) in enumerate(zip(band, self._walks, strict=True), self._region.first):
            if rows[0] >= rows[1]:
                continue
            assert walk is not None
            node = self._graph.nodes[index]
            uses = {use.tensor: use for use in walk.uses}
            output = self._view(node.outputs[0], walk.uses[0], (rows[0], rows[1]), image, images, held, made)
            taken = [
                self._taken(uses.get(tensor), need, rows) for tensor, need in zip(node.inputs, walk.needs, strict=True)
            ]
            inputs = [
                tensor if tensor not in uses else self._view(tensor, uses[tensor], some, image, images, held, made)
                for tensor, some in zip(node.inputs, taken, strict=True)
            ]
            shape = self._graph.tensors[node.inputs[0]].shape
            cut = Cut(
                walk.uses[0].axis, (rows[0], rows[1]), taken[0], shape, self._graph.tensors[node.outputs[0]].shape
            )
            attrs = OPERATORS[node.op].cut(node, cut)
            attrs = self._attrs[index] = known if (known := self._attrs.get(index)) == attrs else attrs
            name = _named(node.name, image, images, (rows[0], rows[1]))
            self.nodes.append(replace(node, name=name, inputs=inputs, outputs=[output], attrs=attrs, params=None))

    def _held(self, band: list[Rows]) -> dict[int, Rows]:
        """Return the rows of each inner root that the nodes of a band write."""
        held: dict[int, Rows] = {}
        for (low, high), walk in zip(band, self._walks, strict=True):
            assert walk is not None
            use = walk.uses[0]
            root = self._graph.root(use.tensor)
            if low < high and root in self._inner:
                begin, end = use.at + use.step * low, use.at + use.step * (high - 1) + use.thick
                known = held.get(root, (begin, end))
                held[root] = min(known[0], begin), max(known[1], end)
        return held

    def _taken(self, use: Use | None, need: Need, rows: Rows) -> Rows:
        """Return the rows of an input that rows of the output need; none where it is needed whole."""
        if use is None or need.axis < 0:
            return 0, 0
        return need.of(rows[0], rows[1], self._graph.tensors[use.tensor].shape[need.axis])

    def _view(
        self,
        tensor: int,
        use: Use,
        rows: Rows,
        image: int,
        images: int,
        held: dict[int, Rows],
        made: dict[int, int],
    ) -> int:
        """Return the tensor that is some rows of a view, of one image. ``made``: roots of the band, by the root."""
        whole, root = self._graph.tensors[tensor], self._graph.root(tensor)
        shape, offset = list(whole.shape), whole.offset
        if images > 1 and len(shape) > 1 and shape[0] == images:
            shape[0] = 1
            offset += image * whole.strides[0]
        elif use.axis < 0:
            return tensor
        if use.axis >= 0:
            shape[use.axis] = rows[1] - rows[0]
            offset += rows[0] * whole.strides[use.axis]
        name = _named(whole.name, image, images, rows)
        if root in self._inner:
            pitch = whole.strides[use.axis] // use.step
            owner, size = self._graph.tensors[root], self._graph.tensors[root].size // images
            low, high = held[root]
            if root not in made:
                made[root] = len(self.tensors)
                label = _named(owner.name, image, images, (low, high))
                self.tensors.append(Tensor(label, (high - low, pitch), owner.dtype))
            offset -= image * size + low * pitch
            root = made[root]
        self.tensors.append(Tensor(name, tuple(shape), whole.dtype, root, offset, whole.strides))
        return len(self.tensors) - 1


def _named(name: str, image: int, images: int, rows: Rows) -> str:
    return f"{name}[{rows[0]}:{rows[1]}]" if images == 1 else f"{name}[{image}][{rows[0]}:{rows[1]}]"
