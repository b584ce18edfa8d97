"""Tracing a model's templates before any run, at shapes at which sampling found that it binds, and at some like them.

Sizes of 1 broadcast, so each open dimension is 1 and more than 1 in turn. Equal sizes would hide which is which, so
they differ where the model binds with that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

import numpy as np

from flexnn.graph.ir import DTYPES, GraphError
from flexnn.graph.model import Constant, Model
from flexnn.graph.sources import ModelSource

from .record import Recorder
from .region import Region
from .sampling import dimension_names
from .scope import Scope, Value, is_few
from .templates import NODES_MAX, Templates, Trace

TRACES_MAX = 8
"""Most templates of a model that are traced."""
SHAPES_MAX = 16
"""Most shapes that are tried."""
STEP = 32
"""Difference of sizes that are to differ: what halves a picture five times divides it."""
LONGER = (2, 4)
"""Factors of sizes that are tried, too: a window needs several rows, of which short inputs have one."""
FEW = 9
"""Least of small sizes that are tried: what is small is computed in another order, or while binding."""
BATCH = 3
"""Least size of what is 1 elsewhere."""

Shapes = list[tuple[int, ...]]


def traces(model: Model, bound: Sequence[Shapes]) -> tuple[list[Trace], Region]:
    """Return the templates of the first stretches at shapes like those ``bound``, and the region that they name. Which
    constants count as used stays as it is.
    """
    recorder = Recorder(model)
    recorder.templates = templates = Templates(model.opset)
    templates.keeps_best = False
    found = templates.traces = []
    used = [source for source in _sources(model) if not source.used]
    for shapes in _variants(model, bound):
        if len(found) >= TRACES_MAX or sum(len(trace.template) for trace in found) > NODES_MAX:
            break
        for region in recorder.region.walk():
            for marks in (region.forced, region.hosted, region.hosted_empty, region.apart, region.walked):
                marks.clear()
        count = len(found)
        try:
            with np.errstate(all="ignore"):
                recorder.record(recorder.region, _scope(model, shapes), recorder.region.all)
        except GraphError:  # the model does not bind at these shapes
            del found[count:]
    for source in used:
        source.used = False
    return found[:TRACES_MAX], recorder.region


def _sources(model: Model) -> Iterator[ModelSource]:
    for graph in model.graph.walk():
        constants = [*graph.constants.values()]
        constants += [value for node in graph.nodes for value in node.attrs.values() if isinstance(value, Constant)]
        yield from (constant.source for constant in constants if isinstance(constant.source, ModelSource))


def _scope(model: Model, shapes: Shapes) -> Scope:
    """Return the scope of a first stretch, as a run begins it."""
    values = {}
    for port, shape in zip(model.graph.inputs, shapes, strict=True):
        dtype = DTYPES[str(port.dtype)]
        values[port.name] = Value(shape, dtype)
        values[port.name].is_steady = is_few(dtype, values[port.name].nbytes)
    return Scope(values)


def _variants(model: Model, bound: Sequence[Shapes]) -> Iterator[Shapes]:
    """Iterate over shapes, no two the same: each shape at which the model bound, smaller and larger, with a batch, and
    with each open dimension 1.
    """
    ports = model.graph.inputs
    names = dimension_names(ports)
    seen: set[tuple[tuple[int, ...], ...]] = set()
    tried = [[(base, other) for other in _changed(_sizes(names, base))] for base in bound]
    for base, other in filter(None, chain(*zip_longest(*tried))):
        shapes = [
            tuple([other[name] if name else d for name, d in zip(row, shape, strict=True)])
            for row, shape in zip(names, base, strict=True)
        ]
        if tuple(shapes) not in seen and len(seen) < SHAPES_MAX:
            seen.add(tuple(shapes))
            yield shapes


def _sizes(names: list[list[str]], shapes: Shapes) -> dict[str, int]:
    """Return the size of each open dimension, by its name."""
    pairs = chain(*(zip(row, shape, strict=True) for row, shape in zip(names, shapes, strict=True)))
    return {name: d for name, d in pairs if name}


def _changed(sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    """Iterate over sizes of open dimensions like these."""
    large = [name for name, d in sizes.items() if d > 1]
    single = [name for name, d in sizes.items() if d == 1]
    apart = {name: sizes[name] + STEP * i for i, name in enumerate(large)}
    few = {name: FEW + 2 * i for i, name in enumerate(large)}
    batch = {name: BATCH + i for i, name in enumerate(single)}
    for own in (apart, few):
        for others in ({}, batch):
            yield sizes | own | others
    for name in large:
        yield sizes | apart | batch | {name: 1}
    for own in (*({name: k * d for name, d in apart.items()} for k in LONGER), {}):
        for others in ({}, batch):
            yield sizes | own | others
    yield sizes | dict.fromkeys(single, BATCH)
    for name in large:
        yield sizes | apart | {name: 1}
