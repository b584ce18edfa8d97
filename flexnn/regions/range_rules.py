"""Rules of ranges, by ONNX operator: from the ranges of a node's inputs to those of its outputs."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from flexnn.graph.evaluate.of_node import evaluate_node
from flexnn.graph.ir import Array, Shape
from flexnn.graph.model import Constant, ModelNode
from flexnn.quick_dataclass import quick_dataclass

FEW = 64
"""Most elements of a value that have ranges of their own; more have one in common."""
MANY, EACH = 8, 8
"""Terms from which a sum is guessed, and the most that they are each. A word may take 50 frames of a sentence, but all
of its words do not; a budget for that would be more than any run takes.
"""


@quick_dataclass(frozen=True, slots=True)
class Range:
    """The least and the most that the elements of a value can be: arrays of float64 of the value's shape, or one number
    for all elements.
    """

    least: Array
    most: Array


@quick_dataclass(frozen=True, slots=True)
class Given:
    """Facts that a rule knows of a node."""

    node: ModelNode
    output: int
    """Number of the output that is asked for."""
    opset: int
    get: Callable[[int], Range | None]
    """Range of an input, None if it is left out."""
    shape: Callable[[int], Shape | None]
    """Shape of an input, None if it is not known."""
    made: Shape | None
    """Shape of the output, None if it is not known."""

    def of(self, i: int) -> Range:
        """Return the range of an input; of one that is left out nothing is known."""
        return self.get(i) or uniform()

    @property
    def all(self) -> list[Range]:
        """Ranges of all inputs."""
        return [self.of(i) for i in range(len(self.node.input))]

    def size(self, i: int) -> float:
        """Return the elements of an input."""
        shape = self.shape(i)
        return np.inf if shape is None else prod(shape)


def uniform(least: float = -np.inf, most: float = np.inf) -> Range:
    """Return the range of elements of which no more is known."""
    return Range(np.array(float(least)), np.array(float(most)))


def exact(array: Array) -> Range:
    """Return the range of known numbers."""
    if array.dtype.kind not in "biuf" or not array.size:
        return uniform()
    if array.size > FEW:
        return uniform(array.min(), array.max())
    return Range(array.astype(np.float64), array.astype(np.float64))


def hull(*ranges: Range) -> Range:
    """Return the range of elements that are in one of these ranges."""
    return uniform(min(float(r.least.min()) for r in ranges), max(float(r.most.max()) for r in ranges))


def node_range(given: Given) -> Range:
    """Return the range of a node's output."""
    rule = _RULES.get(given.node.op_type)
    if rule is None:
        return uniform()
    with np.errstate(all="ignore"):
        found = rule(given)
    least = np.where(np.isnan(found.least), -np.inf, found.least)
    most = np.where(np.isnan(found.most), np.inf, found.most)
    if given.made is not None and prod(given.made) <= FEW and least.shape in ((), given.made):
        return Range(np.broadcast_to(least, given.made), np.broadcast_to(most, given.made))
    return hull(Range(least, most)) if least.size else uniform()


Rule = Callable[[Given], Range]
_RULES: dict[str, Rule] = {}


def _rule(*operators: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(operators, rule))
        return rule

    return register


def _rising(function: Callable[[Array], Array]) -> Rule:
    """Return the rule of a function that never falls."""
    return lambda g: Range(function(g.of(0).least), function(g.of(0).most))


_RULES |= {
    "Relu": _rising(lambda x: np.maximum(x, 0)),
    "Ceil": _rising(np.ceil),
    "Floor": _rising(np.floor),
    "Round": _rising(np.rint),
    "Exp": _rising(np.exp),
    "Log": _rising(np.log),
    "Sqrt": _rising(lambda x: np.sqrt(np.maximum(x, 0))),
    "Sign": _rising(np.sign),
    "Not": lambda g: Range(1 - g.of(0).most, 1 - g.of(0).least),
    "Neg": lambda g: Range(-g.of(0).most, -g.of(0).least),
}
_RULES |= dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax"), lambda g: uniform(0, 1))
_RULES |= dict.fromkeys(("IsNaN", "IsInf", "Xor", "Equal"), lambda g: uniform(0, 1))
_RULES |= dict.fromkeys(("Tanh", "Erf", "Sin", "Cos", "Softsign"), lambda g: uniform(-1, 1))


@_rule("Cast")
def _cast(g: Given) -> Range:
    x, to = g.of(0), g.node.attrs.get("to")
    if to == 9:
        return uniform(0, 1)
    return Range(np.trunc(x.least), np.trunc(x.most)) if to in (2, 3, 4, 5, 6, 7, 12, 13) else x


@_rule("Abs")
def _abs(g: Given) -> Range:
    x = g.of(0)
    return Range(np.maximum(np.maximum(x.least, -x.most), 0), np.maximum(-x.least, x.most))


@_rule("Clip")
def _clip(g: Given) -> Range:
    x = g.of(0)
    low, high = (g.get(i) or _bound(g, name) for i, name in ((1, "min"), (2, "max")))
    return Range(
        np.minimum(np.maximum(x.least, low.least if low else -np.inf), high.least if high else np.inf),
        np.minimum(np.maximum(x.most, low.most if low else -np.inf), high.most if high else np.inf),
    )


def _bound(g: Given, name: str) -> Range | None:
    value = g.node.attrs.get(name)
    return uniform(value, value) if isinstance(value, int | float) else None


@_rule("Add", "Sum")
def _add(g: Given) -> Range:
    least, most = np.zeros(()), np.zeros(())
    for x in g.all:
        least, most = least + x.least, most + x.most
    return Range(least, most)


@_rule("Sub")
def _sub(g: Given) -> Range:
    a, b = g.of(0), g.of(1)
    return Range(a.least - b.most, a.most - b.least)


@_rule("Mul", "Div")
def _mul(g: Given) -> Range:
    a, b = g.of(0), g.of(1)
    if g.node.op_type == "Div":
        if not ((b.least > 0) | (b.most < 0)).all():
            return uniform()
        corners = [x / y for x in (a.least, a.most) for y in (b.least, b.most)]
        return Range(np.floor(np.minimum.reduce(corners)), np.ceil(np.maximum.reduce(corners)))
    corners = [x * y for x in (a.least, a.most) for y in (b.least, b.most)]
    return Range(np.minimum.reduce(corners), np.maximum.reduce(corners))


@_rule("Mod")
def _mod(g: Given) -> Range:
    a, b = g.of(0), g.of(1)
    most = np.maximum(np.abs(b.least), np.abs(b.most))
    if not g.node.attrs.get("fmod") and (b.least > 0).all():  # of integers, with the sign of the divisor
        return Range(np.zeros_like(most), np.minimum(most - 1, np.where(a.least >= 0, a.most, np.inf)))
    return Range(-most, most)


@_rule("Max")
def _max(g: Given) -> Range:
    return Range(_reduced(np.maximum, [x.least for x in g.all]), _reduced(np.maximum, [x.most for x in g.all]))


@_rule("Min")
def _min(g: Given) -> Range:
    return Range(_reduced(np.minimum, [x.least for x in g.all]), _reduced(np.minimum, [x.most for x in g.all]))


def _reduced(function: np.ufunc, arrays: list[Array]) -> Array:
    found = arrays[0]
    for array in arrays[1:]:
        found = np.asarray(function(found, array))
    return found


@_rule("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def _compared(g: Given) -> Range:
    a, b = (g.of(1), g.of(0)) if g.node.op_type.startswith("Greater") else (g.of(0), g.of(1))
    function = np.less_equal if g.node.op_type.endswith("OrEqual") else np.less
    return Range(function(a.most, b.least).astype(np.float64), function(a.least, b.most).astype(np.float64))


@_rule("And")
def _and(g: Given) -> Range:
    a, b = g.of(0), g.of(1)
    return Range(np.minimum(a.least, b.least), np.minimum(a.most, b.most))


@_rule("Or")
def _or(g: Given) -> Range:
    a, b = g.of(0), g.of(1)
    return Range(np.maximum(a.least, b.least), np.maximum(a.most, b.most))


@_rule("ReduceMax", "ReduceMin", "ReduceMean", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
def _among(g: Given) -> Range:
    return hull(g.of(0)) if not g.output else uniform(0)


@_rule("ReduceSum", "CumSum", "ReduceL1")
def _total(g: Given) -> Range:
    """A sum has at most as many terms as there are elements, and none is left where an axis is empty. What many terms
    that may be large make together is guessed.
    """
    x = hull(g.of(0))
    if g.node.op_type == "ReduceL1":
        x = uniform(0, max(abs(float(x.least)), abs(float(x.most))))
    terms = g.size(0)
    if g.node.op_type != "CumSum" and g.made:
        terms = terms // max(prod(g.made), 1)
    each = min(float(x.most), EACH) if np.isfinite(x.most) and terms >= MANY else float(x.most)
    return uniform(min(0.0, float(x.least) * terms), max(0.0, each * terms))


@_rule("Where")
def _where(g: Given) -> Range:
    a, b = g.of(1), g.of(2)
    return Range(np.minimum(a.least, b.least), np.maximum(a.most, b.most))


# ---- elements that move ----


@_rule("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Tile", "Gather", "Slice")
def _moved(g: Given) -> Range:
    """Move the elements of small values as the node does; of others, or where they become many, all have one range."""
    x = g.of(0)
    shape = g.shape(0)
    grows = g.node.op_type in ("Expand", "Tile", "Gather")
    if grows if g.made is None else prod(g.made) > FEW:
        return hull(x)
    rest = [g.get(i) for i in range(1, len(g.node.input))]
    if shape is None or prod(shape) > FEW or any(r is not None and (r.least != r.most).any() for r in rest):
        return hull(x)
    given = [None if r is None else r.most.astype(np.int64) for r in rest]
    least, most = (np.broadcast_to(side, shape) for side in (x.least, x.most))
    sides = [evaluate_node(g.node, [np.array(side), *given], g.opset)[0] for side in (least, most)]
    return Range(sides[0], sides[1])


@_rule("Concat")
def _concat(g: Given) -> Range:
    shapes = [g.shape(i) for i in range(len(g.node.input))]
    if any(shape is None or prod(shape) > FEW for shape in shapes):
        return hull(*g.all)
    pairs = list(zip(g.all, [shape or () for shape in shapes], strict=True))
    least = [np.array(np.broadcast_to(x.least, shape)) for x, shape in pairs]
    most = [np.array(np.broadcast_to(x.most, shape)) for x, shape in pairs]
    return Range(evaluate_node(g.node, least, g.opset)[0], evaluate_node(g.node, most, g.opset)[0])


@_rule("GatherElements", "GatherND", "Split", "Compress", "Compress.slices", "DepthToSpace", "SpaceToDepth")
def _picked(g: Given) -> Range:
    return hull(g.of(0))


@_rule("Resize", "Upsample")
def _resized(g: Given) -> Range:
    """Take elements, or means of some; cubic curves go beyond them."""
    if g.node.attrs.get("mode", "nearest") in ("cubic", b"cubic"):
        return uniform()
    given = g.node.attrs.get("extrapolation_value", 0.0)
    outside = float(given) if isinstance(given, float | int) else 0.0
    crops = g.node.attrs.get("coordinate_transformation_mode", "") in ("tf_crop_and_resize", b"tf_crop_and_resize")
    return hull(g.of(0), *([uniform(outside, outside)] if crops else []))


@_rule("Pad", "Trilu")
def _padded(g: Given) -> Range:
    return hull(g.of(0), uniform(0, 0), *([g.of(2)] if len(g.node.input) > 2 and g.node.input[2] else []))


@_rule("ScatterElements", "ScatterND", "Scatter")
def _scattered(g: Given) -> Range:
    return uniform() if g.node.attrs.get("reduction", "none") not in ("none", b"none") else hull(g.of(0), g.of(2))


@_rule("TopK")
def _top(g: Given) -> Range:
    return uniform(0, max(g.shape(0) or (np.inf,), default=0)) if g.output else hull(g.of(0))


# ---- numbers from shapes ----


@_rule("Shape")
def _shape(g: Given) -> Range:
    shape = g.shape(0)
    if shape is None:
        return uniform(0)
    start, end = (g.node.attrs.get(name, default) for name, default in (("start", 0), ("end", len(shape))))
    assert isinstance(start, int)
    assert isinstance(end, int)
    dims = np.array(shape[start:end], np.float64)
    return Range(np.zeros_like(dims), dims)


@_rule("Size", "NonZero.count", "Unique.members", "Unique.first", "Unique.groups")
def _size(g: Given) -> Range:
    return uniform(0, g.size(0))


@_rule("Compress.count")
def _count(g: Given) -> Range:
    return uniform(0, min(g.size(0), g.size(1)))


@_rule("NonZero.indices", "ArgMax", "ArgMin", "NonZero")
def _index(g: Given) -> Range:
    return uniform(0, max(g.shape(0) or (np.inf,), default=0))


@_rule("NonMaxSuppression.rows")
def _rows(g: Given) -> Range:
    return uniform(0, max(g.shape(1) or (np.inf,)))


@_rule("Range")
def _range(g: Given) -> Range:
    return hull(g.of(0), g.of(1))


@_rule("OneHot")
def _one_hot(g: Given) -> Range:
    return hull(g.of(2))


@_rule("Constant", "ConstantOfShape")
def _constant(g: Given) -> Range:
    value = g.node.attrs.get("value")
    if isinstance(value, Constant):
        return hull(exact(np.asarray(value.source.load())))
    return uniform(0, 0) if g.node.op_type == "ConstantOfShape" else uniform()
