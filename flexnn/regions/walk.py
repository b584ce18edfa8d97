"""Walking a model: segments, hosted operators and control flow run as soon as their inputs are there.

numpy computes a node (a hosted operator) if no lowering takes it, or if its inputs are a few integers: shapes, bounds,
counters. All other nodes are lowered, as many at once as are ready. Values between these parts are arrays, which are
dropped after their last reader. Segments are kept by the shapes that they are bound to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from flexnn.graph.evaluate import EVALUATORS
from flexnn.graph.fold import evaluate_node
from flexnn.graph.ir import ALL_DTYPES, Array, GraphError
from flexnn.graph.lower import LOWERINGS
from flexnn.graph.model import Model, ModelNode

from .control import loop, scan, truth
from .region import Nodes, Region, members
from .segment import Segment, build_segment, leave

SMALL_BYTES = 4 << 10
"""Most bytes of integers that numpy computes: it takes less time than to start a program."""
VARIANTS_MAX = 4
"""Most segments for the same shapes. Beyond, nodes whose numbers make the segments differ are left to numpy."""
KEPT_NODES_MAX = 2048
"""Most internal nodes of all kept segments; beyond, the segments used longest ago are dropped."""
HEAVY = {"Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger", "LSTM", "GRU", "RNN"}
"""Operators that numpy never computes only because their inputs are small."""

LACKING = "the artifact does not hold its weights in the form that these shapes need; compile the model with --shape"

Key = tuple[object, ...]


class SegmentRunner(Protocol):
    """The computer of segments that a walk is given."""

    def run_segment(self, segment: Segment, inputs: Sequence[Array], live_bytes: int) -> list[Array]:
        """Return the segment's outputs. ``live_bytes``: of the values that live meanwhile, its inputs among them."""
        ...

    def lacking(self, segment: Segment) -> set[str]:
        """Return the names of the segment's nodes whose weights it cannot have."""
        ...

    def forget(self, segment: Segment) -> None:
        """Drop what belongs to a segment."""
        ...


class Scope(Mapping[str, Array]):
    """Values of one region that are there, and those of the regions around it."""

    def __init__(self, values: dict[str, Array], outer: Scope | None = None) -> None:
        self.own = values
        self.outer = outer
        self.settled: set[str] = set()
        """Own values that no input reaches, so that they are the same in each run at these shapes."""
        self.steady: set[str] = set()
        """Own values that only shapes and small integers from the caller decide."""

    def __getitem__(self, name: str) -> Array:
        if name in self.own:
            return self.own[name]
        if self.outer is None:
            raise KeyError(name)
        return self.outer[name]

    def __contains__(self, name: object) -> bool:
        return name in self.own or (self.outer is not None and name in self.outer)

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        if self.outer is not None:
            yield from self.outer

    def __len__(self) -> int:
        return len(self.own) + (len(self.outer) if self.outer is not None else 0)

    def is_settled(self, name: str) -> bool:
        """Return whether no input reaches the value."""
        scope = self if name in self.own else self.outer
        return scope is not None and (name in scope.settled if scope is self else scope.is_settled(name))

    def is_steady(self, name: str) -> bool:
        """Return whether only shapes and small integers from the caller decide the value."""
        scope = self if name in self.own else self.outer
        return scope is not None and (name in scope.steady if scope is self else scope.is_steady(name))

    def keep(self, names: frozenset[str]) -> None:
        """Drop the region's own values except these."""
        for name in [name for name in self.own if name not in names]:
            del self.own[name]

    @property
    def nbytes(self) -> int:
        """Bytes of all values, each array counted once."""
        arrays = {id(self[name]): self[name].nbytes for name in self}
        return sum(arrays.values())


class Walker:
    """Walker of a model, whose segments ``runner`` runs. Raises GraphError where a node cannot be computed, and what
    ``runner`` raises.
    """

    inlines = True
    """Whether branches whose condition is known while binding are lowered with the nodes around them."""

    def __init__(self, model: Model, runner: SegmentRunner) -> None:
        self.model = model
        self.runner = runner
        self.region = Region(model.graph)
        self.hosted: dict[str, int] = {}
        """Operators that numpy computed in the last run, and how often."""
        self._kept: dict[tuple[Region, Nodes, Key], list[Segment]] = {}

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the model's outputs, in its order, for all its inputs."""
        self.hosted = {}
        scope = Scope(dict(feeds))
        scope.steady.update(n for n, x in feeds.items() if x.dtype.kind in "iub" and x.nbytes <= SMALL_BYTES)
        return self.walk(self.region, scope)

    def walk(self, region: Region, scope: Scope) -> list[Array]:
        """Return the outputs of a region whose inputs are in ``scope``."""
        remaining = region.all
        while remaining:
            done = self._host(region, scope, remaining) or self._segment(region, scope, remaining)
            done = done or self._host(region, scope, remaining)  # what the segment left to numpy
            done = done or self._control(region, scope, remaining)
            if not done:
                node = region.nodes[next(members(remaining))]
                raise GraphError(f"{node.where}: its inputs cannot be computed")
            remaining &= ~done
            scope.keep(region.needed(remaining))
        return [self._value(region, scope, name) for name in region.outputs]

    def _value(self, region: Region, scope: Mapping[str, Array], name: str, idle: bool = False) -> Array:
        """Return a value's numbers; if they do not matter (``idle``), those of a constant are zeros without memory."""
        if name in scope:
            return scope[name]
        constant = region.constants[name]
        if idle:
            return np.broadcast_to(np.zeros((), ALL_DTYPES[constant.dtype]), constant.shape)
        return np.asarray(constant.source.load()).reshape(constant.shape)

    # ---- hosted operators ----

    def _host(self, region: Region, scope: Scope, remaining: Nodes) -> Nodes:
        """Compute the hosted operators that are ready, in order; return them."""
        done: Nodes = 0
        for i in members(remaining):
            node = region.nodes[i]
            if node.op_type not in EVALUATORS or node.domain or not self._hosted(region, scope, i):
                continue
            empty = node.op_type in HEAVY and any(name in scope and not scope[name].size for name in node.input)
            inputs = [self._value(region, scope, name, empty) if name else None for name in node.input]
            values = self.evaluated(node, inputs)
            self.hosted[node.op_type] = self.hosted.get(node.op_type, 0) + 1
            scope.own.update((name, v) for name, v in zip(node.output, values, strict=False) if name)
            if node.op_type in ("Shape", "Size") or all(scope.is_steady(n) for n in node.input if n in scope):
                scope.steady.update(node.output)
            done |= 1 << i
        return done

    def evaluated(self, node: ModelNode, inputs: Sequence[Array | None]) -> list[Array]:
        """Return the outputs of a hosted operator."""
        return evaluate_node(node, inputs, self.model.opset)

    def _hosted(self, region: Region, scope: Scope, i: int) -> bool:
        """Return whether the inputs of a node are there and numpy is to compute it."""
        node = region.nodes[i]
        if not all(name in scope.own for name in region.awaits[i]):
            return False
        names = [name for name in node.input if name]
        given = [scope[name] for name in names if name in scope]
        if i in region.hosted or not given:
            return i in region.hosted  # without given values it is a constant, which binding folds
        if node.op_type not in LOWERINGS and node.op_type not in ("Shape", "Size"):
            return True
        if any(not array.size for array in given):
            return True
        if node.op_type in HEAVY or any(array.dtype.kind not in "iub" for array in given):
            return False
        size = sum(array.nbytes for array in given)
        return size + sum(region.constants[n].nbytes for n in names if n not in scope) <= SMALL_BYTES

    # ---- segments ----

    def _segment(self, region: Region, scope: Scope, remaining: Nodes) -> Nodes:
        """Run the segment of the remaining nodes; return its nodes."""
        segment = self._bound(region, scope, remaining)
        if segment.makes:
            outputs = self.runner.run_segment(segment, [scope[name] for name in segment.feeds], scope.nbytes)
            scope.own.update(zip(segment.makes, outputs, strict=True))
        scope.own.update(segment.constants)
        scope.settled.update(segment.constants)
        scope.own.update((name, scope[other]) for name, other in segment.aliases.items())
        return segment.nodes

    def _bound(self, region: Region, scope: Scope, remaining: Nodes) -> Segment:
        names = sorted(name for name in region.needed(remaining) if name in scope)
        shapes: Key = tuple((name, scope[name].dtype.str, scope[name].shape) for name in names)
        key = (region, remaining, shapes)
        kept = self._kept[key] = self._kept.pop(key, [])  # the one used last is at the end
        for segment in kept:
            if segment.matches(scope):
                return segment
        if len(kept) >= VARIANTS_MAX:
            self._leave_to_numpy(region, kept)
        while True:
            is_steady = scope.is_steady if self.inlines else None
            segment = build_segment(region, remaining, scope, scope.is_settled, is_steady, self.model.opset)
            lacking = self.runner.lacking(segment)
            if lacking and segment.inlined:
                region.apart.update(members(segment.inlined))
                continue
            if not lacking:
                kept.append(segment)
                self.trim(KEPT_NODES_MAX)
                return segment
            for i in members(segment.nodes):
                node = region.nodes[i]
                if (node.name or node.output[0]) in lacking:
                    leave(region, i, GraphError(f"{node.where}: {LACKING}"))

    @property
    def kept_nodes(self) -> int:
        """Internal nodes of all kept segments."""
        return sum(len(segment.graph.nodes) for kept in self._kept.values() for segment in kept)

    def trim(self, nodes: int) -> None:
        """Drop the segments used longest ago until the rest have at most ``nodes`` nodes. Those used last stay."""
        for key in list(self._kept)[:-1]:
            if self.kept_nodes <= nodes:
                return
            for segment in self._kept.pop(key):
                self.runner.forget(segment)

    def _leave_to_numpy(self, region: Region, kept: list[Segment]) -> None:
        """Let numpy compute from now on, where it can, the nodes whose numbers made the kept segments differ."""
        names = {name for segment in kept for name in segment.consumed}
        for segment in kept:
            self.runner.forget(segment)
        kept.clear()
        region.apart.update(i for i in region.children if names & region.reads[i])
        for i, node in enumerate(region.nodes):
            if names.intersection(node.input) and node.op_type in EVALUATORS and node.op_type not in HEAVY:
                region.hosted.add(i)

    # ---- control flow ----

    def _control(self, region: Region, scope: Scope, remaining: Nodes) -> Nodes:
        """Run the first control-flow node that is ready; return it."""
        for i in members(remaining):
            if i not in region.children or not all(n in scope or n in region.constants for n in region.reads[i]):
                continue
            node = region.nodes[i]
            if node.op_type == "If" and not {"then_branch", "else_branch"} <= region.children[i].keys():
                raise GraphError(f"{node.where}: a branch is missing")
            inputs = [self._value(region, scope, name) if name else None for name in node.input]
            outputs = self.control(node, region.children[i], scope, inputs)
            scope.own.update((name, value) for name, value in zip(node.output, outputs, strict=False) if name)
            return 1 << i
        return 0

    def control(
        self, node: ModelNode, bodies: Mapping[str, Region], scope: Scope, inputs: Sequence[Array | None]
    ) -> list[Array]:
        """Return the outputs of a control-flow node."""
        if node.op_type == "If":
            chosen = bodies["then_branch" if truth(node, inputs[0] if inputs else None) else "else_branch"]
            return self.walk(chosen, Scope({}, scope))
        if node.op_type in ("Loop", "Scan") and "body" in bodies:
            body = bodies["body"]

            def step(values: Sequence[Array]) -> list[Array]:
                names = [port.name for port in body.graph.inputs]
                if len(names) != len(values):
                    raise GraphError(f"{node.where}: the body takes {len(names)} inputs but gets {len(values)}")
                return self.walk(body, Scope(dict(zip(names, values, strict=True)), scope))

            return loop(node, inputs, step) if node.op_type == "Loop" else scan(node, inputs, step, self.model.opset)
        raise GraphError(f"{node.where}: this control flow is not supported")
