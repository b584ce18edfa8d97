"""Templates: a graph that was made of sizes (graph/sizes.py) becomes the graph that binding makes of other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flexnn import _core
from flexnn.quick_dataclass import quick_dataclass

from .ir import DTYPES, Array, Attr, Graph, Node, Shape, Tensor, Weight
from .late import Late
from .replay import Folded, Numbers, Replay
from .sources import ArraySource

NODE_BYTES = 3 << 10
"""Bytes of a node in Python, with its tensors and their lists: measured 1.6 to 2.8 KiB."""

Columns = tuple[Array, Array, Array, Array, Array]
"""Shapes and strides as indices of the trail, -1 for a 1; offsets, roots, and bytes of an element."""
TensorRow = tuple[str, int, str, int, int, int, int]


class NodeRow(NamedTuple):
    """A node without its sizes."""

    name: str
    op: str
    inputs: list[int]
    outputs: list[int]
    attrs: dict[str, Attr]
    weight: int
    sizes: dict[str, int | list[int]]
    """Those attributes that are made of sizes: the number of a list, or the index of a number as the one of a list."""


@quick_dataclass(slots=True, eq=False)
class Template:
    """A graph of which the trail of its sizes is known. Lists of numbers are lists of their indices in the trail."""

    replay: Replay
    lists: list[tuple[int, ...]]
    tensors: list[TensorRow]
    """Name, number of the list that is the shape, dtype, root, index of the offset, list of strides, weight."""
    nodes: list[NodeRow]
    known: list[tuple[Weight, int, Late | None]]
    """Weights, the index of their bytes and what makes their numbers, where they depend on sizes."""
    inputs: list[int]
    outputs_at: list[int]
    """Tensors that are the graph's outputs."""
    packed: Array
    """Parameters of all nodes, a row each."""
    whole: Array
    """Words of the parameters that are sizes: rows, columns, indices of the numbers."""
    floats: Array
    """The same of floats."""
    columns: Columns | None = None
    """The tensors as ``find_columns`` returns them, once it was asked."""
    fixed_bytes: int = -1
    """Bytes that do not change, once they were counted."""

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def ops(self) -> list[str]:
        """Operator of each node."""
        return [node.op for node in self.nodes]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, about."""
        if self.fixed_bytes < 0:
            arrays = self.packed.nbytes + self.whole.nbytes + self.floats.nbytes
            constants = sum(w.source.values.nbytes for w, *_ in self.known if isinstance(w.source, ArraySource))
            self.fixed_bytes = NODE_BYTES * len(self.nodes) + self.replay.nbytes + arrays + constants
        return self.fixed_bytes

    def numbers(self, given: Sequence[int]) -> Numbers | None:
        """Return all numbers of the trail for others than those given, in their order; None where binding would make
        another graph of them.
        """
        return self.taken(self.replay.at(given))

    def taken(self, found: Numbers | None) -> Numbers | None:
        """Return numbers that the trail gave, of which a graph may be made."""
        return found

    def params(self, values: Numbers) -> Array | None:
        """Return the parameters of all nodes, a row each, for all numbers of the trail; None where an operator cannot
        take them.
        """
        params = self.packed.copy()
        if not _core.trail_params(self.whole, values.words, len(params), params):
            return None
        rows, columns, indices = self.floats
        if len(indices):
            params[rows, columns] = values.single(indices).view(np.int32)
        return params

    def takes(self, values: Numbers) -> bool:
        """Return whether operators can take all numbers of the trail, so that ``params`` makes parameters of them."""
        return _core.trail_params(self.whole, values.words, len(self.packed))

    @property
    def weights(self) -> list[Weight]:
        """Weights whose numbers are the same at all sizes."""
        return [weight for weight, _, make in self.known if make is None]

    def outputs(self, values: Numbers) -> list[tuple[Shape, str]]:
        """Return shape and type of each output of the graph."""
        found = [self.tensors[i] for i in self.outputs_at]
        return [(tuple([int(values[i]) for i in self.lists[shape]]), dtype) for _, shape, dtype, *_ in found]

    def extents(self, values: Numbers, more: int = 0) -> tuple[Array, Array]:
        """Return bytes of each tensor of the graph, and bytes from the start of its root's storage to it, with room
        for ``more`` tensors.
        """
        return self._extents(values, more)[:2]

    def _extents(self, values: Numbers, more: int = 0) -> tuple[Array, Array, bool]:
        """Return what ``extents`` returns, and whether these are sizes of tensors that lie inside their roots."""
        columns = self.find_columns()
        nbytes, starts = np.zeros((2, len(columns[2]) + more), np.int64)
        return nbytes, starts, _core.trail_extents(columns, values.words, nbytes, starts)

    @property
    def complete(self) -> Template:
        """The template with its nodes (graph/like_template.py)."""
        return self

    def is_least(self, values: Numbers) -> bool:
        """Return whether no other order of the nodes keeps less alive at these sizes, as far as that is looked at, or
        at those for which it was traced such an order does as well: binding looked at the graph before it had storage.
        """
        excess = self._excess(values)
        if excess <= 1:
            return True
        traced = self.numbers(self.replay.traced)
        return traced is not None and excess <= self._excess(traced)

    def _excess(self, values: Numbers) -> float:
        """Return how many times as much the nodes keep alive as in the best order that is looked at."""
        from .orders import excess  # sessions without a limit do without

        nodes, roots = self.complete.nodes, self.find_columns()[3].tolist()
        nbytes, _ = self.extents(values)
        given = {*self.complete.inputs, *self.complete.outputs_at}
        for i, tensor in enumerate(self.complete.tensors):
            if i in given or tensor[6] >= 0:
                nbytes[roots[i]] = 0  # it lies elsewhere whatever the order is
        return excess([(node.inputs, node.outputs) for node in nodes], roots, nbytes)

    def find_columns(self) -> Columns:
        """Return the tensors as ``_core.trail_extents`` takes them."""
        if self.columns is None:
            self.columns = self._columns()
        return self.columns

    def _columns(self) -> Columns:
        shapes, strides = [tensor[1] for tensor in self.tensors], [tensor[5] for tensor in self.tensors]
        used = {*shapes, *strides}
        rows = np.full((len(self.lists), max((len(self.lists[i]) for i in used), default=0)), -1, np.int32)
        for i in used:
            rows[i, : len(self.lists[i])] = self.lists[i]
        offsets, roots = np.zeros((2, len(self.tensors)), np.int32)
        widths = np.zeros(len(self.tensors), np.int64)
        for i, (_, _, dtype, root, offset, _, _) in enumerate(self.tensors):
            offsets[i], roots[i], widths[i] = offset, i if root < 0 else root, DTYPES[dtype].itemsize
        return rows[shapes], rows[strides], offsets, roots, widths

    def maker(self, tensor: int) -> Late | None:
        """Return what makes the numbers of a constant; None where they do not depend on sizes."""
        return self.known[self.tensors[tensor][6]][2]

    def constant(self, tensor: int, values: Numbers) -> Array:
        """Return the numbers of a tensor that is a constant."""
        make = self.maker(tensor)
        if make is not None:
            return make(values)
        weight = self.known[self.tensors[tensor][6]][0]
        assert weight.source is not None
        return weight.source.load()

    def at(self, values: Numbers) -> Graph:
        """Return the graph for all numbers of the trail, of which ``params`` makes parameters."""
        params = self.params(values)
        assert params is not None
        numbers = values.listed
        lists: list[Any] = [tuple([numbers[i] for i in indices]) for indices in self.lists]
        values.folded = Folded()
        graph = Graph(weights=[_weight(*w, values) for w in self.known], inputs=list(self.inputs))
        values.folded = None
        graph.outputs = list(self.outputs_at)
        graph.tensors = [
            Tensor(name, lists[shape], dtype, root, int(numbers[offset]), lists[strides], weight)
            for name, shape, dtype, root, offset, strides, weight in self.tensors
        ]
        for (name, op, inputs, outputs, attrs, weight, sizes), row in zip(self.nodes, params, strict=True):
            if sizes:
                attrs = dict(attrs)
                for attr, place in sizes.items():
                    attrs[attr] = list(lists[place]) if isinstance(place, int) else numbers[place[0]]
            graph.nodes.append(Node(name, op, list(inputs), list(outputs), attrs, weight, row))
        return graph


def _weight(weight: Weight, size: int, make: Late | None, values: Numbers) -> Weight:
    w, nbytes, source = weight, weight.nbytes, weight.source
    if make is not None:
        nbytes, source = int(values[size]), ArraySource(make(values))
    return Weight(w.name, w.kind, nbytes, w.chunk_bytes, w.offset, w.crc_first, source, w.panels)
