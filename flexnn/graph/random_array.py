"""Random arrays for inputs that nobody brought and for values that are made up."""

from __future__ import annotations

from math import prod

import numpy as np

from .ir import Array, Shape
from .ledger import current

_AT_ONCE = 1 << 20
"""Numbers that are drawn in one call, which no signal interrupts."""


def random_array(generator: np.random.Generator, shape: Shape, dtype: np.dtype) -> Array:
    """Return normally distributed numbers, or zeros and ones if ``dtype`` is no float: integers may be indices."""
    ledger = current()
    if ledger is not None:
        ledger.reserve(prod(shape) * dtype.itemsize, f"a value of shape {list(shape)} that is made up to try the model")
    made = np.empty(shape, dtype)
    flat = made.reshape(-1)
    for first in range(0, flat.size, _AT_ONCE):
        part = flat[first : first + _AT_ONCE]
        if dtype == np.float32:
            generator.standard_normal(dtype=np.float32, out=part)  # another array would count against a budget
        elif dtype.kind == "f":
            part[:] = generator.standard_normal(part.size, np.float32)
        else:
            part[:] = generator.integers(0, 2, part.size)
    if ledger is not None:
        ledger.add([made])
    return made
