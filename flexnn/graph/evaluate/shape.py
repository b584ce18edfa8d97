"""Shapes: reading, changing, making, joining and cutting."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS, work_bytes
from .call import Call, common_shape, copied, evaluates


@evaluates("Shape")
def shape(call: Call) -> list[Array]:
    """The dimensions in [start, end), which are clamped."""
    x = call.x(0)
    end = call.integer("end", x.ndim)
    call.reserve(workspace=8 * x.ndim)
    return [np.array(x.shape[slice(call.integer("start", 0), end)], np.int64)]


@evaluates("Size")
def size(call: Call) -> list[Array]:
    """The number of elements."""
    call.reserve(workspace=8)
    return [np.array(call.x(0).size, np.int64)]


@evaluates("Constant")
def constant(call: Call) -> list[Array]:
    """The value in the one attribute."""
    value = call.tensor("value")
    call.reserve(workspace=sum(8 * len(v) for v in call.attrs.values() if isinstance(v, list)))
    if value is not None:
        return [value]
    if call.has("value_float"):
        return [np.array(call.number("value_float", 0.0), np.float32)]
    if call.has("value_int"):
        return [np.array(call.integer("value_int", 0), np.int64)]
    if call.has("value_floats"):
        return [np.array(call.numbers("value_floats", []), np.float32)]
    if call.has("value_ints"):
        return [np.array(call.integers("value_ints"), np.int64)]
    raise call.error(f"attribute {next(iter(call.attrs), 'value')} is not supported")


@evaluates("Reshape")
def reshape(call: Call) -> list[Array]:
    """0 keeps a dimension (unless allowzero), -1 takes what is left."""
    x = call.x(0)
    target = call.integers("shape") if call.opset < 5 else call.ints_at(1)
    if not call.integer("allowzero", 0):
        if any(t == 0 and i >= x.ndim for i, t in enumerate(target)):
            raise call.error(f"shape {target} copies a dimension (0) that shape {x.shape} does not have")
        target = [x.shape[i] if t == 0 else t for i, t in enumerate(target)]
    if target.count(-1) > 1 or min(target, default=0) < -1:
        raise call.error(f"invalid shape {target}: at most one dimension may be -1")
    known = prod(t for t in target if t != -1)
    if -1 in target and known:
        target[target.index(-1)] = x.size // known
    if -1 in target or prod(target) != x.size:
        raise call.error(f"shape {x.shape} does not reshape to {target}")
    call.reserve(workspace=copied(x))
    return [x.reshape(target)]


@evaluates("Flatten")
def flatten(call: Call) -> list[Array]:
    """Two dimensions: before the axis, and from it on."""
    x = call.x(0)
    axis = call.integer("axis", 1)
    axis = x.ndim if axis == x.ndim else call.axis(axis, x.ndim)
    call.reserve(workspace=copied(x))
    return [x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))]


def _axes(call: Call) -> list[int] | None:
    return call.get_ints(1) if call.opset >= 13 else (call.integers("axes") if call.has("axes") else None)


@evaluates("Squeeze")
def squeeze(call: Call) -> list[Array]:
    """Drop dimensions of size 1; axes are an input since opset 13."""
    x, axes = call.x(0), _axes(call)
    call.reserve()
    if axes is None:
        return [np.squeeze(x)]
    return [np.squeeze(x, tuple(call.axes(axes, x.ndim)))]


@evaluates("Unsqueeze")
def unsqueeze(call: Call) -> list[Array]:
    """Add dimensions of size 1 at the axes of the result."""
    x, axes = call.x(0), _axes(call) or []
    new = set(call.axes(axes, x.ndim + len(axes)))
    old = iter(x.shape)
    call.reserve(workspace=copied(x))
    return [x.reshape([1 if i in new else next(old) for i in range(x.ndim + len(new))])]


@evaluates("Transpose")
def transpose(call: Call) -> list[Array]:
    """Permuted dimensions; reversed without a permutation."""
    x = call.x(0)
    perm = call.integers("perm") if call.has("perm") else list(range(x.ndim))[::-1]
    if sorted(perm) != list(range(x.ndim)):
        raise call.error(f"perm {perm} is no permutation of {x.ndim} dimensions")
    call.reserve(([x.shape[p] for p in perm], x.dtype))
    return [np.ascontiguousarray(x.transpose(perm)).reshape([x.shape[p] for p in perm])]


@evaluates("Expand")
def expand(call: Call) -> list[Array]:
    """Broadcast with a shape, both ways."""
    x, target = call.x(0), call.ints_at(1)
    full = common_shape(call, x.shape, call.shape(target))
    call.reserve((full, x.dtype))
    return [np.broadcast_to(x, full).copy()]


@evaluates("Tile")
def tile(call: Call) -> list[Array]:
    """Each dimension repeated; before opset 6 one axis by a number of tiles."""
    x = call.x(0)
    if call.opset < 6:
        repeats = [1] * x.ndim
        axis = call.scalar(2)
        tiles = call.scalar(1)
        if axis is None or tiles is None:
            raise call.error("tiles or axis is missing")
        repeats[call.axis(int(axis), x.ndim)] = int(tiles)
    else:
        repeats = call.ints_at(1)
    if len(repeats) != x.ndim or min(repeats, default=0) < 0:
        raise call.error(f"repeats {repeats} do not fit shape {x.shape}: one number for each dimension is needed")
    shape = [d * r for d, r in zip(x.shape, repeats, strict=True)]
    call.reserve((shape, x.dtype))
    y = np.empty([d for pair in zip(repeats, x.shape, strict=True) for d in pair], x.dtype)
    y[...] = np.expand_dims(x, tuple(range(0, 2 * x.ndim, 2)))
    return [y.reshape(shape)]


@evaluates("Concat")
def concat(call: Call) -> list[Array]:
    """Joined along an axis."""
    values = call.all()
    if len({v.dtype for v in values}) > 1:
        raise call.error(f"inputs have different types: {', '.join(sorted({str(v.dtype) for v in values}))}")
    axis = call.axis(call.integer("axis", 1 if call.opset < 4 else 0), values[0].ndim)
    call.reserve(workspace=sum(v.nbytes for v in values))
    return [np.concatenate(values, axis)]


@evaluates("Split")
def split(call: Call) -> list[Array]:
    """Parts of given sizes, or as equal as can be; the last is smaller where they do not divide (opset 18)."""
    x = call.x(0)
    axis = call.axis(call.integer("axis", 0), x.ndim)
    sizes = call.get_ints(1) if call.opset >= 13 else (call.integers("split") if call.has("split") else None)
    if sizes is None:
        parts = call.integer("num_outputs", call.outputs)
        if parts < 1 or (call.opset < 18 and x.shape[axis] % parts):
            raise call.error(f"{x.shape[axis]} elements do not split into {parts} parts")
        each = -(-x.shape[axis] // parts)
        sizes = [max(0, min(each, x.shape[axis] - i * each)) for i in range(parts)]
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise call.error(f"parts {sizes} do not add up to {x.shape[axis]} elements")
    call.reserve()
    return np.split(x, np.cumsum(sizes)[:-1], axis)


@evaluates("ConstantOfShape")
def constant_of_shape(call: Call) -> list[Array]:
    """One value, everywhere; float32 zero by default."""
    value = call.tensor("value")
    if value is None:
        value = np.zeros(1, np.float32)
    shape = call.shape(call.ints_at(0))
    call.reserve((shape, value.dtype))
    return [np.full(shape, value.reshape(-1)[0], value.dtype)]


def range_count(start: Array, limit: Array, delta: Array) -> int | None:
    """Numbers of a Range; None if they never end."""
    if start.dtype.kind in "iu":
        return max(0, -((int(limit) - int(start)) // -int(delta)))
    steps = (float(limit) - float(start)) / float(delta)
    return max(0, math.ceil(steps)) if math.isfinite(steps) else None


@evaluates("Range")
def arange(call: Call) -> list[Array]:
    """Start + i * delta below (or above) limit."""
    start, limit, delta = (call.scalar(i) for i in range(3))
    if start is None or limit is None or delta is None or not delta:
        raise call.error("start, limit or delta is missing or zero")
    count = range_count(start, limit, delta)
    if count is None:
        raise call.error(f"start {start}, limit {limit}, delta {delta}")
    call.reserve(([count], start.dtype), workspace=work_bytes(count))
    y = np.empty(count, start.dtype)
    for first in range(0, count, ELEMENTS):
        part = y[first : first + ELEMENTS]
        part[:] = start + np.arange(first, first + part.size).astype(start.dtype) * delta
    return [y]


@evaluates("EyeLike")
def eye_like(call: Call) -> list[Array]:
    """Ones on the k-th diagonal."""
    x = call.x(0)
    if x.ndim != 2:
        raise call.error(f"input of shape {x.shape} is not a matrix")
    dtype = call.dtype("dtype", 0) if call.has("dtype") else x.dtype
    k = max(-x.shape[0], min(x.shape[1], call.integer("k", 0)))
    call.reserve((x.shape, dtype))
    return [np.eye(x.shape[0], x.shape[1], k=k, dtype=dtype)]


@evaluates("Pad")
def pad(call: Call) -> list[Array]:
    """Borders of a constant, of the nearest, mirrored or opposite elements; negative ones cut away."""
    x = call.x(0)
    mode = call.text("mode", "constant")
    modes = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}
    if mode not in modes:
        raise call.error(f"mode {mode!r} is not supported")
    fill: Array | float
    if call.opset < 11:
        pads, fill, axes = call.integers("pads"), call.number("value", 0.0), list(range(x.ndim))
    else:
        given, chosen = call.scalar(2), call.get_ints(3)
        pads, fill = call.ints_at(1), np.zeros((), x.dtype) if given is None else given
        axes = list(range(x.ndim)) if chosen is None else call.axes(chosen, x.ndim)
    if len(pads) != 2 * len(axes):
        raise call.error(f"{len(pads)} pads do not fit {len(axes)} axes")
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    whole = call.shape([d + b + a for d, b, a in zip(x.shape, before, after, strict=True)])
    made = [(whole, x.dtype)] * (1 if mode == "constant" else 2)  # numpy copies what it mirrors
    call.reserve(*made)
    x = x[tuple(slice(max(-b, 0), d - max(-a, 0)) for d, b, a in zip(x.shape, before, after, strict=True))]
    widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    if mode == "constant":
        return [np.pad(x, widths, "constant", constant_values=np.asarray(fill, x.dtype))]
    return [np.pad(x, widths, modes[mode])]  # type: ignore[call-overload]


@evaluates("DepthToSpace", "SpaceToDepth")
def blocks(call: Call) -> list[Array]:
    """Blocks of pixels from or to channels."""
    x, b = call.x(0), call.integer("blocksize", 0)
    if x.ndim != 4 or b < 1:
        raise call.error(f"shape {x.shape} does not divide into blocksize {b}")
    n, c, h, w = x.shape
    call.reserve((x.shape, x.dtype), workspace=copied(x))
    if call.op == "SpaceToDepth":
        order = (0, 3, 5, 1, 2, 4) if call.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
        y = x.reshape(n, c, h // b, b, w // b, b).transpose(order)
        return [y.reshape(n, c * b * b, h // b, w // b)]
    if call.text("mode", "DCR") == "DCR":
        y = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return [y.reshape(n, c // (b * b), h * b, w * b)]


@evaluates("CenterCropPad")
def center_crop_pad(call: Call) -> list[Array]:
    """Each axis cut or padded to a size, about its middle."""
    x, target = call.x(0), call.ints_at(1)
    axes = call.axes(call.integers("axes"), x.ndim) if call.has("axes") else list(range(x.ndim))
    if len(target) != len(axes):
        raise call.error(f"shape {target} does not fit {len(axes)} axes")
    shape, kept, widths = list(x.shape), [slice(None)] * x.ndim, [(0, 0)] * x.ndim
    for axis, wanted in zip(axes, target, strict=True):
        own, shape[axis] = x.shape[axis], wanted
        first = abs(own - wanted) // 2
        if wanted <= own:
            kept[axis] = slice(first, first + wanted)
        else:
            widths[axis] = (first, wanted - own - first)
    call.reserve((shape, x.dtype))
    return [np.pad(x[tuple(kept)], widths)]


@evaluates("ReverseSequence")
def reverse_sequence(call: Call) -> list[Array]:
    """The first elements of each sequence, as many as its length, in reverse."""
    x, lengths = call.x(0), call.ints_at(1)
    time, batch = call.axis(call.integer("time_axis", 0), x.ndim), call.axis(call.integer("batch_axis", 1), x.ndim)
    if time == batch or len(lengths) != x.shape[batch]:
        raise call.error(f"time axis {time}, batch axis {batch} and {len(lengths)} lengths do not fit shape {x.shape}")
    call.reserve((x.shape, x.dtype))
    y = x.copy()
    rows = (np.moveaxis(a, (batch, time), (0, 1)) for a in (y, x))
    for to, row, length in zip(*rows, lengths, strict=True):
        if not 0 <= length <= x.shape[time]:
            raise call.error(f"length {length} is outside [0, {x.shape[time]}]")
        to[:length] = row[:length][::-1]
    return [y]
