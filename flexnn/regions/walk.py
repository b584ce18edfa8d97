"""Walking a region: the next part is a hosted operator, a segment or a control-flow node whose inputs are there.

numpy computes a node (a hosted operator) if no lowering takes it. All other nodes are lowered, as many at once as are
ready.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexnn.graph.evaluate import BYTES_MAX, EVALUATORS
from flexnn.graph.evaluate.of_node import evaluate_node
from flexnn.graph.ir import DTYPES, Array, GraphError
from flexnn.graph.lower import LOWERINGS
from flexnn.graph.model import Constant, Model, ModelNode

from .region import HEAVY, Nodes, Region, members
from .scope import Scope, Value
from .segment import Segment, build_segment, leave
from .templates import Templates

LACKING = "the artifact does not hold its weights in the form that these shapes need; compile the model with --shape"


class Walker:
    """Walker of a model. Raises GraphError where a node cannot be computed."""

    inlines = True
    """Whether branches whose condition is known while binding are lowered with the nodes around them."""

    templates: Templates | None = None
    """Templates that segments of other shapes come from; None: each segment is bound."""

    def __init__(self, model: Model, region: Region | None = None) -> None:
        """``region``: that of the whole model, if it is known."""
        self.model = model
        self.region = region or Region(model.graph, precision=model.precision)
        self._unlowered: dict[Region, Nodes] = {}
        """Nodes of each region that numpy computes because no lowering takes them."""

    def lacking(self, segment: Segment) -> set[str]:
        """Return the names of the segment's nodes whose weights cannot be had."""
        return set()

    def next(self, region: Region, scope: Scope, remaining: Nodes) -> Segment | int:
        """Return a segment of the remaining nodes, or the number of a node: a hosted operator, or one with bodies."""
        hosted = self._ready_hosted(region, scope, remaining)
        if hosted is not None:
            return hosted
        segment = self._segment(region, scope, remaining)
        if segment.nodes:
            return segment
        hosted = self._ready_hosted(region, scope, remaining)  # what the segment left to numpy
        if hosted is not None:
            return hosted
        for i in members(remaining):
            if i in region.children and all(n in scope or n in region.constants for n in region.reads[i]):
                return i
        node = region.nodes[next(members(remaining))]
        raise GraphError(f"{node.where}: its inputs cannot be computed")

    def host_if_light(self, region: Region, i: int, names: set[str]) -> None:
        """Leave a node that reads any of ``names`` to numpy, if numpy can compute it in little time."""
        node = region.nodes[i]
        if names.intersection(node.input) and node.op_type in EVALUATORS and node.op_type not in HEAVY:
            region.hosted.add(i)

    def evaluated(
        self,
        node: ModelNode,
        inputs: Sequence[Array | None],
        budget_bytes: int | None = BYTES_MAX,
        stated: list[int] | None = None,
    ) -> list[Array]:
        """Return the outputs of a hosted operator, computed in at most ``budget_bytes`` (None: no limit); ``stated``
        receives how many it takes, in parts. Raises MemoryNeededError before it takes more.
        """
        return evaluate_node(node, inputs, self.model.opset, budget_bytes, stated)

    def _ready_hosted(self, region: Region, scope: Scope, remaining: Nodes) -> int | None:
        candidates = self._unlowered.get(region)
        if candidates is None:
            lowered = LOWERINGS.keys() | {"Shape", "Size"}
            hosted = (i for i, node in enumerate(region.nodes) if node.op_type not in lowered and is_evaluated(node))
            candidates = sum(1 << i for i in hosted)
            self._unlowered[region] = candidates
        for i in region.hosted | region.hosted_empty:
            candidates |= 1 << i
        for i in members(remaining & candidates):
            if is_evaluated(region.nodes[i]) and self._is_hosted(region, scope, i):
                return i
        return None

    def _is_hosted(self, region: Region, scope: Scope, i: int) -> bool:
        """Return whether the inputs of a node are there and numpy is to compute it."""
        node = region.nodes[i]
        if not all(name in scope.own for name in region.awaits[i]):
            return False
        given = [scope[name] for name in node.input if name and name in scope]
        if i in region.hosted or not given:
            return i in region.hosted  # without given values it is a constant, which binding folds
        if node.op_type not in LOWERINGS and node.op_type not in ("Shape", "Size"):
            return True
        return i in region.hosted_empty and any(not value.size for value in given)

    def _segment(self, region: Region, scope: Scope, remaining: Nodes) -> Segment:
        while True:
            is_steady = scope.is_steady if self.inlines else None
            if self.templates is not None:
                segment = self.templates.segment(region, remaining, scope, scope.is_settled, is_steady)
            else:
                segment = build_segment(region, remaining, scope, scope.is_settled, is_steady, self.model.opset)
            lacking = self.lacking(segment)
            if not lacking:
                return segment
            if segment.inlined:
                region.apart.update(members(segment.inlined))
                continue
            lack = [i for i in members(segment.nodes) if _reads_any(region, region.nodes[i], lacking)]
            if not lack:
                raise GraphError(f"{min(lacking)}: {LACKING}")
            for i in lack:
                leave(region, i, GraphError(f"{region.nodes[i].where}: {LACKING}"))


def is_evaluated(node: ModelNode) -> bool:
    """Return whether numpy can compute a node."""
    return node.op_type in EVALUATORS and not node.domain


def _reads_any(region: Region, node: ModelNode, weights: set[str]) -> bool:
    """Return whether a node reads one of these weights: they have its name, or that of its constant."""
    if (node.name or node.output[0]) in weights:
        return True
    return any(name in region.constants for name in weights.intersection(node.input))


def constant_array(constant: Constant, *, idle: bool = False) -> Array:
    """Return a constant's numbers; if they do not matter (``idle``), zeros without memory."""
    if idle:
        return np.broadcast_to(np.zeros((), DTYPES[constant.dtype]), constant.shape)
    return np.asarray(constant.source.load()).reshape(constant.shape)


def is_idle(node: ModelNode, scope: Scope) -> bool:
    """Return whether a node's constants do not matter, as another operand is empty."""
    return node.op_type in HEAVY and any(name in scope and not scope[name].size for name in node.input)


def is_steady(node: ModelNode, scope: Scope) -> bool:
    """Return whether a node's outputs are steady."""
    given = [scope[name] for name in node.input if name and name in scope]
    return node.op_type in ("Shape", "Size") or all(value.is_steady for value in given)


def scoped(segment: Segment, scope: Scope, made: Sequence[Value]) -> None:
    """Put into the scope what a segment makes, what it found out while binding, and other names of values."""
    feeds = [scope[name] for name in segment.feeds]
    for value in made:
        value.is_steady = all(feed.is_steady for feed in feeds)
    scope.own.update(zip(segment.makes, made, strict=True))
    for name, array in segment.constants.items():
        scope.own[name] = Value(array.shape, array.dtype, array, is_settled=True, is_steady=True)
    scope.own.update((name, scope[other]) for name, other in segment.aliases.items())
