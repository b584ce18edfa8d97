"""Rows of an operator: what some rows of its output need of its inputs, and the node that computes only these rows.

Rows are positions along an axis of the output, of one image where axis 0 has several. Most operators need a range of
each input that moves with the rows; an operator that mixes all rows says so, and is computed whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, prod
from typing import NamedTuple

import numpy as np

from ..attributes import float_attr, int_attr, ints_attr
from ..ir import Attr, Node, Shape

SCALE_ONE = 1 << 20
"""Fixed-point 1 of scales that are no ratio of heights."""


class Need(NamedTuple):
    """Rows of an input that rows y0 to y1 - 1 of the output need: from floor((num * y0 + low) / den) to
    floor((num * (y1 - 1) + high) / den), both included, as far as they lie inside the input.
    """

    axis: int
    """Axis of the input that its rows are on; -1: all of the input is needed, of the image at hand."""
    num: int = 1
    low: int = 0
    high: int = 0
    den: int = 1

    def of(self, y0: int, y1: int, height: int) -> tuple[int, int]:
        """Return the first row and the row behind the last one, of an input of ``height`` rows."""
        low, high = (self.num * y0 + self.low) // self.den, (self.num * (y1 - 1) + self.high) // self.den
        return min(max(low, 0), height - 1), min(max(high, 0), height - 1) + 1


WHOLE = Need(-1)


class Cut(NamedTuple):
    """Rows that a node computes, of those that the whole node does."""

    axis: int
    """Axis of the output that the rows are on."""
    rows: tuple[int, int]
    """First row, and the row behind the last one."""
    taken: tuple[int, int]
    """Rows of the first input that the node reads."""
    shape: Shape
    """Shape of the whole first input."""
    output: Shape
    """Shape of the whole output."""


RowRule = Callable[[Node, Sequence[Shape], Shape, int], "tuple[Need, ...] | None"]
"""Return what each input is needed for rows on an axis of the output, from the shapes of inputs and output; None where
the operator cannot compute some of these rows alone.
"""
CutRule = Callable[[Node, Cut], "dict[str, Attr]"]


class Halves(NamedTuple):
    """Attributes of two nodes of an operator that, one after the other, compute what one node does. A node that leaves
    something of each row already is the first of them.
    """

    first: dict[str, Attr]
    """Those of the node that leaves something of each row."""
    then: dict[str, Attr] | None
    """Those of the node that joins these; None: the graph has that node already."""


HalvesRule = Callable[[Node, Shape, str, int], "Halves | None"]
"""Return the halves of a node whose first input has this shape and type, and rows on this axis; None: it has none."""


def no_halves(node: Node, shape: Shape, dtype: str, axis: int) -> None:
    """Return None: what the operator computes is not computed from rows apart."""


def whole_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return None: the output is computed whole."""
    return None


def keep_attrs(node: Node, cut: Cut) -> dict[str, Attr]:
    """Return the node's own attributes."""
    return node.attrs


def same_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the same rows of each input, all of those that are broadcast along the axis. What an operator states of
    its last axis (a scale, a bias) has no rows.
    """
    if axis == len(output) - 1:
        return None
    places = [axis - len(output) + len(shape) for shape in inputs]
    varies = [place >= 0 and shape[place] == output[axis] for place, shape in zip(places, inputs, strict=True)]
    return tuple(Need(place) if moves else WHOLE for place, moves in zip(places, varies, strict=True))


def apart_from_axis(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the same rows of the input, unless the operator runs along them."""
    return None if int_attr(node, "axis") == axis else (Need(axis),)


def quantize_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the same rows of the first input; scales are for other axes, or for all elements."""
    is_measured = len(inputs) == 2 and node.attrs["to"] == "u8"  # ``byte_steps`` leaves two numbers for all
    varies = not is_measured and any(max(shape, default=1) > 1 for shape in inputs[1:])
    if varies and int_attr(node, "axis") in (0, axis):
        return None
    return (Need(axis), *(WHOLE for _ in inputs[1:]))


def matmul_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the same rows of the left operand and all of the right one."""
    if axis == len(output) - 2 and prod(inputs[1][:-2]) == 1:
        return Need(len(inputs[0]) - 2), WHOLE
    return same_rows(node, inputs, output, axis) if axis < len(output) - 2 else None


def reduced_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the same rows of the input, unless they are reduced."""
    return (Need(axis),) if axis < ints_attr(node, "axes")[0] else None


OF_ROWS = {
    "mean": ("mean", "mean"),  # rows are equally long
    "sum": ("sum", "sum"),
    "prod": ("prod", "prod"),
    "l1": ("l1", "sum"),
    "l2": ("l2", "l2"),
    "sum_square": ("sum_square", "sum"),
    "log_sum": ("sum", "log_sum"),
    "log_sum_exp": ("log_sum_exp", "log_sum_exp"),
}
"""Kinds of reductions of floats: of each row, and of what these leave."""
OF_ANY_ROWS = {"max": ("max", "max"), "min": ("min", "min")}
"""The same for elements of any type: what rows leave is exact."""


def reduced_halves(node: Node, shape: Shape, dtype: str, axis: int) -> Halves | None:
    """Return a reduction of each row, and one of what these leave."""
    axes, kind = ints_attr(node, "axes"), str(node.attrs["kind"])
    kinds = OF_ANY_ROWS.get(kind) or (OF_ROWS.get(kind) if dtype in ("f32", "f64") else None)
    if kinds is None or axes[0] != axis or prod(shape[i] for i in axes[1:]) == 1:
        return None
    return Halves({"kind": kinds[0], "axes": axes[1:], "keepdims": 1}, node.attrs | {"kind": kinds[1]})


def window_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the rows under a sliding window over [n,h,w,c], and the same rows of a residual."""
    if axis == 0:
        return tuple(Need(0) for _ in inputs)
    if axis not in (1, 2):
        return None
    if node.attrs.get("kind", "max") != "max" and int_attr(node, "ceil_mode"):
        return None  # the divisor of its last windows counts what lies beyond the padding
    kernel, stride, dilation = (ints_attr(node, name)[axis - 1] for name in ("kernel", "strides", "dilations"))
    before, after = ints_attr(node, "pads")[axis - 1], ints_attr(node, "pads")[axis + 1]
    span = (kernel - 1) * dilation + 1
    if (before >= span or after >= span) and (axis != 1 or "group" not in node.attrs):
        return None  # windows that lie in the padding alone: of convolutions they have the bias
    return (Need(axis, stride, -before, span - 1 - before), *(Need(axis) for _ in inputs[1:]))


def cut_window(node: Node, cut: Cut) -> dict[str, Attr]:
    """Return attributes with the padding that these rows meet."""
    if not cut.axis:
        return node.attrs
    side = cut.axis - 1
    kernel, stride, dilation = (ints_attr(node, name)[side] for name in ("kernel", "strides", "dilations"))
    pads = list(ints_attr(node, "pads"))
    start, end = cut.rows[0] * stride - pads[side], (cut.rows[1] - 1) * stride - pads[side]
    span = (kernel - 1) * dilation + 1
    if end + span <= 0 or start >= cut.shape[cut.axis]:
        return _in_padding(node, side, span, cut.rows[1] - cut.rows[0])
    pads[side] = cut.taken[0] - start
    pads[side + 2] = max(end + span - cut.taken[1], 0)
    attrs: dict[str, Attr] = node.attrs | {"pads": pads}
    return attrs | {"ceil_mode": 0} if "ceil_mode" in attrs else attrs


def _in_padding(node: Node, side: int, span: int, count: int) -> dict[str, Attr]:
    """Return attributes by which so many windows lie in the padding before the one row that the node reads."""
    pads, strides = list(ints_attr(node, "pads")), list(ints_attr(node, "strides"))
    strides[side] = 2  # steps of one would reach the row
    pads[side], pads[side + 2] = (count - 1) * strides[side] + span, 0
    return node.attrs | {"pads": pads, "strides": strides}


def _source(node: Node, size: int, out: int, given: float) -> tuple[int, int, int, int]:
    """Return num, low, den, and more rows on either side: output row i lies at (num * i + low) / den of the input."""
    coord = str(node.attrs["coord"])
    if coord == "align_corners":
        return (size - 1, 0, out - 1, 0) if out > 1 else (0, 0, 1, 0)
    is_ratio = np.float32(given) == np.float32(out / size)
    if coord == "pytorch_half_pixel" and out == 1:
        return 0, 0, 1, 0
    if is_ratio:
        return (size, 0, out, 0) if coord == "asymmetric" else (2 * size, size - out, 2 * out, 0)
    step = round(SCALE_ONE / given)
    if coord == "asymmetric":
        return step, 0, SCALE_ONE, 1
    if coord == "half_pixel_symmetric":
        middle = (size - 1) / 2 + (0.5 - 0.5 * out) / given
        return step, floor(middle * SCALE_ONE), SCALE_ONE, 1
    return 2 * step, step - SCALE_ONE, 2 * SCALE_ONE, 1


def resize_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the rows between which rows of the output lie."""
    if axis != 1:
        return None if axis else (Need(0),)
    num, low, den, more = _source(node, inputs[0][1], output[1], float_attr(node, "scale_h"))
    is_floor = node.attrs["mode"] == "nearest" and node.attrs["nearest"] == "floor"
    return (Need(1, num, low - more * den, low + (more + (not is_floor)) * den, den),)


def resample_reach(node: Node, scale: float) -> float:
    """Return how far neighbours count in a resize by weighted sums."""
    shrinks = int_attr(node, "is_antialiased") and scale < 1
    return (2 if int_attr(node, "is_cubic") else 1) / (float(np.float32(scale)) if shrinks else 1.0)


def resample_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the rows that count for rows of the output."""
    if axis != 1:
        return None if axis else (Need(0),)
    size, out, scale = inputs[0][1], output[1], float_attr(node, "scale_h")
    if size == out and scale == 1:
        return (Need(1),)
    num, low, den, more = _source(node, size, out, scale)
    far = ceil(resample_reach(node, scale)) + more
    return (Need(1, num, low - far * den, low + far * den, den),)


def cut_resize(node: Node, cut: Cut) -> dict[str, Attr]:
    """Return attributes that say where these rows lie in the whole map."""
    if not cut.axis:
        return node.attrs
    sizes = [cut.rows[1] - cut.rows[0], ints_attr(node, "sizes")[1]]
    return node.attrs | {"sizes": sizes, "part": [cut.rows[0], cut.output[1], cut.taken[0], cut.shape[1]]}


def block_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the rows whose blocks of pixels hold rows of the output."""
    if axis == 0:
        return (Need(0),)
    if axis not in (1, 2):
        return None
    before = ints_attr(node, "crop")[axis - 1]
    return (Need(axis, 1, before, before, ints_attr(node, "blocks")[axis - 1]),)


def cut_blocks(node: Node, cut: Cut) -> dict[str, Attr]:
    """Return attributes that leave out what of the first and the last block these rows are without."""
    if not cut.axis:
        return node.attrs
    side, crop = cut.axis - 1, list(ints_attr(node, "crop"))
    block, count = ints_attr(node, "blocks")[side], cut.rows[1] - cut.rows[0]
    crop[side] += cut.rows[0] - cut.taken[0] * block
    crop[side + 2] = (cut.taken[1] - cut.taken[0]) * block - crop[side] - count
    return node.attrs | {"crop": crop}


def copy_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the same rows, which a transposition may find on another axis."""
    perm = ints_attr(node, "perm")
    if perm[0] != 0 and output[0] > 1:
        return None
    place = perm[axis]
    return (Need(place) if inputs[0][place] == output[axis] else WHOLE,)


def cut_copy(node: Node, cut: Cut) -> dict[str, Attr]:
    """Return attributes that expand to as many rows."""
    expand = list(ints_attr(node, "expand"))
    if not expand[cut.axis]:
        return node.attrs
    expand[cut.axis] = cut.rows[1] - cut.rows[0]
    return node.attrs | {"expand": expand}


def pad_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the rows that are not padding; of rows that are, the nearest one."""
    before, after, interior = (ints_attr(node, name) for name in ("before", "after", "interior"))
    if output[0] > 1 and (before[0] or after[0] or interior[0]):
        return None
    if node.attrs["mode"] not in ("constant", "edge") and (before[axis] or after[axis]):
        return None  # a reflection needs rows in the other order
    step = interior[axis] + 1
    return (Need(axis, 1, step - 1 - before[axis], -before[axis], step),)


def cut_pad(node: Node, cut: Cut) -> dict[str, Attr]:
    """Return attributes with the padding that these rows have."""
    before, after, interior = (list(ints_attr(node, name)) for name in ("before", "after", "interior"))
    step, taken = interior[cut.axis] + 1, cut.taken[1] - cut.taken[0]
    before[cut.axis] += cut.taken[0] * step - cut.rows[0]
    after[cut.axis] = cut.rows[1] - cut.rows[0] - before[cut.axis] - ((taken - 1) * step + 1)
    return node.attrs | {"before": before, "after": after}
