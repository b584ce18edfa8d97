"""The context of a lowering: attributes and inputs of one ONNX node, and the graph that it adds to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from math import prod

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..build import add_constant, add_node, add_panels, add_tensor, copy_attrs, infer_any
from ..ir import Attr, Graph, GraphError, Node, Shape
from ..model import ModelNode
from ..pack import PanelSource
from ..pack_bytes import BytePanels
from ..registry import Registry
from ..sources import SizesSource
from ..strided import same_shape
from .constant import Const, array_const


class UnknownValueError(GraphError):
    """A lowering needs the numbers of ``value``, an ONNX value of which only the shape is known."""

    def __init__(self, message: str, value: str) -> None:
        super().__init__(message)
        self.value = value


Value = Const | int
"""A constant, or the index of a computed tensor."""


@quick_dataclass(slots=True)
class Context:
    """One ONNX node being lowered, and the graph it is lowered into."""

    graph: Graph
    node: ModelNode
    opset: int
    inputs: list[Value | None]
    read: set[str] = field(default_factory=set)
    """Attributes that the lowering has looked at; a node with others is refused."""
    elements: Callable[[Value | None], np.ndarray | None] = lambda value: None
    """Elements of a value, as far as anything is known of them (graph/elements.py); None: nothing."""
    in_run: bool = False
    """Whether sizes are those of a run: others share its weights."""

    # ---- the ONNX node ----

    @property
    def name(self) -> str:
        """The node's name, or what stands in for it."""
        return self.node.name or (self.node.output[0] if self.node.output else self.node.op_type)

    def error(self, message: str) -> GraphError:
        """The error that says ``message`` of this node, in one line."""
        return GraphError(f"{self.node.op_type} node {self.name!r}: {message}")

    def attr(self, name: str, default: object = None) -> object:
        """An attribute's value, or the default."""
        self.read.add(name)
        value = self.node.attrs.get(name, default)
        if default is not None and not _alike(value, default):
            raise self.error(f"attribute {name} has the wrong type")
        return value

    def has(self, name: str) -> bool:
        """Whether the node has this attribute."""
        return name in self.node.attrs

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attr(name, default)
        assert isinstance(value, int)
        return value

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        value = self.attr(name, default)
        assert isinstance(value, float)
        return value

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self.attr(name, default)
        assert isinstance(value, str)
        return value

    def integers(self, name: str, default: list[int] | None = None) -> list[int]:
        """An attribute that is a list of integers."""
        value = self.attr(name, [] if default is None else default)
        if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
            raise self.error(f"attribute {name} is not a list of integers")
        return list(value)

    def only(self, name: str, default: object, reason: str) -> None:
        """Refuse any value of an attribute but its default."""
        value = self.attr(name, default)
        if value != default:
            raise self.error(f"attribute {name}={value} is not supported ({reason})")

    def input(self, index: int) -> Value:
        """A required input."""
        value = self.optional(index)
        if value is None:
            raise self.error(f"input {index} is missing")
        return value

    def optional(self, index: int) -> Value | None:
        """An optional input."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int, what: str) -> np.ndarray | None:
        """The value of an optional input that must be known at compile time."""
        value = self.optional(index)
        if value is None:
            return None
        return self.known(value, what).load()

    def known(self, value: Value, what: str) -> Const:
        """The constant that an input must be."""
        if isinstance(value, Const):
            return value
        index = next(i for i, v in enumerate(self.inputs) if v == value)
        name = self.node.input[index] if index < len(self.node.input) else self.graph.tensors[value].name
        raise UnknownValueError(
            f"{self.node.where}: {what} (input {name!r}) is computed at run time, but must be constant", name
        )

    def constant_ints(self, index: int, what: str) -> list[int] | None:
        """The integers of an optional input that must be known at compile time."""
        known = self.optional(index)
        if isinstance(known, Const) and isinstance(known.source, SizesSource) and known.dtype in ("i64", "i32"):
            return list(known.source.numbers.reshape(-1))
        value = self.constant(index, what)
        if value is None:
            return None
        if value.dtype.kind not in "iu" or value.ndim > 1:
            raise self.error(f"{what} is not a list of integers")
        return [int(v) for v in value.reshape(-1)]

    def unknown(self, *indices: int) -> GraphError:
        """The error that one of these inputs is computed at run time."""
        for index in indices:
            try:
                self.constant_ints(index, "a bound")
            except UnknownValueError as error:
                return error
        return self.error("its bounds are not supported")

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front. Raises GraphError if there is none such."""
        if not -rank <= value < rank:
            raise self.error(f"axis {value} is outside a tensor with {rank} dimensions")
        return value % rank

    # ---- values ----

    def shape(self, value: Value) -> Shape:
        """Shape of a value, in ONNX's order of dimensions."""
        return value.shape if isinstance(value, Const) else self.graph.tensors[value].shape

    def dtype(self, value: Value) -> str:
        """Name of a value's dtype."""
        return value.dtype if isinstance(value, Const) else self.graph.tensors[value].dtype

    def tensor(self, value: Value) -> int:
        """The tensor of a value; a constant gets one when it is asked for the first time."""
        if not isinstance(value, Const):
            return value
        if value.tensor < 0 and not prod(value.shape):
            value.tensor = self.empty(value.shape, value.dtype)
        elif value.tensor < 0:
            value.tensor = add_constant(self.graph, value.name, value.source, value.shape, value.dtype)
        return value.tensor

    def array(self, values: np.ndarray, suffix: str) -> Const:
        """A new constant that belongs to this node."""
        return array_const(f"{self.name}.{suffix}", values)

    def empty(self, shape: Shape, dtype: str) -> int:
        """A tensor without elements: nothing makes it and no node reads it. Binding knows it as a constant."""
        return add_tensor(self.graph, self.name, shape, dtype)

    # ---- adding nodes ----

    def emit(self, op: str, inputs: list[Value], attrs: dict[str, Attr]) -> int:
        """Add a node of an internal or view operator, and return its output."""
        tensors = [self.tensor(v) for v in inputs]
        if not all(self.graph.tensors[i].size for i in tensors):
            return self._emit_less(op, tensors, attrs)
        return add_node(self.graph, self.name, op, tensors, attrs)

    def _emit_less(self, op: str, tensors: list[int], attrs: dict[str, Attr]) -> int:
        """Return the output of a node of which an input has no elements, without that input."""
        given = [self.graph.tensors[i] for i in tensors]
        node = Node(self.name, op, tensors, [], attrs)
        shape, dtype = infer_any(node, [t.shape for t in given], [t.dtype for t in given], least=0)
        full = [i for i, t in zip(tensors, given, strict=True) if t.size]
        if not prod(shape):
            return self.empty(shape, dtype)
        if op == "concat":
            return full[0] if len(full) == 1 else add_node(self.graph, self.name, op, full, attrs)
        if op == "scatter_at":  # no updates
            return tensors[0]
        if op == "matmul":  # sums of nothing
            return self.tensor(self.array(np.zeros(shape, np.float32), "zeros"))
        # A message that named the shape would make its sizes conditions, although another way is then taken.
        raise self.error("an input without elements makes a result that has some")

    def emit_panels(
        self, op: str, inputs: list[Value], attrs: dict[str, Attr], panels: PanelSource | BytePanels
    ) -> int:
        """Add a node with panels, and return its output."""
        tensors = [self.tensor(v) for v in inputs]
        if not prod(self.shape(inputs[0])):
            return self._emit_less(op, tensors[:1], attrs)
        weight = add_panels(self.graph, self.name, panels)
        return add_node(self.graph, self.name, op, tensors, attrs, weight)

    def reshape(self, value: Value, shape: Shape) -> Value:
        """``value`` with another shape of the same size."""
        if same_shape(self.shape(value), shape):
            return value
        if isinstance(value, Const):
            return value.reshaped(shape)
        return self.emit("reshape", [value], {"shape": list(shape)})

    def transpose(self, value: Value, perm: list[int]) -> Value:
        """``value`` with its dimensions permuted."""
        if perm == list(range(len(perm))):
            return value
        if isinstance(value, Const):
            return value.transposed(perm)
        return self.emit("copy", [value], copy_attrs(len(perm), perm=perm))

    def slice(self, value: Value, starts: list[int], sizes: list[int], steps: list[int]) -> Value:
        """Elements starts[i] + k * steps[i], k < sizes[i], of each dimension; steps are positive."""
        shape = self.shape(value)
        if all(s == 0 and n == d for s, n, d in zip(starts, sizes, shape, strict=True)):
            return value
        if 0 in sizes:
            return self.empty(tuple(sizes), self.dtype(value))
        return self.emit("slice", [value], {"starts": list(starts), "sizes": list(sizes), "steps": list(steps)})


def _alike(value: object, default: object) -> bool:
    if isinstance(default, list):
        return isinstance(value, list)
    return type(value) is type(default)


Lowering = Callable[[Context], list[Value]]
OWN = "flexnn."
"""Beginning of the names of operators that no standard has: expansions (graph/contrib) write them."""
LOWERINGS: Registry[Lowering] = Registry(
    __package__,
    {
        "convolution": "Conv",
        "elementwise": "Abs Acos Acosh Add Asin Asinh Atan Atanh BatchNormalization Cast CastLike Ceil Celu Clip Cos"
        " Cosh Div Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Log Max Mean Min Mish"
        " Mod Mul Neg PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt"
        " Sub Sum SwiGLU Swish Tan Tanh ThresholdedRelu",
        "indexing": "Compress.count Compress.slices GatherElements GatherND NonMaxSuppression.rows NonZero.count"
        " NonZero.indices ReverseSequence Scatter ScatterElements ScatterND TopK Unique.first Unique.groups"
        " Unique.members",
        "linear": "Gemm MatMul flexnn.MatMul flexnn.RoundedMatMul",
        "logic": "And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Equal Greater GreaterOrEqual IsInf IsNaN"
        " Less LessOrEqual Not Or Where Xor",
        "pooling": "AveragePool GlobalAveragePool GlobalMaxPool MaxPool",
        "reduction": "ArgMax ArgMax.u8 ArgMin CumProd CumSum GlobalLpPool GroupNormalization Hardmax"
        " InstanceNormalization LRN LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization"
        " RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin"
        " ReduceProd ReduceSum ReduceSumSquare SimplifiedLayerNormalization Softmax",
        "resizing": "Resize Upsample",
        "selection": "OneHot Range Trilu",
        "attention": "Attention RotaryEmbedding flexnn.RotaryEmbedding",
        "columns": "Col2Im",
        "coupling": "flexnn.Couple",
        "einsum": "Einsum",
        "fourier": "DFT STFT",
        "noise": "RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
        "quantised": "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul"
        " QuantizeLinear",
        "recurrent": "GRU LSTM RNN",
        "sampling": "GridSample RoiAlign",
        "state": "flexnn.CachedAttention flexnn.CrossAttention flexnn.KeptOnce flexnn.PastLengths",
        "transposed": "ConvTranspose",
        "trees": "flexnn.Trees",
    },
)
"""Lowerings by ONNX operator of the default domain; the modules of this package fill the table."""


def lowers(*operators: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of these ONNX operators."""

    def register(function: Lowering) -> Lowering:
        for operator in operators:
            LOWERINGS.register(operator, function)
        return function

    return register
