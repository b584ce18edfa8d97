"""Functions of one byte become tables of 256: whatever chain of elementwise operators stands between a restoring and a
rounding, if nothing but constants of one number goes in beside it.

The numbers of a table are what the core's scalar operators compute, so artifacts are the same on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flexnn import _core

from .. import operators
from ..build import add_array
from ..ir import Array, Graph, Node
from .byte_values import CODES, Bytes, is_rounding, steps_of
from .cleanup import cleanup

_KINDS = "unary", "binary"


class _Origin(NamedTuple):
    """Bytes that a tensor is a function of, and its values for each of them."""

    source: int
    values: Array


def tabulate(graph: Graph) -> None:
    """Replace roundings of functions of one byte by tables."""
    if not any(is_rounding(graph, node) for node in graph.nodes):
        return
    uses = Bytes(graph)
    origins: dict[int, _Origin] = {}
    for node in graph.nodes:
        made = node.outputs[0]
        if node.op == "table_u8" and graph.tensors[made].dtype == "u8" == graph.tensors[node.inputs[0]].dtype:
            _look_up(uses, node, origins)
        elif (found := uses.restored(made)) is not None:
            source, steps = found
            below = origins.get(source)
            codes = CODES if below is None else below.values
            origins[made] = _Origin(source if below is None else below.source, steps.restored(codes))
        elif node.op in _KINDS and (origin := _computed(uses, node, origins)) is not None:
            origins[made] = origin
        elif is_rounding(graph, node) and node.attrs["to"] == "u8" and node.inputs[0] in origins:
            own = steps_of(graph, node)
            if own is not None:
                origin = origins[node.inputs[0]]
                table = add_array(graph, f"{node.name}.table", own.rounded(origin.values))
                node.op, node.attrs = "table_u8", {}
                uses.feed(node, [origin.source, table])
                _look_up(uses, node, origins)
    uses.flush()
    cleanup(graph)


def _look_up(uses: Bytes, node: Node, origins: dict[int, _Origin]) -> None:
    """A table of a table is one."""
    source, table = node.inputs
    values = uses.table_of(table)
    below = origins.get(source)
    if below is not None and uses.shape(below.source) == uses.shape(source):
        values = values[below.values]
        table = add_array(uses.graph, f"{node.name}.table", values)
        source = below.source
        uses.feed(node, [source, table])
    origins[node.outputs[0]] = _Origin(source, values)


def _computed(uses: Bytes, node: Node, origins: dict[int, _Origin]) -> _Origin | None:
    """The function of one byte that an elementwise node makes of such and of single numbers."""
    shape, given, source = uses.shape(node.outputs[0]), [], -1
    for i in node.inputs:
        origin, number = origins.get(i), uses.scalar(i)
        if number is not None:
            given.append(np.array([number], np.float32))
        elif origin is None or source not in (-1, origin.source) or uses.shape(i) != shape:
            return None
        else:
            source = origin.source
            given.append(origin.values)
    return None if source < 0 else _Origin(source, _values(node, given))


def _values(node: Node, given: list[Array]) -> Array:
    """The 256 numbers that a node computes of others."""
    graph = Graph()
    inputs = [add_array(graph, "", values) for values in given]
    own = Node(node.name, node.op, inputs, [add_array(graph, "", np.zeros(256, np.float32))], dict(node.attrs))
    params = _core.encode_params(own.op, operators.encode(graph, own))
    y = np.zeros(256, np.float32)
    _core.run_op(own.op, "", params, [np.ascontiguousarray(v) for v in given], y, isa="scalar")
    return y
