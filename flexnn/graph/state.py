"""Names of what keeps state in models (docs/decisions/0053-state.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Model

ATTENTION = "flexnn.CachedAttention"
LENGTH = "state_length"
"""Input that says how many rows the state has before a run, int64 [1]."""
CAPACITY = 1024
"""Rows of state where nothing says how many."""


def has_state(model: Model) -> bool:
    """Return whether the model keeps state without being asked to."""
    return any(node.op_type == ATTENTION for node in model.graph.nodes)
