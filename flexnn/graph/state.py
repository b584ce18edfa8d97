"""Names of what keeps state in models (docs/decisions/0053-state.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Model

ATTENTION = "flexnn.CachedAttention"
CROSS = "flexnn.CrossAttention"
"""Attention over keys and values that are made once for many runs."""
ONCE = "flexnn.KeptOnce"
"""Maker of these."""
CROSS_LENGTH = "cross_length"
"""Input that says how many rows they have, int64 [1]."""
LENGTHS = "flexnn.PastLengths"
"""Operator that passes its first input on, where a past is as long as it says."""
LENGTH = "state_length"
"""Input that says how many rows the state has before a run, int64 [1]."""
CAPACITY = 1024
"""Rows of state where nothing says how many."""
KV_CAPACITY_MAX = 1 << 24
WIDTHS = (32, 8, 1)
"""Numbers of new tokens that the programs of a session take, the largest first."""


_MADE_UP: ContextVar[bool] = ContextVar("made_up", default=False)


@contextmanager
def made_up_shapes() -> Iterator[None]:
    """Have binding not compare lengths: shapes are made up, so a mask is not as long as the past and the new tokens."""
    before = _MADE_UP.set(True)
    try:
        yield
    finally:
        _MADE_UP.reset(before)


def are_shapes_made_up() -> bool:
    """Return whether shapes are made up now."""
    return _MADE_UP.get()


def has_state(model: Model) -> bool:
    """Return whether the model keeps state without being asked to."""
    return any(node.op_type == ATTENTION for node in model.graph.nodes)
