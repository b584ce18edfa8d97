"""A model with open shapes as JSON, and back with every value checked (docs/format.md)."""

from __future__ import annotations

import binascii  # all of base64 that is needed here, in a third of its memory
import json
from _blake2 import blake2b
from dataclasses import field
from sys import intern
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexnn.graph.attributes import INT_MAX, int_in, ints_in, name_of, row_of
from flexnn.graph.descriptor import Descriptor
from flexnn.graph.ir import DTYPES, RANK_MAX, AbsentError, Array, Weight
from flexnn.graph.model import PRECISIONS, Constant, Model, ModelAttr, ModelGraph, ModelNode
from flexnn.graph.pack import PackedSource
from flexnn.graph.ports import Port
from flexnn.graph.sources import ArraySource, HeldSource, MadeSource, MappedSource, ModelSource
from flexnn.graph.state import KV_CAPACITY_MAX
from flexnn.graph.stated import NESTING_MAX, OPSET_MAX, OPSET_MIN
from flexnn.graph.tied import mark_tied
from flexnn.graph.weight_form import FORMS
from flexnn.quick_dataclass import quick_dataclass

from .format import ArtifactError
from .section import (
    BYTES_MAX,
    TENSORS_MAX,
    check_tables,
    dump_weights,
    load_json,
    load_weights,
)
from .stored_source import StoredSource

PARTS = ("weights", "keys", "model", "templates")
"""The parts of a model section."""
STATE = "kv_capacity"
"""A part that is there where the compiler was asked for state."""
LEFT = "left"
"""A part that is there where the compiler left layers to numpy."""
PRECISION = "precision"
"""A part that is there where maps have 16 bits."""
MODEL_PARTS = ("opset", "constants", "graph")
GRAPH_PARTS = ("nodes", "constants", "inputs", "outputs")
"""The parts of the model in it, and of each of its graphs."""
ROWS = {
    "constants": ("name", "dtype", "shape", "value", "form"),
    "nodes": ("op_type", "domain", "name", "inputs", "outputs", "attrs"),
    "inputs": ("name", "dtype", "dims"),
}
"""The fields of each table's rows, in order; outputs have those of inputs."""

INLINE_BYTES = 64 << 10
"""Values up to this size are in the section itself."""
MADE_AGAIN_MAX = 256 << 20
"""Most bytes of a constant that every binding makes anew out of few numbers; larger ones are in the artifact."""
LIST_MAX = 1 << 16
TEMPLATES_BYTES_MAX = 1 << 22


class AbsentSource:
    """Numbers that the artifact does not hold: no binding that the compiler tried read them."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> str:
        """A key that nothing reads: the constant's own key counts."""
        return f"absent:{self.name}"

    def load(self) -> Array:
        """Raise AbsentError."""
        raise AbsentError(
            f"the artifact lacks the numbers of {self.name!r} for these shapes: compile the model with --shape"
        )


def constants_of(model: Model) -> list[Constant]:
    """Return all constants of a model, each at the index of its source; the indices are counted anew."""
    found: dict[int, Constant] = {}
    for graph in model.graph.walk():
        attributes = [v for node in graph.nodes for v in node.attrs.values() if isinstance(v, Constant)]
        for constant in (*graph.constants.values(), *attributes):
            found[source_of(constant).index] = constant
    for index, before in enumerate(sorted(found)):
        source_of(found[before]).index = index
    return [found[before] for before in sorted(found)]


def source_of(constant: Constant) -> ModelSource:
    """Return the constant's source, which the importer or the reader made."""
    assert isinstance(constant.source, ModelSource)
    return constant.source


@quick_dataclass(slots=True)
class StoredModel:
    """A model and the weights that its bindings find by their keys."""

    model: Model
    weights: list[Weight]
    keys: dict[str, int]
    """Index of each weight, by its key (``weight_key``)."""
    values: dict[int, int]
    """Index of the raw weight that holds a constant's numbers, by the constant's index; only of constants that are too
    large for the section."""
    constants: list[Constant]
    """The model's constants, by index."""
    templates: int = -1
    """Index of the raw weight that holds templates (flexnn/regions/template_reader.py); -1: there are none."""
    template_source: StoredSource | None = None
    """Source of these bytes, while the artifact is open."""
    kv_capacity: int = 0
    """Rows of the state that sessions keep where they are not asked for another number; 0: the compiler was not asked
    for state."""
    sampled: list[list[tuple[int, ...]]] = field(default_factory=list)
    """Shapes of the inputs at which the compiler bound it."""
    left: str = ""
    """Line about the layers that the compiler left to numpy; "": there are none."""


def weight_key(weight: Weight) -> str | None:
    """Return the key by which a bound graph finds its weight in the artifact.

    None: the weight is small, or binding makes it, so it is not looked up.
    """
    origin = weight.origin
    assert origin is not None
    if isinstance(origin, HeldSource):
        return origin.key
    source = weight.source
    while isinstance(source, MappedSource):  # what binding makes may be reshaped: an LSTM's first state is
        source = source.base
    made = isinstance(source, ArraySource)
    made = made or (isinstance(source, MadeSource) and weight.nbytes <= MADE_AGAIN_MAX)
    if weight.kind == "raw" and (made or weight.nbytes <= INLINE_BYTES):
        return None
    kind = "panels" if isinstance(weight.source, PackedSource) else weight.kind
    return blake2b(f"{kind}:{origin.key}".encode(), digest_size=16).hexdigest()


def dump_stored(stored: StoredModel) -> bytes:
    """Return the bytes of the section."""
    rows: dict[str, Any] = {
        "weights": dump_weights(stored.weights),
        "keys": list(stored.keys),
        "model": _dump_model(stored),
        "templates": stored.templates,
    }
    if stored.kv_capacity:  # readers that know no state refuse the part
        rows[STATE] = stored.kv_capacity
    if stored.left:
        rows[LEFT] = stored.left
    if stored.model.precision != PRECISIONS[0]:
        rows[PRECISION] = stored.model.precision
    return json.dumps(rows, separators=(",", ":")).encode("ascii")


def load_stored(raw: bytes) -> StoredModel:
    """Read the model in ``raw``. Raises ArtifactError, which says what is wrong."""
    rows = load_json(raw, set(PARTS), "model", (STATE, LEFT, PRECISION), {"nodes": _with_names})
    check_tables(rows, {"weights", "keys"}, "model")
    weights = load_weights(rows["weights"])
    try:
        if len(rows["keys"]) > len(weights):
            raise ValueError("more keys than weights")
        keys = {name_of(key): index for index, key in enumerate(rows["keys"])}
        if len(keys) < len(rows["keys"]):
            raise ValueError("two weights have the same key")
        model, values, constants = _load_model(rows["model"], [(weight.kind, weight.nbytes) for weight in weights])
        templates = int_in(rows["templates"], -1, len(weights) - 1)
        if templates >= 0 and (weights[templates].kind != "raw" or weights[templates].nbytes > TEMPLATES_BYTES_MAX):
            raise ValueError("the templates are no raw weight, or too large")
        capacity = int_in(rows[STATE], 1, KV_CAPACITY_MAX) if STATE in rows else 0
        left = name_of(rows.get(LEFT, ""))
        if (precision := rows.get(PRECISION, PRECISIONS[0])) not in PRECISIONS:
            raise ValueError("maps have an unknown precision")
        model.precision = precision
        mark_tied(model)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArtifactError(f"the model section: {error}") from None
    return StoredModel(model, weights, keys, values, constants, templates, kv_capacity=capacity, left=left)


def attach_values(stored: StoredModel, file: Descriptor, crcs: NDArray[np.uint32]) -> None:
    """Let what is in raw weights, constants and templates, be read from the artifact ``file`` and checked against
    ``crcs``.
    """
    if stored.templates >= 0:
        weight = stored.weights[stored.templates]
        stored.template_source = StoredSource(file, crcs, weight, "u8", (weight.nbytes,))
    for index, place in stored.values.items():
        constant = stored.constants[index]
        source_of(constant).base = StoredSource(file, crcs, stored.weights[place], constant.dtype, constant.shape)


def _dump_model(stored: StoredModel) -> dict[str, Any]:
    rows = []
    for index, constant in enumerate(stored.constants):
        source = source_of(constant)
        value: int | str | None = stored.values.get(index)
        if value is None and source.used:
            raw = np.ascontiguousarray(source.base.load()).tobytes()
            value = binascii.b2a_base64(raw, newline=False).decode("ascii")
        rows.append([constant.name, constant.dtype, constant.shape, value, source.form])
    return {"opset": stored.model.opset, "constants": rows, "graph": _dump_graph(stored.model.graph)}


def _dump_graph(graph: ModelGraph) -> dict[str, Any]:
    return {
        "nodes": [
            [n.op_type, n.domain, n.name, n.input, n.output, {k: _dump_attr(v) for k, v in n.attrs.items()}]
            for n in graph.nodes
        ],
        "constants": {name: source_of(constant).index for name, constant in graph.constants.items()},
        "inputs": [[port.name, port.dtype, port.dims] for port in graph.inputs],
        "outputs": [[port.name, port.dtype, port.dims] for port in graph.outputs],
    }


def _dump_attr(value: ModelAttr) -> Any:
    if isinstance(value, Constant):
        return {"constant": source_of(value).index}
    if isinstance(value, ModelGraph):
        return {"graph": _dump_graph(value)}
    return value


def _load_model(rows: Any, weights: list[tuple[str, int]]) -> tuple[Model, dict[int, int], list[Constant]]:
    if not isinstance(rows, dict) or rows.keys() != set(MODEL_PARTS):
        raise ValueError(f"the model must have the parts {', '.join(MODEL_PARTS)}")
    if not isinstance(rows["constants"], list) or len(rows["constants"]) > TENSORS_MAX:
        raise ValueError("constants are not a list, or too many")
    stored: dict[int, int] = {}
    constants = []
    for index, row in enumerate(rows["constants"]):
        constant, weight = _constant(row, index, weights)
        constants.append(constant)
        if weight >= 0:
            stored[index] = weight
    return Model(_graph(rows["graph"], constants, 0), int_in(rows["opset"], OPSET_MIN, OPSET_MAX)), stored, constants


def _constant(row: Any, index: int, weights: list[tuple[str, int]]) -> tuple[Constant, int]:
    name, dtype, shape, value, form = row_of(row, ROWS["constants"])
    if form != "" and (not isinstance(form, str) or form not in FORMS):
        raise ValueError(f"constant {index} has an unknown form")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"constant {index} has an unknown dtype")
    dims = tuple(ints_in(shape, 0, INT_MAX, RANK_MAX))
    constant = Constant(name_of(name), dims, dtype, ModelSource(index, AbsentSource(name_of(name)), form=form))
    if not 0 <= constant.nbytes <= BYTES_MAX:
        raise ValueError(f"constant {index} is too large")
    if value is None:
        return constant, -1
    if isinstance(value, str):
        try:
            raw = binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
        except (binascii.Error, UnicodeError):
            raise ValueError(f"the value of constant {index} is not base64") from None
        if len(raw) != constant.nbytes:
            raise ValueError(f"constant {index} has {len(raw)} bytes instead of {constant.nbytes}")
        constant.source = ModelSource(index, ArraySource(np.frombuffer(raw, DTYPES[dtype]).reshape(dims)), form=form)
        return constant, -1
    weight = int_in(value, 0, len(weights) - 1)
    if weights[weight] != ("raw", constant.nbytes):
        raise ValueError(f"weight {weight} does not hold the numbers of constant {index}")
    return constant, weight


def _graph(rows: Any, constants: list[Constant], depth: int) -> ModelGraph:
    if depth > NESTING_MAX:
        raise ValueError("graphs are nested too deeply")
    if not isinstance(rows, dict) or rows.keys() != set(GRAPH_PARTS):
        raise ValueError(f"a graph must have the parts {', '.join(GRAPH_PARTS)}")
    if not isinstance(rows["constants"], dict) or not isinstance(rows["nodes"], list):
        raise ValueError("a graph's constants or nodes are malformed")
    if len(rows["nodes"]) > TENSORS_MAX:
        raise ValueError("a graph has too many nodes")
    return ModelGraph(
        [_node(row, constants, depth) for row in rows["nodes"]],
        {name_of(name): constants[int_in(i, 0, len(constants) - 1)] for name, i in rows["constants"].items()},
        [_port(row, not depth) for row in _list(rows["inputs"])],
        [_port(row, False) for row in _list(rows["outputs"])],
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > LIST_MAX:
        raise ValueError("not a list, or too long")
    return value


def _port(row: Any, typed: bool) -> Port:
    name, dtype, dims = row_of(row, ROWS["inputs"])
    if (dtype is None and typed) or (dtype is not None and (not isinstance(dtype, str) or dtype not in DTYPES)):
        raise ValueError("an input has no known dtype")
    if dims is None:
        return Port(name_of(name), dtype, None)
    if len(_list(dims)) > RANK_MAX:
        raise ValueError("an input has too many dimensions")
    parsed = (d if d is None else name_of(d) if isinstance(d, str) else int_in(d, 0, BYTES_MAX) for d in dims)
    return Port(name_of(name), dtype, tuple(parsed))


def _with_names(_: int, row: Any) -> Any:
    """Return a node's row whose attributes' names are those that other rows have: rows are read one by one."""
    if isinstance(row, list) and row and isinstance(row[-1], dict):
        row[-1] = {intern(name): value for name, value in row[-1].items()}
    return row


def _node(row: Any, constants: list[Constant], depth: int) -> ModelNode:
    op_type, domain, name, inputs, outputs, attrs = row_of(row, ROWS["nodes"])
    if not isinstance(attrs, dict):
        raise ValueError("a node is malformed")
    node = ModelNode(name_of(op_type), name_of(name), [name_of(n) for n in _list(inputs)], domain=name_of(domain))
    node.output = [name_of(n) for n in _list(outputs)]
    node.attrs = {intern(name_of(key)): _attr(value, constants, depth) for key, value in attrs.items()}
    return node


def _attr(value: Any, constants: list[Constant], depth: int) -> ModelAttr:
    if isinstance(value, dict):
        if value.keys() == {"constant"}:
            return constants[int_in(value["constant"], 0, len(constants) - 1)]
        if value.keys() == {"graph"}:
            return _graph(value["graph"], constants, depth + 1)
        raise ValueError("an attribute is malformed")
    items = value if isinstance(value, list) else [value]
    if len(items) > LIST_MAX or len({type(v) for v in items}) > 1:
        raise ValueError("an attribute is too long, or of more than one type")
    for item in items:
        if type(item) is int and not -(1 << 63) <= item < 1 << 63:
            raise ValueError("an attribute is out of range")
        if type(item) not in (int, float, str):
            raise ValueError("an attribute is neither number nor text")
    return value  # type: ignore[no-any-return]
