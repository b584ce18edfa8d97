"""Random arrays for inputs that nobody brought and for values that are made up."""

from __future__ import annotations

import numpy as np

from .ir import Array, Shape


def random_array(generator: np.random.Generator, shape: Shape, dtype: np.dtype) -> Array:
    """Return normally distributed numbers, or zeros and ones if ``dtype`` is no float: integers may be indices."""
    if dtype.kind == "f":
        return generator.standard_normal(shape, np.float32).astype(dtype, copy=False)
    return generator.integers(0, 2, shape).astype(dtype)
