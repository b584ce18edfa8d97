"""Operators on bytes, of what stands between a restoring and a rounding: convolutions, sums, products, pools.

A convolution of restored bytes by weights of 8 bits takes the bytes and rounds its sums itself, clamped by the relu or
clip behind it. A sum of two restored tensors that a convolution alone makes one of is the residual of that convolution.
The steps that the model states in between are kept: every rounding happens as the model says it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..attributes import float_attr
from ..build import add_array, add_panels
from ..ir import Attr, Graph, Node
from .byte_values import Bytes, Steps, is_rounding, restored_constant, steps_of
from .byte_weights import NAMES, byte_attrs, fits_bytes, float_panels, ratio, rounding_panels
from .cleanup import cleanup
from .rewrite import only


class _Clamp(NamedTuple):
    """Between what numbers are kept before they are rounded."""

    low: float = -math.inf
    high: float = math.inf

    def attrs(self, steps: Steps, names: tuple[str, str, str] = ("zero", "lo", "hi")) -> dict[str, Attr]:
        """The zero point, and the bounds in steps from it."""
        low = max(np.float32(self.low) / np.float32(steps.scale), np.float32(-steps.zero))
        high = min(np.float32(self.high) / np.float32(steps.scale), np.float32(255 - steps.zero))
        values: tuple[Attr, ...] = (steps.zero, float(min(low, high)), float(high))
        return dict(zip(names, values, strict=True))


def compute_in_bytes(graph: Graph) -> None:
    """Replace restoring, operator and rounding by one operator on bytes."""
    if not any(node.op == "quantize" for node in graph.nodes):
        return
    uses = Bytes(graph)
    position = {id(node): i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if is_rounding(graph, node) and node.attrs["to"] == "u8" and (steps := steps_of(graph, node)) is not None:
            _compute(uses, node, steps, position)
    for node in graph.nodes:
        if node.op in NAMES:
            _to_floats(uses, node)
        elif node.op == "matmul" and node.attrs["act"] == "none" and node.attrs["sums"] == "f32":
            _multiply(uses, node, node, {"to": "f32", "zero": 0, "lo": -math.inf, "hi": math.inf}, 1.0)
    uses.flush()
    cleanup(graph)


def _compute(uses: Bytes, node: Node, steps: Steps, position: dict[int, int]) -> None:
    """Make the rounding ``node`` compute what it rounds, where it can."""
    tensor, clamp = node.inputs[0], _Clamp()
    while (maker := uses.producer.get(tensor)) is not None and uses.only_consumer(tensor) is not None:
        bounds = _bounds(maker)
        if bounds is None:
            break
        clamp = _Clamp(max(clamp.low, bounds.low), min(clamp.high, bounds.high))
        tensor = maker.inputs[0]
    if maker is None or uses.only_consumer(tensor) is None or clamp.low > clamp.high:
        return
    if maker.op in NAMES:
        _convolve(uses, node, maker, steps, clamp)
    elif maker.op == "binary" and maker.attrs["act"] == "none":
        if not _residual(uses, node, maker, steps, clamp, position):
            _combine(uses, node, maker, steps, clamp)
    elif maker.op in ("pool", "reduce"):
        _average(uses, node, maker, steps, clamp)
    elif maker.op == "matmul" and maker.attrs["act"] == "none" and maker.attrs["sums"] == "f32":
        _multiply(uses, node, maker, clamp.attrs(steps) | {"to": "u8"}, steps.scale)
    elif maker.op == "resize":
        _resize(uses, node, maker, steps)
    elif maker.op in ("layer_norm", "softmax") and clamp == _Clamp():
        _by_rows(uses, node, maker, steps)


def _bounds(node: Node) -> _Clamp | None:
    """Between what an activation clips."""
    if node.op != "unary" or node.attrs["kind"] not in ("relu", "clip"):
        return None
    if node.attrs["kind"] == "relu":
        return _Clamp(0.0)
    return _Clamp(float_attr(node, "alpha"), float_attr(node, "beta"))


def become(uses: Bytes, node: Node, op: str, inputs: list[int], attrs: dict[str, Attr], weight: int = -1) -> None:
    """Make another operator of a node."""
    node.op, node.attrs, node.weight = op, attrs, weight
    uses.feed(node, inputs)


def _convolve(uses: Bytes, node: Node, conv: Node, steps: Steps, clamp: _Clamp) -> None:
    found = uses.restored(conv.inputs[0])
    if found is None or conv.attrs["sums"] != "f32" or not fits_bytes(uses.graph, conv, found[1].scale, steps.scale):
        return
    source, own = found
    panels = rounding_panels(uses.graph, conv, own, steps)
    attrs = byte_attrs(conv, panels, clamp.attrs(steps))
    node.name = conv.name
    become(uses, node, NAMES[conv.op], [source], attrs, add_panels(uses.graph, conv.name, panels))


def _to_floats(uses: Bytes, conv: Node) -> None:
    """Make a convolution whose results stay floats read bytes, with the relu or clip behind it."""
    found = uses.restored(conv.inputs[0])
    if found is None or conv.attrs["sums"] != "f32" or not fits_bytes(uses.graph, conv, found[1].scale):
        return
    source, own = found
    panels = float_panels(uses.graph, conv, own)
    attrs = byte_attrs(conv, panels, float_clamp(uses, conv.outputs[0]))
    become(uses, conv, NAMES[conv.op], [source], attrs, add_panels(uses.graph, conv.name, panels))


def float_clamp(uses: Bytes, tensor: int) -> dict[str, Attr]:
    """The bounds of floats that the relu or clip behind them states, which goes."""
    clamp = _Clamp()
    reader = uses.after_reshapes(tensor)
    if reader is not None and (bounds := _bounds(reader[1])) is not None:
        clamp = bounds
        uses.replace(reader[1].outputs[0], reader[0])
        uses.remove(reader[1])
    return {"zero": 0, "lo": clamp.low, "hi": clamp.high}


def _combine(uses: Bytes, node: Node, maker: Node, steps: Steps, clamp: _Clamp) -> None:
    """Make a sum, difference or product one of bytes."""
    kind, found = maker.attrs["kind"], [uses.restored(i) or _stated(uses, i) for i in maker.inputs]
    if kind not in ("add", "sub", "mul") or found[0] is None or found[1] is None:
        return
    (a, a_steps), (b, b_steps) = found[0], found[1]
    scales = [ratio(s.scale, 1.0, steps.scale) for s in (a_steps, b_steps)]
    if kind == "mul":
        scales = [ratio(a_steps.scale, b_steps.scale, steps.scale), np.zeros((), np.float32)]
    if scales[0] is None or scales[1] is None:
        return
    second = -scales[1] if kind == "sub" else scales[1]
    attrs: dict[str, Attr] = {"kind": "mul" if kind == "mul" else "add", "a_zero": a_steps.zero, "b_zero": b_steps.zero}
    attrs |= {"a_scale": float(scales[0]), "b_scale": float(second)} | clamp.attrs(steps)
    become(uses, node, "binary_u8", [a, b], attrs)


def _stated(uses: Bytes, tensor: int) -> tuple[int, Steps] | None:
    """A constant that the model states in steps, as bytes."""
    found = restored_constant(uses.graph, tensor)
    return None if found is None else (add_array(uses.graph, uses.graph.tensors[tensor].name, found[0]), found[1])


def _average(uses: Bytes, node: Node, maker: Node, steps: Steps, clamp: _Clamp) -> None:
    """Make an average one of bytes: of a window, or of whole images."""
    found, shape = uses.restored(maker.inputs[0]), uses.shape(maker.inputs[0])
    if found is None:
        return
    attrs = dict(maker.attrs)
    if maker.op == "reduce":
        if maker.attrs["kind"] != "mean" or maker.attrs["axes"] != [1, 2] or len(shape) != 4:
            return
        if len(uses.shape(maker.outputs[0])) != 4:
            return
        window = {"kernel": [shape[1], shape[2]], "strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0]}
        attrs = {"kind": "avg", **window, "ceil_mode": 0, "count_include_pad": 0}
    if attrs["kind"] != "avg":
        return
    source, own = found
    scale = ratio(own.scale, 1.0, steps.scale)
    if scale is None:
        return
    attrs |= {"x_zero": own.zero, "scale": float(scale)}
    become(uses, node, "pool_u8", [source], attrs | clamp.attrs(steps))


def _multiply(uses: Bytes, node: Node, maker: Node, finish: dict[str, Attr], scale: float) -> None:
    """Make a product of two computed matrices one of bytes. ``scale``: of the result."""
    found = [uses.restored(i) for i in maker.inputs]
    if found[0] is None or found[1] is None:
        return
    (a, a_steps), (b, b_steps) = found[0], found[1]
    whole = ratio(a_steps.scale, b_steps.scale, scale)
    if whole is None:
        return
    attrs: dict[str, Attr] = {"a_zero": a_steps.zero, "b_zero": b_steps.zero, "scale": float(whole)}
    become(uses, node, "matmul_u8", [a, b], attrs | finish)


def _resize(uses: Bytes, node: Node, maker: Node, steps: Steps) -> None:
    """Make a resizing in the same steps one of bytes, whose results are rounded."""
    found = uses.restored(maker.inputs[0])
    if found is not None and found[1] == steps:
        become(uses, node, "resize_u8", [found[0]], dict(maker.attrs))


def _by_rows(uses: Bytes, node: Node, maker: Node, steps: Steps) -> None:
    """Make a norm or a softmax of the last axis one of bytes."""
    found, is_softmax = uses.restored(maker.inputs[0]), maker.op == "softmax"
    if found is None or (
        is_softmax and (maker.attrs["log"] or maker.attrs["axis"] != len(uses.shape(node.inputs[0])) - 1)
    ):
        return
    source, own = found
    kind = "softmax" if is_softmax else "rms_norm" if maker.attrs["is_rms"] else "layer_norm"
    attrs: dict[str, Attr] = {"kind": kind, "epsilon": 0.0 if is_softmax else maker.attrs["epsilon"]}
    attrs |= {"x_zero": own.zero, "x_scale": own.scale, "zero": steps.zero, "scale": steps.scale}
    become(uses, node, "rows_u8", [source, *maker.inputs[1:]], attrs)


def _residual(uses: Bytes, node: Node, add: Node, steps: Steps, clamp: _Clamp, position: dict[int, int]) -> bool:
    """Make a sum the residual of the convolution whose rounded result it takes, which may be a constant for each
    channel: a bias that is added behind the product's rounding. Return whether that was possible.
    """
    if add.attrs["kind"] != "add" or add.inputs[0] == add.inputs[1]:
        return False
    found = [(c, i) for i in add.inputs if (c := _convolution_of(uses, add, i)) is not None]
    if not found:
        return False
    conv, operand = max(found, key=lambda pair: position.get(id(pair[0]), -1))
    other = add.inputs[1] if operand == add.inputs[0] else add.inputs[0]
    if uses.shape(operand) != uses.shape(add.outputs[0]):
        return False
    shape, of_channels = uses.shape(conv.outputs[0]), (1, 1, 1, uses.shape(conv.outputs[0])[-1])
    is_whole = uses.shape(other) == uses.shape(operand)
    residual, own = uses.restored(other) if is_whole else _stated(uses, other), uses.restored(operand)
    if residual is None or own is None:
        return False
    (r, r_steps), (_, v_steps) = residual, own
    if not is_whole and (uses.shape(r)[-1:] != of_channels[3:] or uses.graph.tensors[r].size != of_channels[3]):
        return False
    if uses.shape(r) != (shape if is_whole else of_channels):
        r = uses.emit(node, "reshape", [r], {"shape": list(shape if is_whole else of_channels)})
    scales = [ratio(s.scale, 1.0, steps.scale) for s in (r_steps, v_steps)]
    if scales[0] is None or scales[1] is None:
        return False
    attrs: dict[str, Attr] = dict(conv.attrs) | clamp.attrs(steps, ("sum_zero", "sum_lo", "sum_hi"))
    attrs |= {"r_zero": r_steps.zero, "r_scale": float(scales[0]), "v_scale": float(scales[1])}
    if shape == uses.shape(node.outputs[0]):
        become(uses, node, conv.op, [*conv.inputs, r], attrs, conv.weight)
    else:
        summed = uses.emit(node, conv.op, [*conv.inputs, r], attrs, conv.weight)
        become(uses, node, "reshape", [summed], {"shape": list(uses.shape(node.outputs[0]))})
    return True


def _convolution_of(uses: Bytes, add: Node, tensor: int) -> Node | None:
    """The convolution of which ``add`` alone reads the rounded result, perhaps through a reshape, as ``tensor``."""
    restoring = uses.producer.get(tensor)
    if uses.restored(tensor) is None or restoring is None or not only(uses, tensor, add):
        return None
    reader, out = restoring, restoring.inputs[0]
    maker = uses.producer.get(out)
    if maker is not None and maker.op == "reshape" and only(uses, out, reader):
        reader, out = maker, maker.inputs[0]
        maker = uses.producer.get(out)
    if maker is None or maker.op not in NAMES.values() or not only(uses, out, reader):
        return None
    return maker if len(maker.inputs) == 1 and maker.attrs["to"] == "u8" else None
