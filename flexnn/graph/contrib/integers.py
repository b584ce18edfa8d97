"""Products of 8-bit integers by weights without a sign: less their zero points they take 9 bits.

Kernels multiply bytes by bytes with a sign. A weight less its zero point is a number of 8 bits plus what is beyond, and
of trained weights few are beyond: the input channels that these belong to are appended to the input once more, and to
the weights what is beyond. Sums stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..model import ModelAttr, ModelGraph, ModelNode
from ..sources import MappedSource
from .expansion import Counted, Expansion, Shared, expands, numbers_of, source_of

APPENDED_PART = 8
"""At most one of so many input channels is appended."""


class _Axes(NamedTuple):
    """Axes of input channels, in the input and in the weights, and of the weights' zero points."""

    input: int
    weight: int
    zero: int


_AXES = {"MatMulInteger": _Axes(-1, 0, 1), "ConvInteger": _Axes(1, 1, 0), "QLinearConv": _Axes(1, 1, 0)}


class _Signed(NamedTuple):
    """Weights with a sign, by name, and the input channels that they multiply behind all."""

    weight: str
    channels: np.ndarray


@expands("MatMulInteger", "ConvInteger", domain="")
def integers(e: Expansion) -> None:
    """A, B, their zero points."""
    attrs = e.attrs(["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])
    inputs = [e.input(0), e.input(1), e.optional(2), e.optional(3)]
    found = _signed_product(e, e.node.op_type, inputs, e.output(0), attrs)
    if found is None:
        e.nodes.append(e.node)
    else:
        e.nodes[-1].name = e.node.name


@expands("QLinearConv", domain="")
def rounded_convolution(e: Expansion) -> None:
    """x, w and y as three inputs each, but y's values, and a bias in steps of the sums. Padded or not, its steps are
    constants, so that passes make it an operator on bytes.
    """
    attrs = e.attrs(["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])
    inputs = [*(e.input(i) for i in range(8)), e.optional(8)]
    found = _signed(e, inputs[3], inputs[5], _AXES["QLinearConv"]) if attrs.get("group", 1) == 1 else None
    if found is None:
        e.nodes.append(e.node)
        return
    zero = e.array(np.zeros(e.constant(5, "its zero points").shape, np.int8))
    inputs[0] = _appended(e, inputs[0], found.channels, _AXES["QLinearConv"].input)
    inputs[3], inputs[5] = found.weight, zero
    e.split("QLinearConv", inputs, [e.output(0)], attrs)
    e.nodes[-1].name = e.node.name


def sign_restored(graph: ModelGraph, counted: Counted, shared: Shared) -> None:
    """Give convolutions of restored bytes by restored constants without a sign weights with one."""
    for inner in graph.walk():
        restoring = {n.output[0]: n for n in inner.nodes if n.op_type == "DequantizeLinear" and not n.domain}
        nodes: list[ModelNode] = []
        for node in inner.nodes:
            x, weight = (restoring.get(name) for name in (*node.input[:2], "", "")[:2])
            if node.op_type == "Conv" and x is not None and weight is not None:
                nodes += _of_restored(Expansion(node, inner, {}, counted, shared), x, weight)
            else:
                nodes.append(node)
        inner.nodes = nodes


def _of_restored(e: Expansion, x: ModelNode, weight: ModelNode) -> list[ModelNode]:
    """The nodes that stand for a convolution of what ``x`` and ``weight`` restore; itself where it stays."""
    axes, node = _AXES["QLinearConv"], e.node
    scale = e.known(x.input[1])
    if len(x.input) + len(weight.input) < 6 or node.attrs.get("group", 1) != 1 or scale is None or scale.nbytes != 4:
        return [node]
    found, zero = _signed(e, weight.input[0], weight.input[2], axes), e.known(weight.input[2])
    if found is None or zero is None or (zero.nbytes > 1 and weight.attrs.get("axis", 1) != axes.zero):
        return [node]
    inputs = list(node.input)
    if found.channels.size:
        bytes_ = _appended(e, x.input[0], found.channels, axes.input)
        inputs[0] = e.split("DequantizeLinear", [bytes_, *x.input[1:]], [""], x.attrs)[0]
    zeros = e.array(np.zeros(zero.shape, np.int8))
    inputs[1] = e.split("DequantizeLinear", [found.weight, weight.input[1], zeros], [""], weight.attrs)[0]
    e.split("Conv", inputs, node.output, node.attrs)
    e.nodes[-1].name = node.name
    return e.nodes


def product(e: Expansion, *inputs: str) -> str:
    """Add the product of two matrices, given with their zero points, and return the name of its output."""
    return _signed_product(e, "MatMulInteger", inputs, "", {}) or e.add("MatMulInteger", *inputs)


def _signed_product(
    e: Expansion, op: str, inputs: Sequence[str], output: str, attrs: dict[str, ModelAttr]
) -> str | None:
    """Add the product with weights that have a sign; None where there are none."""
    x, weight, zero_x, zero = inputs
    found = _signed(e, weight, zero, _AXES[op]) if _is_of_bytes(attrs) else None
    if found is None:
        return None
    x = _appended(e, x, found.channels, _AXES[op].input)
    return e.split(op, [x, found.weight, zero_x], [output], attrs)[0]


def _appended(e: Expansion, x: str, channels: np.ndarray, axis: int) -> str:
    """The input, and some of its channels once more."""
    if not channels.size:
        return x
    return e.add("Concat", x, e.add("Gather", x, e.array(channels), axis=axis), axis=axis)


def _is_of_bytes(attrs: dict[str, ModelAttr]) -> bool:
    """Whether passes can make it an operator on bytes: a convolution of one group."""
    return attrs.get("group", 1) == 1


def _signed(e: Expansion, name: str, zero: str, axes: _Axes) -> _Signed | None:
    """The weights with a sign; None where they are not constant, have one, or too much is beyond 8 bits."""
    weight, middle = e.known(name), e.known(zero)
    if weight is None or middle is None or (weight.dtype, middle.dtype) != ("u8", "u8") or len(weight.shape) < 2:
        return None
    shape, axis = weight.shape, axes.weight
    if middle.nbytes not in (1, shape[axes.zero]) or (axes.zero == 1 and len(shape) > 2):
        return None
    zeros = numbers_of(middle).reshape([-1 if i == axes.zero and middle.nbytes > 1 else 1 for i in range(len(shape))])
    middles = zeros.astype(np.int16)
    if (middles == 128).all() or not middles.all():  # their sign is one bit; what is beyond may not fit
        return None
    values = numbers_of(weight).reshape(shape)
    most, least = (np.clip(middles + end, 0, 255).astype(np.uint8) for end in (127, -128))
    others = tuple(i for i in range(len(shape)) if i != axis)
    channels = np.flatnonzero(((values > most) | (values < least)).any(others))
    if channels.size * APPENDED_PART > shape[axis]:
        return None

    def signed(v: np.ndarray) -> np.ndarray:
        wide = v.reshape(shape) - middles
        near = wide.clip(-128, 127)
        return np.concatenate([near, (wide - near).take(channels, axis)], axis).astype(np.int8)

    label = f"signed{axis}|{shape}|{middles.ravel().tolist()}|{channels.tolist()}"
    made = tuple(d + channels.size * (i == axis) for i, d in enumerate(shape))
    return _Signed(e.stored(made, "i8", MappedSource(source_of(weight), signed, label)), channels)
