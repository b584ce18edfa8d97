"""Shared parts of records: attributes, inferred shapes and C fields that several operators have."""

from __future__ import annotations

from flexnn import _core

from ..attributes import Enum, Float, Ints, Spec, float_attr, ints_attr, node_error
from ..ir import Attr, Node, Shape, Tensor
from ..strided import collapse, same
from .record import Values


def enum(name: str) -> Enum:
    """The attribute that takes a name of enumeration ``name`` (FX_ENUMS in params.h)."""
    return Enum(tuple(_core.ENUMS[name]))


def enum_without(name: str, missing: str) -> Enum:
    """The attribute that takes every name of an enumeration but ``missing``."""
    return Enum(tuple(n for n in _core.ENUMS[name] if n != missing))


def enum_index(name: str, value: Attr) -> int:
    """Number of a name of an enumeration."""
    return list(_core.ENUMS[name]).index(str(value))


PAIR = Ints(2, 1)
ACT: dict[str, Spec] = {"act": enum("act"), "alpha": Float(), "beta": Float()}
PLAIN_ACT: dict[str, Spec] = {"act": enum_without("act", "prelu"), "alpha": Float(), "beta": Float()}
"""An activation without slopes for each channel, which only panels hold."""
SPATIAL: dict[str, Spec] = {"kernel": PAIR, "strides": PAIR, "dilations": PAIR, "pads": Ints(4)}
"""A sliding window over (height, width); pads: top, left, bottom, right."""


# ---- inferring ----


def image(node: Node, shape: Shape) -> tuple[int, int, int, int]:
    """The dimensions of an input [n,h,w,c]. Raises GraphError for another rank."""
    if len(shape) != 4:
        raise node_error(node, f"input of shape {shape} is not [n,h,w,c]")
    return shape[0], shape[1], shape[2], shape[3]


def window_sizes(node: Node, height: int, width: int, ceil: bool = False) -> tuple[int, int]:
    """Height and width of the output of a sliding window."""
    sizes = []
    for i, size in enumerate((height, width)):
        kernel, stride, dilation = (ints_attr(node, name)[i] for name in ("kernel", "strides", "dilations"))
        before, after = ints_attr(node, "pads")[i], ints_attr(node, "pads")[i + 2]
        room = size + before + after - ((kernel - 1) * dilation + 1)
        out = room // stride + 1
        # A last (or only) window may hang over the end, but must start inside the input or the padding before it.
        if ceil and room % stride and out * stride < size + before:
            out += 1
        if out < 1:
            raise node_error(node, f"a window of {kernel} does not fit into {size} elements")
        sizes.append(out)
    return sizes[0], sizes[1]


def infer_same(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    """Shape and dtype of the first input."""
    return shapes[0], dtypes[0]


SUMS: dict[str, Spec] = {"sums": Enum(("f32", "i32"))}
"""Type of sums of products, and of the output: i32 of integers in float32, exact."""
ROUNDED_SUMS: dict[str, Spec] = {"sums": Enum(("f32", "i32", "i8"))}
"""The same, or i8: sums in float32 of rows that are rounded to 8 bits, by weights in blocks of 32."""


# ---- encoding ----


def act_fields(node: Node) -> Values:
    """Fields of the activation."""
    act = enum_index("act", node.attrs["act"])
    return {"act": act, "alpha": float_attr(node, "alpha"), "beta": float_attr(node, "beta")}


def window_fields(node: Node) -> Values:
    """Fields of a sliding window."""
    (kh, kw), (sh, sw), (dh, dw) = (ints_attr(node, name) for name in ("kernel", "strides", "dilations"))
    pads = ints_attr(node, "pads")
    return {"kh": kh, "kw": kw, "sh": sh, "sw": sw, "dh": dh, "dw": dw, "pt": pads[0], "pl": pads[1]}


def pixel_strides(prefix: str, tensor: Tensor | None) -> Values:
    """Strides of batch, row and pixel of an image; zeros where there is none."""
    strides = tensor.strides[:3] if tensor else (0, 0, 0)
    return {f"{prefix}_s{axis}": stride for axis, stride in zip("nhw", strides, strict=True)}


def broadcast_strides(tensor: Tensor, shape: Shape) -> Shape:
    """Strides of ``tensor`` seen with ``shape``: 0 where it is broadcast."""
    missing = len(shape) - len(tensor.shape)
    own = zip(tensor.shape, tensor.strides, shape[missing:], strict=True)
    return (0,) * missing + tuple(s if same(d, out) else 0 for d, s, out in own)


def numbered(name: str, numbers: list[int]) -> Values:
    """Fields name0, name1 … (FX_I6 in params.h)."""
    return {f"{name}{i}": number for i, number in enumerate(numbers)}


def box_fields(node: Node, shape: Shape, names: tuple[str, ...], strides: tuple[Shape, ...]) -> Values:
    """Dimensions d0..d5 and each operand's strides, after collapsing. Raises GraphError where six are too few."""
    collapsed = collapse(shape, strides, equal=same)
    if collapsed is None:
        raise node_error(node, f"more than 6 dimensions with strides of their own: {shape}")
    values = numbered("d", collapsed.sizes(shape))
    for name, steps in zip(names, strides, strict=True):
        values |= numbered(name, collapsed.strides(steps))
    return values
