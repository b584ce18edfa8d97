"""Artifacts whose sessions keep state without being asked to."""

from __future__ import annotations

from flexnn.errors import CompileError
from flexnn.graph.ir import Graph
from flexnn.graph.state import KV_CAPACITY_MAX
from flexnn.graph.stateful import stateful

from .model_section import StoredModel


def keep_state(contents: Graph | StoredModel, capacity: int, source: str) -> None:
    """Have sessions of an artifact keep state of so many tokens where they ask for no other number. Raises
    CompileError, GraphError where the model has no past keys and values, ValueError.
    """
    if not 1 <= capacity <= KV_CAPACITY_MAX:
        raise ValueError(f"kv_capacity is {capacity}; it must be from 1 to {KV_CAPACITY_MAX}")
    if not isinstance(contents, StoredModel):
        raise CompileError(f"{source}: its shapes are fixed, so it keeps no state: leave kv_capacity out")
    stateful(contents.model, capacity, "f16")
    contents.kv_capacity = capacity
