"""Normalisation as exporters write it becomes one node: (x - mean) / sqrt(variance + epsilon) * scale + bias, and
without the mean the root-mean-square kind.

Runs before layout. Over any one axis it is a layer_norm: a transpose brings the axis to the end, and layout cancels
what it can. Over all axes behind the channels it is an instance_norm, where that says more: the numbers of scale and
bias are of channels, or the length is open, of which a layer_norm's scale would make a constant.
"""

from __future__ import annotations

import numpy as np

from ..attributes import ints_attr
from ..build import REDUCTION, add_array, constant_value, copy_attrs
from ..ir import Attr, Graph, Node
from .rewrite import Rewriter, operands

Axes = tuple[int, ...]


def fuse_layer_norms(graph: Graph) -> None:
    """Replace the pattern, and the product and the sum with constants behind it."""
    uses = Rewriter(graph)
    for node in list(graph.nodes):
        found = _normalised(uses, node) if node.outputs[0] in uses.producer else None
        if found is not None:
            _replace(uses, node, *found)
    uses.flush()


def _plain(node: Node | None, *kinds: str) -> Node | None:
    fits = node is not None and node.op == "binary" and node.attrs["kind"] in kinds and node.attrs["act"] == "none"
    return node if fits else None


def _mean(uses: Rewriter, tensor: int) -> tuple[int, Axes] | None:
    """(x, axes) where ``tensor`` is the mean of x over some axes, which stay."""
    node = uses.producer.get(tensor)
    if node is None or node.op != REDUCTION or node.attrs["kind"] != "mean" or not node.attrs["keepdims"]:
        return None
    axes = ints_attr(node, "axes")
    return (node.inputs[0], tuple(axes)) if axes else None


def _root(uses: Rewriter, tensor: int) -> tuple[int, Axes, float] | None:
    """(z, axes, epsilon) where ``tensor`` is sqrt(mean of z squared + epsilon)."""
    root = uses.producer.get(tensor)
    if root is None or root.op != "unary" or root.attrs["kind"] != "sqrt":
        return None
    plus = _plain(uses.producer.get(root.inputs[0]), "add")
    if plus is None:
        return None
    for power, other in operands(plus):
        epsilon, mean = uses.scalar(other), _mean(uses, power)
        square = None if mean is None else _plain(uses.producer.get(mean[0]), "mul")
        if epsilon is not None and mean is not None and square is not None and len(set(square.inputs)) == 1:
            return square.inputs[0], mean[1], epsilon
    return None


def _centred(uses: Rewriter, tensor: int) -> tuple[int, Axes] | None:
    """(x, axes) where ``tensor`` is x minus its mean."""
    node = _plain(uses.producer.get(tensor), "sub")
    mean = None if node is None else _mean(uses, node.inputs[1])
    return mean if node is not None and mean is not None and mean[0] == node.inputs[0] else None


def _normalised(uses: Rewriter, node: Node) -> tuple[int, Axes, float, int] | None:
    """(x, axes, epsilon, is_rms) where ``node`` divides by the root."""
    if not _plain(node, "div", "mul"):
        return None
    pairs = [(node.inputs[0], node.inputs[1])] if node.attrs["kind"] == "div" else operands(node)
    for value, other in pairs:
        divisor: int | None = other
        if node.attrs["kind"] == "mul":
            divisor = _inverted(uses, other)
        root = None if divisor is None else _root(uses, divisor)
        if root is None:
            continue
        z, axes, epsilon = root
        centred, below = _centred(uses, value), _centred(uses, z)
        if centred is not None and centred == below and centred[1] == axes:
            return centred[0], axes, epsilon, 0
        if z == value:
            return value, axes, epsilon, 1
    return None


def _inverted(uses: Rewriter, tensor: int) -> int | None:
    """V where ``tensor`` is 1 / v."""
    node = uses.producer.get(tensor)
    if node is not None and node.op == "unary" and node.attrs["kind"] == "reciprocal":
        return node.inputs[0]
    division = _plain(node, "div")
    return division.inputs[1] if division is not None and uses.scalar(division.inputs[0]) == 1 else None


def _along(uses: Rewriter, node: Node | None, tensor: int, kind: str, axis: int) -> np.ndarray | None:
    """The constant, one number for each place along ``axis``, that ``node`` joins ``tensor`` with by ``kind``."""
    if not _plain(node, kind):
        return None
    assert node is not None
    shape = uses.shape(tensor)
    other = next((o for t, o in operands(node) if t == tensor), tensor)
    value = constant_value(uses.graph, other)
    if value is None or uses.shape(node.outputs[0]) != shape or len(value.shape) > len(shape):
        return None
    wide = (1,) * (len(shape) - len(value.shape)) + value.shape
    if any(d != 1 for i, d in enumerate(wide) if i != axis):
        return None
    return np.broadcast_to(value.reshape(-1), (shape[axis],)).astype(np.float32)


def _replace(uses: Rewriter, node: Node, x: int, axes: Axes, epsilon: float, is_rms: int) -> None:
    """``node`` and what follows it becomes one node, if there is an operator for it."""
    shape = uses.shape(x)
    is_open = any(not isinstance(shape[a], int) for a in axes)
    is_of_channels = axes == tuple(range(2, len(shape))) and isinstance(shape[1], int) and not is_rms
    if is_of_channels and (is_open or len(axes) > 1 or _of_channels(uses, node, x, "mul") is not None):
        _instance_norm(uses, node, x, epsilon)
    elif len(axes) == 1 and not is_open:
        _layer_norm(uses, node, x, axes[0], epsilon, is_rms)


def _layer_norm(uses: Rewriter, node: Node, x: int, axis: int, epsilon: float, is_rms: int) -> None:
    """``node`` and what follows it becomes one layer_norm, whose scale and bias are constants."""
    last, rank = node, len(uses.shape(x))
    vectors = []
    for kind in ("mul", "add"):
        follower = uses.only_consumer(last.outputs[0])
        values = _along(uses, follower, last.outputs[0], kind, axis)
        if values is None and kind == "add":
            break
        vectors.append(np.ones(uses.shape(x)[axis], np.float32) if values is None else values)
        if values is not None:
            assert follower is not None
            last = follower
    if len(vectors) == 2 and is_rms and not vectors[1].any():
        vectors.pop()
    constants = [add_array(uses.graph, f"{node.name}.{n}", v) for n, v in zip(("scale", "bias"), vectors, strict=False)]
    to_end = [a for a in range(rank) if a != axis] + [axis]
    back = [to_end.index(a) for a in range(rank)]
    attrs: dict[str, Attr] = {"is_rms": is_rms, "epsilon": epsilon}
    if axis != rank - 1:
        x = uses.emit(last, "copy", [x], copy_attrs(rank, perm=to_end))
    y = uses.emit(last, "layer_norm", [x, *constants], attrs)
    if axis != rank - 1:
        y = uses.emit(last, "copy", [y], copy_attrs(rank, perm=back))
    uses.replace(last.outputs[0], y)
    uses.remove(last)


def _of_channels(uses: Rewriter, node: Node, x: int, kind: str) -> tuple[Node, int] | None:
    """(the node that joins ``node``'s output by ``kind`` with one number for each channel, these numbers)."""
    tensor, shape = node.outputs[0], uses.shape(x)
    follower = _plain(uses.only_consumer(tensor), kind)
    if follower is None or len(set(follower.inputs)) < 2:
        return None
    other = next(o for t, o in operands(follower) if t == tensor)
    own, per_channel = uses.shape(other), (shape[1], *(1 for _ in shape[2:]))
    if not all(isinstance(d, int) for d in own) or uses.shape(follower.outputs[0]) != shape:
        return None
    return (follower, other) if own in (per_channel, (1, *per_channel)) else None


def _instance_norm(uses: Rewriter, node: Node, x: int, epsilon: float) -> None:
    """``node`` and what follows it becomes one instance_norm, whose scale and bias may come with the run."""
    last, rank, channels = node, len(uses.shape(x)), uses.shape(x)[1]
    inputs = []
    for kind, name, default in (("mul", "scale", np.ones), ("add", "bias", np.zeros)):
        found = _of_channels(uses, last, x, kind)
        if found is None:
            inputs.append(add_array(uses.graph, f"{node.name}.{name}", default(channels, np.float32)))
        else:
            last, numbers = found
            inputs.append(uses.emit(last, "reshape", [numbers], {"shape": [channels]}))
    to_end, back = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    turned = uses.emit(last, "copy", [x], copy_attrs(rank, perm=to_end))
    y = uses.emit(last, "instance_norm", [turned, *inputs], {"epsilon": epsilon})
    uses.replace(last.outputs[0], uses.emit(last, "copy", [y], copy_attrs(rank, perm=back)))
    uses.remove(last)
