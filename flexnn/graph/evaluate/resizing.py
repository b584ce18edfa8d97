"""Pictures: resizing, sampling, boxes."""

from __future__ import annotations

import math

import numpy as np

from ..ir import Array
from .call import Call, evaluates


def _source(call: Call, mode: str, size: int, target: int, scale: float, roi: tuple[float, float]) -> Array:
    """Return the place of each element of the output in the input, by coordinate_transformation_mode."""
    i = np.arange(target, dtype=np.float64)
    match mode:
        case "half_pixel":
            return (i + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            middle = size / 2
            return middle * (1 - target / (size * scale)) + (i + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if target > 1 else np.zeros(target)
        case "align_corners":
            return i * (size - 1) / (size * scale - 1) if size * scale > 1 else np.zeros(target)
        case "asymmetric":
            return i / scale
        case "tf_half_pixel_for_nn":
            return (i + 0.5) / scale
        case "tf_crop_and_resize":
            if target > 1:
                return roi[0] * (size - 1) + i * (roi[1] - roi[0]) * (size - 1) / (target - 1)
            return np.full(target, 0.5 * (roi[0] + roi[1]) * (size - 1))
    raise call.error(f"coordinate_transformation_mode {mode!r} is not supported")


def _nearest(call: Call, at: Array) -> Array:
    match call.text("nearest_mode", "round_prefer_floor"):
        case "round_prefer_floor":
            return np.asarray(np.ceil(at - 0.5))
        case "round_prefer_ceil":
            return np.asarray(np.floor(at + 0.5))
        case "floor":
            return np.asarray(np.floor(at))
        case "ceil":
            return np.asarray(np.ceil(at))
    raise call.error("nearest_mode is not supported")


def _cubic(d: Array, a: float) -> Array:
    d = np.abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _axis_weights(call: Call, mode: str, at: Array, size: int, scale: float) -> Array:
    """A matrix [target, size]: how much each element of the input counts."""
    matrix = np.zeros((at.size, size))
    rows = np.arange(at.size)
    if mode == "nearest":
        matrix[rows, np.clip(_nearest(call, at), 0, size - 1).astype(np.int64)] = 1
        return matrix
    shrink = min(1.0, scale) if call.integer("antialias", 0) else 1.0
    reach = 1 if mode == "linear" else 2
    first = np.floor(at).astype(np.int64)
    span = math.ceil(reach / shrink)
    a = call.number("cubic_coeff_a", -0.75)
    taps = np.arange(-span, span + 1)
    places = first[:, None] + taps
    distance = (places - at[:, None]) * shrink
    shares = np.maximum(0, 1 - np.abs(distance)) if mode == "linear" else _cubic(distance, a)
    if call.integer("exclude_outside", 0):
        shares = np.where((places >= 0) & (places < size), shares, 0)
    shares = shares / np.sum(shares, 1, keepdims=True)
    np.add.at(matrix, (rows[:, None], np.clip(places, 0, size - 1)), shares)
    return matrix


@evaluates("Resize", "Upsample")
def resize(call: Call) -> list[Array]:
    """https://onnx.ai/onnx/operators/onnx__Resize.html; every mode works axis by axis."""
    x = call.x(0)
    mode = {"bilinear": "linear"}.get(call.text("mode", "nearest"), call.text("mode", "nearest"))
    coordinates = call.text("coordinate_transformation_mode", "half_pixel")
    if call.op == "Upsample" or call.opset < 11:
        coordinates = "asymmetric"
    if mode not in ("nearest", "linear", "cubic"):
        raise call.error(f"mode {mode!r} is not supported")
    axes = call.axes(call.integers("axes"), x.ndim) if call.has("axes") else list(range(x.ndim))
    scales, target = _amounts(call, x, axes)
    roi_values = call.get(1) if call.op == "Resize" and call.opset >= 11 else None
    roi = [0.0] * len(axes) + [1.0] * len(axes) if roi_values is None or not roi_values.size else list(roi_values)
    if len(roi) != 2 * len(axes):
        raise call.error(f"roi has {len(roi)} numbers, which do not fit the axes")
    whole = list(x.shape)
    for axis, t in zip(axes, target, strict=True):
        whole[axis] = t
    call.allow(whole, np.dtype(np.float64))
    floor_nearest = call.op == "Upsample" or call.opset < 11
    y = x.astype(np.float64)
    outside = np.zeros((1,) * x.ndim, np.bool_)
    for i, axis in enumerate(axes):
        size = x.shape[axis]
        ends = (float(roi[i]), float(roi[i + len(axes)]))
        if (size == target[i] and scales[i] == 1 and coordinates != "tf_crop_and_resize") or not size:
            continue
        call.allow((target[i], size), np.dtype(np.float64))
        at = _source(call, coordinates, size, target[i], scales[i], ends)
        if mode == "nearest" and floor_nearest:
            at = np.floor(at + 1e-9)
        matrix = _axis_weights(call, mode, at, size, scales[i])
        y = np.moveaxis(np.tensordot(matrix, y, (1, axis)), 0, axis)
        if coordinates == "tf_crop_and_resize":
            beyond = (at < 0) | (at > size - 1)
            outside = outside | beyond.reshape([-1 if j == axis else 1 for j in range(x.ndim)])
    if outside.any():
        y = np.where(outside, call.number("extrapolation_value", 0.0), y)
    if x.dtype.kind in "iu":
        y = np.clip(np.rint(y), np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    return [y.astype(x.dtype)]


def _amounts(call: Call, x: Array, axes: list[int]) -> tuple[list[float], list[int]]:
    """Scale and size of each axis, from scales or sizes."""
    own = [x.shape[a] for a in axes]
    if call.op == "Upsample" and call.opset < 9:
        given: Array | None = np.array(call.numbers("scales", []))
        sizes = None
    elif call.op == "Upsample" or call.opset < 11:
        given, sizes = call.get(1), None
    else:
        given, sizes = call.get(2), call.get_ints(3)
    if sizes:
        if len(sizes) != len(axes):
            raise call.error(f"{len(sizes)} sizes do not fit {len(axes)} axes")
        scales = [t / max(d, 1) for t, d in zip(sizes, own, strict=True)]
        policy = call.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = (min if policy == "not_larger" else max)(scales)
            return [one] * len(axes), [math.floor(one * d + 0.5) for d in own]
        return scales, sizes
    if given is None or given.size != len(axes):
        raise call.error(f"neither sizes nor {len(axes)} scales are given")
    scales = [float(s) for s in given.reshape(-1)]
    if not all(0 < s < 1e9 for s in scales):
        raise call.error(f"scales {scales}")
    return scales, [math.floor(s * d) for s, d in zip(scales, own, strict=True)]


@evaluates("AffineGrid")
def affine_grid(call: Call) -> list[Array]:
    """Places of an output grid after affine transformations, for GridSample."""
    theta, size = call.x(0), call.ints_at(1)
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1):
        raise call.error(f"theta {theta.shape} does not fit size {size}")
    call.allow((size[0], *size[2:], rank), theta.dtype)
    axes = []
    for d in size[2:]:
        i = np.arange(d, dtype=np.float64)
        corners = call.integer("align_corners", 0)
        axes.append(i * 2 / max(d - 1, 1) - 1 if corners and d > 1 else (i * 2 + 1) / d - 1 if not corners else i - 1)
    grid = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(size[2:])], -1)
    return [np.einsum("...k,nrk->n...r", grid, theta).astype(theta.dtype)]


def _reflected(at: Array, low: float, high: float) -> Array:
    span = high - low
    if span <= 0:
        return np.zeros_like(at)
    place = np.mod(at - low, 2 * span)
    return np.where(place > span, 2 * span - place, place) + low


@evaluates("GridSample")
def grid_sample(call: Call) -> list[Array]:
    """x[n, c, ...] read at grid[n, ..., rank] of places in [-1, 1], the last dimension first."""
    x, grid = call.x(0), call.x(1)
    rank = x.ndim - 2
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(call.text("mode", "linear"), call.text("mode", "linear"))
    padding, corners = call.text("padding_mode", "zeros"), call.integer("align_corners", 0)
    if rank < 1 or grid.ndim != rank + 2 or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise call.error(f"input {x.shape} and grid {grid.shape} do not fit together")
    if mode not in ("nearest", "linear", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise call.error(f"mode {mode!r} with padding_mode {padding!r} is not supported")
    call.allow((*x.shape[:2], *grid.shape[1:-1]), np.dtype(np.float64))
    taps, shares = [], []
    for axis in range(rank):
        d = x.shape[2 + axis]
        place = grid[..., rank - 1 - axis].astype(np.float64)
        at = (place + 1) / 2 * (d - 1) if corners else ((place + 1) * d - 1) / 2
        edges = (0.0, d - 1.0) if corners else (-0.5, d - 0.5)
        if padding == "border" and mode != "cubic":
            at = np.clip(at, 0, d - 1)
        elif padding == "reflection" and mode != "cubic":
            at = np.clip(_reflected(at, *edges), 0, d - 1)
        if mode == "nearest":
            own, part = [np.rint(at)], [np.ones_like(at)]
        else:
            first = np.floor(at)
            shifts = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
            own = [first + s for s in shifts]
            part = [1 - np.abs(o - at) if mode == "linear" else _cubic(o - at, -0.75) for o in own]
        if mode == "cubic" and padding == "reflection":
            own = [np.clip(_reflected(o, *edges), 0, d - 1) for o in own]
        inside = [(o >= 0) & (o <= d - 1) if padding == "zeros" else np.ones(o.shape, np.bool_) for o in own]
        part = [np.where(i, p, 0) for i, p in zip(inside, part, strict=True)]
        taps.append([np.clip(np.rint(o), 0, d - 1).astype(np.int64) for o in own])
        shares.append(part)
    y = np.zeros((x.shape[0], *grid.shape[1:-1], x.shape[1]))
    batch = np.arange(x.shape[0]).reshape(-1, *[1] * rank)
    last = np.moveaxis(x, 1, -1)
    for choice in np.ndindex(*[len(t) for t in taps]):
        share = np.prod([shares[a][c] for a, c in enumerate(choice)], 0)
        y += last[(batch, *(taps[a][c] for a, c in enumerate(choice)))] * share[..., None]
    return [np.moveaxis(y, -1, 1).astype(x.dtype)]


@evaluates("RoiAlign")
def roi_align(call: Call) -> list[Array]:
    """Regions of a picture, read on a grid: the mean (or largest) of samples in each cell."""
    x, rois, pictures = call.x(0), call.x(1), call.x(2)
    oh, ow = call.integer("output_height", 1), call.integer("output_width", 1)
    ratio, scale = call.integer("sampling_ratio", 0), call.number("spatial_scale", 1.0)
    shift = 0.5 if call.opset >= 16 and call.text("coordinate_transformation_mode", "half_pixel") == "half_pixel" else 0
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 4 or pictures.shape != rois.shape[:1]:
        raise call.error(f"input {x.shape}, regions {rois.shape} and pictures {pictures.shape} do not fit together")
    y = np.zeros(call.allow((rois.shape[0], x.shape[1], oh, ow), x.dtype), x.dtype)
    if pictures.size and (pictures.min() < 0 or pictures.max() >= x.shape[0]):
        raise call.error("a picture's index is out of range")
    for number, (roi, picture) in enumerate(zip(rois.astype(np.float64), pictures, strict=True)):
        left, top, right, bottom = (float(v) * scale - shift for v in roi)
        height, width = bottom - top, right - left
        if not shift:
            height, width = max(height, 1.0), max(width, 1.0)
        counts = [ratio or max(0, math.ceil(height / oh)), ratio or max(0, math.ceil(width / ow))]
        if not all(0 <= c <= 1 << 12 for c in counts):
            raise call.error(f"region {list(roi)}")
        if 0 in counts:
            continue
        h = top + (np.arange(oh * counts[0]) + 0.5) * height / (oh * counts[0])
        w = left + (np.arange(ow * counts[1]) + 0.5) * width / (ow * counts[1])
        samples = _samples(x[int(picture)], h, w).reshape(x.shape[1], oh, counts[0], ow, counts[1], 4)
        if call.text("mode", "avg") == "max":
            y[number] = samples.max((2, 4, 5))
        else:
            y[number] = samples.sum(5).mean((2, 4))
    return [y]


def _samples(x: Array, h: Array, w: Array) -> Array:
    """The four weighted neighbours of each place of a grid over x[c, height, width]; zero far outside."""
    out = []
    ends = [d - 1 for d in x.shape[1:]]
    near = ((h >= -1) & (h <= x.shape[1]))[:, None] & ((w >= -1) & (w <= x.shape[2]))
    h, w = np.clip(h, 0, ends[0]), np.clip(w, 0, ends[1])
    first_h, first_w = np.floor(h).astype(np.int64), np.floor(w).astype(np.int64)
    for down in (0, 1):
        for right in (0, 1):
            rows, columns = np.minimum(first_h + down, ends[0]), np.minimum(first_w + right, ends[1])
            share_h = (h - first_h) if down else 1 - (h - first_h)
            share_w = (w - first_w) if right else 1 - (w - first_w)
            out.append(x[:, rows][:, :, columns] * np.where(near, share_h[:, None] * share_w, 0))
    return np.stack(out, -1)


@evaluates("NonMaxSuppression")
def non_max_suppression(call: Call) -> list[Array]:
    """Boxes [batch, n, 4] by scores [batch, class, n]: the best that overlap no better one too much."""
    boxes, scores = call.x(0), call.x(1)
    limits = [call.scalar(i) for i in (2, 3, 4)]
    most = 0 if limits[0] is None else int(limits[0])
    overlap = np.float32(0.0 if limits[1] is None else limits[1])
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise call.error(f"boxes {boxes.shape} and scores {scores.shape} do not fit together")
    own = boxes.astype(np.float32)
    if call.integer("center_point_box", 0):
        centre, half = own[..., :2], own[..., 2:] / 2
        own = np.concatenate([centre - half, centre + half], -1)
    else:
        own = np.concatenate([np.minimum(own[..., :2], own[..., 2:]), np.maximum(own[..., :2], own[..., 2:])], -1)
    kept = []
    for b, c in np.ndindex(scores.shape[0], scores.shape[1]):
        value, box = scores[b, c], own[b]
        fits = ~np.isnan(value) if limits[2] is None else value > limits[2]
        order = [int(i) for i in np.argsort(-value, kind="stable") if fits[i]]
        alive = np.array(order, np.int64)
        chosen = 0
        while alive.size and chosen < most:
            best, alive = int(alive[0]), alive[1:]
            kept.append((b, c, best))
            chosen += 1
            low = np.maximum(box[best, :2], box[alive, :2])
            high = np.minimum(box[best, 2:], box[alive, 2:])
            common = np.prod(np.maximum(0, high - low), -1)
            areas = np.prod(box[:, 2:] - box[:, :2], -1)
            union = areas[best] + areas[alive] - common
            alive = alive[~(np.divide(common, union, where=union > 0, out=np.zeros_like(common)) > overlap)]
    return [np.array(kept, np.int64).reshape(-1, 3)]


@evaluates("NonMaxSuppression.rows")
def non_max_suppression_rows(call: Call) -> list[Array]:
    """Rows, as many as boxes can be selected; those of the selected ones first, and last one with their number."""
    (kept,) = non_max_suppression(call)
    scores, most = call.x(1), call.scalar(2)
    count = 0 if most is None else max(0, min(int(most), scores.shape[2]))
    rows = np.zeros(call.allow((scores.shape[0] * scores.shape[1] * count + 1, 3), np.dtype(np.int64)), np.int64)
    rows[: len(kept)] = kept
    rows[-1, 0] = len(kept)
    return [rows]
