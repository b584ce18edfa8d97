"""Wishes for the weights: a form, or an error that they may cause."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flexnn.graph.ir import Array

Feed = Mapping[str, Array]
"""Arrays of a model's inputs, by name."""
FIXED = ("f32", "f16", "s8", "q4")
"""Forms that can be asked for."""


class Wanted(NamedTuple):
    """A form for all weights that may be narrowed, or an error up to which they are narrowed."""

    form: str = "f32"
    """One of FIXED; "": whatever keeps the error."""
    error: float = 0.0
    """Relative L2 of the worst output against f32; with ``form`` "" only."""
    feeds: tuple[Feed, ...] = ()
    """Inputs to measure errors on; (): seeded noise."""

    def __str__(self) -> str:
        return self.form or f"auto:{self.error:g}"


def parse_wanted(weights: str, calibrate: Feed | Sequence[Feed] | None = None) -> Wanted:
    """Read ``f32``, ``f16``, ``s8``, ``q4`` or ``auto:ERROR``, and inputs to measure errors on. Raises ValueError."""
    given = () if calibrate is None else (calibrate,) if isinstance(calibrate, Mapping) else tuple(calibrate)
    feeds = tuple({name: np.asarray(values) for name, values in feed.items()} for feed in given)
    if weights in FIXED:
        return Wanted(weights, 0.0, feeds)
    kind, _, number = weights.partition(":")
    try:
        error = float(number) if kind == "auto" else math.nan
    except ValueError:
        error = math.nan
    if not 0 < error < 1:
        raise ValueError(f"weights {weights!r}: expected {', '.join(FIXED)}, or auto:ERROR with an error like 1e-2")
    return Wanted("", error, feeds)
