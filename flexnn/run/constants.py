"""Constants of a segment that the artifact does not hold: small ones, and those made while binding. They become parts
of new inputs of the graph, one input for each type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from flexnn.artifact.model_section import weight_key
from flexnn.graph.ir import DTYPES, Array, Graph, Tensor
from flexnn.graph.replay import Numbers
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
        made = []
        for number, (dtype, tensors) in enumerate(self._groups()):
            if any(template.is_late(i) for i in tensors):
                made.append(_packed([template.constant(i, numbers) for i in tensors], dtype))
            else:
                made.append(self._arrays[number])
        return made

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
        nbytes, offsets = template.extents(numbers)
        more = []
        elements: dict[int, int] = {}
        for dtype, tensors in self._groups():
            size = DTYPES[dtype].itemsize
            elements |= {i: int(nbytes[i]) // size for i in tensors}
            more.append(_places([elements[i] for i in tensors], dtype)[1] * size)
        for i, (number, at) in self._placed(elements).items():
            offsets[i] += at * DTYPES[self._dtypes[number]].itemsize
        params = template.params(numbers)
        assert params is not None
        added = np.array(more, np.int64)
        return Sizes(params, np.concatenate((nbytes, added)), np.concatenate((offsets, np.zeros_like(added))))

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
