"""Seeded inputs on which errors are measured where nobody brought any: of several sizes where shapes are open, as an
error at other sizes than those of use may be another.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flexnn.artifact.model_section import StoredModel
from flexnn.errors import FlexNNError
from flexnn.graph.ir import DTYPES, Graph
from flexnn.graph.random_array import random_array
from flexnn.regions.dimensions import Caches, dimension_names

from .trial import Trial
from .wanted import Feed

SEEDS = 3
"""Inputs of each size."""
FACTORS = (4, 10)
"""Larger sizes of open dimensions: where the compiler tried 64 pixels or words, 256 and 640."""
ELEMENTS_MAX = 1 << 21
"""Most elements of a larger input: a colour picture of 800 by 800."""
ACTIVATIONS_MAX = 128 << 20
"""Most bytes of activations at larger sizes: a decoder of pictures makes many of few numbers."""

_Shapes = list[tuple[str, tuple[int, ...], np.dtype[np.generic]]]


def noise(contents: Graph | StoredModel, trial: Trial) -> list[Feed]:
    """Return seeded inputs; where shapes are open, of sizes at which the compiler tried the model, and of larger ones
    at which it runs.
    """
    if isinstance(contents, StoredModel):
        first, *larger = _open_shapes(contents)
        found = [first, *(each for each in larger if _runs(trial, each))]
    else:
        found = [[(name, tuple(int(d or 1) for d in shape), dtype) for name, shape, dtype in trial.inputs()]]
    return [_drawn(each, seed) for each in found for seed in range(SEEDS)]


def _drawn(each: _Shapes, seed: int) -> Feed:
    generator = np.random.default_rng(seed)
    return {name: random_array(generator, shape, dtype) for name, shape, dtype in each}


def _open_shapes(contents: StoredModel) -> Iterator[_Shapes]:
    """Iterate over shapes: those at which the compiler tried the model, then larger ones, batches as they are."""
    ports = contents.model.graph.inputs
    base = contents.sampled[0] if contents.sampled else [() for _ in ports]
    names, caches = dimension_names(ports), Caches.of(ports)
    own = {name: d for row, shape in zip(names, base, strict=True) for name, d in zip(row, shape, strict=False) if name}
    for factor in (1, *FACTORS):
        sizes = {name: d * factor if d > 1 else d for name, d in own.items()}
        sizes = caches.summed(sizes) if own == caches.summed(own) else sizes
        if factor > 1 and sizes == own:
            return
        yield [
            (port.name, tuple([sizes.get(n, d) for n, d in zip(row, s, strict=False)]), DTYPES[str(port.dtype)])
            for port, row, s in zip(ports, names, base, strict=True)
        ]


def _runs(trial: Trial, each: _Shapes) -> bool:
    """Return whether the model runs on inputs of these shapes, in what calibration may take."""
    if sum(int(np.prod(shape, dtype=float)) for _, shape, _ in each) > ELEMENTS_MAX:
        return False
    try:
        if trial.activation_bytes({name: shape for name, shape, _ in each}) > ACTIVATIONS_MAX:
            return False
        trial.outputs({}, [], [_drawn(each, 0)])
    except (FlexNNError, ValueError):
        return False
    return True
