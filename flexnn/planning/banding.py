"""Nodes that are walked in bands of rows, written out: a graph in which each band of a node is a node of its own.

A tensor that lives inside the walked nodes alone becomes, in each band, a tensor of the rows that the band reads. Views
of other tensors are views of some of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Attr, Graph, Node, Tensor
from flexnn.graph.operators import OPERATORS
from flexnn.graph.operators.rows import Cut, Need

from .band_tables import Use, Walk
from .growing import Pair, grown
from .types import I64, Costs

Rows = tuple[int, int]


class Region(NamedTuple):
    """Nodes ``first`` to ``last``, walked in ``bands`` bands of each image."""

    first: int
    last: int
    bands: int
    pairs: int = 0
    """Whether maps grow over others (growing.py)."""


def rows_of(tables: tuple[I64, I64, I64], region: Region) -> tuple[I64, list[Pair]]:
    """Return the rows of the output that each node computes, [bands, nodes, 2], and the maps that grow over others."""
    rows = np.zeros((region.bands, region.last - region.first + 1, 2), np.int64)
    pairs = _core.bands_rows(tables, region.first, region.last, region.bands, region.pairs, rows)
    return rows, [Pair(*pair) for pair in pairs]


def written(
    graph: Graph, costs: Costs, walks: Sequence[Walk | None], tables: tuple[I64, I64, I64], regions: Iterable[Region]
) -> Graph:
    """Return the graph with the nodes of some regions in bands."""
    found = [(region, *rows_of(tables, region)) for region in sorted(regions, reverse=True)]
    form = grown(graph, costs, [pair for _, _, pairs in found for pair in pairs])
    for region, rows, _ in found:  # from the last node, so that numbers of nodes hold
        form = split(form, costs, walks, rows, region)
    return form


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


class _Operand:
    """A node's output or input, as bands take some rows of it."""

    __slots__ = "axis", "by_image", "height", "image", "is_inner", "need", "pitch", "root", "shapes", "tensor", "whole"

    def __init__(self, graph: Graph, tensor: int, use: Use | None, need: Need, images: int, inner: set[int]) -> None:
        whole = graph.tensors[tensor]
        self.tensor, self.whole, self.need = tensor, whole, need
        self.axis = -1 if use is None else use.axis
        self.height = 0 if use is None or need.axis < 0 else whole.shape[need.axis]
        self.by_image = use is not None and images > 1 and len(whole.shape) > 1 and whole.shape[0] == images
        self.root = graph.root(tensor)
        self.is_inner = use is not None and self.root in inner
        self.pitch = whole.strides[use.axis] // use.step if use is not None and self.is_inner else 0
        self.image = graph.tensors[self.root].size // images if self.is_inner else 0
        self.shapes: dict[int, tuple[int, ...]] = {}
        """Shape of so many rows: views of as many rows have it in common."""

    def taken(self, rows: Rows) -> Rows:
        """Return the rows of an input that rows of the output need; none where it is needed whole."""
        return self.need.of(rows[0], rows[1], self.height) if self.height else (0, 0)

    def shape(self, count: int) -> tuple[int, ...]:
        """Return the shape of so many rows."""
        if count not in self.shapes:
            shape = list(self.whole.shape)
            if self.by_image:
                shape[0] = 1
            if self.axis >= 0:
                shape[self.axis] = count
            self.shapes[count] = tuple(shape)
        return self.shapes[count]


class _Writer:
    """Writes the nodes of a region, band by band."""

    def __init__(self, graph: Graph, inner: set[int], walks: list[Walk | None], region: Region) -> None:
        self.tensors, self.nodes = list(graph.tensors), list[Node]()
        self._graph, self._inner = graph, inner
        self._parts = [self._part(graph.nodes[i], walk) for i, walk in enumerate(walks, region.first)]
        self._attrs: list[dict[str, Attr] | None] = [None] * len(walks)
        """Attributes of the last band of each node: most bands share them."""

    def _part(self, node: Node, walk: Walk | None) -> tuple[Node, Use, list[_Operand]]:
        """Return a node, the use of its output, and its output and inputs."""
        assert walk is not None
        uses = {use.tensor: use for use in walk.uses}
        tensors, needs = (node.outputs[0], *node.inputs), (walk.uses[0].need, *walk.needs)
        operands = [
            _Operand(self._graph, tensor, use, need, walk.images, self._inner)
            for tensor, use, need in zip(tensors, (walk.uses[0], *map(uses.get, node.inputs)), needs, strict=True)
        ]
        return node, walk.uses[0], operands

    def write(self, image: int, images: int, band: list[Rows]) -> None:
        """Add the nodes of a band of an image. ``band``: the rows of each node's output."""
        held = self._held(band)
        made: dict[int, int] = {}
        for index, ((low, high), (node, use, operands)) in enumerate(zip(band, self._parts, strict=True)):
            if low >= high:
                continue
            rows, (output, *inputs) = (low, high), operands
            written = self._view(output, rows, image, images, held, made)
            taken = [operand.taken(rows) for operand in inputs]
            views = [
                self._view(operand, some, image, images, held, made)
                for operand, some in zip(inputs, taken, strict=True)
            ]
            cut = Cut(use.axis, rows, taken[0], inputs[0].whole.shape, output.whole.shape)
            attrs, known = OPERATORS[node.op].cut(node, cut), self._attrs[index]
            attrs = self._attrs[index] = known if known is not None and known == attrs else attrs
            name = _named(node.name, image, images, rows)
            self.nodes.append(Node(name, node.op, views, [written], attrs, node.weight))

    def _held(self, band: list[Rows]) -> dict[int, Rows]:
        """Return the rows of each inner root that the nodes of a band write."""
        held: dict[int, Rows] = {}
        for (low, high), (_, use, operands) in zip(band, self._parts, strict=True):
            root = operands[0].root
            if low < high and operands[0].is_inner:
                begin, end = use.at + use.step * low, use.at + use.step * (high - 1) + use.thick
                known = held.get(root, (begin, end))
                held[root] = min(known[0], begin), max(known[1], end)
        return held

    def _view(
        self,
        operand: _Operand,
        rows: Rows,
        image: int,
        images: int,
        held: dict[int, Rows],
        made: dict[int, int],
    ) -> int:
        """Return the tensor that is some rows of a view, of one image. ``made``: roots of the band, by the root."""
        whole, root, axis = operand.whole, operand.root, operand.axis
        if axis < 0 and not operand.by_image:
            return operand.tensor
        offset = whole.offset
        if operand.by_image:
            offset += image * whole.strides[0]
        if axis >= 0:
            offset += rows[0] * whole.strides[axis]
        if operand.is_inner:
            low, high = held[root]
            if root not in made:
                made[root] = len(self.tensors)
                owner, pitch = self._graph.tensors[root], operand.pitch
                label = _named(owner.name, image, images, (low, high))
                self.tensors.append(Tensor(label, (high - low, pitch), owner.dtype, strides=(max(pitch, 1), 1)))
            offset -= image * operand.image + low * operand.pitch
            root = made[root]
        shape, name = operand.shape(rows[1] - rows[0]), _named(whole.name, image, images, rows)
        self.tensors.append(Tensor(name, shape, whole.dtype, root, offset, whole.strides))
        return len(self.tensors) - 1


def _named(name: str, image: int, images: int, rows: Rows) -> str:
    return f"{name}[{rows[0]}:{rows[1]}]" if images == 1 else f"{name}[{image}][{rows[0]}:{rows[1]}]"
