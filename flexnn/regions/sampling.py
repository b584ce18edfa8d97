"""Sampling: a walk through a model with open shapes before any run finds the weights that it needs, and their forms.

The walk takes a few made-up shapes, both branches of every If and one iteration of every Loop. Outputs of segments are
made up, too (seeded), and hosted operators compute on those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import inf, prod
from typing import NamedTuple, Protocol

import numpy as np

from flexnn.graph.evaluate import BYTES_MAX
from flexnn.graph.ir import DTYPES, Array, Graph, GraphError, Shape
from flexnn.graph.model import Constant, Model, ModelNode
from flexnn.graph.model_sources import unused_sources
from flexnn.graph.ports import Port
from flexnn.graph.random_array import random_array
from flexnn.graph.sources import ModelSource
from flexnn.graph.state import made_up_shapes

from .control import check_branches, truth, walked_loop
from .left import Left, Walked
from .region import HEAVY, Nodes, Region, members
from .scope import Scope, Value, is_few
from .segment import Segment
from .walk import Walker, constant_array, is_idle, is_steady, scoped

SIDES = (64, 96, 32, 16, 128, 224, 8, 256, 512, 1, 1024, 3, 4096, 16000, 65536)
"""Sizes that are tried for an open dimension, in order."""
LARGER_SIDES = (256, 512, 1024, 4096, 16000, 65536)
"""Sizes that are tried as well while some layer was lowered at no shape: its window may be larger than those."""
SOUND_SIDE = 2048
"""Larger sizes are tried for inputs that stay below ``SOUND_MAX`` elements: some windows hold a second of sound, which
frames of a hundredth of it divide."""
SOUND_MAX = 1 << 17
SAMPLES = 2
"""Number of shapes at which the model has to bind, if it can; the larger sides, and a batch of two, come on top."""
SINGLY = 2
"""Shapes that fail after the first that binds until that one is tried with each dimension doubled: some are fixed."""
BODY_BYTES = 512
"""Most bytes of constants of bodies that are kept always: at other shapes a slice may be a gather."""
OWN_SIDES = 6
"""Number of sizes that are tried because the model's constants name them."""
LENGTHS_MAX = 16
"""Most elements of a vector of integers that may be lengths."""
TENSOR_MAX = 1 << 26
"""Most elements of a made-up input."""


class SegmentRunner(Protocol):
    """Receiver of the segments that a walk meets."""

    def meet(self, segment: Segment, live_bytes: int) -> None:
        """Note a segment; ``live_bytes``: of the values that live beside its inputs."""
        ...


class _Collects:
    """Segment runner that keeps the graphs."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []

    def meet(self, segment: Segment, live_bytes: int) -> None:
        self.graphs.append(segment.graph)


class _MadeUpError(GraphError):
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
        except _MadeUpError as error:
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
            raise _MadeUpError(str(error)) from None
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
            raise next((error for error in failed if not isinstance(error, _MadeUpError)), failed[0])
        return walked[taken] if taken in walked else next(iter(walked.values()))


def _filled(array: Array) -> Array:
    """``array``, or 2 where it is a single integer: one that says how many must not say none, nor one, whose sizes of 1
    broadcast.
    """
    return np.full_like(array, 2) if array.dtype.kind in "iu" and array.size == 1 else array


def _value(array: Array) -> Value:
    return Value(array.shape, array.dtype, array)


def _unread(sources: Iterable[ModelSource]) -> None:
    """Let constants count as unused: reading them at shapes that do not bind says nothing of others."""
    for source in sources:
        source.used = False


class Sampled(NamedTuple):
    """Segments and shapes that the walks met."""

    graphs: list[Graph]
    """The graphs of all segments."""
    shapes: list[list[tuple[int, ...]]]
    """Shapes of all inputs at which the model bound."""
    left: list[Left]
    """Layers that were in none of them."""


class _Walks:
    """Walks through a model at shapes, one after the other, and what they found."""

    def __init__(self, model: Model, region: Region) -> None:
        self._model, self._region = model, region
        self.graphs: list[Graph] = []
        self.walked = Walked()
        """Findings about the nodes."""
        self.bound: list[list[tuple[int, ...]]] = []
        """Shapes at which the model bound."""
        self.first: GraphError | None = None
        """Why the first shapes that did not bind did not."""
        self.partly = 0
        """Shapes that failed for a made-up number."""
        self.failed = 0
        """Shapes that failed after some that bound."""

    def walk(self, shapes: list[tuple[int, ...]], length: int | None = None) -> None:
        """Walk the model at these shapes, inputs that may be lengths being ``length``. Raises GraphError if they do not
        bind.
        """
        collects = _Collects()
        random = np.random.default_rng(0)
        feeds = {
            port.name: random_array(random, shape, DTYPES[str(port.dtype)])
            for port, shape in zip(self._model.graph.inputs, shapes, strict=True)
        }
        if length is not None:
            feeds |= {n: np.full_like(x, length) for n, x in feeds.items() if _may_be_length(x.dtype, x.shape)}
        sampler, unused = Sampler(self._model, collects, self._region), unused_sources(self._model)
        try:
            with made_up_shapes():
                self._region.unmark()
                sampler.run(feeds)
        except _MadeUpError as error:
            self._keep(collects, sampler.walked)
            refused = {id(constant.source) for constant in error.read}
            _unread(source for source in unused if id(source) in refused)
            raise
        except GraphError:
            _unread(unused)
            raise
        self._keep(collects, sampler.walked)

    def _keep(self, collects: _Collects, walked: Walked) -> None:
        self.graphs.extend(collects.graphs)
        self.walked.add(walked)

    def try_at(self, shapes: list[tuple[int, ...]]) -> None:
        """Walk the model at these shapes, and note whether they bind."""
        partly = False
        for length in _lengths(self._model.graph.inputs, shapes):
            try:
                self.walk(shapes, length)
            except GraphError as error:
                partly |= isinstance(error, _MadeUpError)
                self.first = self.first or error.with_traceback(None)  # whose frames hold all that was computed
            else:
                self.bound.append(shapes)
                return
        self.partly += partly
        self.failed += bool(self.bound)


def sample(model: Model) -> Sampled:
    """Walk a model. Mark constants that other nodes than those of segments read as used, since numpy may have to
    compute those nodes. Raises the first GraphError if no shape binds.
    """
    region, ports = Region(model.graph, precision=model.precision), model.graph.inputs
    walks = _Walks(model, region)
    bound = walks.bound
    for side, shapes in chain(_candidates(ports, region), _asked(ports, region, walks.walked)):
        if len(bound) >= SAMPLES and walks.walked.all_lowered(region):
            break
        if len(bound) >= SAMPLES and side in SIDES and side not in LARGER_SIDES:
            continue
        walks.try_at(shapes)
        if walks.failed == SINGLY and len(bound) < SAMPLES:
            walks.failed += 1
            for changed in _doubled(ports, bound[0]):
                if len(bound) < SAMPLES:
                    walks.try_at(changed)
    if not bound and not walks.partly and walks.first:
        raise walks.first
    for twice in [*filter(None, (_twice(ports, shapes) for shapes in bound))][:1]:
        with suppress(GraphError):  # rows of a batch of one are also rows of something else; layers fuse in another way
            walks.walk(twice)
    _keep_read(region, walks.walked.lowered)
    return Sampled(walks.graphs, bound, walks.walked.left(region))


def _may_be_length(dtype: np.dtype, shape: Shape) -> bool:
    """Return whether an input may say how long others are, each of a batch."""
    return dtype.kind in "iu" and len(shape) < 2 and prod(shape) <= LENGTHS_MAX


def _lengths(ports: Sequence[Port], shapes: list[tuple[int, ...]]) -> list[int | None]:
    """Return what inputs that may be lengths are tried with: made-up numbers (None), then the largest open size, as
    masks of such lengths fit nothing else.
    """
    names = dimension_names(ports)
    sizes = [d for row, shape in zip(names, shapes, strict=True) for name, d in zip(row, shape, strict=True) if name]
    pairs = zip(ports, shapes, strict=True)
    is_length = any(_may_be_length(DTYPES[str(port.dtype)], shape) for port, shape in pairs)
    return [None, max(sizes)] if is_length and sizes else [None]


def _keep_read(region: Region, lowered: Mapping[str, Nodes]) -> None:
    """Mark constants that numpy may read: of nodes that were in no segment, and small ones of bodies."""
    for inner in region.walk():
        _keep_numbers(inner, inner.all & ~lowered.get(inner.path, 0))
        if inner.path:
            _keep_numbers(inner, inner.all, BODY_BYTES)


def _keep_numbers(region: Region, nodes: Nodes, most: float = inf) -> None:
    """Mark constants of at most so many bytes, which these nodes read, as used."""
    for i in members(nodes):
        attributes = [value for value in region.nodes[i].attrs.values() if isinstance(value, Constant)]
        read = [region.constants[name] for name in region.nodes[i].input if name in region.constants]
        for constant in (*attributes, *read):
            assert isinstance(constant.source, ModelSource)
            constant.source.used |= constant.nbytes <= most


def _twice(ports: Sequence[Port], shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return these shapes with a batch of two, or none if no input has an open batch of one."""
    batches = {dimension_names(ports)[i][0] for i, shape in enumerate(shapes) if len(shape) > 1 and shape[0] == 1}
    found = [
        tuple(2 if name and name in batches else d for name, d in zip(names, shape, strict=True))
        for names, shape in zip(dimension_names(ports), shapes, strict=True)
    ]
    return found if found != shapes else []


def _doubled(ports: Sequence[Port], shapes: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Iterate over these shapes with one open dimension of more than 1 doubled, the last ones first."""
    names = dimension_names(ports)
    sizes = {name: d for row, shape in zip(names, shapes, strict=True) for name, d in zip(row, shape, strict=True)}
    for changed in reversed([name for name, d in sizes.items() if name and d > 1]):
        yield [
            tuple(2 * d if name == changed else d for name, d in zip(row, shape, strict=True))
            for row, shape in zip(names, shapes, strict=True)
        ]


def dimension_names(ports: Sequence[Port]) -> list[list[str]]:
    """Return the names of the dimensions of each input; dimensions of one name have one size, "" is a known size."""
    return [
        ["" if isinstance(d, int) else d or f"{port.name}/{i}" for i, d in enumerate(port.dims or ())] for port in ports
    ]


class Caches(NamedTuple):
    """Open dimensions of a decoder that takes its caches of keys and values from its caller, by their names."""

    held: list[str]
    """Dimensions that inputs of three or more dimensions share behind their first one."""
    tokens: str | int
    """Dimension of the new tokens, the last one of the first matrix of integers, or their number; 0: it is unknown."""
    totals: list[str]
    """Last dimensions of further such matrices, which no other input has: they may count what is held and new."""

    @classmethod
    def of(cls, ports: Sequence[Port]) -> Caches:
        """Return those of a model with these inputs."""
        names = dimension_names(ports)
        inner = [name for row in names if len(row) > 2 for name in set(row[1:]) - {""}]
        held = sorted({name for name in inner if inner.count(name) > 1})
        rows = [(row, port) for row, port in zip(names, ports, strict=True) if _is_of_tokens(row, port)]
        if not held or not rows:
            return cls(held, 0, [])
        first, port = rows[0]
        last = port.dims[-1] if port.dims else 0
        tokens = first[-1] or (last if isinstance(last, int) else 0)
        others = {name for row in names for name in row[:-1]} | {r[-1] for r in names if len(r) not in (0, 2)}
        totals = dict.fromkeys(row[-1] for row, _ in rows[1:])
        return cls(held, tokens, [name for name in totals if name not in {"", tokens, *held, *others}])

    def summed(self, sizes: dict[str, int]) -> dict[str, int]:
        """Return sizes in which each total is what is held and new together, where there is one kind of cache."""
        if len(self.held) != 1 or not self.tokens:
            return sizes
        new = self.tokens if isinstance(self.tokens, int) else sizes[self.tokens]
        return sizes | dict.fromkeys(self.totals, sizes[self.held[0]] + new)


def _is_of_tokens(row: Sequence[str], port: Port) -> bool:
    return len(row) == 2 and port.dtype in ("i64", "i32", "bool")


def _own_sides(region: Region) -> list[int]:
    """Return sizes that the model's integers name most often: exporters leave those of their example in masks."""
    counted = Counter[int]()
    for inner in region.walk():
        for constant in inner.graph.constants.values():
            if DTYPES[constant.dtype].kind not in "iu" or not isinstance(constant.source, ModelSource):
                continue
            counted.update(constant.shape[-1:])
            if prod(constant.shape) <= LENGTHS_MAX:
                counted.update(int(n) for n in np.ravel(constant.source.base.load()))
    named = [n for n, _ in counted.most_common() if 1 < n <= max(SIDES) and n not in SIDES]
    return named[:OWN_SIDES]


def _sides(region: Region) -> Iterator[int]:
    """Iterate over sizes that are tried. The model's own are looked for when no other is left."""
    yield from SIDES
    yield from _own_sides(region)


def _candidates(ports: Sequence[Port], region: Region) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
    """Iterate over sides, the model's own last, each with the shapes of all inputs, no two the same. The first open
    dimension of an input is 1 (a batch) and the others are a side; or all are 1 but the last. The dimension of a vector
    is a side. If it is the first dimension of another input, too, it is first taken for a batch, and for a side when
    all sides were tried. Masks of a decoder are first as long as its caches and the new tokens together.
    """
    seen, caches = set(), Caches.of(ports)
    for is_batch in (True, False):
        for side in _sides(region):
            for only_last in (False, True):
                even = _sizes(ports, side, only_last, is_batch)
                for sizes in (caches.summed(even), even):
                    shapes = _shapes(ports, sizes)
                    key = tuple(shapes)
                    most = SOUND_MAX if side > SOUND_SIDE else TENSOR_MAX
                    if key not in seen and all(np.prod(shape, dtype=float) <= most for shape in shapes):
                        seen.add(key)
                        yield side, shapes


def _asked(ports: Sequence[Port], region: Region, walked: Walked) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
    """Iterate over sizes that the weights of layers in no segment multiply, each with the shapes of all inputs in which
    every open dimension has that size, or an equal part of it: layers multiply several inputs behind each other, too.
    """
    counted = Counter[int]()
    for node, inner in walked.others(region):
        weights = [inner.constants[name].shape for name in node.input if name in inner.constants]
        counted.update(d for shape in weights if node.op_type in HEAVY and len(shape) > 1 for d in shape[-2:])
    names = {name for row in dimension_names(ports) for name in row} - {""}
    parts = [d // n for d, _ in counted.most_common() for n in {1, len(names)} if n and d % n == 0]
    for side in [*dict.fromkeys(d for d in parts if d <= max(SIDES))][:OWN_SIDES]:
        shapes = _shapes(ports, dict.fromkeys(names, side))
        if all(np.prod(shape, dtype=float) <= SOUND_MAX for shape in shapes):
            yield side, shapes


def _shapes(ports: Sequence[Port], sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return the shapes of all inputs at these sizes of their open dimensions."""
    return [
        tuple([sizes[n] if n else int(d or 0) for n, d in zip(row, port.dims or (), strict=True)])
        for row, port in zip(dimension_names(ports), ports, strict=True)
    ]


def _sizes(ports: Sequence[Port], side: int, only_last: bool, is_batch: bool) -> dict[str, int]:
    """Return the size of each open dimension, by its name."""
    large, firsts, alone = set(), set(), set()
    for names in dimension_names(ports):
        last = len(names) - 1 if only_last else 0
        for i, name in enumerate(names):
            if len(names) == 1:
                alone.add(name)
            elif i and i >= last:
                large.add(name)
            else:
                firsts.add(name)
    large |= alone - firsts if is_batch else alone
    return {name: side if name in large else 1 for name in large | firsts | alone}
