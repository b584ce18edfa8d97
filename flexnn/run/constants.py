"""Constants of a segment that the artifact does not hold: small ones, and those made while binding. They become parts
of new inputs of the graph, one input for each type.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from weakref import ref

import numpy as np

from flexnn import _core
from flexnn.artifact.model_section import weight_key
from flexnn.graph.ir import DTYPES, Array, Graph, GraphError, Tensor, Weight
from flexnn.graph.late import numbers_read
from flexnn.graph.like_template import LikeTemplate
from flexnn.graph.likeness import Likeness, Skeleton
from flexnn.graph.replay import Folded, Numbers
from flexnn.graph.template import Template
from flexnn.planning.refit import Sizes
from flexnn.planning.types import LINE


class Packing:
    """Which constants of a graph, and of all graphs of its template, lie in which new input. ``tensors``: type, root
    and weight of each; ``keys``: key of each weight, None where the artifact does not hold it.
    """

    def __init__(self, tensors: Sequence[tuple[str, int, int]], keys: Sequence[str | None]) -> None:
        self._tensors, self._keys = tensors, keys
        kept = {i: dtype for i, (dtype, _, weight) in enumerate(tensors) if weight >= 0 and keys[weight] is None}
        self._dtypes = sorted(set(kept.values()))
        self._kept = [[i for i, own in kept.items() if own == dtype] for dtype in self._dtypes]
        """Constants of each type."""
        self._views = {i: root for i, (_, root, _) in enumerate(tensors) if root in kept}
        """Constants of which other tensors are a part, by the other."""
        self._places: tuple[Array, Array, Array] | None = None
        """Arrays that ``_core.trail_pack`` takes, once ``sizes`` was asked."""
        self._read: list[Array | None] | None = None
        """Indices of the numbers that decide each new input, once ``arrays_at`` was asked; None: it has one value."""
        self._last: dict[int, tuple[bytes, ref[Array]]] = {}
        """The new inputs that depend on sizes, as they were made last, and the numbers that decided them."""
        self._arrays: dict[int, Array] = {}
        """New inputs that are the same always, once they were made."""

    @staticmethod
    def of(graph: Graph) -> Packing:
        """Return the packing of a graph."""
        tensors = [(tensor.dtype, tensor.root, tensor.weight) for tensor in graph.tensors]
        return Packing(tensors, list(map(weight_key, graph.weights)))

    @staticmethod
    def of_template(template: Template) -> Packing:
        """Return the packing of all graphs of a template."""
        template = template.complete
        tensors = [(dtype, root, weight) for _, _, dtype, root, _, _, weight in template.tensors]
        keys = [weight_key(weight) if make is None else None for weight, _, make in template.known]
        return Packing(tensors, keys)

    def told(self, template: LikeTemplate) -> Packing:
        """Return the packing of a template that is told by the one of this packing: the same constants in its order."""
        made, roots = Packing([], []), template.find_columns()[3]
        made._dtypes, made._arrays, made._last, made._read = self._dtypes, self._arrays, self._last, self._read
        if self._places is None:
            self._places = self._found_places()
        members, ends = template.likeness.order[self._places[0]], self._places[1]
        is_kept = np.zeros(len(roots), np.bool_)
        is_kept[members] = True
        parts = np.flatnonzero(is_kept[roots] & (roots != np.arange(len(roots))))
        pairs = np.stack((parts, roots[parts]), axis=1).astype(np.int32)
        made._places, made._views = (members.astype(np.int32), ends, pairs), dict(pairs.tolist())
        flat: list[int] = members.tolist()
        made._kept = [flat[first:end] for first, end in pairwise([0, *ends.tolist()])]
        return made

    def fitting(self, graph: Graph) -> Packing:
        """Return this. Raises GraphError where a graph has other constants."""
        own = Packing.of(graph)
        if self._dtypes != own._dtypes or list(map(sorted, self._kept)) != own._kept or self._views != own._views:
            raise GraphError("a stored template has other constants than it is told by")
        return self

    def likeness(self, template: LikeTemplate) -> Likeness:
        """Return the likeness of the graphs that ``apply`` makes of those of a template to those of the one that tells
        it, which has as many new inputs.
        """
        found, count = template.likeness, len(template.find_columns()[2])
        return found._replace(order=np.append(found.order, np.arange(count, count + len(self._dtypes))))

    def skeleton(self, template: Template, stored: Callable[[str], Weight]) -> Skeleton:
        """Return the skeleton of the graphs that ``apply`` makes of those of a template; ``stored``: the artifact's
        weight with a key.
        """
        known: list[Hashable] = [None] * len(self._keys)
        for i, key in enumerate(self._keys):
            if key is not None:
                found = stored(key)
                known[i] = found.offset, template.known[i][0].nbytes, found.chunk_bytes
        count = len(self._tensors)
        roots = [i if root < 0 else root for i, (_, root, _) in enumerate(self._tensors)]
        for number, tensors in enumerate(self._kept):
            for i in tensors:
                roots[i] = count + number
        for i, root in self._views.items():
            roots[i] = roots[root]
        new = range(count, count + len(self._dtypes))
        held = [None if weight < 0 else known[weight] for _, _, weight in self._tensors] + [None] * len(new)
        dtypes = [dtype for dtype, _, _ in self._tensors] + self._dtypes
        nodes = [(n.op, None if n.weight < 0 else known[n.weight], n.inputs, n.outputs) for n in template.nodes]
        kinds: list[Hashable] = [(dtype, held[root]) for dtype, root in zip(dtypes, [*roots, *new], strict=True)]
        return Skeleton.of(nodes, [*template.inputs, *new], template.outputs_at, [*roots, *new], kinds)

    def arrays(self, graph: Graph) -> list[Array]:
        """Return the arrays of the new inputs for a graph that has not got them yet."""
        made = [_packed([_loaded(graph, i) for i in tensors], dtype) for dtype, tensors in self._groups()]
        if not self._arrays:
            self._arrays = dict(enumerate(made))
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
                if number not in self._arrays:
                    self._arrays[number] = _packed([template.constant(i, numbers) for i in tensors], dtype)
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
        if self._places is None:
            self._places = self._found_places()
        nbytes, offsets = template.extents(numbers, len(self._dtypes))
        _core.trail_pack(*self._places, nbytes, offsets)
        params = template.params(numbers)
        assert params is not None
        return Sizes(params, nbytes, offsets)

    def _found_places(self) -> tuple[Array, Array, Array]:
        """Return all constants, where those of each new input end among them, and parts of them with the whole."""
        ends = np.cumsum([len(tensors) for tensors in self._kept], dtype=np.int32)
        parts = np.array(list(self._views.items()), np.int32)
        return np.array(list(chain.from_iterable(self._kept)), np.int32), ends, parts

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
