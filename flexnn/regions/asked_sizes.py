"""Sizes that a model asks of the open dimensions of its inputs: a product with a weight takes so many columns and no
others, a window at least so many rows.

Nodes are bound over sizes that write down what is done to them (graph/sizes.py). Where one does not bind, its last
comparisons say what it asks. The size of one dimension at which such a comparison comes out the other way, whatever
the other dimensions are, is taken, and binding begins again.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from flexnn.graph.bind import Binder
from flexnn.graph.ir import Array, GraphError
from flexnn.graph.model import Model, ModelNode
from flexnn.graph.model_sources import unused_sources
from flexnn.graph.ports import Port
from flexnn.graph.sizes import Function, SizeError, Trail, computed_of_arrays
from flexnn.graph.state import made_up_shapes

from .dimensions import dimension_names, shapes_at
from .region import HEAVY

APART = 5
"""Difference between the sizes of two open dimensions, so that one is not taken for the other."""
SIZE_MAX = 1 << 12
"""Largest size that is looked for."""
OTHERS = (0, 1, 2, 7)
"""Numbers that are added to all other dimensions, in turn: one dimension is asked for the same with each."""
ATTEMPTS_MAX = 64
"""Most times that binding begins."""
NODES_MAX = 1 << 14
"""Most nodes that are bound, over all attempts."""
LATEST = 4
"""Number of a node's last comparisons that may say what it asks."""
ROOM = 2
"""Sizes are that many times the least that a window takes, or more: what follows needs rows, too."""


class Asked(NamedTuple):
    """Sizes that a model asks of open dimensions, by their names."""

    exact: dict[str, int]
    """Sizes that some node takes no others than; it may take some, of which this is the least."""
    least: dict[str, int]
    """Sizes below which some node does not bind."""

    def stated(self, ports: Sequence[Port]) -> Sequence[Port]:
        """Return the inputs with the exact sizes stated."""
        if not self.exact:
            return ports
        return [
            port._replace(dims=tuple([self.exact.get(n, d) for n, d in zip(row, port.dims or (), strict=True)]))
            for port, row in zip(ports, dimension_names(ports), strict=True)
        ]

    def roomy(self, sizes: Mapping[str, int], side: int) -> dict[str, int]:
        """Return sizes, those that are below the least with room instead, or ``side`` where that is more."""
        least = self.least
        return {n: d if d >= least.get(n, d) else max(ROOM * least[n], side) for n, d in sizes.items()}


NOTHING = Asked({}, {})


class _Comparison(NamedTuple):
    """A comparison of two numbers of a trail."""

    function: Function
    a: int
    b: int
    outcome: bool

    @property
    def is_exact(self) -> bool:
        """Whether it asks whether they are equal."""
        return self.function is operator.eq


class _Kind(Enum):
    """Sense in which a size is asked for."""

    EXACT = "just that"
    LEAST = "that or more"
    MOST = "that or less"


class _Answer(NamedTuple):
    """Size of one dimension at which a node may bind."""

    name: str
    size: int
    kind: _Kind


class _Failure(NamedTuple):
    """A node that does not bind."""

    node: int
    trail: Trail
    givens: dict[str, int]
    """Index of each open dimension in the trail."""
    made: dict[int, tuple[Function, int, int]]
    """Operation that makes each other number of the trail, by its index."""
    asked: list[_Comparison]
    """The node's comparisons, the last ones first."""
    before: list[_Comparison]
    """Those of the nodes before it that say which of two numbers is less."""
    takes_one: bool
    """Whether it is a layer with weights, which may ask for a size of 1; elsewhere such a size broadcasts."""

    def is_behind(self, other: _Failure) -> bool:
        """Return whether more was bound than where another one occurred."""
        return self.node > other.node or (self.node == other.node and self.asked[0] != other.asked[0])

    def answers(self) -> Iterator[_Answer]:
        """Iterate over answers: to the last comparisons first, and by the last dimensions."""
        for comparison in self.asked:
            for name in reversed(self.givens):
                sizes = self._sizes(comparison, name)
                if not len(sizes):
                    continue
                least, most = int(sizes[0]), int(sizes[np.argmax(np.append(np.diff(sizes) > 1, True))])
                if least == self.first and least < most < SIZE_MAX:
                    yield _Answer(name, most, _Kind.MOST)
                else:
                    yield _Answer(name, least, _Kind.EXACT if comparison.is_exact else _Kind.LEAST)

    @property
    def first(self) -> int:
        """The least size that is tried."""
        return 1 if self.takes_one else 2

    def _sizes(self, comparison: _Comparison, name: str) -> Array:
        """Return the sizes of one dimension at which the comparison comes out the other way whatever the others are;
        those at which the comparisons before it come out as they did, if there are any.
        """
        sizes = np.arange(self.first, SIZE_MAX + 1)
        try:
            for more in OTHERS:
                sizes = sizes[self._outcomes(comparison, name, sizes, more) != comparison.outcome]
            best = sizes
            for earlier in self.before if len(sizes) else ():
                best = best[self._outcomes(earlier, name, best, 0) == earlier.outcome]
        except OverflowError:  # numbers of the file that numpy's do not hold: no size helps
            return sizes[:0]
        return best if len(best) else sizes

    def _outcomes(self, comparison: _Comparison, name: str, sizes: Array, more: int) -> Array:
        """Return the outcomes of a comparison at sizes of one dimension; ``more`` is added to the others."""
        known = {i: sizes if own == name else self.trail.values[i] + more for own, i in self.givens.items()}
        a, b = (self._number(known, index) for index in (comparison.a, comparison.b))
        return np.broadcast_to(np.asarray(comparison.function(a, b), np.bool_), sizes.shape)

    def _number(self, known: dict[int, Any], wanted: int) -> Any:
        """Return a number of the trail, and add to those ``known`` what it is made of."""
        waiting = [wanted]
        while waiting:
            index = waiting[-1]
            missing = [] if index in known else [i for i in self.made.get(index, ())[1:] if i not in known]
            if not missing and index not in known:
                function, *operands = self.made.get(index, (None,))
                numbers = [known[i] for i in operands]
                known[index] = computed_of_arrays(function, *numbers) if function else self.trail.values[index]
            waiting = waiting + missing if missing else waiting[:-1]
        return known[wanted]


class _Attempts:
    """Attempts to bind a model's nodes at sizes of its open dimensions."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.left, self._nodes_left = ATTEMPTS_MAX, NODES_MAX
        self.refused: set[int] = set()
        """Nodes that bind at no size that was tried."""

    def bind(self, sizes: Mapping[str, int]) -> _Failure | None:
        """Return the first node that does not bind, but might at other sizes; None: there is none, or too many were
        bound.
        """
        self.left -= 1
        trail, ports = Trail(), self._model.graph.inputs
        binder = Binder(self._model.opset, in_run=True)
        binder.constants = self._model.graph.constants
        given = {name: trail.given(size) for name, size in sizes.items()}
        try:
            for port, shape in zip(ports, shapes_at(ports, given), strict=True):
                binder.add_input(port.name, shape, str(port.dtype))
        except GraphError:
            return None
        try:
            return self._bound(binder, trail, {name: size.index for name, size in given.items()})
        finally:
            trail.forget()

    def _bound(self, binder: Binder, trail: Trail, givens: dict[str, int]) -> _Failure | None:
        for i, node in enumerate(self._model.graph.nodes):
            if any(name and binder.value(name) is None for name in node.input):
                continue
            self._nodes_left -= 1
            if self._nodes_left < 0:
                return None
            counts = len(trail.conditions), len(trail.idle)
            try:
                binder.add(node)
            except (SizeError, TypeError):
                continue  # it computes with sizes in a way that is not known
            except GraphError:
                failure = _failure(i, node, trail, givens, counts)
                if failure.asked and i not in self.refused:
                    return failure
        return None


def _failure(i: int, node: ModelNode, trail: Trail, givens: dict[str, int], counts: tuple[int, int]) -> _Failure:
    """Return the failure of a node before which the trail had so many conditions and idle comparisons."""
    made = {result: (function, a, b) for function, a, b, result in trail.operations}
    takes_one = node.op_type in HEAVY

    def is_question(comparison: _Comparison) -> bool:
        """Return whether a comparison does not only take a number, as messages do, nor ask what broadcasts."""
        if not comparison.is_exact or comparison.b in made or comparison.b in trail.givens:
            return True
        return not comparison.outcome and (takes_one or trail.values[comparison.b] != 1)

    own = []
    for found, count in zip((trail.conditions, trail.idle), counts, strict=True):
        met = [_Comparison(*key, outcome) for key, outcome in islice(found.items(), count, None)]
        own += [comparison for comparison in met if is_question(comparison)][: -LATEST - 1 : -1]
    before = [_Comparison(*key, outcome) for key, outcome in islice(trail.conditions.items(), counts[0])]
    return _Failure(i, trail, givens, made, own, [c for c in before if not c.is_exact], takes_one)


def asked_sizes(model: Model, sizes: Mapping[str, int]) -> Asked:
    """Return what a model asks of the open dimensions of its inputs; ``sizes``: what they are before anything asks for
    another size, by their names. Which constants count as used stays as it is.
    """
    taken = {name: d + APART * i if d > 1 else d for i, (name, d) in enumerate(sizes.items()) if name}
    asked = Asked({}, {})
    attempts = _Attempts(model)
    unused = unused_sources(model)
    try:
        with made_up_shapes(), np.errstate(all="ignore"):
            failure = attempts.bind(taken)
            while failure is not None and attempts.left > 0:
                failure = _answered(attempts, failure, taken, asked)
    finally:
        for source in unused:
            source.used = False
    return asked


def _answered(attempts: _Attempts, failure: _Failure, sizes: dict[str, int], asked: Asked) -> _Failure | None:
    """Find sizes at which the node of a failure binds, and note what it asks; return the next failure."""
    for name, size, kind in failure.answers():
        if attempts.left <= 0:
            return None
        if name in asked.exact or (kind is not _Kind.EXACT and (size < sizes[name]) == (kind is _Kind.LEAST)):
            continue
        taken = max(size * ROOM, sizes[name]) if kind is _Kind.LEAST else size
        following = attempts.bind(sizes | {name: taken})
        if following is None or following.is_behind(failure):
            if kind is _Kind.EXACT and size > 1:  # where something is cut off at a size, smaller ones are taken, too
                smaller = attempts.bind(sizes | {name: size - 1})
                kind = _Kind.MOST if smaller is None or smaller.is_behind(failure) else kind
            sizes[name] = taken
            if kind is not _Kind.MOST:
                (asked.exact if kind is _Kind.EXACT else asked.least)[name] = size
            return following
    attempts.refused.add(failure.node)
    return attempts.bind(sizes) if attempts.left > 0 else None
