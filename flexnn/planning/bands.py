"""Activations tiled by rows through several nodes (docs/architecture.md, D1; Lin et al., "MCUNetV2", NeurIPS 2021, §3).

In a chain of nodes, each reads the output of the node before, which nobody else reads. A chain is walked band by band:
some rows of the last node's output with all rows that they need of the nodes before. Only a band of the tensors in
between is in memory at once. A band of a node is a node of its own that reads and writes views of rows of one image.
Rows that two bands need are computed twice, and streamed weights are read once per band. The choice of chains and bands
depends on sizes alone, so that the smallest budget is the same in processes that measure different rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

from flexnn.graph.attributes import int_attr, ints_attr
from flexnn.graph.ir import Graph, Node, Tensor
from flexnn.graph.operators import OPERATORS

from .layout import Blocks, node_needs
from .types import Costs

NODES_MAX = 8
"""Most nodes of a chain."""
BANDS = 1, 2, 4, 8, 16, 32
"""Numbers of bands of an image that are tried; 1 is for several images."""
BANDS_MAX = 64
"""Most bands of all images of a chain."""
CHAINS_MAX = 8
"""Most chains of a graph."""
WORTH = 0.95
"""Memory with bands as a fraction of memory without, at which bands are worth it: for the nodes of a chain, and for the
smallest budget of a graph.
"""
ENOUGH = 1.02
"""Memory as a multiple of the least that a chain could need, within which the cheapest chain is chosen."""
COST_MAX = 0.15
"""Largest fraction of the graph's multiplications and reading that bands may repeat."""
BYTE_WORK = 64
"""Multiplications that take about as long as reading a byte of weights: 40 on a Pi 4 with a USB disk."""

Rows = tuple[int, int]


class Reach(NamedTuple):
    """Rows of a node's first input that rows of its output need."""

    stride: int
    pad: int
    span: int
    height: int
    """Number of rows of the input."""

    def of(self, rows: Rows) -> tuple[Rows, int, int]:
        """Return the rows of the input, and the padding above and below them."""
        low, high = rows[0] * self.stride - self.pad, (rows[1] - 1) * self.stride - self.pad + self.span
        return (max(low, 0), min(high, self.height)), max(-low, 0), max(high - self.height, 0)


class Chain(NamedTuple):
    """Nodes ``first`` to ``last``, in ``bands`` bands of the last one's rows of each image."""

    first: int
    last: int
    bands: int


def banded(graph: Graph, costs: Costs, costs_of: Callable[[Graph], Costs]) -> tuple[Graph, Costs] | None:
    """Return the graph with chains in bands and its costs if that lowers the memory of the neediest node, else None.
    ``costs_of`` computes costs.
    """
    sizes = _Sizes(graph, costs)
    least, tiled = max(sizes.needs, default=0), set[int]()
    for _ in range(CHAINS_MAX):
        chain = _best(graph, costs, sizes, tiled)
        if chain is None:
            break
        graph, count = _split(graph, sizes, chain)
        added = count - (chain.last - chain.first + 1)
        tiled = {node + added * (node > chain.last) for node in tiled} | set(range(chain.first, chain.first + count))
        costs = costs_of(graph)
        sizes = _Sizes(graph, costs)
    return (graph, costs) if tiled and max(sizes.needs) <= WORTH * least else None


class _Sizes:
    """Sizes of each node of a graph. Few nodes are looked at: what bands need is computed when it is asked for."""

    def __init__(self, graph: Graph, costs: Costs) -> None:
        count = len(costs.nodes)
        live = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node).live(count).tolist()
        self._graph = graph
        self._reach: dict[int, Reach | None] = {}
        self.beside = [sum(node_needs(costs, i, -1, 1)) for i in range(count)]
        """Bytes of a node's smallest workspace, one panel, and constants."""
        self.needs = [alive + own for alive, own in zip(live, self.beside, strict=True)]
        """Bytes of the same and of the activations alive."""

    @cached_property
    def work(self) -> list[int]:
        """Approximate number of multiplications."""
        return [_work(self._graph, node) for node in self._graph.nodes]

    def reach(self, index: int) -> Reach | None:
        """Return the rows that rows of a node's output need; None where they need more than rows."""
        if index not in self._reach:
            node = self._graph.nodes[index]
            self._reach[index] = _reach(self._graph, node) if _usable(self._graph, node) else None
        return self._reach[index]


def _best(graph: Graph, costs: Costs, sizes: _Sizes, tiled: set[int]) -> Chain | None:
    """Return the cheapest chain that brings the neediest node down to the others' memory, or near the least that any
    chain reaches; None where no chain gains enough.
    """
    needs = sizes.needs
    worst = max(range(len(needs)), key=needs.__getitem__, default=0)
    if not needs or worst in tiled:
        return None
    chains = list(_chains(graph, costs, sizes, worst, tiled))
    reached = range(min((first for first, _ in chains), default=0), max((last for _, last in chains), default=-1) + 1)
    if max((need for i, need in enumerate(needs) if i not in reached), default=0) > WORTH * needs[worst]:
        return None
    whole = max(sum(sizes.work) + BYTE_WORK * sum(node.weight_bytes for node in costs.nodes), 1)
    found = []
    for first, last in chains:
        others = max((need for i, need in enumerate(needs) if not first <= i <= last), default=0)
        around = _around(graph, costs, first, last)
        images, height = graph.tensors[graph.nodes[last].outputs[0]].shape[:2]
        read = BYTE_WORK * sum(costs.nodes[i].weight_bytes for i in range(first, last + 1)) / whole
        for count in BANDS:
            total = images * count
            if count > height or total > BANDS_MAX or (total - 1) * read > COST_MAX:
                break
            if total == 1:
                continue
            chain = Chain(first, last, count)
            bands = [_band_rows(graph, sizes, chain, band) for band in range(count)]
            cost = (total - 1) * read + _again(graph, sizes, chain, bands) / whole
            if cost <= COST_MAX:
                found.append((max(around + _most(graph, sizes, chain, bands), others), cost, chain))
    least = min((peak for peak, _, _ in found), default=needs[worst])
    if not found or least > WORTH * needs[worst]:
        return None
    return min((cost, peak, chain) for peak, cost, chain in found if peak <= ENOUGH * least)[2]


def _chains(graph: Graph, costs: Costs, sizes: _Sizes, worst: int, tiled: set[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last node of the chains that can be walked in bands and lower the memory of node ``worst``."""
    lives = dict(zip(costs.roots, zip(costs.first_node, costs.last_node, strict=True), strict=True))

    def usable(node: int) -> bool:
        return 0 <= node < len(graph.nodes) and node not in tiled and sizes.reach(node) is not None

    def links(node: int) -> bool:
        """Return whether a node's output is read by the next node and by no other."""
        made = graph.nodes[node].outputs[0]
        next_inputs = graph.nodes[node + 1].inputs
        return lives.get(made) == (node, node + 1) and next_inputs[0] == made and made not in next_inputs[1:]

    if not usable(worst):
        return
    low = high = worst
    while worst - low < NODES_MAX and usable(low - 1) and links(low - 1):
        low -= 1
    while high - worst < NODES_MAX and usable(high + 1) and links(high):
        high += 1
    for first in range(low, worst + 1):
        for last in range(max(worst, first + 1), min(high, first + NODES_MAX - 1) + 1):
            if _apart(graph, first, last):
                yield first, last


def _usable(graph: Graph, node: Node) -> bool:
    """Return whether rows of a node's output need only rows of its inputs."""
    tensors = [graph.tensors[t] for t in (*node.inputs[: _operands(node)], *node.outputs)]
    if any(len(t.shape) != 4 or t.weight >= 0 for t in tensors):
        return False
    if node.op == "pool" and node.attrs["kind"] != "max" and int_attr(node, "ceil_mode"):
        return False  # the divisor of its last windows counts what lies beyond the padding
    if OPERATORS[node.op].rows == "row":
        return all(t.shape == tensors[-1].shape for t in tensors)
    return _is_windowed(node)


def _operands(node: Node) -> int:
    """Return how many of a node's inputs have rows; a table that it looks numbers up in has none."""
    return 1 if node.op == "table_u8" else len(node.inputs)


def _is_windowed(node: Node) -> bool:
    return OPERATORS[node.op].rows == "window"


def _apart(graph: Graph, first: int, last: int) -> bool:
    """Return whether no band writes memory that another band reads: only the last node may read the storage of the
    output, in place, row by row.
    """
    final = graph.nodes[last].outputs[0]
    written = graph.tensors[final]
    for index in range(first, last + 1):
        node = graph.nodes[index]
        for operand, tensor in enumerate(node.inputs):
            view = graph.tensors[tensor]
            if graph.root(tensor) != graph.root(final):
                continue
            if index < last or operand == 0 or (view.offset, view.strides) != (written.offset, written.strides):
                return False
    return True


def _reach(graph: Graph, node: Node) -> Reach:
    height = graph.tensors[node.inputs[0]].shape[1]
    if not _is_windowed(node):
        return Reach(1, 0, 1, height)
    span = (ints_attr(node, "kernel")[0] - 1) * ints_attr(node, "dilations")[0] + 1
    return Reach(ints_attr(node, "strides")[0], ints_attr(node, "pads")[0], span, height)


def _band_rows(graph: Graph, sizes: _Sizes, chain: Chain, band: int) -> list[Rows]:
    """Return the rows of each node's output in a band of an image."""
    height = graph.tensors[graph.nodes[chain.last].outputs[0]].shape[1]
    rows = [(band * height // chain.bands, (band + 1) * height // chain.bands)]
    for index in range(chain.last, chain.first, -1):
        reach = sizes.reach(index)
        assert reach is not None
        rows.append(reach.of(rows[-1])[0])
    return rows[::-1]


def _work(graph: Graph, node: Node) -> int:
    """Return the approximate number of a node's multiplications."""
    work = graph.tensors[node.outputs[0]].size
    if _is_windowed(node):
        work *= prod(ints_attr(node, "kernel"))
    if "group" in node.attrs:  # an output channel sees the input channels of its group
        work *= graph.tensors[node.inputs[0]].shape[-1] // int_attr(node, "group")
    return work


def _again(graph: Graph, sizes: _Sizes, chain: Chain, bands: list[list[Rows]]) -> float:
    """Return the multiplications that bands repeat."""
    total = 0.0
    for index, rows in zip(range(chain.first, chain.last + 1), zip(*bands, strict=True), strict=True):
        height = graph.tensors[graph.nodes[index].outputs[0]].shape[1]
        total += max(sum(high - low for low, high in rows) / height - 1, 0.0) * sizes.work[index]
    return total


def _around(graph: Graph, costs: Costs, first: int, last: int) -> int:
    """Return the bytes of activations that live while a chain runs, apart from the tensors inside it."""
    made = {graph.nodes[i].outputs[0] for i in range(first, last)}
    lives = zip(costs.roots, costs.root_bytes, costs.first_node, costs.last_node, strict=True)
    return sum(size for root, size, begin, end in lives if begin <= last and end >= first and root not in made)


def _most(graph: Graph, sizes: _Sizes, chain: Chain, bands: list[list[Rows]]) -> int:
    """Return the bytes that the neediest node of a chain needs in a band, apart from activations around the chain."""
    most = 0
    for rows in bands:
        held = 0
        for index, (low, high) in zip(range(chain.first, chain.last + 1), rows, strict=True):
            tensor = graph.tensors[graph.nodes[index].outputs[0]]
            own = (high - low) * (tensor.nbytes // prod(tensor.shape[:2])) if index < chain.last else 0
            most = max(most, held + own + sizes.beside[index])
            held = own
    return most


def _split(graph: Graph, sizes: _Sizes, chain: Chain) -> tuple[Graph, int]:
    """Return the graph with the chain's nodes band by band, and the number of those nodes."""
    tensors = list(graph.tensors)
    nodes: list[Node] = []

    images = graph.tensors[graph.nodes[chain.last].outputs[0]].shape[0]

    def named(name: str, image: int, rows: Rows) -> str:
        return f"{name}[{rows[0]}:{rows[1]}]" if images == 1 else f"{name}[{image}][{rows[0]}:{rows[1]}]"

    def rows_of(tensor: int, image: int, rows: Rows) -> int:
        whole = graph.tensors[tensor]
        shape = (1, rows[1] - rows[0], *whole.shape[2:])
        offset = whole.offset + image * whole.strides[0] + rows[0] * whole.strides[1]
        tensors.append(
            Tensor(named(whole.name, image, rows), shape, whole.dtype, graph.root(tensor), offset, whole.strides)
        )
        return len(tensors) - 1

    for image, band in product(range(images), range(chain.bands)):
        before = -1
        for index, rows in enumerate(_band_rows(graph, sizes, chain, band), chain.first):
            node, reach = graph.nodes[index], sizes.reach(index)
            assert reach is not None
            needed, top, bottom = reach.of(rows)
            inputs = [before if before >= 0 else rows_of(node.inputs[0], image, needed)]
            inputs += [rows_of(operand, image, rows) for operand in node.inputs[1 : _operands(node)]]
            inputs += node.inputs[_operands(node) :]
            made = node.outputs[0]
            if index == chain.last:
                before = rows_of(made, image, rows)
            else:
                whole = graph.tensors[made]
                shape = (1, rows[1] - rows[0], *whole.shape[2:])
                tensors.append(Tensor(named(whole.name, image, rows), shape, whole.dtype))
                before = len(tensors) - 1
            attrs = dict(node.attrs)
            if _is_windowed(node):
                _, left, _, right = ints_attr(node, "pads")
                attrs["pads"] = [top, left, bottom, right]
            if node.op == "pool":
                attrs["ceil_mode"] = 0
            name = named(node.name, image, rows)
            nodes.append(replace(node, name=name, inputs=inputs, outputs=[before], attrs=attrs, params=None))
    every = [*graph.nodes[: chain.first], *nodes, *graph.nodes[chain.last + 1 :]]
    return replace(graph, tensors=tensors, nodes=every), len(nodes)
