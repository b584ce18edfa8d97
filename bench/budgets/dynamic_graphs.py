"""Random graphs whose sizes and paths data decide: operators with counted outputs, branches, loops, nested.

A value [rows, columns] of small whole numbers goes through pieces; each of them changes it or its number of rows. Whole
numbers keep every comparison and count exact, whatever computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
ELEMENTS_MAX = 3 << 18
"""Most elements of the value between the pieces."""
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Maker:
    """Maker of one graph, or of the graph of a branch or a body, which reads the values of those around it."""

    def __init__(self, random: np.random.Generator, columns: int, prefix: str = "v") -> None:
        self.random, self.columns, self.prefix = random, columns, prefix
        self.nodes: list[onnx.NodeProto] = []
        self.extras: list[tuple[str, int]] = []
        """Further outputs of the graph, with their element types."""
        self._count = 0

    def name(self) -> str:
        self._count += 1
        return f"{self.prefix}{self._count}"

    def node(self, op: str, *inputs: str, outputs: int = 1, **attrs: object) -> str:
        """Add a node; return the name of its first output (the others: name_1, name_2 …)."""
        name = self.name()
        names = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attrs))
        return name

    def constant(self, value: object, dtype: type = np.int64) -> str:
        return self.node("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def rows(self, x: str) -> str:
        """Return the number of rows of x, as a list of one."""
        return self.node("Shape", x, end=1)

    def clip(self, x: str) -> str:
        return self.node("Clip", x, self.constant(-16.0, np.float32), self.constant(16.0, np.float32))

    def above(self, x: str) -> str:
        return self.node("Greater", x, self.constant(float(self.number(-2, 3)), np.float32))

    def count(self, x: str, size: str) -> str:
        """Return x changed by a count (a list of integers)."""
        total = self.node("ReduceSum", self.node("Mod", size, self.constant([5])), keepdims=0)
        return self.clip(self.node("Add", x, self.node("Cast", total, to=F32)))

    def child(self) -> Maker:
        return Maker(self.random, self.columns, f"{self.name()}_")

    def graph(
        self, name: str, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[tuple[str, int]]
    ) -> onnx.GraphProto:
        made = [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs]
        return helper.make_graph(self.nodes, name, list(inputs), made)


Grown = tuple[str, int]
"""A value [rows, columns] and the most rows it has."""
Piece = Callable[[Maker, str, int], Grown]


def non_zero(make: Maker, x: str, rows: int) -> Grown:
    found = make.node("NonZero", make.above(x))
    picked = make.node("GatherND", x, make.node("Transpose", found))
    make.extras.append((picked, F32))
    return make.count(x, make.node("Shape", found)), rows


def compress(make: Maker, x: str, rows: int) -> Grown:
    condition = make.above(make.node("ReduceMax", x, axes=[1], keepdims=0))
    first = make.node("Slice", x, make.constant([0]), make.constant([1]))
    return make.node("Concat", first, make.node("Compress", x, condition, axis=0), axis=0), rows + 1


def unique(make: Maker, x: str, rows: int) -> Grown:
    found = make.node("Unique", make.node("Reshape", x, make.constant([-1])), outputs=4)
    make.extras.append((f"{found}_3", I64))
    again = make.node("Gather", found, f"{found}_2")
    return make.count(make.node("Reshape", again, make.node("Shape", x)), make.node("Shape", found)), rows


def top_k(make: Maker, x: str, rows: int) -> Grown:
    half = make.node("Div", make.node("Add", make.rows(x), make.constant([1])), make.constant([2]))
    return make.node("TopK", x, half, outputs=2, axis=0, largest=make.number(0, 1)), rows // 2 + 1


def suppression(make: Maker, x: str, rows: int) -> Grown:
    low = make.node("Slice", x, make.constant([0]), make.constant([2]), make.constant([1]))
    size = make.node("Abs", make.node("Slice", x, make.constant([2]), make.constant([4]), make.constant([1])))
    high = make.node("Add", make.node("Add", low, size), make.constant(1.0, np.float32))
    boxes = make.node("Unsqueeze", make.node("Concat", low, high, axis=1), make.constant([0]))
    scores = make.node("Slice", x, make.constant([4]), make.constant([5]), make.constant([1]))
    scores = make.node("Unsqueeze", make.node("Transpose", scores), make.constant([0]))
    limits = make.constant([make.number(1, 50)]), make.constant([0.4321], np.float32), make.constant([0.5], np.float32)
    return make.count(x, make.node("Shape", make.node("NonMaxSuppression", boxes, scores, *limits))), rows


def every_other(make: Maker, x: str, rows: int) -> Grown:
    zero = make.constant(0)
    count = make.node("Squeeze", make.rows(x))
    return make.node("Gather", x, make.node("Range", zero, count, make.constant(2)), axis=0), rows // 2 + 1


def made_of_shape(make: Maker, x: str, rows: int) -> Grown:
    most = make.node("Cast", make.node("ReduceMax", make.node("Abs", x), keepdims=0), to=I64)
    wide = make.node("Add", make.node("Reshape", most, make.constant([1])), make.constant([make.number(1, 40)]))
    shape = make.node("Concat", make.rows(x), wide, axis=0)
    ones = make.node("ConstantOfShape", shape, value=helper.make_tensor("value", I64, [1], [1]))
    return make.count(x, make.node("Shape", make.node("NonZero", ones))), rows


def made_of_rows(make: Maker, x: str, rows: int) -> Grown:
    size = make.node("Mul", make.rows(x), make.constant([make.number(1, 4000)]))
    many = make.node("Tile", make.constant([make.number(1, 9)]), size)
    if make.number(0, 1):
        many = make.node("CumSum", many, make.constant(0))
    else:
        count = make.node("Squeeze", size)
        many = make.node("Sub", make.node("Range", make.constant(0), count, make.constant(1)), many)
    return make.count(x, make.node("ReduceMax", many, axes=[0])), rows


def expand(make: Maker, x: str, rows: int) -> Grown:
    top = make.node("Expand", make.node("ReduceMax", x, axes=[0]), make.node("Shape", x))
    return make.clip(make.node("Sub", top, x)), rows


def tile(make: Maker, x: str, rows: int) -> Grown:
    return make.node("Tile", x, make.constant([2, 1])), 2 * rows


def where(make: Maker, x: str, rows: int) -> Grown:
    return make.node("Where", make.above(x), x, make.node("Neg", x)), rows


def gather_elements(make: Maker, x: str, rows: int) -> Grown:
    index = make.node("Mod", make.node("Cast", make.node("Abs", x), to=I64), make.rows(x))
    return make.node("GatherElements", x, index, axis=0), rows


def scatter_elements(make: Maker, x: str, rows: int) -> Grown:
    index = make.node("Mod", make.node("Cast", make.node("Abs", x), to=I64), make.rows(x))
    return make.clip(make.node("ScatterElements", x, index, make.node("Neg", x), axis=0, reduction="add")), rows


def scatter_nd(make: Maker, x: str, rows: int) -> Grown:
    places = make.node("Transpose", make.node("NonZero", make.above(x)))
    return make.node("ScatterND", x, places, make.node("Neg", make.node("GatherND", x, places))), rows


def cumulated(make: Maker, x: str, rows: int) -> Grown:
    total = make.node("CumSum", x, make.constant(0), exclusive=make.number(0, 1), reverse=make.number(0, 1))
    return make.node("Mod", total, make.constant(7.0, np.float32), fmod=1), rows


def spectrum(make: Maker, x: str, rows: int) -> Grown:
    made = make.node("DFT", make.node("Unsqueeze", x, make.constant([2])), axis=make.number(0, 1))
    make.extras.append((made, F32))
    return make.count(x, make.node("Shape", made)), rows


def resize(make: Maker, x: str, rows: int) -> Grown:
    x = make.node("Unsqueeze", x, make.constant([0, 1]))
    scales = make.constant([1, 1, 2, 1], np.float32)
    more = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return make.node(
        "Squeeze", make.node("Resize", x, "", scales, mode="nearest", **more), make.constant([0, 1])
    ), 2 * rows


def branch(make: Maker, x: str, rows: int) -> Grown:
    condition = make.node("Greater", make.node("ReduceSum", x, keepdims=0), make.constant(0.0, np.float32))
    graphs, most = [], 0
    for name in ("then", "else"):
        inner = make.child()
        y, grown = several(inner, x, rows, 2)
        graphs.append(inner.graph(name, [], [(inner.node("Identity", y), F32)]))
        most = max(most, grown)
    return make.node("If", condition, then_branch=graphs[0], else_branch=graphs[1]), most


def _body(make: Maker, carried: str) -> list[onnx.ValueInfoProto]:
    info = helper.make_tensor_value_info
    return [info(f"{carried}_i", I64, []), info(f"{carried}_c", BOOL, []), info(carried, F32, [None, make.columns])]


def stacked(make: Maker, x: str, rows: int) -> Grown:
    """A loop as often as a value of x says; it stacks all values of x."""
    most = make.node("Cast", make.node("ReduceMax", make.node("Abs", x), keepdims=0), to=I64)
    trips = make.node("Add", make.node("Mod", most, make.constant(8)), make.constant(make.number(1, 12)))
    inner, carried = make.child(), make.name()
    step = make.number(1, 3)
    y = inner.clip(inner.node("Add", carried, inner.constant(float(step), np.float32)))
    if make.random.random() < 0.5:
        y = FIXED[make.number(0, len(FIXED) - 1)](inner, y, rows)[0]
    going, row = inner.node("Identity", f"{carried}_c"), inner.node("Identity", y)
    body = inner.graph("body", _body(make, carried), [(going, BOOL), (y, F32), (row, F32)])
    name = make.node("Loop", trips, "", x, outputs=2, body=body)
    make.extras.append((f"{name}_1", F32))
    return name, rows


def growing(make: Maker, x: str, rows: int) -> Grown:
    """A loop whose carried value grows until it has enough rows."""
    enough = make.node("Add", make.node("Squeeze", make.rows(x)), make.constant(make.number(1, rows)))
    inner, carried = make.child(), make.name()
    part = inner.node("Slice", x, inner.constant([0]), inner.constant([max(rows // 8, 1)]))
    y = inner.node("Concat", carried, part, axis=0)
    going = inner.node("Less", inner.node("Squeeze", inner.rows(y)), enough)
    body = inner.graph("body", _body(make, carried), [(going, BOOL), (y, F32)])
    return make.node("Loop", "", make.constant(True, np.bool_), x, body=body), 3 * rows


def repeated(make: Maker, x: str, rows: int) -> Grown:
    """A loop over other pieces, branches and loops among them."""
    inner, carried = make.child(), make.name()
    y, grown = several(inner, carried, rows, 2, (*FIXED, branch_fixed))
    going = inner.node("Greater", inner.node("ReduceSum", y, keepdims=0), inner.constant(0.0, np.float32))
    body = inner.graph("body", _body(make, carried), [(going, BOOL), (inner.node("Identity", y), F32)])
    return make.node("Loop", make.constant(make.number(1, 6)), "", x, body=body), grown


def branch_fixed(make: Maker, x: str, rows: int) -> Grown:
    """A branch that keeps the number of rows."""
    condition = make.node("Greater", make.node("ReduceSum", x, keepdims=0), make.constant(0.0, np.float32))
    graphs = []
    for name in ("then", "else"):
        inner = make.child()
        y, _ = several(inner, x, rows, 2, FIXED)
        graphs.append(inner.graph(name, [], [(inner.node("Identity", y), F32)]))
    return make.node("If", condition, then_branch=graphs[0], else_branch=graphs[1]), rows


FIXED: tuple[Piece, ...] = (
    *(non_zero, unique, suppression, made_of_shape, made_of_rows, expand, where),
    *(gather_elements, scatter_elements, scatter_nd, cumulated, spectrum),
)
GROWING: tuple[Piece, ...] = tile, resize, growing
PIECES: tuple[Piece, ...] = (
    *FIXED,
    *(compress, top_k, every_other, *GROWING),
    *(branch, stacked, stacked, repeated, branch_fixed),
)


def several(make: Maker, x: str, rows: int, most: int, pieces: Sequence[Piece] = PIECES) -> Grown:
    """Return x after one to ``most`` random pieces."""
    for _ in range(make.number(1, most)):
        piece = pieces[make.number(0, len(pieces) - 1)]
        if piece in (*GROWING, branch) and 6 * rows * make.columns > ELEMENTS_MAX:
            continue
        x, rows = piece(make, x, rows)
    return x, rows


def random_graph(seed: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """Return a model with an open number of rows, and its input x."""
    random = np.random.default_rng(seed)
    columns, rows = int(random.choice([8, 16, 64])), int(random.integers(100, 6000))
    make = Maker(random, columns)
    x, _ = several(make, "x", rows, 7)
    x = make.node("Identity", x)
    shape = make.node("Shape", x)
    outputs = [(x, F32), (shape, I64), *dict.fromkeys(make.extras)]
    graph = make.graph("dynamic", [helper.make_tensor_value_info("x", F32, ["rows", columns])], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return model, random.integers(-6, 7, (rows, columns)).astype(np.float32)
