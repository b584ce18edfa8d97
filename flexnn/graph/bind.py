"""Binding: a model and the shapes of its inputs become the internal graph; constants folded, operators lowered.

Nothing that a model declares about shapes is believed, except of its inputs: each tensor's shape is what its operator
makes of the shapes before it. After this stage a graph has NCHW tensors with transposes around its channels-last
operators, and view operators (graph/build.py); the passes take it from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from .build import add_node, add_tensor
from .elements import Elements
from .evaluate import BYTES_MAX, EVALUATORS, MemoryNeededError
from .fold import MADE_BYTES_MAX, fold, folds, is_lazy, made
from .ir import DTYPES, RANK_MAX, AbsentError, Graph, GraphError
from .lower import (
    FILLINGS,
    LOWERINGS,
    OPERAND_BYTES,
    Const,
    Context,
    Value,
    array_const,
    depends,
    is_sizes,
    of_halves,
    sizes_const,
)
from .model import Constant, Model, ModelGraph, ModelNode, reads
from .ports import Port, open_hint
from .state import CROSS

INPUT_BYTES_MAX = 1 << 36
FLOAT16 = 10
"""TensorProto.DataType."""
FOLDED_BYTES = 128 << 10
"""Most bytes that folding a node takes while a run binds; beyond, the node is computed like others."""
FOLDED_BYTES_ALL = 1 << 20
"""Most bytes of all constants that binding makes in a run, beside those of FEW_BYTES."""
FOLDED_RANGE = 4
"""Times that a constant may be above these bytes at other sizes of a template that folds it."""
FEW_BYTES = 4 << 10
_WEIGHED = {"Conv", "ConvTranspose", "Gemm", "MatMul"}


def bind_model(model: Model) -> Graph:
    """The graph of a whole model whose inputs' shapes are all known. Raises GraphError, one line."""
    binder = Binder(model.opset)
    binder.constants = model.graph.constants
    for port in model.graph.inputs:
        binder.add_input(port.name, known_shape(port), str(port.dtype))
    for node in model.graph.nodes:
        binder.add(node)
    _refuse_unmade(model.graph, binder)
    binder.set_outputs([port.name for port in model.graph.outputs])
    return binder.graph


def known_shape(port: Port) -> tuple[int, ...]:
    """The shape of an input. Raises GraphError, saying how to give it, where dimensions are open."""
    sizes = [d for d in port.dims or () if isinstance(d, int)]
    if port.dims is None or len(sizes) != len(port.dims):
        raise GraphError(f"input {port.name!r}: {open_hint(port)}")
    return bound_shape(port, tuple(sizes))


def bound_shape(port: Port, shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape``, if an input may have it: as many dimensions as declared. Raises GraphError."""
    if port.dims is not None and len(port.dims) != len(shape):
        raise GraphError(f"input {port.name!r}: has {len(port.dims)} dimensions, but shape {shape} has {len(shape)}")
    itemsize = DTYPES[str(port.dtype)].itemsize
    if any(d < 0 for d in shape) or len(shape) > RANK_MAX or prod(shape) * itemsize > INPUT_BYTES_MAX:
        raise GraphError(f"input {port.name!r}: shape {shape} is not supported")
    return shape


def bound_port(port: Port, shape: tuple[int, ...]) -> Port:
    """The input with this shape. Raises GraphError."""
    return Port(port.name, port.dtype, bound_shape(port, shape))


class Binder:
    """Lowering of nodes one after the other into ``graph``; ``values`` are those known so far, by ONNX name."""

    def __init__(self, opset: int, *, in_run: bool = False) -> None:
        self.opset = opset
        self.in_run = in_run
        """Whether shapes and numbers are those of a run: what is made of them is folded where it is small."""
        self.folded_bytes = 0
        """Bytes of constants that were made of them."""
        self.graph = Graph()
        self.elements = Elements(self.graph)
        self.values: dict[str, Value] = {}
        self.constants: Mapping[str, Constant] = {}
        """The model's, as far as they can be seen."""
        self.made_bytes = 0
        """Bytes of constants that nodes make out of little (graph/fold.py)."""
        self.halves: set[str] = set()
        """Values that are float16 in the model and float32 here: what is computed, is computed in float32."""

    def add_input(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """A value that the caller will hand in."""
        if not prod(shape):
            raise GraphError(f"input {name!r}: shape {shape} has no elements, so the model is bound when it runs")
        self.values[name] = add_tensor(self.graph, name, shape, dtype)
        self.graph.inputs.append(len(self.graph.tensors) - 1)

    def value(self, name: str) -> Value | None:
        """The value of this name, or None where nothing has made it."""
        known = self.values.get(name)
        if known is None and (constant := self.constants.get(name)) is not None:
            known = self.values[name] = Const(name, constant.shape, constant.dtype, constant.source)
        return known

    def add(self, node: ModelNode) -> None:
        """Fold or lower a node. Raises GraphError; the graph may then hold nodes that nothing reads."""
        _refuse_foreign(node)
        inputs: list[Value | None] = []
        for name in node.input:
            value = self.value(name) if name else None
            if name and value is None:
                raise GraphError(f"{node.where}: no earlier node computes input {name!r}")
            is_state = node.op_type == CROSS and name == node.input[1]  # which attention reads as it is
            inputs.append(value if is_state else self._widened(name, value))
        try:
            results = self._results(node, inputs)
        except GraphError as error:
            error.args = (_located(str(error), node),)
            raise
        results = self.elements.follow(node, inputs, results, self.opset)
        for name, value in zip(node.output, results, strict=False):
            if name:
                self._name(value, name)
                self.values[name] = value = self._known(value, name)
                if self._is_half(node) and self._dtype(value) == "f32":
                    self.halves.add(name)

    def _known(self, value: Value, name: str) -> Value:
        """The value; as a constant where it has no elements, since then there are no numbers to wait for."""
        if isinstance(value, Const) or self.graph.tensors[value].size:
            return value
        tensor = self.graph.tensors[value]
        return array_const(name, np.zeros(tensor.shape, DTYPES[tensor.dtype]))

    def _dtype(self, value: Value) -> str:
        return value.dtype if isinstance(value, Const) else self.graph.tensors[value].dtype

    def _widened(self, name: str, value: Value | None) -> Value | None:
        """A value of float16 as float32, from now on."""
        if value is None or self._dtype(value) != "f16":
            return value
        if isinstance(value, Const):
            wide: Value = of_halves(value)
        else:
            wide = add_node(self.graph, name, "cast", [value], {"to": "f32"})
        self.halves.add(name)
        self.values[name] = wide
        return wide

    def _is_half(self, node: ModelNode) -> bool:
        """Whether a node's results that are float32 here are float16 in the model."""
        if node.op_type in ("Cast", "CastLike"):
            return node.attrs.get("to") == FLOAT16 or bool(self.halves.intersection(node.input[1:]))
        if node.op_type.startswith("Random") and "dtype" in node.attrs:
            return node.attrs["dtype"] == FLOAT16
        if node.op_type == "DequantizeLinear" and node.attrs.get("output_dtype"):
            return node.attrs["output_dtype"] == FLOAT16
        deciding = node.input[:1] if node.op_type == "Pow" else node.input
        return bool(self.halves.intersection(deciding))

    def set_outputs(self, names: Sequence[str]) -> None:
        """Graph outputs get their names; one that is an input, a constant or another output is copied by a pass."""
        for name in names:
            value = self.value(name)
            if value is None:
                raise GraphError(f"no node computes output {name!r}")
            ctx = Context(self.graph, ModelNode("Output", name), self.opset, [value])
            if not prod(ctx.shape(value)):
                raise GraphError(f"output {name!r}: has no elements, so the model is bound when it runs")
            tensor = ctx.tensor(value)
            if name in self.halves:
                tensor = ctx.emit("cast", [tensor], {"to": "f16"})
            if tensor in self.graph.inputs or tensor in self.graph.outputs or isinstance(value, Const):
                rank = len(ctx.shape(value))
                tensor = ctx.emit("copy", [tensor], {"perm": list(range(rank)), "expand": [0] * rank})
            self.graph.tensors[tensor].name = name
            self.graph.outputs.append(tensor)

    def _results(self, node: ModelNode, inputs: list[Value | None]) -> list[Value]:
        first = inputs[0] if inputs else None
        if node.op_type in ("Shape", "Size") and (isinstance(first, int) or depends(first)):
            assert first is not None
            return [sizes_of(node, first.shape if isinstance(first, Const) else self.graph.tensors[first].shape)]
        constants = [v for v in inputs if v is None or isinstance(v, Const)]
        if len(constants) == len(inputs) and folds(node):
            is_of_run = self.in_run and any(value is not None and value.is_of_run for value in constants)
            results = self._folded(node, constants, is_of_run)
            if results is None:
                return self._unfolded(node, constants)
            for value in results:
                if isinstance(value, Const):
                    value.is_of_run |= is_of_run
            return results
        return self._lowered(node, inputs)

    def _folded(self, node: ModelNode, inputs: list[Const | None], is_of_run: bool) -> list[Value] | None:
        """The outputs of a node of constants; None where these are of a run and take too much."""
        if is_of_run and _is_weighed(node, inputs):
            return None
        if any(depends(value) for value in inputs):
            from .size_fold import fold_sizes  # only where shapes are open

            if (sizes := fold_sizes(node, inputs, self.opset)) is not None:
                late = [value.nbytes for value in sizes if not is_sizes(value)]
                return list(sizes) if not is_of_run or self._takes(late) else None
        if nothing := self._without_elements(node, inputs):
            return nothing
        lazy = self._lowered(node, list(inputs)) if is_lazy(node, inputs) else []
        if lazy and all(isinstance(v, Const) for v in lazy):
            return lazy
        if (value := made(node, inputs)) is not None:
            if is_of_run:
                return None
            self._count_made(node, value)
            return [value]
        left = max(min(FOLDED_BYTES, FOLDED_BYTES_ALL - self.folded_bytes), FEW_BYTES) if is_of_run else BYTES_MAX
        try:
            folded = fold(node, inputs, self.opset, left)
        except MemoryNeededError:
            if is_of_run:
                return None
            raise
        except AbsentError:  # other sizes than the compiler tried: what it left to the run is left to it now
            if node.op_type not in LOWERINGS:
                raise
            return self._lowered(node, list(inputs))
        self.folded_bytes += sum(value.nbytes for value in folded) if is_of_run else 0
        return list(folded)

    def _takes(self, sizes: Sequence[int]) -> bool:
        """Whether constants of these bytes, which may be sizes (graph/sizes.py), may be made in a run; count them."""
        for nbytes in sizes:
            most = FEW_BYTES if self.folded_bytes > FOLDED_BYTES_ALL else FOLDED_BYTES
            if not _at_most(nbytes, most, FOLDED_RANGE * most):
                return False
            self.folded_bytes += getattr(nbytes, "value", nbytes)
        return True

    def _unfolded(self, node: ModelNode, inputs: list[Const | None]) -> list[Value]:
        """The outputs of a node of constants, computed in the run."""
        filling = FILLINGS.get(node.op_type)
        if filling is not None:
            return filling(Context(self.graph, node, self.opset, list(inputs)))
        ctx = Context(self.graph, node, self.opset, [])
        # What the run makes is read as a tensor; weights stay constants, of which lowerings may make panels.
        values: list[Value | None] = [
            ctx.tensor(value) if value is not None and value.is_of_run and not _is_operand(value) else value
            for value in inputs
        ]
        if not any(isinstance(value, int) for value in values):  # a lowering would make a constant of constants
            values[:1] = [None if value is None else ctx.tensor(value) for value in inputs[:1]]
        return self._lowered(node, values)

    def _without_elements(self, node: ModelNode, constants: list[Const | None]) -> list[Value]:
        """The outputs of a node of constants, if they have no elements: no weight is loaded for that. Else nothing."""
        if node.op_type not in LOWERINGS or all(value is None or prod(value.shape) for value in constants):
            return []
        try:
            results = self._lowered(node, list(constants))
        except GraphError:
            return []
        sizes = [prod(v.shape if isinstance(v, Const) else self.graph.tensors[v].shape) for v in results]
        return [] if any(sizes) else results

    def _count_made(self, node: ModelNode, value: Const) -> None:
        """Count a large constant that the node makes out of little. Raises GraphError if all such are too many."""
        self.made_bytes += value.nbytes
        if self.made_bytes > MADE_BYTES_MAX:
            raise GraphError(
                f"{node.where}: makes {value.dtype}{list(value.shape)}: constants that nodes make would take "
                f"{self.made_bytes >> 20} MiB in all, at most {MADE_BYTES_MAX >> 20} MiB are made"
            )

    def _lowered(self, node: ModelNode, inputs: list[Value | None]) -> list[Value]:
        lowering = LOWERINGS.get(node.op_type)
        if lowering is None:
            raise _unknown(node)
        ctx = Context(self.graph, node, self.opset, inputs, elements=self.elements.of, in_run=self.in_run)
        results = lowering(ctx)
        unread = [name for name in node.attrs if name not in ctx.read]
        if unread:
            raise GraphError(f"{node.where}: attribute {unread[0]} is not supported")
        return results

    def _name(self, value: Value, name: str) -> None:
        """Give a computed tensor its ONNX name, unless it has one already (Identity)."""
        if isinstance(value, int) and value not in self.graph.inputs:
            self.graph.tensors[value].name = name


def sizes_of(node: ModelNode, shape: tuple[int, ...]) -> Const:
    """Result of a Shape or Size node of a value of this shape, maybe of sizes (graph/sizes.py). Raises GraphError."""
    start, end = node.attrs.get("start", 0), node.attrs.get("end")
    if not isinstance(start, int) or not isinstance(end, int | None):
        raise GraphError(f"{node.where}: attributes start and end are not numbers")
    found = [prod(shape)] if node.op_type == "Size" else shape[start:end]
    plain = all(type(d) is int for d in found)
    values = np.array(found, np.int64 if plain else object).reshape(() if node.op_type == "Size" else -1)
    known = array_const(node.output[0], values) if plain else sizes_const(node.output[0], values)
    known.is_of_run = True
    return known


def _is_weighed(node: ModelNode, inputs: Sequence[Const | None]) -> bool:
    """Whether a node multiplies what is made of a run by many weights: the run reads them as others do, as panels."""
    weights = inputs[1:] if node.op_type in _WEIGHED else ()
    return any(v is not None and not v.is_of_run and v.nbytes > FOLDED_BYTES for v in weights)


def _is_operand(value: Const) -> bool:
    """Whether a constant is made of sizes, or so small that lowerings read it as it is. What takes a larger one as a
    tensor serves small ones as well.
    """
    return is_sizes(value) or _at_most(value.nbytes, OPERAND_BYTES, OPERAND_BYTES)


def _at_most(nbytes: int, most: int, limit: int) -> bool:
    """Whether a constant takes at most so many bytes. A template decides it for its own sizes, and serves others: those
    of at most ``limit`` bytes where it makes the constant, all where the run does.
    """
    if getattr(nbytes, "value", nbytes) <= most:
        return nbytes <= limit
    return False


def refuse_unknown(graph: ModelGraph) -> None:
    """Raise GraphError for the first node, nested ones first, that neither the core nor numpy computes."""
    for node in graph.nodes:
        for inner in node.graphs:
            refuse_unknown(inner)
        _refuse_foreign(node)
        if not node.graphs and node.op_type not in LOWERINGS and node.op_type not in EVALUATORS:
            raise _unknown(node)


def _refuse_foreign(node: ModelNode) -> None:
    if node.domain:
        raise GraphError(f"{node.where}: operator of domain {node.domain!r} is not supported")


def _unknown(node: ModelNode) -> GraphError:
    known = "control flow" if node.graphs else "the operator"
    return GraphError(f"{node.where}: {known} is not supported")


def _located(text: str, node: ModelNode) -> str:
    return text if node.op_type in text else f"{node.where}: {text}"


def _refuse_unmade(graph: ModelGraph, binder: Binder) -> None:
    """Refuse outputs that no lowering makes, if anything reads them."""
    read = {port.name for port in graph.outputs}.union(*(reads(node) for node in graph.nodes))
    for node in graph.nodes:
        for name in node.output:
            if name in read and binder.value(name) is None:
                raise GraphError(f"{node.where}: its output {name!r} is not supported")
