"""Activations: the patterns exporters write are recognised, and each becomes part of the node before it."""

from __future__ import annotations

import math

import numpy as np

from flexnn import _core

from ..attributes import float_attr
from ..build import panels_of
from ..ir import Graph, Node
from ..operators import has_panels
from ..sources import ArraySource
from ..strided import same_shape
from .affine import channel_values
from .rewrite import Rewriter, operands

FACTORS_MAX, DEPTH_MAX = 3, 16
"""Most factors of a product that is looked at, and most nodes that make them: gelu has three factors."""


def recognise_activations(graph: Graph) -> None:
    """X sigmoid(x) is silu, x tanh(softplus(x)) mish, clip(x + 3, 0, 6) / 6 hardsigmoid, and x times that hardswish;
    x (1 + erf(x / sqrt 2)) / 2 is gelu, its approximation by tanh gelu_tanh.
    """
    uses = Rewriter(graph)
    for match in (_constant_clip, _merge_clips, _hard_sigmoid, _gated, _hard_swish_late, _gelu):
        for node in graph.nodes:
            if node.op in ("binary", "unary") and node.outputs[0] in uses.producer:
                match(uses, node)
    uses.flush()


def _become(uses: Rewriter, node: Node, kind: str, x: int, alpha: float = 0.0, beta: float = 0.0) -> None:
    node.op, node.attrs = "unary", {"kind": kind, "alpha": alpha, "beta": beta}
    uses.feed(node, [x])


def _unary(node: Node | None, kind: str) -> Node | None:
    return node if node is not None and node.op == "unary" and node.attrs["kind"] == kind else None


def _binary(node: Node | None, *kinds: str) -> Node | None:
    fits = node is not None and node.op == "binary" and node.attrs["kind"] in kinds and node.attrs["act"] == "none"
    return node if fits else None


def _same_shape(uses: Rewriter, x: int, node: Node) -> bool:
    return same_shape(uses.shape(x), uses.shape(node.outputs[0]))


def _constant_clip(uses: Rewriter, node: Node) -> None:
    """max(x, c) and min(x, c) are clips."""
    if not _binary(node, "max", "min"):
        return
    for x, other in operands(node):
        bound = uses.scalar(other)
        if bound is None or math.isnan(bound) or not _same_shape(uses, x, node):
            continue
        lower = node.attrs["kind"] == "max"
        _become_clip(uses, node, x, bound if lower else -math.inf, math.inf if lower else bound)
        return


def _become_clip(uses: Rewriter, node: Node, x: int, low: float, high: float) -> None:
    if (low, high) == (0, math.inf):
        _become(uses, node, "relu", x)
    else:
        _become(uses, node, "clip", x, low, high)


def _bounds(node: Node | None) -> tuple[float, float] | None:
    """Between what a node clips."""
    if node is None or not (_unary(node, "clip") or _unary(node, "relu")):
        return None
    return (0.0, math.inf) if node.attrs["kind"] == "relu" else (float_attr(node, "alpha"), float_attr(node, "beta"))


def _merge_clips(uses: Rewriter, node: Node) -> None:
    """A clip of a clip is one, where their ranges meet."""
    outer, inner = _bounds(node), _bounds(uses.producer.get(node.inputs[0]))
    if outer is None or inner is None:
        return
    low, high = max(outer[0], inner[0]), min(outer[1], inner[1])
    if low <= high:
        _become_clip(uses, node, uses.producer[node.inputs[0]].inputs[0], low, high)


def _relu6_of_plus_3(uses: Rewriter, tensor: int) -> int | None:
    """X where ``tensor`` is clip(x + 3, 0, 6)."""
    clip = _unary(uses.producer.get(tensor), "clip")
    if clip is None or (clip.attrs["alpha"], clip.attrs["beta"]) != (0.0, 6.0):
        return None
    plus = _binary(uses.producer.get(clip.inputs[0]), "add")
    if plus is None:
        return None
    return next((x for x, other in operands(plus) if uses.scalar(other) == 3 and _same_shape(uses, x, plus)), None)


def _six_times(uses: Rewriter, node: Node) -> int | None:
    """Y where ``node`` is y / 6 or y times 1/6."""
    if not _binary(node, "div", "mul"):
        return None
    for y, other in operands(node):
        value = uses.scalar(other)
        if value is None or not _same_shape(uses, y, node):
            continue
        if node.attrs["kind"] == "mul" and abs(value * 6 - 1) < 1e-6:
            return y
        if node.attrs["kind"] == "div" and value == 6 and other == node.inputs[1]:
            return y
    return None


def _hard_sigmoid(uses: Rewriter, node: Node) -> None:
    y = _six_times(uses, node)
    x = None if y is None else _relu6_of_plus_3(uses, y)
    if x is not None:
        _become(uses, node, "hardsigmoid", x, 1 / 6, 0.5)


def _gated(uses: Rewriter, node: Node) -> None:
    """A product of x and a function of x."""
    if not _binary(node, "mul"):
        return
    for x, other in operands(node):
        gate = uses.producer.get(other)
        if gate is None or gate.op != "unary":
            continue
        if gate.inputs[0] == x and gate.attrs["kind"] == "sigmoid":
            _become(uses, node, "silu", x)
            return
        hard = gate.inputs[0] == x and gate.attrs["kind"] == "hardsigmoid"
        if hard and abs(float_attr(gate, "alpha") * 6 - 1) < 1e-5 and gate.attrs["beta"] == 0.5:
            _become(uses, node, "hardswish", x)
            return
        inner = _unary(uses.producer.get(gate.inputs[0]), "softplus")
        if _unary(gate, "tanh") and inner is not None and inner.inputs[0] == x:
            _become(uses, node, "mish", x)
            return


def _hard_swish_late(uses: Rewriter, node: Node) -> None:
    """(x clip(x + 3, 0, 6)) / 6."""
    y = _six_times(uses, node)
    product = None if y is None else _binary(uses.producer.get(y), "mul")
    if product is None:
        return
    x = next((x for x, other in operands(product) if _relu6_of_plus_3(uses, other) == x), None)
    if x is not None:
        _become(uses, node, "hardswish", x)


def _product(uses: Rewriter, tensor: int) -> tuple[list[int], float]:
    """The factors of ``tensor``, of its shape, and the constant factor; a power of 3 is three factors. No factors where
    there are more than FACTORS_MAX, or they are more than DEPTH_MAX nodes away.
    """
    factors: list[int] = []
    factor, waiting = 1.0, [tensor]
    for _ in range(DEPTH_MAX):
        if not waiting or len(factors) + len(waiting) > FACTORS_MAX:
            break
        at = waiting.pop()
        node = uses.producer.get(at)
        found = None
        if node is not None and node.op == "binary" and node.attrs["act"] == "none":
            found = _factors(uses, node)
        if found is None:
            factors.append(at)
            continue
        own, times, ends = found
        factor *= times
        if ends:
            factors += own
        else:
            waiting += own[::-1]
    return ([], factor) if waiting or len(factors) > FACTORS_MAX else (factors, factor)


def _factors(uses: Rewriter, node: Node) -> tuple[list[int], float, bool] | None:
    """The factors of a product, quotient or third power, its constant factor, and whether the factors are no products
    themselves; None for other nodes.
    """
    for x, other in operands(node):
        value = uses.scalar(other)
        if value is None or not _same_shape(uses, x, node):
            continue
        if node.attrs["kind"] == "mul":
            return [x], value, False
        if node.attrs["kind"] == "div" and value and x == node.inputs[0]:
            return [x], 1 / value, False
        if node.attrs["kind"] == "pow" and value == 3 and x == node.inputs[0]:
            return [x, x, x], 1.0, True
    if node.attrs["kind"] == "mul" and all(_same_shape(uses, i, node) for i in node.inputs):
        return node.inputs, 1.0, False
    return None


def _plus_one(uses: Rewriter, tensor: int) -> int | None:
    """Y where ``tensor`` is y + 1."""
    node = _binary(uses.producer.get(tensor), "add")
    if node is None:
        return None
    return next((y for y, other in operands(node) if uses.scalar(other) == 1 and _same_shape(uses, y, node)), None)


def _near(value: float, wanted: float) -> bool:
    return abs(value / wanted - 1) < 1e-3


def _gelu(uses: Rewriter, node: Node) -> None:
    factors, half = _product(uses, node.outputs[0])
    if node.op != "binary" or not _near(half, 0.5) or len(factors) != 2:
        return
    for x, other in (factors, factors[::-1]):
        inner = _plus_one(uses, other)
        gate = None if inner is None else uses.producer.get(inner)
        if gate is None or gate.op != "unary":
            continue
        if gate.attrs["kind"] == "erf":
            rest, factor = _product(uses, gate.inputs[0])
            if rest == [x] and _near(factor, math.sqrt(0.5)):
                _become(uses, node, "gelu", x)
                return
        if gate.attrs["kind"] == "tanh" and _is_gelu_argument(uses, gate.inputs[0], x):
            _become(uses, node, "gelu_tanh", x)
            return


def _is_gelu_argument(uses: Rewriter, tensor: int, x: int) -> bool:
    """Whether ``tensor`` is sqrt(2 / pi) (x + 0.044715 x^3), or that with x taken out."""
    rest, factor = _product(uses, tensor)
    if not _near(factor, math.sqrt(2 / math.pi)):
        return False
    if len(rest) == 2 and x in rest:
        square = _plus_one(uses, rest[1] if rest[0] == x else rest[0])
        cubic, small = _product(uses, square) if square is not None else ([], 0.0)
        return cubic == [x, x] and _near(small, 0.044715)
    plus = _binary(uses.producer.get(rest[0]), "add") if len(rest) == 1 else None
    if plus is None:
        return False
    for first, other in operands(plus):
        cubic, small = _product(uses, other)
        if first == x and cubic == [x, x, x] and _near(small, 0.044715):
            return True
    return False


def fuse_activations(graph: Graph) -> None:
    """Move unary activations, and PRelus with a slope for each channel, into the node that computes their input."""
    acts = {*_core.ENUMS["act"]} - {"none", "prelu"}
    uses = Rewriter(graph)
    for producer in graph.nodes:
        if producer.attrs.get("act") != "none" or producer.outputs[0] not in uses.producer:
            continue
        found = uses.after_reshapes(producer.outputs[0])
        if found is None:
            continue
        tensor, node = found
        if node.op == "unary" and node.attrs["kind"] in acts:
            producer.attrs |= {"act": node.attrs["kind"], "alpha": node.attrs["alpha"], "beta": node.attrs["beta"]}
        elif has_panels(producer) and _binary(node, "prelu") and node.inputs[0] == tensor:
            channels = uses.shape(producer.outputs[0])[-1]
            if uses.shape(tensor)[-1:] != (channels,) or not _same_shape(uses, tensor, node):
                continue
            slope = channel_values(graph, node.inputs[1], channels)
            if slope is None:
                continue
            panels_of(graph, producer).slope = ArraySource(slope.astype(np.float32))
            producer.attrs |= {"act": "prelu", "alpha": 0.0, "beta": 0.0}
        else:
            continue
        uses.replace(node.outputs[0], tensor)
        uses.remove(node)
    uses.flush()
