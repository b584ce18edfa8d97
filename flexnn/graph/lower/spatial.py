"""Windows over space, shared by convolutions and pools: pads by auto_pad, and one dimension as two."""

from __future__ import annotations

from flexnn.quick_dataclass import quick_dataclass

from .context import Context, Value

TO_LAST = [0, 2, 3, 1]
TO_FIRST = [0, 3, 1, 2]


@quick_dataclass(slots=True)
class Window:
    """A sliding window over (height, width); one-dimensional ones have height 1. pads: top, left, bottom, right.

    Of a volume it has three dimensions, and one over depth alone has one (volumes.py).
    """

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]


def spatial_rank(ctx: Context, value: Value) -> int:
    """1 or 2 spatial dimensions of [n, c, ...]. Raises GraphError."""
    rank = len(ctx.shape(value)) - 2
    if rank not in (1, 2):
        raise ctx.error(f"input of shape {ctx.shape(value)}: only one or two spatial dimensions are supported")
    return rank


def to_image(ctx: Context, value: Value) -> Value:
    """[n,c,h,w] or [n,c,w] as [n,h,w,c]."""
    shape = ctx.shape(value)
    if len(shape) == 3:
        value = ctx.reshape(value, (shape[0], shape[1], 1, shape[2]))
    return ctx.transpose(value, TO_LAST)


def from_image(ctx: Context, value: Value, rank: int) -> Value:
    """The way back from ``to_image``."""
    value = ctx.transpose(value, TO_FIRST)
    if rank == 1:
        n, c, _, w = ctx.shape(value)
        value = ctx.reshape(value, (n, c, w))
    return value


def window(ctx: Context, rank: int, kernel: list[int]) -> Window:
    """The window that strides, dilations, pads and auto_pad say, for a kernel of these sizes, auto_pad not applied."""
    strides = ctx.integers("strides") or [1] * rank
    dilations = ctx.integers("dilations") or [1] * rank
    pads = ctx.integers("pads") or [0] * (2 * rank)
    lists = (("kernel_shape", kernel, rank, 1), ("strides", strides, rank, 1), ("dilations", dilations, rank, 1))
    for name, values, count, low in (*lists, ("pads", pads, 2 * rank, 0)):
        if len(values) != count or any(v < low or v >= 1 << 31 for v in values):
            raise ctx.error(f"attribute {name}={values} does not suit {rank} spatial dimensions")
    if rank == 1:
        pads = [0, pads[0], 0, pads[1]]
    one = [1] if rank == 1 else []
    return Window(one + kernel, one + strides, one + dilations, pads)


def seen_taps(w: Window, axis: int, size: int) -> range:
    """Taps of the kernel along an axis, height (0) or width (1), that meet the input of this size, and those between
    them; the others only ever meet padding. Of 3 taps over 1 pixel with a pad of 1 only the middle one is left.
    """
    taps, stride, step = range(w.kernel[axis]), w.strides[axis], w.dilations[axis]
    before, after = w.pads[axis], w.pads[axis + len(w.kernel)]
    if min(before, after) < 0:
        return taps
    last = (size + before + after - step * (w.kernel[axis] - 1) - 1) // stride

    def is_seen(tap: int) -> bool:
        first = -(-max(before - tap * step, 0) // stride)  # output whose tap meets the input or lies behind it
        return first <= last and first * stride < before - tap * step + size

    seen = [tap for tap in taps if is_seen(tap)]
    if not seen:
        return taps
    # pads stay 0 or more
    return range(min(seen[0], before // step), max(seen[-1], taps[-1] - after // step) + 1)


def auto_pads(ctx: Context, w: Window, sizes: tuple[int, ...]) -> None:
    """Apply auto_pad to the window, for an input of (height, width) ``sizes``, or of (depth, height, width).

    ONNX's formula: SAME makes ceil(size / stride) outputs. onnxruntime's pools make fewer where they are dilated, and
    where the stride exceeds the kernel by 2 and more it moves the window by pads below zero, or refuses them.
    """
    mode = ctx.text("auto_pad", "NOTSET")
    rank = len(w.kernel)
    if mode == "VALID":
        w.pads = [0] * (2 * rank)
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        for i, size in enumerate(sizes):
            reach = (w.kernel[i] - 1) * w.dilations[i] + 1
            total = -(-size // w.strides[i]) * w.strides[i] - size + reach - w.strides[i]
            if reach == 1:
                total = 0
            elif reach < w.strides[i]:  # otherwise it is never negative, and all sizes are alike
                total = max(0, total)
            small, large = total // 2, total - total // 2
            w.pads[i], w.pads[i + rank] = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode != "NOTSET":
        raise ctx.error(f"attribute auto_pad={mode} is not known")
