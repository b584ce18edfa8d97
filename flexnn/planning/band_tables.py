"""Rows of a graph's nodes and activations, as planner/bands.c takes them: the records of the operators say what rows of
its inputs a node needs for rows of its output (graph/operators/rows.py), views say which rows of a root these are.

Rows of a root lie ``pitch`` elements apart. Operators over images have rows on axis 1, or on axis 2 where the image is
one line, as sound is; others take the rows of what they read or write, on whatever axis these lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple, overload

import numpy as np

from flexnn.graph.attributes import int_attr, ints_attr
from flexnn.graph.ir import DTYPES, Graph, Node, Shape, Tensor
from flexnn.graph.operators import OPERATORS
from flexnn.graph.operators.rows import Need

from .layout import Blocks, node_needs
from .types import I64, Costs

BYTE_WORK = 64
"""Multiplications that take about as long as reading a byte of weights: 40 on a Pi 4 with a USB disk."""
IMAGE_AXES = 4
"""Axes of a map."""
ROWS_MIN = 8
"""Fewest rows of which some wait for whole maps."""
KINDS = [*DTYPES]
"""Types of elements, by their numbers."""
MOVED_WORK = 4
"""Multiplications that take about as long as moving an element."""


class Use(NamedTuple):
    """A node's use of a tensor. Axis -1: of all of it, of the image at hand."""

    tensor: int
    axis: int
    need: Need
    at: int = 0
    """Row of the root that the view's first row begins in."""
    step: int = 1
    """Rows of the root from one row of the view to the next."""
    thick: int = 1
    """Rows of the root that a row of the view reaches over."""
    part: tuple[int, int] = (0, 1)
    """Columns of the root that it touches."""


class Walk(NamedTuple):
    """A node that can compute some rows of its output alone."""

    images: int
    uses: tuple[Use, ...]
    """Uses of its output, then of its inputs, constants left out."""
    needs: tuple[Need, ...]
    """Needs of each input, constants too."""
    work: int
    """Approximate number of multiplications, of all images."""


class Walks(Sequence[Walk | None]):
    """Records of what is known of each node of a graph, found when they are asked for: few nodes are walked."""

    def __init__(self, tables: BandTables, graph: Graph) -> None:
        self._tables, self._graph = tables, graph
        self._found: dict[int, Walk | None] = {}

    def __len__(self) -> int:
        return len(self._graph.nodes)

    @overload
    def __getitem__(self, index: int) -> Walk | None: ...

    @overload
    def __getitem__(self, index: slice) -> list[Walk | None]: ...

    def __getitem__(self, index: int | slice) -> Walk | list[Walk | None] | None:
        if isinstance(index, slice):
            return [self._at(i) for i in range(len(self))[index]]
        return self._at(range(len(self))[index])

    def _at(self, index: int) -> Walk | None:
        if index not in self._found:
            self._found[index] = self._tables.walk_of(self._graph, index)
        return self._found[index]


class _Row(NamedTuple):
    """A node's part of the tables, the same wherever its tensors and the rows of their roots are."""

    facts: tuple[object, ...]
    """All that it depends on."""
    node: Node
    height: int
    images: int
    work: int
    """Multiplications of one image."""
    uses: tuple[tuple[int, tuple[int, ...]], ...]
    """Root of each use, and what else the tables say of it."""


SeenRows = dict[tuple[int, bool], _Row]
"""Parts of the tables, by the address of their nodes and by whether rows are images: graphs that are searched one after
the other have most nodes in common.
"""


class BandTables:
    """Facts about a graph's nodes and roots. ``by_images``: rows are images, whole ones, or depths of a volume;
    ``seen``: parts of other graphs' tables.
    """

    def __init__(self, *, by_images: bool = False, seen: SeenRows | None = None) -> None:
        self._by_images = by_images
        self._seen: SeenRows | None = {} if seen is None else seen
        self._pitch: dict[int, int] = {}
        self._roots: list[int] = []
        """Root of each tensor."""
        self._axes: dict[int, tuple[int, int]] = {}
        """Axis of each node's rows, behind the number of its tensors whose pitch was known by then: another look finds
        the same, unless there are more.
        """

    def of(self, graph: Graph, costs: Costs) -> tuple[Walks, tuple[I64, I64, I64]]:
        """Return what is known of each node, and the tables of planner/bands.c."""
        self._roots = _roots(graph)
        self._find_pitches(graph)
        walks = Walks(self, graph)
        tables = self._tables(graph, costs)
        self._roots, self._axes, self._seen = [], {}, None  # of many graphs that are searched, few are written out
        return walks, tables

    # ---- pitches ----

    def _find_pitches(self, graph: Graph) -> None:
        """Find how far apart the rows of roots are, beginning with operators over images."""
        if self._by_images:
            whole = ((i, t) for i, t in enumerate(graph.tensors) if t.root < 0 and t.shape and t.shape[0] > 1)
            self._pitch = {i: t.size // t.shape[0] for i, t in whole}
            for t in graph.tensors:  # depths of a volume: images of a view
                if t.root >= 0 and t.shape[:1] > (1,) and graph.tensors[t.root].shape[:1] == (1,):
                    self._pitch.setdefault(t.root, t.strides[0])
            return
        for node in graph.nodes:
            if _is_over_images(node):
                for tensor in (*node.inputs, *node.outputs):
                    view, axis = graph.tensors[tensor], _image_axis(graph.tensors[tensor].shape)
                    if len(view.shape) == IMAGE_AXES and view.shape[axis] > 1 and view.strides[axis] > 0:
                        known = self._pitch.setdefault(self._roots[tensor], view.strides[axis])
                        if known % view.strides[axis] == 0:  # rows of tokens lie in rows of patches
                            self._pitch[self._roots[tensor]] = view.strides[axis]
        count = len(graph.nodes)
        for indices in (range(count), range(count)[::-1], range(count)):
            for index in indices:
                self._hand_on(graph, index)

    def _known(self, node: Node) -> int:
        """Return how many of a node's tensors have a root whose pitch is known."""
        return sum(self._roots[tensor] in self._pitch for tensor in (*node.outputs[:1], *node.inputs))

    def _hand_on(self, graph: Graph, index: int) -> None:
        """Find the pitch of a root from those of the roots that its node also touches."""
        node = graph.nodes[index]
        known = self._known(node)
        if known == 1 + len(node.inputs) or self._axes.get(index, (-1, -1))[0] == known:
            return
        axis = self._axis(graph, node)
        self._axes[index] = known, axis
        needs = self._needs(graph, node, axis)
        if needs is None:
            return
        for tensor, place in zip((node.outputs[0], *node.inputs), (axis, *(need.axis for need in needs)), strict=True):
            view, root = graph.tensors[tensor], self._roots[tensor]
            if place >= 0 and view.shape[place] > 1 and root not in self._pitch:
                self._pitch[root] = self._pitch_of(graph, view, root, view.strides[place])

    def _pitch_of(self, graph: Graph, view: Tensor, root: int, stride: int) -> int:
        """Return how far apart the rows of a root lie, one of whose views has rows ``stride`` apart. Where that view
        makes pixels of channels, its rows are several of the map that others see.
        """
        if len(view.shape) <= IMAGE_AXES:
            return stride
        images = [t for t, its in zip(graph.tensors, self._roots, strict=True) if its == root and _is_image(t)]
        return min([image.strides[1] for image in images if stride % image.strides[1] == 0], default=stride)

    def _axis(self, graph: Graph, node: Node) -> int:
        """Return the axis of a node's output that its rows are on, or -1."""
        if self._by_images:
            view = graph.tensors[node.outputs[0]]
            if len(view.shape) > 2 and view.shape[0] == 1 and view.shape[1] > 1:
                return 1 if view.strides[1] == self._pitch.get(self._roots[node.outputs[0]]) else -1
            return 0 if view.shape and view.shape[0] > 1 else -1
        output = graph.tensors[node.outputs[0]]
        if _is_over_images(node):
            return _image_axis(output.shape)
        known = [self._row_axes(graph, tensor) for tensor in node.inputs]
        for axis in self._row_axes(graph, node.outputs[0]) or range(len(output.shape) - 1):
            needs = self._needs(graph, node, axis)
            fits = [
                need.axis in axes for need, axes in zip(needs or (), known, strict=False) if axes and need.axis >= 0
            ]
            if needs is not None and all(fits) and (fits or self._roots[node.outputs[0]] in self._pitch):
                return axis
        return -1

    def _row_axes(self, graph: Graph, tensor: int) -> list[int]:
        """Return the axes of a view that the rows of its root may be on, the likeliest first; none where no operator
        says how far apart these rows are.
        """
        pitch = self._pitch.get(self._roots[tensor])
        if not pitch:
            return []
        view = graph.tensors[tensor]
        some = [i for i, (d, s) in enumerate(zip(view.shape, view.strides, strict=True)) if d > 1 and s % pitch == 0]
        return sorted(some, key=lambda axis: view.strides[axis] != pitch)

    def _needs(self, graph: Graph, node: Node, axis: int) -> tuple[Need, ...] | None:
        if axis < 0:
            return None
        shapes = [graph.tensors[t].shape for t in node.inputs]
        output = graph.tensors[node.outputs[0]].shape
        if len(output) < 2 or axis >= len(output):
            return None
        return OPERATORS[node.op].rows(node, shapes, output, axis)

    # ---- nodes ----

    def walk_of(self, graph: Graph, index: int) -> Walk | None:
        """Return how a node can compute some rows of its output alone; None where it cannot."""
        node = graph.nodes[index]
        self._roots = self._roots or _roots(graph)
        known, axis = self._axes.get(index, (-1, -1))
        if known != self._known(node):
            axis = self._axis(graph, node)
        needs = self._needs(graph, node, axis)
        if needs is None or axis > 3:
            return None
        output = graph.tensors[node.outputs[0]]
        images = output.shape[0] if axis > 0 else 1
        uses = []
        for operand, (tensor, need) in enumerate(
            zip((node.outputs[0], *node.inputs), (Need(axis), *needs), strict=True)
        ):
            view = graph.tensors[tensor]
            if graph.tensors[self._roots[tensor]].weight >= 0:
                if need.axis >= 0 and view.shape[need.axis] > 1:
                    return None
                continue
            use = self._use(graph, tensor, need, images)
            if use is None or not _fits(node, operand - 1, view, need.axis, images):
                return None
            uses.append(use)
        return Walk(images, tuple(uses), needs, work_of(graph, node))

    def _use(self, graph: Graph, tensor: int, need: Need, images: int) -> Use | None:
        """Return the use of a view; None where its images or its rows are not apart."""
        view, root = graph.tensors[tensor], self._roots[tensor]
        whole = graph.tensors[root]
        if images > 1 and not (len(view.shape) > 1 and view.shape[0] == images and whole.size % images == 0):
            return None
        if need.axis < 0:
            return Use(tensor, -1, need)
        pitch, image = self._pitch.get(root, 0), whole.size // images
        apart = pitch and image % pitch == 0 and view.strides[need.axis] % pitch == 0
        if (
            not apart
            or view.shape[need.axis] == 1
            or min(view.strides) < 0
            or (images > 1 and view.strides[0] != image)
        ):
            return None
        steps = list(zip(view.shape, view.strides, strict=True))
        beside = sum((d - 1) * s for i, (d, s) in enumerate(steps) if i != need.axis and (i or images == 1))
        thick = (view.offset % pitch + beside) // pitch + 1
        step = view.strides[need.axis] // pitch
        return Use(tensor, need.axis, need, view.offset // pitch, step, thick, part_of(view, whole))

    # ---- tables ----

    def _tables(self, graph: Graph, costs: Costs) -> tuple[I64, I64, I64]:
        count = len(graph.nodes)
        live = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node).live(count).tolist()
        beside = [sum(node_needs(costs, i, -1, 1)) for i in range(count)]
        number: dict[int, int] = {}
        roots: list[tuple[int, ...]] = []
        for root, size, first, last in zip(
            costs.roots, costs.root_bytes, costs.first_node, costs.last_node, strict=True
        ):
            number[root] = len(roots)
            roots.append(self._root(graph, root, size, first, last))
        uses: list[tuple[int, ...]] = []
        nodes = []
        for index in range(count):
            row, start = self._row(graph, index), len(uses)
            for root, told in row.uses:
                if root not in number:
                    number[root] = len(roots)
                    roots.append(self._root(graph, root, 0, -1, count))
                uses.append((number[root], *told))
            read = costs.nodes[index].weight_bytes * BYTE_WORK
            need = live[index] + beside[index]
            nodes.append((start, len(row.uses), row.height, row.images, beside[index], need, row.work, read))
        return _table(nodes, 8), _table(uses, 11), _table(roots, 5)

    def _row(self, graph: Graph, index: int) -> _Row:
        """Return a node's part of the tables."""
        assert self._seen is not None
        node, key = graph.nodes[index], (id(graph.nodes[index]), self._by_images)
        touched = (*node.outputs, *node.inputs)
        roots = [self._roots[tensor] for tensor in touched]
        facts = *map(graph.tensors.__getitem__, (*touched, *roots)), *map(self._pitch.get, roots)
        known = self._seen.get(key)
        if known is None or known.facts != facts:
            known = self._seen[key] = self._row_of(graph, index, facts)
        return known

    def _row_of(self, graph: Graph, index: int, facts: tuple[object, ...]) -> _Row:
        walk, node = self.walk_of(graph, index), graph.nodes[index]
        if walk is None:
            return _Row(facts, node, 0, 1, 0, ())
        height = graph.tensors[walk.uses[0].tensor].shape[walk.uses[0].axis]
        uses = tuple((self._roots[use.tensor], _use_row(graph, use)) for use in walk.uses)
        return _Row(facts, node, height, walk.images, walk.work // walk.images, uses)

    def _root(self, graph: Graph, root: int, size: int, first: int, last: int) -> tuple[int, ...]:
        pitch = self._pitch.get(root, 0)
        dtype = graph.tensors[root].dtype
        return pitch * DTYPES[dtype].itemsize, size, first, last, (1 + KINDS.index(dtype)) * (pitch > 0)


def _is_over_images(node: Node) -> bool:
    """Return whether an operator's maps are images, whose rows are on the axis that ``_image_axis`` says."""
    return "pads" in node.attrs or node.op in ("resize", "resize_u8")


def _image_axis(shape: Shape) -> int:
    """Return the axis that the rows of an image are on: the pixels of one line count as rows."""
    return 2 if len(shape) == IMAGE_AXES and shape[1] == 1 else 1


def _is_image(tensor: Tensor) -> bool:
    """Return whether a tensor is a map whose rows lie on axis 1."""
    return len(tensor.shape) == IMAGE_AXES and tensor.shape[1] > 1 and tensor.strides[1] == max(tensor.strides[1:])


def _roots(graph: Graph) -> list[int]:
    return [i if tensor.root < 0 else tensor.root for i, tensor in enumerate(graph.tensors)]


def _table(rows: Sequence[tuple[int, ...]], columns: int) -> I64:
    return np.array(rows, np.int64).reshape(len(rows), columns)


def _use_row(graph: Graph, use: Use) -> tuple[int, ...]:
    height = graph.tensors[use.tensor].shape[use.axis] if use.axis >= 0 else 0
    need = use.need
    return (use.at, use.step, use.thick, height, need.num, need.low, need.high, need.den, *use.part)


def part_of(view: Tensor, whole: Tensor) -> tuple[int, int]:
    """Return the columns of the root that a view touches: its channels where it has a part of them, else all."""
    width = whole.shape[-1] if whole.shape else 0
    if not width or not view.shape:
        return 0, width
    apart = all(d == 1 or s % width == 0 for d, s in zip(view.shape[:-1], view.strides[:-1], strict=True))
    if not apart or (view.shape[-1] > 1 and view.strides[-1] != 1):
        return 0, width
    low = view.offset % width
    return (low, low + view.shape[-1]) if low + view.shape[-1] <= width else (0, width)


def _fits(node: Node, operand: int, view: Tensor, axis: int, images: int) -> bool:
    """Return whether an operator takes some rows of a view as an operand, the output's number being -1."""
    shape = list(view.shape)
    if axis >= 0:
        shape[axis] = min(2, shape[axis])
    if images > 1:
        shape[0] = 1
    rules = OPERATORS[node.op].strided
    return rules[operand](tuple(shape), view.strides) if operand < len(rules) - 1 else False


def work_of(graph: Graph, node: Node) -> int:
    """Return the approximate number of a node's multiplications."""
    output = graph.tensors[node.outputs[0]]
    if "group" in node.attrs:  # an output channel sees the input channels of its group
        channels = graph.tensors[node.inputs[0]].shape[-1] // int_attr(node, "group")
        return output.size * prod(ints_attr(node, "kernel")) * channels
    if node.op == "matmul":
        return output.size * graph.tensors[node.inputs[0]].shape[-1]
    return output.size * (prod(ints_attr(node, "kernel")) if "kernel" in node.attrs else 1) * MOVED_WORK


def waits_for_whole(graph: Graph, node: Node) -> bool:
    """Return whether a node needs rows of its first input, and all of others that are no constants."""
    output = graph.tensors[node.outputs[0]].shape
    if len(output) < 3 or output[1] < ROWS_MIN or len(node.inputs) < 3:
        return False
    needs = OPERATORS[node.op].rows(node, [graph.tensors[t].shape for t in node.inputs], output, 1)
    if needs is None or needs[0].axis < 0:
        return False
    whole = [tensor for tensor, need in zip(node.inputs, needs, strict=True) if need.axis < 0]
    return sum(graph.tensors[graph.root(tensor)].weight < 0 for tensor in whole) > 1


def bytes_between(roots: Iterable[Sequence[int]], nodes: int) -> list[int]:
    """Return the bytes of activations that live before each node, and those behind the last one."""
    change = [0] * (nodes + 2)
    for _, nbytes, first, last, _ in roots:
        if nbytes > 0:
            change[first + 1] += nbytes
            change[last + 1] -= nbytes
    return list(accumulate(change[:-1]))
