"""Operators that move or pick elements."""

from __future__ import annotations

import math
from itertools import accumulate
from math import prod

import numpy as np

from ..build import NO_ACT, copy_attrs
from ..ir import Attr
from ..pack import PackedSource
from ..sizes import preferring
from ..sources import SizesSource
from ..strided import DIMS, broadcast, same, same_shape
from .constant import Const, Narrow, depends, of_integers, sizes_const, table_panels
from .context import Context, Value, lowers
from .elementwise import emit_binary, emit_cast
from .moving import moving_slice
from .spatial import from_image, to_image


@lowers("Reshape")
def reshape(ctx: Context) -> list[Value]:
    """0 keeps a dimension (unless allowzero), -1 takes what is left."""
    x = ctx.input(0)
    target = ctx.integers("shape") if ctx.opset < 5 else ctx.constant_ints(1, "its shape")
    ctx.attr("consumed_inputs")
    own = ctx.shape(x)
    if target is None or target.count(-1) > 1:
        raise ctx.error(f"invalid shape {target}: at most one dimension may be -1")
    if not ctx.integer("allowzero", 0):
        if any(t == 0 and i >= len(own) for i, t in enumerate(target)):
            raise ctx.error(f"shape {target} copies a dimension (0) that shape {own} does not have")
        target = [own[i] if t == 0 else t for i, t in enumerate(target)]
    known = prod(t for t in target if t != -1)
    if -1 in target and known:
        target[target.index(-1)] = prod(own) // known
    if any(t < 0 for t in target) or prod(target) != prod(own):
        raise ctx.error(f"shape {own} does not reshape to {target}")
    return [ctx.reshape(x, tuple(target))]


@lowers("Flatten")
def flatten(ctx: Context) -> list[Value]:
    """Two dimensions: before the axis, and from it on."""
    x = ctx.input(0)
    shape = ctx.shape(x)
    axis = ctx.integer("axis", 1)
    axis = len(shape) if axis == len(shape) else ctx.axis(axis, len(shape))
    return [ctx.reshape(x, (prod(shape[:axis]), prod(shape[axis:])))]


def _axes(ctx: Context, since: int) -> list[int]:
    return (ctx.constant_ints(1, "its axes") or []) if ctx.opset >= since else ctx.integers("axes")


@lowers("Squeeze")
def squeeze(ctx: Context) -> list[Value]:
    """Drop dimensions of size 1; axes are an input since opset 13."""
    x = ctx.input(0)
    shape = ctx.shape(x)
    axes = {ctx.axis(a, len(shape)) for a in _axes(ctx, 13)} or {i for i, d in enumerate(shape) if d == 1}
    if any(shape[a] != 1 for a in axes):
        raise ctx.error(f"axes {sorted(axes)} of shape {shape} are not all 1")
    return [ctx.reshape(x, tuple(d for i, d in enumerate(shape) if i not in axes))]


@lowers("Unsqueeze")
def unsqueeze(ctx: Context) -> list[Value]:
    """Add dimensions of size 1; axes are an input since opset 13."""
    x = ctx.input(0)
    given = _axes(ctx, 13)
    rank = len(ctx.shape(x)) + len(given)
    axes = {ctx.axis(a, rank) for a in given}
    if len(axes) != len(given):
        raise ctx.error(f"axes {given} are not distinct")
    rest = iter(ctx.shape(x))
    return [ctx.reshape(x, tuple(1 if i in axes else next(rest) for i in range(rank)))]


@lowers("Transpose")
def transpose(ctx: Context) -> list[Value]:
    """Permute dimensions; without perm, reverse their order."""
    x = ctx.input(0)
    rank = len(ctx.shape(x))
    perm = ctx.integers("perm") if ctx.has("perm") else list(range(rank))[::-1]
    if sorted(perm) != list(range(rank)):
        raise ctx.error(f"attribute perm={perm} is no permutation of {rank} dimensions")
    return [ctx.transpose(x, perm)]


@lowers("Concat")
def concat(ctx: Context) -> list[Value]:
    """Along one axis; empty parts do not count."""
    values = [ctx.input(i) for i in range(len(ctx.inputs))]
    axis = ctx.axis(ctx.integer("axis", 1), len(ctx.shape(values[0])))
    full = [v for v in values if prod(ctx.shape(v))] or values
    return [full[0] if len(full) == 1 else ctx.emit("concat", full, {"axis": axis})]


@lowers("Split")
def split(ctx: Context) -> list[Value]:
    """Sizes are an attribute, since opset 13 an input; without them, equal parts (since 18 the last may be smaller)."""
    x = ctx.input(0)
    shape = ctx.shape(x)
    axis = ctx.axis(ctx.integer("axis", 0), len(shape))
    parts = len(ctx.node.output)
    sizes = ctx.constant_ints(1, "its sizes") if ctx.opset >= 13 else ctx.integers("split")
    count = ctx.integer("num_outputs", parts)
    if not sizes:
        each = -(-shape[axis] // parts)
        sizes = [max(0, min(each, shape[axis] - i * each)) for i in range(parts)]
    if sum(sizes) != shape[axis] or len(sizes) != parts or count != parts or any(size < 0 for size in sizes):
        raise ctx.error(f"splits {shape[axis]} elements into {sizes} for {parts} outputs")
    starts = [0, *accumulate(sizes)]
    return [_cut(ctx, x, axis, start, size) for start, size in zip(starts, sizes, strict=False)]


def _cut(ctx: Context, x: Value, axis: int, start: int, size: int) -> Value:
    shape = ctx.shape(x)
    starts = [start if i == axis else 0 for i in range(len(shape))]
    sizes = [size if i == axis else d for i, d in enumerate(shape)]
    return ctx.slice(x, starts, sizes, [1] * len(shape))


@lowers("Slice")
def slice_(ctx: Context) -> list[Value]:
    """Bounds are attributes before opset 10, inputs since; backward slices are gathered."""
    ctx.attr("single")  # which matters only where bounds are computed
    if ctx.opset >= 10 and not all(isinstance(ctx.optional(i), Const) for i in (1, 2)):
        return [moving_slice(ctx)]
    x = ctx.input(0)
    shape = ctx.shape(x)
    rank = len(shape)
    if ctx.opset < 10:
        first, last, given = ctx.integers("starts"), ctx.integers("ends"), ctx.integers("axes")
        strides: list[int] | None = None
    else:
        first, last = (ctx.constant_ints(i, w) or [] for i, w in ((1, "its starts"), (2, "its ends")))
        given, strides = ctx.constant_ints(3, "its axes") or [], ctx.constant_ints(4, "its steps")
    axes = [ctx.axis(a, rank) for a in given] or list(range(len(first)))
    strides = strides or [1] * len(axes)
    if not len(first) == len(last) == len(axes) == len(strides) == len(set(axes)) or 0 in strides:
        raise ctx.error(f"starts {first}, ends {last}, axes {axes}, steps {strides}")
    starts, sizes, steps = [0] * rank, list(shape), [1] * rank
    for axis, start, end, step in zip(axes, first, last, strides, strict=True):
        begin, count = _picked(shape[axis], start, end, step)
        sizes[axis] = max(count, 0)
        if count < 1:
            continue
        if step > 0:
            starts[axis], steps[axis] = begin, step
        else:
            x = ctx.emit("gather", [x, counted(ctx, begin, count, step, f"indices{axis}")], {"axis": axis})
    return [ctx.slice(x, starts, sizes, steps)]


def counted(ctx: Context, begin: int, count: int, step: int, label: str) -> Value:
    """Integers, ``count`` from ``begin`` on. Where shapes are open the run computes them, so that they need not be
    known while binding.
    """
    if ctx.in_run:
        return progression(ctx, whole(ctx, begin, "start"), whole(ctx, step, "step"), count)
    return ctx.array(np.arange(begin, begin + count * step, step, dtype=np.int64), label)


def whole(ctx: Context, value: int, label: str) -> Const:
    """A new constant of one integer, which may be a size."""
    if type(value) is int:
        return ctx.array(np.array(value, np.int64), label)
    return sizes_const(f"{ctx.name}.{label}", np.array(value, object), "i64")


def progression(ctx: Context, start: Const, step: Const, count: int) -> Value:
    """``count`` numbers, from ``start`` on, of its type: they are computed at run time, from integers."""
    ones = expanded(ctx, ctx.array(np.ones(1, np.int64), "number"), (count,))
    attrs: dict[str, Attr] = {"axis": 0, "is_product": 0, "is_exclusive": 1, "is_reverse": 0}
    index = emit_cast(ctx, ctx.emit("cumulate", [ones], attrs), start.dtype)
    return emit_binary(ctx, emit_binary(ctx, index, step, "mul"), start, "add")


def _picked(size: int, start: int, end: int, step: int) -> tuple[int, int]:
    """The first index that a slice picks, and how many. Unlike Python's, a backward one that starts before the front
    picks the front.
    """
    start, end = (v + size if v < 0 else v for v in (start, end))
    low, high = (0, size) if step > 0 else (-1, size - 1)
    begin, end = min(max(start, 0), high), min(max(end, low), high)
    return begin, -((begin - end) // step)


@lowers("Pad")
def pad(ctx: Context) -> list[Value]:
    """Pads are an attribute before opset 11, an input since; negative ones crop."""
    x = ctx.input(0)
    shape = ctx.shape(x)
    rank = len(shape)
    if ctx.opset < 11:
        amounts = ctx.integers("pads") or ctx.integers("paddings")
        fill = ctx.number("value", 0.0)
        axes = list(range(rank))
    else:
        amounts = ctx.constant_ints(1, "its pads") or []
        value = ctx.constant(2, "its value")
        fill = float(value.item()) if value is not None and value.size == 1 else 0.0
        given = ctx.constant_ints(3, "its axes")
        axes = list(range(rank)) if given is None else [ctx.axis(a, rank) for a in given]
    mode = ctx.text("mode", "constant")
    if mode not in ("constant", "reflect", "edge") or len(amounts) != 2 * len(axes):
        raise ctx.error(f"mode={mode} with pads {amounts} is not supported")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = amounts[i], amounts[i + len(axes)]
    with preferring(amounts):
        is_padded = any(amounts)
    if not is_padded and not any(amounts):
        return [x]
    attrs: dict[str, Attr] = {"mode": mode, "before": before, "after": after, "interior": [0] * rank, "value": fill}
    attrs["value_int"] = 0 if ctx.dtype(x) == "f32" or not math.isfinite(fill) else int(fill)
    return [ctx.emit("pad", [x], attrs)]


@lowers("Gather")
def gather(ctx: Context) -> list[Value]:
    """Constant indices that are evenly spaced make a slice; not of a table, whose rows are read one by one, nor where
    they are a grid that depends on sizes, such as windows of sound: nothing is asked of its numbers before the run.
    """
    x, indices = ctx.input(0), ctx.input(1)
    shape = ctx.shape(x)
    axis = ctx.axis(ctx.integer("axis", 0), len(shape))
    is_grid = isinstance(indices, Const) and len(indices.shape) > 1 and depends(indices)
    if isinstance(indices, Const) and not isinstance(x, Const) and not is_grid:
        is_sized = isinstance(indices.source, SizesSource)
        picked = indices.source.numbers if is_sized else indices.load().astype(np.int64)  # type: ignore[attr-defined]
        if picked.size and (picked.min() < -shape[axis] or picked.max() >= shape[axis]):
            raise ctx.error(f"an index is outside axis {axis} of shape {shape}")
        flat = [i % shape[axis] for i in picked.reshape(-1).tolist()]
        step = flat[1] - flat[0] if len(flat) > 1 else 1
        if len(flat) == 1 or (flat and step > 0 and flat == list(range(flat[0], flat[-1] + 1, step))):
            starts = [flat[0] if i == axis else 0 for i in range(len(shape))]
            sizes = [len(flat) if i == axis else d for i, d in enumerate(shape)]
            steps = [step if i == axis else 1 for i in range(len(shape))]
            return [ctx.reshape(ctx.slice(x, starts, sizes, steps), shape[:axis] + picked.shape + shape[axis + 1 :])]
    if isinstance(x, Const) and axis == 0 and len(shape) == 2 and (panels := table_panels(x)) is not None:
        stored = PackedSource(panels)
        table = Const(x.name, stored.shape, x.dtype, stored)
        attrs: dict[str, Attr] = {"rows": shape[0], "inner": shape[1], "wtype": panels.form.name}
        return [ctx.emit("gather_panels", [table, indices], attrs)]
    if isinstance(x, Const) and x.narrow and not x.narrow.block:
        return [_restored(ctx, x.narrow, indices, axis)]
    return [ctx.emit("gather", [x, indices], {"axis": axis})]


def _restored(ctx: Context, table: Narrow, indices: Value, axis: int) -> Value:
    """Return the float32 rows that are picked from a table which stays stored in few bits."""
    picked = ctx.emit("gather", [table.whole, indices], {"axis": axis})
    zero, steps = table.zero, table.steps
    is_one = steps is not None and prod(steps.shape) == 1 and (zero is None or prod(zero.shape) == 1)
    if is_one and table.whole.dtype in ("u8", "i8") and (zero is None or zero.dtype == table.whole.dtype):
        own = [parameter for parameter in (steps, zero) if parameter is not None]
        return ctx.emit("quantize", [picked, *own], {"to": "f32", "axis": 0})
    value = ctx.emit("cast", [picked], {"to": "f32"})
    count = len(ctx.shape(indices))
    rank = len(table.whole.shape) + count - 1
    for kind, parameter in (("sub", table.zero), ("mul", table.steps)):
        if parameter is None:
            continue
        factor: Value = parameter
        shape = [1] * rank
        if prod(parameter.shape) > 1 and table.axis == axis:
            factor = ctx.emit("gather", [parameter.reshaped((prod(parameter.shape),)), indices], {"axis": 0})
            shape[axis : axis + count] = ctx.shape(indices)
        elif prod(parameter.shape) > 1:
            shape[table.axis if table.axis < axis else table.axis + count - 1] = prod(parameter.shape)
        if parameter.dtype != "f32":
            factor = of_integers(factor) if isinstance(factor, Const) else ctx.emit("cast", [factor], {"to": "f32"})
        value = ctx.emit("binary", [value, ctx.reshape(factor, tuple(shape))], {"kind": kind, **NO_ACT})
    return value


def expanded(ctx: Context, x: Value, target: tuple[int, ...]) -> Value:
    """``x`` broadcast to ``target``, of at least its rank."""
    own = ctx.shape(x)
    x = ctx.reshape(x, (1,) * (len(target) - len(own)) + own)
    own = ctx.shape(x)
    if same_shape(own, target):
        return x
    if 0 in target:
        return ctx.empty(target, ctx.dtype(x))
    grow = [0 if same(t, d) else t for t, d in zip(target, own, strict=True)]
    return ctx.emit("copy", [x], copy_attrs(len(target), expand=grow))


@lowers("Expand")
def expand(ctx: Context) -> list[Value]:
    """Broadcasting to a constant shape, both ways."""
    x, target = ctx.input(0), ctx.constant_ints(1, "its shape")
    shape = broadcast(ctx.shape(x), tuple(target or []))
    if shape is None:
        raise ctx.error(f"shape {ctx.shape(x)} does not expand to {target}")
    return [expanded(ctx, x, shape)]


@lowers("Tile")
def tile(ctx: Context) -> list[Value]:
    """Each dimension repeated: expanded beside itself; one after the other where that makes too many dimensions."""
    x, repeats = ctx.input(0), ctx.constant_ints(1, "its repeats") or []
    shape = ctx.shape(x)
    if len(repeats) != len(shape) or min(repeats, default=1) < 0:
        raise ctx.error(f"repeats {repeats} do not fit shape {shape}: one number for each dimension is needed")
    if 0 in repeats:
        return [ctx.empty(tuple(d * r for d, r in zip(shape, repeats, strict=True)), ctx.dtype(x))]
    split: list[int] = []
    target: list[int] = []
    for d, r in zip(shape, repeats, strict=True):
        split += [1, d] if r > 1 else [d]
        target += [r, d] if r > 1 else [d]
    if len(target) <= DIMS:
        y = expanded(ctx, ctx.reshape(x, tuple(split)), tuple(target))
        return [ctx.reshape(y, tuple(d * r for d, r in zip(shape, repeats, strict=True)))]
    for axis, r in enumerate(repeats):
        own = ctx.shape(x)
        sides = prod(own[:axis]), prod(own[axis:])
        y = expanded(ctx, ctx.reshape(x, (sides[0], 1, sides[1])), (sides[0], r, sides[1]))
        x = ctx.reshape(y, (*own[:axis], r * own[axis], *own[axis + 1 :]))
    return [x]


@lowers("DepthToSpace", "SpaceToDepth")
def depth_to_space(ctx: Context) -> list[Value]:
    """Blocks of pixels to channels and back: as reshape, transpose, reshape where a channel's pixels are together."""
    x = ctx.input(0)
    n, c, h, w = ctx.shape(x) if len(ctx.shape(x)) == 4 else (0, 0, 0, 0)
    b = ctx.integer("blocksize", 0)
    if b < 1 or n < 1:
        raise ctx.error(f"blocksize {b} does not fit shape {ctx.shape(x)}")
    if ctx.node.op_type == "SpaceToDepth":
        if h % b or w % b:
            raise ctx.error(f"blocksize {b} does not fit shape {ctx.shape(x)}")
        y = ctx.reshape(x, (n, c, h // b, b, w // b, b))
        return [ctx.reshape(ctx.transpose(y, [0, 3, 5, 1, 2, 4]), (n, c * b * b, h // b, w // b))]
    if c % (b * b):
        raise ctx.error(f"blocksize {b} does not fit shape {ctx.shape(x)}")
    if ctx.text("mode", "DCR") == "DCR":
        y = ctx.emit("depth_to_space", [to_image(ctx, x)], {"blocks": [b, b], "crop": [0] * 4})
        return [from_image(ctx, y, 2)]
    depth = c // (b * b)
    y = ctx.transpose(ctx.reshape(x, (n, depth, b, b, h, w)), [0, 1, 4, 2, 5, 3])
    return [ctx.reshape(y, (n, depth, h * b, w * b))]
