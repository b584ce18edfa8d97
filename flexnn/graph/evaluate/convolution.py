"""Convolutions of any rank and element type."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Array, Shape
from .blocks import fill, work_bytes
from .call import Call, copied, evaluates
from .elementwise import sigmoid
from .windows import Windows, automatic_pads, integers_for, last, windows_of


def convolution_of(call: Call, x: Shape, w: Shape, itemsize: int) -> tuple[Windows, int]:
    """The windows of a convolution, and the bytes that ``convolve`` takes while it runs, its output among them, which
    has ``itemsize`` bytes an element.
    """
    group = call.integer("group", 1)
    if len(x) < 3 or len(w) != len(x) or group < 1 or w[0] % group or x[1] != w[1] * group:
        raise call.error(f"input {x}, weights {w}, group {group} do not fit together")
    kernel = call.integers("kernel_shape") or list(w[2:])
    if tuple(kernel) != tuple(w[2:]):
        raise call.error(f"kernel_shape {kernel} does not fit weights {w}")
    windows = windows_of(call, x[2:], kernel)
    places = x[0] * prod(windows.size)
    size = max(itemsize, 4)
    taken = prod(windows.padded_shape(x)) * itemsize + prod(w) * size + places * (3 * w[0] * size + x[1] * itemsize)
    return windows, taken + prod(w[:2]) * size + work_bytes(places * w[0])


def convolve(call: Call, x: Array, w: Array) -> Array:
    """x[n, c, ...] with w[m, c / group, ...], in x's type. The caller states what it takes (convolution_of)."""
    group = call.integer("group", 1)
    windows = windows_of(call, x.shape[2:], list(w.shape[2:]))
    n, m, places = x.shape[0], w.shape[0], prod(windows.size)
    kind = np.dtype(np.float32) if x.dtype == np.float16 else x.dtype
    padded = windows.padded(x, 0)
    padded = padded.reshape(n, group, x.shape[1] // group, *padded.shape[2:])
    weights = w.reshape(group, m // group, *w.shape[1:]).astype(kind, copy=False)
    y = np.zeros((n, group, m // group, places), kind)
    for tap in windows.taps():
        y += weights[last(tap)] @ windows.at(padded, tap).reshape(n, group, -1, places)
    return y.reshape(n, m, *windows.size).astype(x.dtype, copy=False)


def biased(y: Array, bias: Array | None) -> Array:
    """Y with a bias added to each channel, in place."""
    if bias is not None:
        y += bias.reshape(-1, *[1] * (y.ndim - 2)).astype(y.dtype, copy=False)
    return y


@evaluates("Conv")
def conv(call: Call) -> list[Array]:
    """https://onnx.ai/onnx/operators/onnx__Conv.html."""
    x, w = call.x(0), call.x(1)
    call.reserve(workspace=convolution_of(call, x.shape, w.shape, x.itemsize)[1] + copied(w))
    return [biased(convolve(call, x, w), call.get(2))]


@evaluates("CausalConvWithState")
def causal_conv(call: Call) -> list[Array]:
    """Depthwise over [batch, channels, time]; the last elements of one call precede those of the next."""
    x, w, past = call.x(0), call.x(1), call.get(3)
    if x.ndim != 3 or w.ndim != 3:
        raise call.error(f"input {x.shape} and weights {w.shape} do not fit together")
    behind = w.shape[2] - 1
    plain = Call(call.op, {"group": x.shape[1]}, call.inputs, call.opset, call.outputs, call.budget_bytes)
    whole_shape = (*x.shape[:2], x.shape[2] + (behind if past is None else past.shape[2]))
    _, taken = convolution_of(plain, whole_shape, w.shape, x.itemsize)
    call.reserve((whole_shape, x.dtype), (whole_shape, x.dtype), workspace=taken + copied(w))
    before = np.zeros((*x.shape[:2], behind), x.dtype) if past is None else past
    whole = np.concatenate([before, x], 2)
    y = biased(convolve(plain, whole, w), call.get(2))
    activation = call.text("activation", "none")
    if activation in ("silu", "swish"):
        fill(y, lambda v: v.astype(np.float32) * sigmoid(v.astype(np.float32)), y)
    elif activation != "none":
        raise call.error(f"activation {activation!r} is not supported")
    return [y, whole[:, :, whole.shape[2] - behind :]]


@evaluates("ConvTranspose")
def conv_transpose(call: Call) -> list[Array]:
    """x[n, c, ...] with w[c, m / group, ...]: each element spreads over a window of the output."""
    x, w = call.x(0), call.x(1)
    group, rank = call.integer("group", 1), x.ndim - 2
    if rank < 1 or w.ndim != x.ndim or group < 1 or x.shape[1] % group or w.shape[0] != x.shape[1]:
        raise call.error(f"input {x.shape}, weights {w.shape}, group {group} do not fit together")
    kernel, spatial = w.shape[2:], x.shape[2:]
    strides, dilations = integers_for(call, "strides", rank, 1, 1), integers_for(call, "dilations", rank, 1, 1)
    extra = integers_for(call, "output_padding", rank, 0, 0)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    full = [(i - 1) * s + e + p for i, s, e, p in zip(spatial, strides, reach, extra, strict=True)]
    mode = call.text("auto_pad", "NOTSET")
    wanted = call.integers("output_shape")[-rank:]
    if wanted or mode.startswith("SAME"):
        wanted = wanted or [i * s for i, s in zip(spatial, strides, strict=True)]
        spare = [max(0, f - o) for f, o in zip(full, wanted, strict=True)]
        before, after = automatic_pads("SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER", spare)
    else:
        pads = integers_for(call, "pads", 2 * rank, 0, 0)
        before, after = pads[:rank], pads[rank:]
        wanted = [f - b - a for f, b, a in zip(full, before, after, strict=True)]
    n, c, m = x.shape[0], x.shape[1] // group, w.shape[1]
    wanted, bias = list(call.shape(wanted)), call.get(2)
    whole = [max(f, b + o) for f, b, o in zip(full, before, wanted, strict=True)]
    parts = n * group * m * prod(spatial) + group * m * c
    made = (n, group * m, *wanted), (n, group * m, *whole)
    call.reserve(*((dims, x.dtype) for dims in made), workspace=parts * x.itemsize + copied(x, w) + work_bytes(parts))
    y = np.zeros((n, group, m, *whole), x.dtype)
    flat = x.reshape(n, group, c, -1)
    weights = w.reshape(group, c, m, *kernel)
    for tap in np.ndindex(*kernel):
        part = weights[last(tap)].transpose(0, 2, 1) @ flat
        index = tuple(
            slice(t * d, t * d + (i - 1) * s + 1, s)
            for t, d, i, s in zip(tap, dilations, spatial, strides, strict=True)
        )
        y[last(index)] += part.reshape(n, group, m, *spatial)
    y = y[last(slice(b, b + o) for b, o in zip(before, wanted, strict=True))]
    return [biased(y.reshape(n, group * m, *wanted), bias)]


@evaluates("Col2Im")
def col2im(call: Call) -> list[Array]:
    """Columns of blocks added into an image."""
    x, image, block = call.x(0), call.ints_at(1), call.ints_at(2)
    rank = len(image)
    strides, dilations = integers_for(call, "strides", rank, 1, 1), integers_for(call, "dilations", rank, 1, 1)
    pads = integers_for(call, "pads", 2 * rank, 0, 0)
    if x.ndim != 3 or len(block) != rank or min(block, default=1) < 1 or x.shape[1] % prod(block):
        raise call.error(f"columns {x.shape} do not fit blocks {block}")
    whole = [d + pads[i] + pads[i + rank] for i, d in enumerate(image)]
    call.reserve(((x.shape[0], x.shape[1] // prod(block), *whole), x.dtype), workspace=copied(x) + work_bytes(x.size))
    steps = [(w - (b - 1) * d - 1) // s + 1 for w, b, d, s in zip(whole, block, dilations, strides, strict=True)]
    y = np.zeros((x.shape[0], x.shape[1] // prod(block), *whole), x.dtype)
    columns = x.reshape(x.shape[0], y.shape[1], *block, *steps)
    for tap in np.ndindex(*block):
        index = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilations, steps, strides, strict=True)
        )
        y[last(index)] += columns[(slice(None), slice(None), *tap)]
    return [y[last(slice(pads[i], pads[i] + d) for i, d in enumerate(image))]]


@evaluates("DeformConv")
def deform_conv(call: Call) -> list[Array]:
    """A convolution whose taps lie at learned offsets, read bilinearly, with an optional mask."""
    x, w, offset, bias, mask = call.x(0), call.x(1), call.x(2), call.get(3), call.get(4)
    group, parts = call.integer("group", 1), call.integer("offset_group", 1)
    if x.ndim != 4 or group < 1 or parts < 1 or x.shape[1] % parts or w.shape[0] % group:
        raise call.error(f"input {x.shape}, weights {w.shape}, group {group}, offset_group {parts} do not fit together")
    windows = windows_of(call, x.shape[2:], call.integers("kernel_shape") or list(w.shape[2:]))
    n, c, (oh, ow), taps = x.shape[0], x.shape[1], windows.size, prod(windows.kernel)
    points, read, made = n * parts * oh * ow, n * c * oh * ow, n * w.shape[0] * oh * ow
    work = 128 * points + (16 + 3 * x.itemsize) * read + (made + prod(w.shape[:2])) * x.itemsize
    work += points * taps * x.itemsize * (mask is None) + copied(x, w, offset, mask)
    call.reserve(((n, w.shape[0], oh, ow), x.dtype), workspace=work)
    offsets = offset.reshape(n, parts, taps, 2, oh, ow)
    masks = np.ones((n, parts, taps, oh, ow), x.dtype) if mask is None else mask.reshape(n, parts, taps, oh, ow)
    weights = w.reshape(group, w.shape[0] // group, w.shape[1], taps)
    y = np.zeros((n, group, w.shape[0] // group, oh * ow), x.dtype)
    planes = x.reshape(n * parts, c // parts, *x.shape[2:])
    rows = np.arange(oh).reshape(-1, 1) * windows.strides[0] - windows.before[0]
    columns = np.arange(ow) * windows.strides[1] - windows.before[1]
    for number, tap in enumerate(windows.taps()):
        at_h = rows + tap[0] * windows.dilations[0] + offsets[:, :, number, 0]
        at_w = columns + tap[1] * windows.dilations[1] + offsets[:, :, number, 1]
        picked = bilinear(planes, at_h.reshape(-1, oh, ow), at_w.reshape(-1, oh, ow))
        picked *= masks[:, :, number].reshape(n * parts, 1, oh, ow)
        y += weights[..., number] @ picked.reshape(n, group, c // group, oh * ow)
    return [biased(y.reshape(n, w.shape[0], oh, ow), bias)]


def bilinear(x: Array, at_h: Array, at_w: Array) -> Array:
    """x[n, c, h, w] between its pixels at [n, ...], zero outside."""
    top, left = np.floor(at_h), np.floor(at_w)
    y = np.zeros((*x.shape[:2], *at_h.shape[1:]), x.dtype)
    batch = np.arange(x.shape[0]).reshape(-1, *[1] * (at_h.ndim - 1))
    for down in (0, 1):
        for right in (0, 1):
            h, w = (top + down).astype(np.int64), (left + right).astype(np.int64)
            share = (1 - np.abs(at_h - h)) * (1 - np.abs(at_w - w))
            inside = (h >= 0) & (h < x.shape[2]) & (w >= 0) & (w < x.shape[3])
            found = x[batch, :, np.clip(h, 0, x.shape[2] - 1), np.clip(w, 0, x.shape[3] - 1)]
            y += np.moveaxis(found * np.where(inside, share, 0)[..., None], -1, 1).astype(x.dtype)
    return y
