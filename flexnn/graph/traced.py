"""Making templates: a graph of sizes and their trail become a template (graph/template.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flexnn import _core

from . import operators
from .ir import Array, Graph, Node, Weight
from .late import Late
from .settled import settled_panels
from .sizes import Trail, is_size
from .sources import depends
from .template import NodeRow, Template


def make_template(trail: Trail, graph: Graph) -> Template:
    """Return the template of a graph. The trail is closed. Raises SizeError."""
    return _Maker(trail).template(graph)


class _Maker:
    """Maker of one template."""

    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._lists: dict[tuple[int, ...], int] = {}

    def template(self, graph: Graph) -> Template:
        """Return the template."""
        index = self._trail.index
        tensors = [
            (t.name, self._list(t.shape), t.dtype, t.root, index(t.offset), self._list(t.strides), t.weight)
            for t in graph.tensors
        ]
        nodes = [self._without_sizes(node) for node in graph.nodes]
        weights = [self._late(weight) for weight in graph.weights]
        packed = self._packed(graph)
        replay = self._trail.replay()
        lists = list(self._lists)
        return Template(replay, lists, tensors, nodes, weights, list(graph.inputs), list(graph.outputs), *packed)

    def _list(self, numbers: Sequence[int]) -> int:
        indices = tuple(map(self._trail.index, numbers))
        return self._lists.setdefault(indices, len(self._lists))

    def _without_sizes(self, node: Node) -> NodeRow:
        """Return a node without its sizes; of its attributes, which are sizes, or lists with such."""
        found: dict[str, int | list[int]] = {}
        for name, value in node.attrs.items():
            if is_size(value):
                found[name] = [self._trail.index(value)]
            elif isinstance(value, list) and any(map(is_size, value)):
                found[name] = self._list(value)
        attrs = {name: 0 if name in found else value for name, value in node.attrs.items()}
        return NodeRow(node.name, node.op, list(node.inputs), list(node.outputs), attrs, node.weight, found)

    def _late(self, weight: Weight) -> tuple[Weight, int, Late | None]:
        """Return a weight, the index of its bytes, and what makes its numbers where they depend on sizes."""
        if weight.panels is not None:
            weight = replace(weight, panels=settled_panels(weight.panels))
        if not depends(weight.source):
            return replace(weight, nbytes=int(weight.nbytes), chunk_bytes=int(weight.chunk_bytes)), 0, None
        make = weight.source.late(self._trail.indices)  # type: ignore[union-attr]
        known = replace(weight, source=None, nbytes=0, chunk_bytes=int(weight.chunk_bytes))
        return known, self._trail.index(weight.nbytes), make

    def _packed(self, graph: Graph) -> tuple[Array, Array, Array]:
        """Return the parameters of all nodes, and which words of them are sizes: integers and floats."""
        rows: list[Array] = []
        whole: list[tuple[int, int, int]] = []
        floats: list[tuple[int, int, int]] = []
        for i, node in enumerate(graph.nodes):
            if isinstance(node.params, np.ndarray):
                rows.append(node.params)
                continue
            fields: Mapping[str, Any] = node.params or operators.encode(graph, node)
            words = [(k, self._trail.index(v)) for k, v in enumerate(map(fields.get, _names(node.op))) if is_size(v)]
            plain: dict[str, Any] = {name: getattr(value, "value", value) for name, value in fields.items()}
            rows.append(_core.encode_params(node.op, plain))
            for k, index in words:
                (floats if _core.FIELDS[node.op][k][1] else whole).append((i, k, index))
        packed = np.stack(rows) if rows else np.zeros((0, _core.PARAM_WORDS), np.int32)
        sizes, singles = (np.array(found, np.int32).reshape(-1, 3).T.copy() for found in (whole, floats))
        return packed, sizes, singles


def _names(op: str) -> list[str]:
    """Return the names of an operator's fields, in order."""
    return [name for name, _ in _core.FIELDS[op]]
