"""The graph section: a Graph as JSON, and back with every value checked for type and range.

Only the section's own form is checked here (types, counts, indices); what the numbers mean together is
``reader.check_graph``'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from flexnn.graph.ir import DTYPES, Attr, Graph, Node, Tensor, Weight, contiguous_strides

from .format import ArtifactError

INT_MAX = 2**31 - 1
BYTES_MAX = 1 << 46
DIMS_MAX = 8
NAME_MAX = 4096
LIST_MAX = 64
TENSORS_MAX = 1 << 20

Row = TypeVar("Row", Tensor, Weight, Node)


def dump_graph(graph: Graph) -> bytes:
    """The section's bytes: compact JSON in ASCII; rows in the order of the fields that ``load_graph`` reads."""
    rows = {
        "tensors": [
            [t.name, t.dtype, t.shape, t.root, t.offset, None if _plain(t) else t.strides, t.weight]
            for t in graph.tensors
        ],
        "nodes": [[n.name, n.op, n.inputs, n.outputs, n.attrs, n.weight] for n in graph.nodes],
        "weights": [[w.name, w.kind, w.nbytes, w.chunk_bytes, w.offset, w.crc_first] for w in graph.weights],
        "inputs": graph.inputs,
        "outputs": graph.outputs,
    }
    return json.dumps(rows, separators=(",", ":")).encode("ascii")


def load_graph(raw: bytes) -> Graph:
    """The graph in ``raw``. Raises ArtifactError naming the row that is wrong."""
    try:
        rows = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"graph section is not JSON: {str(error)[:80]}") from None
    if not isinstance(rows, dict) or rows.keys() != {"tensors", "nodes", "weights", "inputs", "outputs"}:
        raise ArtifactError("graph section has not the five tables")
    for table in rows.values():
        if not isinstance(table, list) or len(table) > TENSORS_MAX:
            raise ArtifactError("graph section: a table is not a list, or is too long")
    graph = Graph()
    weight_count, tensor_count = len(rows["weights"]), len(rows["tensors"])
    graph.weights = _parse("weight", rows, _weight, tensor_count, weight_count)
    graph.tensors = _parse("tensor", rows, _tensor, tensor_count, weight_count)
    graph.nodes = _parse("node", rows, _node, tensor_count, weight_count)
    try:
        graph.inputs = _ints(rows["inputs"], 0, tensor_count - 1, TENSORS_MAX)
        graph.outputs = _ints(rows["outputs"], 0, tensor_count - 1, TENSORS_MAX)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"graph section: inputs or outputs: {error}") from None
    return graph


def _parse(
    kind: str, rows: dict[str, list[Any]], parse: Callable[[Any, int, int], Row], tensors: int, weights: int
) -> list[Row]:
    parsed = []
    for i, row in enumerate(rows[kind + "s"]):
        try:
            parsed.append(parse(row, tensors, weights))
        except (TypeError, ValueError) as error:
            raise ArtifactError(f"graph section: {kind} {i}: {error}") from None
    return parsed


def _plain(tensor: Tensor) -> bool:
    return tuple(tensor.strides) == contiguous_strides(tensor.shape)


def _tensor(row: Any, tensors: int, weights: int) -> Tensor:
    name, dtype, shape, root, offset, strides, weight = _row(row, 7)
    dims = tuple(_ints(shape, 0, INT_MAX, DIMS_MAX))
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError("unknown dtype")
    return Tensor(
        _name(name),
        dims,
        dtype,
        _int(root, -1, tensors - 1),
        _int(offset, 0, BYTES_MAX),
        contiguous_strides(dims) if strides is None else tuple(_ints(strides, 0, BYTES_MAX, DIMS_MAX)),
        _int(weight, -1, weights - 1),
    )


def _weight(row: Any, tensors: int, weights: int) -> Weight:
    name, kind, nbytes, chunk_bytes, offset, crc_first = _row(row, 6)
    if kind not in ("raw", "panels"):
        raise ValueError("unknown kind of weight")
    return Weight(
        _name(name),
        kind,
        _int(nbytes, 1, BYTES_MAX),
        _int(chunk_bytes, 1, BYTES_MAX),
        _int(offset, 0, BYTES_MAX),
        _int(crc_first, 0, INT_MAX),
    )


def _node(row: Any, tensors: int, weights: int) -> Node:
    name, op, inputs, outputs, attrs, weight = _row(row, 6)
    if not isinstance(op, str) or not isinstance(attrs, dict) or len(attrs) > LIST_MAX:
        raise ValueError("operator or attributes are malformed")
    return Node(
        _name(name),
        op[:64],
        _ints(inputs, 0, tensors - 1, LIST_MAX),
        _ints(outputs, 0, tensors - 1, LIST_MAX),
        {_name(key): _attr(value) for key, value in attrs.items()},
        _int(weight, -1, weights - 1),
    )


def _row(row: Any, fields: int) -> list[Any]:
    if not isinstance(row, list) or len(row) != fields:
        raise ValueError(f"not a row of {fields} fields")
    return row


def _int(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError("a number is missing or out of range")
    return value


def _ints(values: Any, low: int, high: int, most: int) -> list[int]:
    if not isinstance(values, list) or len(values) > most:
        raise ValueError("not a list, or too long")
    return [_int(value, low, high) for value in values]


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > NAME_MAX:
        raise ValueError("a name is not text, or too long")
    return value


def _attr(value: Any) -> Attr:
    if type(value) in (int, float):
        if type(value) is int and not -BYTES_MAX <= value <= BYTES_MAX:
            raise ValueError("an attribute is out of range")
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        return _name(value)
    return _ints(value, -INT_MAX - 1, INT_MAX, LIST_MAX)
