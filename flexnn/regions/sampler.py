"""A sampler: it walks a model before any run, over made-up numbers, and meets every segment that a run could meet.

The walk takes both branches of every If and one iteration of every Loop. Outputs of segments are made up, too (seeded),
and hosted operators compute on those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from flexnn.graph.evaluate import BYTES_MAX
from flexnn.graph.ir import DTYPES, Array, Graph, GraphError
from flexnn.graph.model import Constant, Model, ModelNode
from flexnn.graph.random_array import random_array

from .control import check_branches, truth, walked_loop
from .left import Walked
from .region import Region
from .scope import Scope, Value, is_few
from .segment import Segment
from .walk import Walker, constant_array, is_idle, is_steady, scoped


class SegmentRunner(Protocol):
    """Receiver of the segments that a walk meets."""

    def meet(self, segment: Segment, live_bytes: int) -> None:
        """Note a segment; ``live_bytes``: of the values that live beside its inputs."""
        ...


class Collects:
    """Segment runner that keeps the graphs."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []

    def meet(self, segment: Segment, live_bytes: int) -> None:
        """Keep a segment's graph."""
        self.graphs.append(segment.graph)


class MadeUpError(GraphError):
    """A hosted operator refuses made-up numbers, which says nothing about real ones."""

    read: Sequence[Constant] = ()
    """Constants that it reads."""


class Sampler(Walker):
    """Walker that goes everywhere a run could go, over made-up numbers."""

    inlines = False

    def __init__(self, model: Model, runner: SegmentRunner, region: Region | None = None) -> None:
        super().__init__(model, region)
        self._runner = runner
        self._random = np.random.default_rng(0)
        self.walked = Walked()
        """Findings about the nodes."""

    def run(self, feeds: Mapping[str, Array]) -> None:
        """Walk the model with these inputs."""
        scope = Scope({name: _value(array) for name, array in feeds.items()})
        for name, array in feeds.items():
            scope.own[name].is_steady = is_few(array.dtype, array.nbytes)
        try:
            self.walk(self.region, scope)
        finally:
            self.walked.explain(self.region)

    def walk(self, region: Region, scope: Scope) -> list[Array]:
        """Return the outputs of a region whose inputs are in ``scope``."""
        remaining = region.all
        while remaining:
            following = self.next(region, scope, remaining)
            if isinstance(following, Segment):
                self._meet(following, scope)
                remaining &= ~following.nodes
            else:
                node = region.nodes[following]
                idle, steady = is_idle(node, scope), is_steady(node, scope)
                inputs = [self._array(region, scope, name, idle) if name else None for name in node.input]
                if following in region.children:
                    arrays = self._control(node, region.children[following], scope, inputs)
                else:
                    arrays = self._computed(region, node, inputs)
                for name, array in zip(node.output, arrays, strict=False):
                    if name:
                        scope.own[name] = _value(array)
                        scope.own[name].is_steady = steady and following not in region.children
                remaining &= ~(1 << following)
            scope.keep(region.needed(remaining))
        return [self._array(region, scope, name) for name in region.outputs]

    def _computed(self, region: Region, node: ModelNode, inputs: Sequence[Array | None]) -> list[Array]:
        try:
            return self.evaluated(node, inputs)
        except MadeUpError as error:
            error.read = [region.constants[name] for name in node.input if name in region.constants]
            raise

    def evaluated(
        self,
        node: ModelNode,
        inputs: Sequence[Array | None],
        budget_bytes: int | None = BYTES_MAX,
        stated: list[int] | None = None,
    ) -> list[Array]:
        """Return the outputs of a hosted operator, none of them empty, so that the nodes behind it are met, too."""
        try:
            values = super().evaluated(node, inputs, budget_bytes, stated)
        except GraphError as error:
            raise MadeUpError(str(error)) from None
        finally:
            self.walked.compute(node, [array.shape for array in inputs if array is not None])
        return [value if value.size else np.zeros([d or 2 for d in value.shape], value.dtype) for value in values]

    def _meet(self, segment: Segment, scope: Scope) -> None:
        made: list[Value] = []
        if segment.makes:
            values = {id(scope[name]): scope[name].nbytes for name in scope if name not in segment.feeds}
            self._runner.meet(segment, sum(values.values()))
            self.walked.lower(segment.region, segment.nodes)
            outputs = segment.outputs
            made = [_value(_filled(random_array(self._random, s, DTYPES[dtype]))) for s, dtype in outputs]
        scoped(segment, scope, made)

    def _array(self, region: Region, scope: Scope, name: str, idle: bool = False) -> Array:
        if name not in scope:
            return constant_array(region.constants[name], idle=idle)
        return scope[name].numbers(name)

    def _control(
        self, node: ModelNode, bodies: Mapping[str, Region], scope: Scope, inputs: Sequence[Array | None]
    ) -> list[Array]:
        """Return the outputs of a control-flow node: walk both branches of an If, one iteration of a Loop."""
        if node.op_type == "If":
            check_branches(node, bodies)
            taken = "then_branch" if truth(node, inputs[0] if inputs else None) else "else_branch"
            return self._both(bodies, scope, taken)

        def step(body: Region, values: Mapping[str, Array]) -> list[Array]:
            return self.walk(body, Scope({name: _value(array) for name, array in values.items()}, scope))

        if node.op_type == "Loop":
            inputs = [np.array(1, np.int64), np.array(True), *inputs[2:]]
        return walked_loop(node, bodies, inputs, step, self.model.opset)

    def _both(self, bodies: Mapping[str, Region], scope: Scope, taken: str) -> list[Array]:
        """Walk both branches, one of which may not bind: some models have a branch for each sample rate. Return the
        outputs of the branch ``taken``, if it binds, else of the other.
        """
        walked: dict[str, list[Array]] = {}
        failed: list[GraphError] = []
        for name, body in bodies.items():
            try:
                walked[name] = self.walk(body, Scope({}, scope))
            except GraphError as error:
                failed.append(error)
        if not walked:
            raise next((error for error in failed if not isinstance(error, MadeUpError)), failed[0])
        return walked[taken] if taken in walked else next(iter(walked.values()))


def _filled(array: Array) -> Array:
    """``array``, or 2 where it is a single integer: one that says how many must not say none, nor one, whose sizes of 1
    broadcast.
    """
    return np.full_like(array, 2) if array.dtype.kind in "iu" and array.size == 1 else array


def _value(array: Array) -> Value:
    return Value(array.shape, array.dtype, array)
