"""Tied weights: tables whose rows a Gather picks and which a product reads, too, as rows of its weight.

Such a table is stored once, in the panels that the product reads; picking rows out of panels costs little. What is tied
is a fact of the whole model, so that every segment of it finds the same weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from .model import Constant, Model, ModelGraph, ModelNode
from .sources import ModelSource

BYTES_MIN = 1 << 20
"""Fewest bytes of a tied table in float32: below, transposed constants are made anew while binding (graph/fold.py)."""
COLUMNS_MIN, COLUMNS_MAX = 64, 16 << 10
"""Fewest and most elements of a row: a panel of them is the chunk that is read for one row."""

_VIEWS = {"Identity", "Transpose", "Cast", "DequantizeLinear"}
"""Operators whose output is a table in other words: the same numbers, in other places or wider."""


class _View(NamedTuple):
    constant: Constant
    is_transposed: bool


def mark_tied(model: Model) -> None:
    """Mark the sources of the model's tied tables."""
    gathered: set[int] = set()
    multiplied: set[int] = set()
    _visit(model.graph, {}, gathered, multiplied)
    for graph in model.graph.walk():
        for constant in graph.constants.values():
            if isinstance(constant.source, ModelSource):
                constant.source.is_tied = id(constant.source) in gathered & multiplied


def _visit(graph: ModelGraph, outer: Mapping[str, _View], gathered: set[int], multiplied: set[int]) -> None:
    views = dict(outer)
    views.update((name, _View(constant, False)) for name, constant in graph.constants.items() if _may_tie(constant))
    scaled = _scaled(graph)
    for node in graph.nodes:
        first = views.get(node.input[0]) if node.input else None
        if first is not None and node.op_type in _VIEWS:
            views[node.output[0]] = first._replace(is_transposed=first.is_transposed != (node.op_type == "Transpose"))
        elif first is not None and not first.is_transposed and node.op_type == "Gather" and not node.attrs.get("axis"):
            gathered.add(id(first.constant.source))
        second = views.get(node.input[1]) if len(node.input) > 1 else None
        if second is not None and _reads_rows(node, second.is_transposed) and not scaled.intersection(node.output):
            multiplied.add(id(second.constant.source))
        for inner in node.graphs:
            _visit(inner, views, gathered, multiplied)


def _may_tie(constant: Constant) -> bool:
    if (
        constant.dtype not in ("f32", "f16", "i8", "u8")
        or len(constant.shape) != 2
        or 4 * prod(constant.shape) <= BYTES_MIN
    ):
        return False
    return COLUMNS_MIN <= constant.shape[1] < COLUMNS_MAX


def _reads_rows(node: ModelNode, is_transposed: bool) -> bool:
    """Return whether a product's second operand, a view of a table, has the table's rows as its columns."""
    if node.op_type == "MatMul":
        return is_transposed
    plain = node.op_type == "Gemm" and node.attrs.get("alpha", 1.0) == 1.0 and not any(node.input[2:])
    return plain and bool(node.attrs.get("transB", 0)) != is_transposed


def _scaled(graph: ModelGraph) -> set[str]:
    """Return values that meet a constant, which may become a part of the weight: its panels are no other's then."""
    found: set[str] = set()
    for node in graph.nodes:
        if node.op_type in ("Add", "Sub", "Mul", "Div") and not graph.constants.keys().isdisjoint(node.input):
            found.update(node.input)
    return found
