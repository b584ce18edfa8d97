"""Graphs against the standard: names and types, inner graphs included."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from math import prod

import onnx

from ..stated import TENSOR_BYTES_MAX, GraphError
from .bodies import CONTROL, check_bodies
from .names import node_error, tensor_text, type_text, where
from .nodes import check_attributes, check_node
from .numbers import check_numbers
from .schemas import Schemas
from .shapes import Shapes
from .types import Type, check_types


class GraphChecker:
    """Checks of one graph and of those inside it. ``around``: the checker of the graph around it."""

    def __init__(self, schemas: Schemas, around: GraphChecker | None = None) -> None:
        self._schemas = schemas
        self._values: ChainMap[str, Type] = around._values.new_child() if around else ChainMap()
        """Types of the values that can be seen, by name."""
        self._shapes: Shapes = Shapes(around._shapes if around else None)
        self._declared: dict[str, Type] = {}

    def check(self, graph: onnx.GraphProto, given: Sequence[Type] = (), what: str = "") -> list[Type]:
        """Return the types of the outputs. Raises GraphError.

        ``given``: types of the inputs as the node around the graph makes them; ``what``: that node and the graph.
        """
        what = what and f"{what}: "
        own = self._values.maps[0]
        for info in (*graph.value_info, *graph.output):
            self._declared[info.name] = _agreed(type_text(info.type), self._declared.get(info.name), what, info.name)
        for i, info in enumerate(graph.input):
            if not info.name or info.name in own:
                raise GraphError(f"{what}input {i} has {'the name of another' if info.name else 'no name'}")
            own[info.name] = _agreed(given[i] if i < len(given) else None, type_text(info.type), what, info.name)
            self._shapes.declare(info)
        self._constants(graph, what)
        for name, found in own.items():
            _agreed(found, self._declared.get(name), what, name)
        for node in graph.node:
            self._node(node)
        for info in graph.output:
            if info.name not in self._values:
                raise GraphError(f"{what}no node computes output {info.name!r}")
            _agreed(self._values[info.name], self._declared[info.name], what, info.name)
        return [self._values[info.name] or self._declared[info.name] for info in graph.output]

    def _constants(self, graph: onnx.GraphProto, what: str) -> None:
        own = self._values.maps[0]
        inputs = {info.name: info for info in graph.input}
        seen: set[str] = set()
        for tensor in graph.initializer:
            name = tensor.name
            if not name or name in seen:
                raise GraphError(f"{what}initializer {name!r} has {'the name of another' if name else 'no name'}")
            seen.add(name)
            if min(tensor.dims, default=0) < 0 or prod(tensor.dims) > TENSOR_BYTES_MAX:
                raise GraphError(f"{what}tensor {name!r}: invalid shape {list(tensor.dims)}")
            if _fields_of_data(tensor) > 1:
                raise GraphError(f"{what}tensor {name!r} has data in two places, of which the standard allows one")
            own[name] = _agreed(tensor_text(tensor.data_type), own.get(name), what, name)
            if name in inputs and not _fits(tensor, inputs[name].type.tensor_type):
                raise GraphError(f"{what}initializer {name!r} of shape {list(tensor.dims)} is declared otherwise")
            self._shapes.state(name, tensor)

    def _node(self, node: onnx.NodeProto) -> None:
        check_attributes(node)
        for name in node.input:
            if name and name not in self._values:
                raise node_error(node, f"no earlier node computes input {name!r}")
        domain = "" if node.domain == "ai.onnx" else node.domain
        try:
            schema = self._schemas.find(domain, node.op_type)
        except GraphError as error:
            raise node_error(node, str(error)) from None
        made: list[Type] = [None] * len(node.output)
        if schema is not None:
            check_node(node, schema)
            made = check_types(node, schema, self._values)
            if not domain:
                check_numbers(node)
                self._shapes.check(node, self._schemas.default)
            if not domain and node.op_type in CONTROL:
                made = self._control(node)
        for name, found in zip(node.output, made, strict=True):
            if name and name in self._values.maps[0]:
                raise node_error(node, f"computes {name!r} a second time")
            if name:
                self._values[name] = _agreed(found, self._declared.get(name), f"{where(node)}: ", name)

    def _control(self, node: onnx.NodeProto) -> list[Type]:
        types = [self._values.get(name) if name else None for name in node.input]

        def check(graph: onnx.GraphProto, given: Sequence[Type], what: str) -> list[Type]:
            return GraphChecker(self._schemas, self).check(graph, given, what)

        return check_bodies(node, types, self._schemas.default, check)


def _fields_of_data(tensor: onnx.TensorProto) -> int:
    """Return how many fields of a tensor hold its data. An open file has the place of large ones as the comment."""
    typed = tensor.float_data, tensor.int32_data, tensor.string_data, tensor.int64_data
    filled = *typed, tensor.double_data, tensor.uint64_data, tensor.raw_data or tensor.doc_string
    return sum(map(bool, filled)) + (tensor.data_location == onnx.TensorProto.EXTERNAL)


def _agreed(found: Type, declared: Type, what: str, name: str) -> Type:
    """Return what is known of a type that is found and declared. Raises GraphError if the two contradict."""
    if found and declared and found != declared:
        raise GraphError(f"{what}value {name!r} is {found}, but is declared {declared}")
    return found or declared


def _fits(tensor: onnx.TensorProto, declared: onnx.TypeProto.Tensor) -> bool:
    """Return whether an initializer has the shape that the input of its name is declared to have."""
    if not declared.HasField("shape"):
        return True
    dims = declared.shape.dim
    return len(dims) == len(tensor.dims) and all(
        not d.HasField("dim_value") or d.dim_value == size for d, size in zip(dims, tensor.dims, strict=True)
    )
