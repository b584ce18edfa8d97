"""Templates: a graph that was made of sizes (graph/sizes.py) becomes the graph that binding makes of other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flexnn import _core

from . import operators
from .ir import DTYPES, Array, Graph, Node, Shape, Tensor, Weight
from .replay import Numbers
from .sizes import Trail, is_size
from .sources import ArraySource, Late, depends

_INT32 = np.iinfo(np.int32)


class Template:
    """A graph of which the trail of its sizes is known."""

    def __init__(self, trail: Trail, graph: Graph) -> None:
        self._trail = trail
        self._lists: dict[tuple[int, ...], int] = {}
        self._tensors = [
            (t.name, self._list(t.shape), t.dtype, t.root, trail.index(t.offset), self._list(t.strides), t.weight)
            for t in graph.tensors
        ]
        self._nodes = [self._without_sizes(node) for node in graph.nodes]
        self._weights = [self._late(weight) for weight in graph.weights]
        self._inputs, self._outputs = list(graph.inputs), list(graph.outputs)
        self._pack(graph)
        self._replay = trail.replay()
        self._of = list(self._lists)
        self.givens = list(trail.givens)
        """Indices of the numbers that are given."""
        self._find_extents()
        del self._trail, self._lists

    def __len__(self) -> int:
        return len(self._nodes)

    def numbers(self, given: Sequence[int]) -> Numbers | None:
        """Return all numbers of the trail for others than those given, in their order; None where binding would make
        another graph of them.
        """
        return self._replay.at(given)

    def params(self, values: Numbers) -> Array | None:
        """Return the parameters of all nodes, a row each, for all numbers of the trail; None where an operator cannot
        take them.
        """
        params = self._params.copy()
        rows, columns, indices = self._whole
        if len(indices):
            words = values.words[indices]
            if words.min() < _INT32.min or words.max() > _INT32.max:
                return None
            params[rows, columns] = words
        rows, columns, indices = self._floats
        if len(indices):
            params[rows, columns] = values.single(indices).view(np.int32)
        return params

    @property
    def weights(self) -> list[Weight]:
        """Weights whose numbers are the same at all sizes."""
        return [weight for weight, _, make in self._weights if make is None]

    def outputs(self, values: Numbers) -> list[tuple[Shape, str]]:
        """Return shape and type of each output of the graph."""
        found = [self._tensors[i] for i in self._outputs]
        return [(tuple([int(values[i]) for i in self._of[shape]]), dtype) for _, shape, dtype, *_ in found]

    def extents(self, values: Numbers) -> tuple[Array, Array]:
        """Return bytes of each tensor of the graph, and bytes from the start of its root's storage to it."""
        words = np.append(values.words, 1)
        sizes = words[self._dims].prod(axis=1)
        return sizes[self._shape_of] * self._width, words[self._offset_of] * self._width

    def is_late(self, tensor: int) -> bool:
        """Return whether the numbers of a constant depend on sizes."""
        return self._weights[self._tensors[tensor][6]][2] is not None

    def constant(self, tensor: int, values: Numbers) -> Array:
        """Return the numbers of a tensor that is a constant."""
        weight, _, make = self._weights[self._tensors[tensor][6]]
        if make is not None:
            return make(values)
        assert weight.source is not None
        return weight.source.load()

    def at(self, values: Numbers) -> Graph:
        """Return the graph for all numbers of the trail, of which ``params`` makes parameters."""
        params = self.params(values)
        assert params is not None
        numbers = values.listed
        lists: list[Any] = [tuple([numbers[i] for i in indices]) for indices in self._of]
        graph = Graph(weights=[_known(*w, values) for w in self._weights], inputs=list(self._inputs))
        graph.outputs = list(self._outputs)
        graph.tensors = [
            Tensor(name, lists[shape], dtype, root, int(numbers[offset]), lists[strides], weight)
            for name, shape, dtype, root, offset, strides, weight in self._tensors
        ]
        for (node, sizes), row in zip(self._nodes, params, strict=True):
            attrs = node.attrs
            if sizes:
                attrs = dict(attrs)
                for name, place in sizes.items():
                    attrs[name] = list(lists[place]) if isinstance(place, int) else numbers[place[0]]
            graph.nodes.append(Node(node.name, node.op, list(node.inputs), list(node.outputs), attrs, node.weight, row))
        return graph

    def _find_extents(self) -> None:
        """Find the indices of what ``extents`` needs; -1 stands for a 1."""
        rank = max(map(len, self._of), default=0)
        self._dims = np.array([[*of, *[-1] * (rank - len(of))] for of in self._of], np.int64).reshape(
            len(self._of), rank
        )
        self._shape_of = np.array([tensor[1] for tensor in self._tensors], np.int64)
        self._offset_of = np.array([tensor[4] for tensor in self._tensors], np.int64)
        self._width = np.array([DTYPES[tensor[2]].itemsize for tensor in self._tensors], np.int64)

    def _list(self, numbers: Sequence[int]) -> int:
        indices = tuple(map(self._trail.index, numbers))
        return self._lists.setdefault(indices, len(self._lists))

    def _without_sizes(self, node: Node) -> tuple[Node, dict[str, int | tuple[int]]]:
        """Return a node without its sizes, and which attributes are sizes, or lists with such."""
        found: dict[str, int | tuple[int]] = {}
        for name, value in node.attrs.items():
            if is_size(value):
                found[name] = (self._trail.index(value),)
            elif isinstance(value, list) and any(map(is_size, value)):
                found[name] = self._list(value)
        attrs = {name: 0 if name in found else value for name, value in node.attrs.items()}
        return Node(node.name, node.op, list(node.inputs), list(node.outputs), attrs, node.weight), found

    def _late(self, weight: Weight) -> tuple[Weight, int, Late | None]:
        """Return a weight, the index of its bytes, and what makes its numbers where they depend on sizes."""
        if not depends(weight.source):
            return replace(weight, nbytes=int(weight.nbytes), chunk_bytes=int(weight.chunk_bytes)), 0, None
        make = weight.source.late(self._trail.indices)  # type: ignore[union-attr]
        known = replace(weight, source=None, nbytes=0, chunk_bytes=int(weight.chunk_bytes))
        return known, self._trail.index(weight.nbytes), make

    def _pack(self, graph: Graph) -> None:
        """Keep the parameters of all nodes, and which words of them are sizes."""
        rows: list[Array] = []
        whole: list[tuple[int, int, int]] = []
        floats: list[tuple[int, int, int]] = []
        for i, node in enumerate(graph.nodes):
            if isinstance(node.params, np.ndarray):
                rows.append(node.params)
                continue
            fields: Mapping[str, Any] = node.params or operators.encode(graph, node)
            words = [(k, self._trail.index(v)) for k, v in enumerate(map(fields.get, names(node.op))) if is_size(v)]
            plain: dict[str, Any] = {name: getattr(value, "value", value) for name, value in fields.items()}
            rows.append(_core.encode_params(node.op, plain))
            for k, index in words:
                (floats if _core.FIELDS[node.op][k][1] else whole).append((i, k, index))
        self._params = np.stack(rows) if rows else np.zeros((0, _core.PARAM_WORDS), np.int32)
        self._whole, self._floats = (np.array(found, np.int64).reshape(-1, 3).T for found in (whole, floats))


def names(op: str) -> list[str]:
    """Return the names of an operator's fields, in order."""
    return [name for name, _ in _core.FIELDS[op]]


def _known(weight: Weight, size: int, make: Late | None, values: Numbers) -> Weight:
    if make is None:
        return replace(weight)
    return replace(weight, nbytes=int(values[size]), source=ArraySource(make(values)))
