"""Slices that only a Squeeze reads: along the axes that this drops they have one element, or the model fails.

So their extent is known though only a run knows their bounds (lower/moving.py); the node gets these axes as ``single``.
"""

from __future__ import annotations

from collections import ChainMap, Counter

import numpy as np

from .model import Constant, Model, ModelGraph, ModelNode, reads

AXES_INPUT_SINCE, BOUNDS_INPUT_SINCE = 13, 10
"""Opsets since which the axes of a Squeeze and the bounds of a Slice are inputs."""


def mark_single(model: Model) -> None:
    """Mark such slices of the model."""
    if model.opset >= BOUNDS_INPUT_SINCE:
        _visit(model.graph, ChainMap(), model.opset)


def _visit(graph: ModelGraph, outer: ChainMap[str, Constant], opset: int) -> None:
    constants = outer.new_child(graph.constants)
    counts = Counter(port.name for port in graph.outputs)
    for node in graph.nodes:
        counts.update(reads(node))
    slices = {node.output[0]: node for node in graph.nodes if _is_moving(node, constants)}
    for node in graph.nodes:
        sliced = slices.get(node.input[0]) if node.op_type == "Squeeze" and node.input else None
        if (
            sliced is not None
            and not node.domain
            and counts[node.input[0]] == 1
            and (axes := _axes(node, constants, opset))
        ):
            sliced.attrs["single"] = axes
        for inner in node.graphs:
            _visit(inner, constants, opset)


def _is_moving(node: ModelNode, constants: ChainMap[str, Constant]) -> bool:
    """Return whether a node is a slice of which a bound is computed."""
    is_slice = node.op_type == "Slice" and not node.domain and len(node.input) > 2
    return is_slice and any(name not in constants for name in node.input[1:3])


def _axes(node: ModelNode, constants: ChainMap[str, Constant], opset: int) -> list[int]:
    """Return the axes that a Squeeze drops; none where it drops whatever has size 1, or they are computed."""
    if opset < AXES_INPUT_SINCE:
        stated = node.attrs.get("axes")
        return [int(axis) for axis in stated] if isinstance(stated, list) else []
    constant = constants.get(node.input[1]) if len(node.input) > 1 else None
    if constant is None or constant.dtype != "i64" or constant.nbytes > 512:
        return []
    return [int(axis) for axis in np.asarray(constant.source.load()).reshape(-1)]
