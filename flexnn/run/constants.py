"""Constants of a segment that the artifact does not hold: small ones, and those made while binding. They become parts
of new inputs of the graph, one input for each type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from weakref import ref

import numpy as np

from flexnn.artifact.model_section import weight_key
from flexnn.graph.ir import DTYPES, Array, Graph, Tensor
from flexnn.graph.late import numbers_read
from flexnn.graph.replay import Folded, Numbers
from flexnn.graph.template import Template
from flexnn.planning.refit import Sizes
from flexnn.planning.types import LINE


class Packing:
    """Which constants of ``graph``, and of all graphs of its template, lie in which new input."""

    def __init__(self, graph: Graph) -> None:
        kept = {
            i: tensor
            for i, tensor in enumerate(graph.tensors)
            if tensor.weight >= 0 and weight_key(graph.weights[tensor.weight]) is None
        }
        self._dtypes = sorted({tensor.dtype for tensor in kept.values()})
        self._kept = [[i for i, tensor in kept.items() if tensor.dtype == dtype] for dtype in self._dtypes]
        """Constants of each type."""
        self._views = {i: tensor.root for i, tensor in enumerate(graph.tensors) if tensor.root in kept}
        """Constants of which other tensors are a part, by the other."""
        self._columns: list[tuple[Array, Array, Array]] | None = None
        """Constants of each type, parts of them, and of which of these each is a part, once ``sizes`` was asked."""
        self._read: list[Array | None] | None = None
        """Indices of the numbers that decide each new input, once ``arrays_at`` was asked; None: it has one value."""
        self._last: dict[int, tuple[bytes, ref[Array]]] = {}
        """The new inputs that depend on sizes, as they were made last, and the numbers that decided them."""
        self._arrays: list[Array] = []
        """Arrays of the first graph."""

    def arrays(self, graph: Graph) -> list[Array]:
        """Return the arrays of the new inputs for a graph that has not got them yet."""
        made = [_packed([_loaded(graph, i) for i in tensors], dtype) for dtype, tensors in self._groups()]
        if not self._arrays:
            self._arrays = made
        return made

    def arrays_at(self, template: Template, numbers: Numbers) -> list[Array]:
        """Return the arrays of the new inputs for the graph that a template makes of ``numbers``; arrays that are the
        same always are shared.
        """
        if self._read is None:
            self._read = [self._numbers_read(template, tensors) for tensors in self._kept]
        made, numbers.folded = [], Folded()
        for number, (dtype, tensors) in enumerate(self._groups()):
            indices = self._read[number]
            if indices is None:
                made.append(self._arrays[number])
                continue
            words = numbers.words[indices].tobytes()
            last = self._last.get(number)
            array = last[1]() if last is not None and last[0] == words else None
            if array is None:
                array = _packed([template.constant(i, numbers) for i in tensors], dtype)
                self._last[number] = words, ref(array)
            made.append(array)
        numbers.folded = None
        return made

    def _numbers_read(self, template: Template, tensors: list[int]) -> Array | None:
        """Return the indices of the numbers that decide constants; None where these are the same always."""
        makers = [make for make in map(template.maker, tensors) if make is not None]
        return np.array(sorted(set().union(*map(numbers_read, makers))), np.int64) if makers else None

    def _groups(self) -> Iterator[tuple[str, list[int]]]:
        return zip(self._dtypes, self._kept, strict=True)

    def apply(self, graph: Graph) -> None:
        """Turn the constants of a graph into parts of new inputs."""
        places = self._placed({i: graph.tensors[i].size for tensors in self._kept for i in tensors})
        first = len(graph.tensors)
        for dtype, tensors in self._groups():
            total = _places([graph.tensors[i].size for i in tensors], dtype)[1]
            graph.tensors.append(Tensor(f"constants.{dtype}", (total,), dtype))
            graph.inputs.append(len(graph.tensors) - 1)
        for i, (number, at) in places.items():
            tensor = graph.tensors[i]
            tensor.root, tensor.offset = first + number, tensor.offset + at
            if i not in self._views:
                tensor.weight = -1
        _drop_unused_weights(graph)

    def sizes(self, template: Template, numbers: Numbers) -> Sizes:
        """Return the sizes of the graph that ``apply`` makes of the one that a template makes of ``numbers``."""
        if self._columns is None:
            self._columns = [self._column(tensors) for tensors in self._kept]
        found, starts = template.extents(numbers)
        count = len(found)
        nbytes, offsets = (np.zeros(count + len(self._columns), np.int64) for _ in range(2))
        nbytes[:count], offsets[:count] = found, starts
        for number, (tensors, parts, whole) in enumerate(self._columns):
            ends = (-(-found[tensors] // LINE) * LINE).cumsum()
            nbytes[count + number] = ends[-1]
            offsets[tensors[1:]] += ends[:-1]
            if len(parts):
                offsets[parts] += np.append(0, ends)[whole]
        params = template.params(numbers)
        assert params is not None
        return Sizes(params, nbytes, offsets)

    def _column(self, tensors: list[int]) -> tuple[Array, Array, Array]:
        at = {tensor: number for number, tensor in enumerate(tensors)}
        parts = [(i, at[root]) for i, root in self._views.items() if root in at]
        views = np.array(parts, np.int64).reshape(-1, 2).T
        return np.array(tensors, np.int64), views[0], views[1]

    def _placed(self, elements: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return the new input, by its number, and the element in it, of each constant and of each part of one."""
        found: dict[int, tuple[int, int]] = {}
        for number, (dtype, tensors) in enumerate(self._groups()):
            places, _ = _places([elements[i] for i in tensors], dtype)
            found.update((i, (number, at)) for i, at in zip(tensors, places, strict=True))
        return found | {i: found[root] for i, root in self._views.items()}


def _loaded(graph: Graph, tensor: int) -> Array:
    source = graph.weights[graph.tensors[tensor].weight].source
    assert source is not None
    return source.load()


def _packed(parts: Sequence[Array], dtype: str) -> Array:
    places, total = _places([part.size for part in parts], dtype)
    array = np.zeros(total, DTYPES[dtype])
    for at, part in zip(places, parts, strict=True):
        array[at : at + part.size] = part.reshape(-1)
    return array


def _places(sizes: Sequence[int], dtype: str) -> tuple[list[int], int]:
    """Return where arrays of ``sizes`` elements begin, each at a line of its own, and the elements of all."""
    step = LINE // DTYPES[dtype].itemsize
    places, at = [], 0
    for size in sizes:
        places.append(at)
        at += -(-size // step) * step
    return places, at


def _drop_unused_weights(graph: Graph) -> None:
    used = sorted(({t.weight for t in graph.tensors} | {node.weight for node in graph.nodes}) - {-1})
    place = {old: new for new, old in enumerate(used)} | {-1: -1}
    graph.weights = [graph.weights[w] for w in used]
    for tensor in graph.tensors:
        tensor.weight = place[tensor.weight]
    for node in graph.nodes:
        node.weight = place[node.weight]
