"""Sampling: a walk through a model with open shapes before any run finds the weights that it needs, and their forms.

The walk (sampler.py) takes a few made-up shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import inf, prod
from typing import NamedTuple

import numpy as np

from flexnn.graph.ir import DTYPES, Graph, GraphError, Shape
from flexnn.graph.model import Constant, Model
from flexnn.graph.model_sources import unused_sources
from flexnn.graph.ports import Port
from flexnn.graph.random_array import random_array
from flexnn.graph.sources import ModelSource
from flexnn.graph.state import made_up_shapes

from .asked_sizes import NOTHING, Asked, asked_sizes
from .dimensions import Caches, dimension_names, shapes_at
from .left import Left, Walked
from .region import HEAVY, Nodes, Region, members
from .sampler import Collects, MadeUpError, Sampler

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
BATCHES = (4, 8)
"""Batches that are tried where a model binds at none of one."""
OWN_SIDES = 6
"""Number of sizes that are tried because the model's constants name them."""
LENGTHS_MAX = 16
"""Most elements of a vector of integers that may be lengths."""
TENSOR_MAX = 1 << 26
"""Most elements of a made-up input."""


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
    ports: Sequence[Port]
    """The inputs, without open dimensions of which the model takes one size."""
    least: Mapping[str, int]
    """Least sizes of some of the others, by their names."""
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
        self.tried: list[list[tuple[int, ...]]] = []
        """Shapes at which it was tried."""

    def walk(self, shapes: list[tuple[int, ...]], length: int | None = None) -> None:
        """Walk the model at these shapes, inputs that may be lengths being ``length``. Raises GraphError if they do not
        bind.
        """
        collects = Collects()
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
        except MadeUpError as error:
            self._keep(collects, sampler.walked)
            refused = {id(constant.source) for constant in error.read}
            _unread(source for source in unused if id(source) in refused)
            raise
        except GraphError:
            _unread(unused)
            raise
        self._keep(collects, sampler.walked)

    def _keep(self, collects: Collects, walked: Walked) -> None:
        self.graphs.extend(collects.graphs)
        self.walked.add(walked)

    def try_at(self, shapes: list[tuple[int, ...]]) -> None:
        """Walk the model at these shapes, and note whether they bind."""
        self.tried.append(shapes)
        partly = False
        for length in _lengths(self._model.graph.inputs, shapes):
            try:
                self.walk(shapes, length)
            except GraphError as error:
                partly |= isinstance(error, MadeUpError)
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
    region = Region(model.graph, precision=model.precision, only_weighs=True)
    walks, asked = _begun(model, region)
    ports = asked.stated(model.graph.inputs)
    _try_all(walks, ports, asked, region)
    if not walks.bound and asked != NOTHING:
        ports, asked = model.graph.inputs, NOTHING
        _try_all(walks, ports, asked, region)
    bound = walks.bound
    for shapes in chain.from_iterable(_batched(ports, first) for first in walks.tried[:1]):
        if not bound:
            walks.try_at(shapes)
    if not bound and not walks.partly and walks.first:
        raise walks.first
    for twice in [*filter(None, (_twice(ports, shapes) for shapes in bound))][:1]:
        with suppress(GraphError):  # rows of a batch of one are also rows of something else; layers fuse in another way
            walks.walk(twice)
    _keep_read(region, walks.walked.lowered)
    return Sampled(walks.graphs, bound, ports, asked.least, walks.walked.left(region))


def _begun(model: Model, region: Region) -> tuple[_Walks, Asked]:
    """Return the walks through a model, the likeliest shapes tried, and what the model asks of its inputs' sizes: that
    is looked for where a walk left layers with weights.
    """
    walks, ports, unused = _Walks(model, region), model.graph.inputs, unused_sources(model)
    _, shapes = next(_candidates(ports, region, NOTHING))
    walks.try_at(shapes)
    if walks.bound and walks.walked.all_lowered(region):
        return walks, NOTHING
    rows = dimension_names(ports)
    asked = asked_sizes(model, dict(zip(chain(*rows), chain(*shapes), strict=True)))
    if asked == NOTHING:
        return walks, NOTHING
    _unread(unused)  # what the walk needed was for sizes that no run has
    return _Walks(model, region), asked


def _try_all(walks: _Walks, ports: Sequence[Port], asked: Asked, region: Region) -> None:
    """Walk a model at shapes of its inputs until it binds at enough of them, with all layers that have weights."""
    bound = walks.bound
    for side, shapes in chain(_candidates(ports, region, asked), _multiplied(ports, region, walks.walked)):
        if len(bound) >= SAMPLES and walks.walked.all_lowered(region):
            break
        if shapes in walks.tried:
            continue
        if len(bound) >= SAMPLES and side in SIDES and side not in LARGER_SIDES:
            continue
        walks.try_at(shapes)
        if walks.failed == SINGLY and len(bound) < SAMPLES:
            walks.failed += 1
            for changed in _doubled(ports, bound[0]):
                if len(bound) < SAMPLES:
                    walks.try_at(changed)


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


def _batched(ports: Sequence[Port], shapes: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Iterate over these shapes with larger batches of all inputs: some models average over several rows of theirs."""
    firsts = {row[0] for row in dimension_names(ports) if len(row) > 1} - {""}
    for batch in BATCHES if firsts else ():
        yield [
            tuple(batch if name in firsts else d for name, d in zip(row, shape, strict=True))
            for row, shape in zip(dimension_names(ports), shapes, strict=True)
        ]


def _doubled(ports: Sequence[Port], shapes: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Iterate over these shapes with one open dimension of more than 1 doubled, the last ones first."""
    names = dimension_names(ports)
    sizes = {name: d for row, shape in zip(names, shapes, strict=True) for name, d in zip(row, shape, strict=True)}
    for changed in reversed([name for name, d in sizes.items() if name and d > 1]):
        yield [
            tuple(2 * d if name == changed else d for name, d in zip(row, shape, strict=True))
            for row, shape in zip(names, shapes, strict=True)
        ]


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


def _candidates(ports: Sequence[Port], region: Region, asked: Asked) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
    """Iterate over sides, the model's own last, each with the shapes of all inputs, no two the same. The first open
    dimension of an input is 1 (a batch) and the others are a side; or all are 1 but the last. The dimension of a vector
    is a side. If it is the first dimension of another input, too, it is first taken for a batch, and for a side when
    all sides were tried. Masks of a decoder are first as long as its caches and the new tokens together. Sizes below
    the least that the model takes are larger.
    """
    seen, caches = set(), Caches.of(ports)
    for is_batch in (True, False):
        for side in _sides(region):
            for only_last in (False, True):
                even = asked.roomy(_sizes(ports, side, only_last, is_batch), side)
                for sizes in (caches.summed(even), even):
                    shapes = shapes_at(ports, sizes)
                    key = tuple(shapes)
                    most = SOUND_MAX if side > SOUND_SIDE else TENSOR_MAX
                    if key not in seen and all(np.prod(shape, dtype=float) <= most for shape in shapes):
                        seen.add(key)
                        yield side, shapes


def _multiplied(ports: Sequence[Port], region: Region, walked: Walked) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
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
        shapes = shapes_at(ports, dict.fromkeys(names, side))
        if all(np.prod(shape, dtype=float) <= SOUND_MAX for shape in shapes):
            yield side, shapes


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
