"""The meaning of the operators whose activations are 8 bits (kernels/include/flexnn/params_bytes.h), in numpy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from flexnn.graph.ir import Graph, Node
from flexnn.graph.panels import NR

Array = np.ndarray
F32 = np.float32


def fma(a: Array, b: Array | np.float32, c: Array) -> Array:
    """a * b + c of float32, rounded once: a double holds the product, and rounds the sum so rarely that no test meets
    a second rounding.
    """
    return (a.astype(np.float64) * b + c).astype(F32)


def finished(v: Array, zero: int, lo: float, hi: float) -> Array:
    """Bytes of numbers."""
    return (np.rint(np.minimum(np.maximum(v, F32(lo)), F32(hi))) + zero).astype(np.uint8)


def _windows(node: Node, x: Array, zero: int) -> Array:
    """The input under each tap, zero points outside the map: [n, oh, ow, kh, kw, c] of int64."""
    (kh, kw), (sh, sw), (dh, dw) = node.attrs["kernel"], node.attrs["strides"], node.attrs["dilations"]
    top, left, bottom, right = node.attrs["pads"]
    pads = ((0, 0), (top, bottom), (left, right), (0, 0))
    padded = np.pad(x.astype(np.int64), pads, constant_values=zero)
    oh = (padded.shape[1] - (kh - 1) * dh - 1) // sh + 1
    ow = (padded.shape[2] - (kw - 1) * dw - 1) // sw + 1
    taps = [
        padded[:, i * dh : i * dh + (oh - 1) * sh + 1 : sh, j * dw : j * dw + (ow - 1) * sw + 1 : sw]
        for i, j in product(range(kh), range(kw))
    ]
    return np.stack(taps, axis=3).reshape(x.shape[0], oh, ow, kh, kw, x.shape[3])


def _panels(graph: Graph, node: Node, cin: int, cout: int) -> tuple[Array, Array, Array, Array, Array]:
    """Weights [kh, kw, cin, cout], biases, sums of weights, scales and offsets, out of panels as they are stored."""
    kh, kw = node.attrs["kernel"]
    panels = graph.weights[node.weight].panels
    assert panels is not None
    head = 4 if node.attrs["to"] == "f32" else 3
    words = np.stack([np.asarray(panel).view(np.int32) for panel in panels])
    lanes = words[:, : head * NR].reshape(-1, head, NR).transpose(1, 0, 2).reshape(head, -1)[:, :cout]
    fours = words[:, head * NR :].copy().view(np.int8).reshape(len(words), -1, NR, 4)
    flat = fours.transpose(1, 3, 0, 2).reshape(-1, len(words) * NR)[:, :cout]  # [four][4][channel]
    if node.op == "dwconv_u8":
        weights = flat.reshape(kw, -1, 1, cout)[:, :kh].transpose(1, 0, 2, 3)
    elif node.attrs["by_rows"]:
        weights = flat.reshape(kh, -1, cout)[:, : kw * cin].reshape(kh, kw, cin, cout)
    else:
        weights = flat.reshape(kh, kw, -1, cout)[:, :, :cin]
    offset = lanes[3].view(F32) if head == 4 else np.zeros(cout, F32)
    return weights, lanes[0], lanes[1], lanes[2].view(F32), offset


def _conv(graph: Graph, node: Node, x: Array, second: Array | None = None, zero: Array | None = None) -> Array:
    cin = x.shape[-1]
    added = None
    if second is not None and second.shape == (2,) and second.dtype == F32:
        second, zero, added = second[:1], second[1:], zero
    cout = cin if node.op == "dwconv_u8" else int(node.attrs["cout"])
    weights, bias, sums, scale, offset = _panels(graph, node, cin, cout)
    windows = _windows(node, x, int(node.attrs["x_zero"] if zero is None else zero.item()))
    if node.op == "dwconv_u8":
        total = (windows * weights[:, :, 0]).sum(axis=(3, 4))
    else:
        total = windows.reshape(*windows.shape[:3], -1) @ weights.reshape(-1, cout).astype(np.int64)
    total = total + bias
    if zero is not None:
        assert second is not None
        total, scale = total - int(zero.item()) * sums.astype(np.int64), scale * F32(second.item())
    whole = total.astype(np.int32).astype(F32)
    attrs = node.attrs
    if attrs["to"] == "f32":
        y = np.minimum(np.maximum(whole * scale + offset, F32(attrs["lo"])), F32(attrs["hi"]))
        return y if added is None else np.minimum(np.maximum(y + added, F32(attrs["sum_lo"])), F32(attrs["sum_hi"]))
    y = finished(whole * scale, attrs["zero"], attrs["lo"], attrs["hi"])
    if second is None:
        return y
    residual = (second.astype(np.int32) - attrs["r_zero"]).astype(F32) * F32(attrs["r_scale"])
    both = fma((y.astype(np.int32) - attrs["zero"]).astype(F32), F32(attrs["v_scale"]), residual)
    return finished(both, attrs["sum_zero"], attrs["sum_lo"], attrs["sum_hi"])


def _steps(graph: Graph, node: Node, x: Array) -> Array:
    part = node.attrs["part"]
    if part == "rows":
        lead = min(x.ndim - 1, 2)
        rows = x.reshape(*x.shape[:lead], -1)
        ranges = np.stack([rows.min(axis=-1), rows.max(axis=-1)], axis=-1)
        return ranges.reshape(*x.shape[:lead], *(1 for _ in x.shape[lead + 1 :]), 2)
    least, most = (x[..., 0].min(), x[..., 1].max()) if part == "ranges" else (x.min(), x.max())
    least, most = min(F32(0), least), max(F32(0), most)
    step = F32(1 if most == least else (most - least) / F32(255))
    return np.array([step, np.rint(-least / step) if step else 0], F32)


def _clamped(node: Node, v: Array) -> Array:
    return finished(v, int(node.attrs["zero"]), float(node.attrs["lo"]), float(node.attrs["hi"]))


def _binary(graph: Graph, node: Node, a: Array, b: Array) -> Array:
    attrs = node.attrs
    left, right = a.astype(np.int32) - attrs["a_zero"], b.astype(np.int32) - attrs["b_zero"]
    if attrs["kind"] == "mul":
        return _clamped(node, (left * right).astype(F32) * F32(attrs["a_scale"]))
    return _clamped(node, fma(left.astype(F32), F32(attrs["a_scale"]), right.astype(F32) * F32(attrs["b_scale"])))


def _table(graph: Graph, node: Node, x: Array, table: Array) -> Array:
    return np.asarray(table[x.view(np.uint8)])


def _pool(graph: Graph, node: Node, x: Array) -> Array:
    attrs = node.attrs
    _, oh, ow, _ = graph.tensors[node.outputs[0]].shape
    (kh, kw), (sh, sw), (dh, dw) = attrs["kernel"], attrs["strides"], attrs["dilations"]
    (top, left, bottom, right), (n, h, w, c) = attrs["pads"], x.shape
    y = np.zeros((n, oh, ow, c), np.uint8)
    for oy, ox in product(range(oh), range(ow)):
        ys, xs = np.arange(kh) * dh + oy * sh - top, np.arange(kw) * dw + ox * sw - left
        inside = x[:, ys[(ys >= 0) & (ys < h)]][:, :, xs[(xs >= 0) & (xs < w)]].astype(np.int64)
        if attrs["kind"] == "max":
            y[:, oy, ox] = inside.max(axis=(1, 2))
            continue
        terms = inside.shape[1] * inside.shape[2]
        counted = (ys < h + bottom).sum() * (xs < w + right).sum() if attrs["count_include_pad"] else terms
        sums = inside.sum(axis=(1, 2)) - terms * int(attrs["x_zero"])
        y[:, oy, ox] = _clamped(node, sums.astype(F32) * (F32(attrs["scale"]) / F32(counted)))
    return y


def _resize(graph: Graph, node: Node, x: Array) -> Array:
    """The floats' reference of either direction, rounded: it differs where a fraction is not exact."""
    from tests.support.reference import OPERATORS as FLOATS

    return np.rint(FLOATS["resize"](graph, node, x.astype(F32))).astype(np.uint8)


def _rows(graph: Graph, node: Node, x: Array, *constants: Array) -> Array:
    """The floats' reference between restoring and rounding: it differs where levels' floats do."""
    from tests.support.reference import OPERATORS as FLOATS

    attrs = node.attrs
    v = (x.astype(np.int32) - attrs["x_zero"]).astype(F32) * F32(attrs["x_scale"])
    own = {"axis": x.ndim - 1, "log": 0, "is_rms": int(attrs["kind"] == "rms_norm"), "epsilon": attrs["epsilon"]}
    op = "softmax" if attrs["kind"] == "softmax" else "layer_norm"
    v = FLOATS[op](graph, Node(node.name, op, node.inputs, node.outputs, own), v, *constants)
    return np.clip(np.rint(v.astype(F32) / F32(attrs["scale"])) + attrs["zero"], 0, 255).astype(np.uint8)


def _matmul(graph: Graph, node: Node, a: Array, b: Array) -> Array:
    attrs = node.attrs
    sums = (a.astype(np.int64) - attrs["a_zero"]) @ (b.astype(np.int64) - attrs["b_zero"])
    scaled = sums.astype(np.int32).astype(F32) * F32(attrs["scale"])
    if attrs["to"] == "f32":
        return np.minimum(np.maximum(scaled, F32(attrs["lo"])), F32(attrs["hi"]))
    return _clamped(node, scaled)


OPERATORS: dict[str, Callable[..., Array]] = {
    "conv_u8": _conv,
    "dwconv_u8": _conv,
    "binary_u8": _binary,
    "table_u8": _table,
    "pool_u8": _pool,
    "resize_u8": _resize,
    "matmul_u8": _matmul,
    "byte_steps": _steps,
    "rows_u8": _rows,
}
