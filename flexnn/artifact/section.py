"""The graph section: a Graph as JSON, and back with every value checked for type and range.

This module checks the form of the section only: types, counts, indices. ``reader.check_graph`` checks what the numbers
mean together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from marshal import dumps
from sys import intern
from typing import TYPE_CHECKING, Any, TypeVar

from flexnn.graph.attributes import INT_MAX, int_in, ints_in, name_of, row_of
from flexnn.graph.ir import DTYPES, RANK_MAX, Attr, Graph, Node, Tensor, Weight, contiguous_strides

from .format import ArtifactError

if TYPE_CHECKING:
    from .parts import Make

BYTES_MAX = 1 << 46
LIST_MAX = 64
TENSORS_MAX = 1 << 20
PARSED_BYTES_MAX = 512 << 20
"""Most bytes of memory that a section may take as Python's objects: some 100,000 nodes. A section of nothing but
brackets would take 25 times its size.
"""

ROWS = {
    "tensors": ("name", "dtype", "shape", "root", "offset", "strides", "weight"),
    "nodes": ("name", "op", "inputs", "outputs", "attrs", "weight"),
    "weights": ("name", "kind", "nbytes", "chunk_bytes", "offset", "crc_first"),
}
"""The fields of each table's rows, in order."""
TABLES = {*ROWS, "inputs", "outputs"}
"""The parts of a graph section."""

Row = TypeVar("Row", Tensor, Weight, Node)


def dump_graph(graph: Graph) -> bytes:
    """Return the bytes of the section: compact JSON in ASCII."""
    tensors = [_fields(tensor, "tensors") for tensor in graph.tensors]
    strides = ROWS["tensors"].index("strides")
    for tensor, row in zip(graph.tensors, tensors, strict=True):
        if _plain(tensor):
            row[strides] = None
    rows = {
        "tensors": tensors,
        "nodes": [_fields(node, "nodes") for node in graph.nodes],
        "weights": dump_weights(graph.weights),
        "inputs": graph.inputs,
        "outputs": graph.outputs,
    }
    import json

    return json.dumps(rows, separators=(",", ":")).encode("ascii")


def dump_weights(weights: list[Weight]) -> list[list[Any]]:
    """Return the rows of the table of weights."""
    return [_fields(weight, "weights") for weight in weights]


def _fields(item: Tensor | Node | Weight, table: str) -> list[Any]:
    return [getattr(item, name) for name in ROWS[table]]


def load_json(
    raw: bytes, keys: set[str], what: str, may: Collection[str] = (), each: Mapping[str, Make] | None = None
) -> dict[str, Any]:
    """Read the JSON object in ``raw``, which must have these keys, and no others but those it ``may`` have. ``each``:
    what is made of the rows of tables (``load_parts``). Raises ArtifactError.
    """
    from flexnn.graph.parsed import parsed_bytes  # importing flexnn does without

    from .parts import load_parts

    if parsed_bytes(raw) > PARSED_BYTES_MAX:
        most = f"at most {PARSED_BYTES_MAX >> 20} MiB are read"
        raise ArtifactError(f"the {what} section would take {parsed_bytes(raw) >> 20} MiB of memory; {most}")
    try:
        rows = load_parts(raw, each or {})
    except ArtifactError:
        raise
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"the {what} section is not JSON: {str(error)[:80]}") from None
    if not isinstance(rows, dict) or rows.keys() - set(may) != keys:
        raise ArtifactError(f"the {what} section must have the parts {', '.join(sorted(keys))}")
    return rows


def check_tables(rows: dict[str, Any], names: set[str], what: str) -> None:
    """Check that these parts are lists no longer than any model needs. Raises ArtifactError."""
    for name in names:
        if not isinstance(rows[name], list) or len(rows[name]) > TENSORS_MAX:
            raise ArtifactError(f"the {what} section: {name} is not a list, or is too long")


def load_weights(rows: list[Any]) -> list[Weight]:
    """Read the table of weights. Raises ArtifactError, which names the row that is wrong."""
    return list(map(_rows("weight", _weight), range(len(rows)), rows))


def load_graph(raw: bytes) -> Graph:
    """Read the graph in ``raw``. Raises ArtifactError, which names the row that is wrong."""
    shared = _Shared()
    each = {
        "tensors": _rows("tensor", shared.tensor),
        "nodes": _rows("node", shared.node),
        "weights": _rows("weight", _weight),
    }
    rows = load_json(raw, TABLES, "graph", each=each)
    check_tables(rows, TABLES, "graph")
    graph = Graph(rows["tensors"], rows["nodes"], rows["weights"])
    tensor_count = len(graph.tensors)
    _check_indices(graph, tensor_count, len(graph.weights))
    try:
        graph.inputs = ints_in(rows["inputs"], 0, tensor_count - 1, TENSORS_MAX)
        graph.outputs = ints_in(rows["outputs"], 0, tensor_count - 1, TENSORS_MAX)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"the graph section: inputs or outputs: {error}") from None
    return graph


def _rows(kind: str, parse: Callable[[Any], Row]) -> Callable[[int, Any], Row]:
    """Return what reads rows of a table with ``parse``, whose errors get the row's number."""

    def made(index: int, row: Any) -> Row:
        try:
            return parse(row)
        except (TypeError, ValueError) as error:
            raise ArtifactError(f"{kind} {index}: {error}") from None

    return made


def _check_indices(graph: Graph, tensors: int, weights: int) -> None:
    """Check that the indices in rows are those of rows: they may stand before the rows that they name."""
    for kind, wrong in (
        ("tensor", (t.root >= tensors or t.weight >= weights for t in graph.tensors)),
        ("node", (max(*n.inputs, *n.outputs, -1, -1) >= tensors or n.weight >= weights for n in graph.nodes)),
    ):
        for i, is_wrong in enumerate(wrong):
            if is_wrong:
                raise ArtifactError(f"{kind} {i}: a number is missing or out of range")


def _plain(tensor: Tensor) -> bool:
    return tuple(tensor.strides) == contiguous_strides(tensor.shape)


class _Shared:
    """Tensors and nodes of one graph, which have equal shapes, strides and attributes in common: most are like many
    others, and what they would take is most of a graph's memory. Nothing changes them in place.
    """

    def __init__(self) -> None:
        self._dims: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """Shapes with their strides in memory without gaps."""
        self._strides: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._attrs: dict[bytes, dict[str, Attr]] = {}
        """Attributes by what they were read from: 1, 1.0 and true are not the same."""

    def tensor(self, row: Any) -> Tensor:
        """Read a tensor's row. Raises ValueError."""
        name, dtype, shape, root, offset, strides, weight = row_of(row, ROWS["tensors"])
        dims = tuple(ints_in(shape, 0, INT_MAX, RANK_MAX))
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ValueError("unknown dtype")
        known = self._dims.get(dims)
        if known is None:
            known = self._dims[dims] = dims, contiguous_strides(dims)
        dims, own = known
        if strides is not None:
            own = tuple(ints_in(strides, 0, BYTES_MAX, RANK_MAX))
            own = self._strides.setdefault(own, own)
        return Tensor(
            name_of(name),
            dims,
            intern(dtype),
            int_in(root, -1, TENSORS_MAX),
            int_in(offset, 0, BYTES_MAX),
            own,
            int_in(weight, -1, TENSORS_MAX),
        )

    def node(self, row: Any) -> Node:
        """Read a node's row. Raises ValueError."""
        name, op, inputs, outputs, attrs, weight = row_of(row, ROWS["nodes"])
        if not isinstance(op, str) or not isinstance(attrs, dict) or len(attrs) > LIST_MAX:
            raise ValueError("operator or attributes are malformed")
        read = dumps(attrs, 2)
        known = self._attrs.get(read)
        if known is None:
            known = self._attrs[read] = {intern(name_of(key)): _attr(value) for key, value in attrs.items()}
        return Node(
            name_of(name),
            intern(op[:64]),
            ints_in(inputs, 0, TENSORS_MAX, LIST_MAX),
            ints_in(outputs, 0, TENSORS_MAX, LIST_MAX),
            known,
            int_in(weight, -1, TENSORS_MAX),
        )


def _weight(row: Any) -> Weight:
    name, kind, nbytes, chunk_bytes, offset, crc_first = row_of(row, ROWS["weights"])
    if kind not in ("raw", "panels"):
        raise ValueError("unknown kind of weight")
    return Weight(
        name_of(name),
        kind,
        int_in(nbytes, 1, BYTES_MAX),
        int_in(chunk_bytes, 1, BYTES_MAX),
        int_in(offset, 0, BYTES_MAX),
        int_in(crc_first, 0, INT_MAX),
    )


def _attr(value: Any) -> Attr:
    if type(value) in (int, float):
        if type(value) is int and not -BYTES_MAX <= value <= BYTES_MAX:
            raise ValueError("an attribute is out of range")
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        return name_of(value)
    return ints_in(value, -INT_MAX - 1, INT_MAX, LIST_MAX)
