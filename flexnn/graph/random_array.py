"""Random arrays for inputs that nobody brought and for values that are made up."""

from __future__ import annotations

from math import prod

import numpy as np

from .ir import Array, Shape
from .ledger import current


def random_array(generator: np.random.Generator, shape: Shape, dtype: np.dtype) -> Array:
    """Return normally distributed numbers, or zeros and ones if ``dtype`` is no float: integers may be indices."""
    ledger = current()
    if ledger is not None:
        ledger.reserve(prod(shape) * dtype.itemsize, f"a value of shape {list(shape)} that is made up to try the model")
    if dtype.kind == "f":
        made = generator.standard_normal(shape, np.float32).astype(dtype, copy=False)
    else:
        made = generator.integers(0, 2, shape).astype(dtype)
    if ledger is not None:
        ledger.add([made])
    return made
