"""Random inputs for users who bring none, the same each time."""

from __future__ import annotations

from typing import Any

import numpy as np

import flexnn
from flexnn.graph.ports import Port, open_hint
from flexnn.graph.random_array import random_array

SEED = 0


def seeded() -> np.random.Generator:
    """Return the generator of all random inputs, seeded."""
    return np.random.default_rng(SEED)


def random_input(generator: np.random.Generator, argument: flexnn.NodeArg) -> np.ndarray[Any, Any]:
    """Return a random array that the input takes. Raises ValueError if its shape is open."""
    dtype = argument.numpy_dtype
    shape = [d for d in argument.shape if isinstance(d, int)]
    if len(shape) < len(argument.shape):
        raise ValueError(f"input {argument.name!r}: {open_hint(Port(argument.name, None, tuple(argument.shape)))}")
    return random_array(generator, tuple(shape), dtype)
