"""Pictures: sampling on grids and regions, boxes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS, boxes
from .call import Call, copied, evaluates
from .resizing import cubic
from .windows import last


@evaluates("AffineGrid")
def affine_grid(call: Call) -> list[Array]:
    """Places of an output grid after affine transformations, for GridSample."""
    theta, size = call.x(0), call.ints_at(1)
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1):
        raise call.error(f"theta {theta.shape} does not fit size {size}")
    shape = call.shape((size[0], *size[2:], rank))
    batch = max(size[0], 1)
    block = min(prod(shape[:-1]), max(ELEMENTS, batch))
    call.reserve((shape, theta.dtype), workspace=32 * block + 32 * sum(size[2:]))
    axes = []
    corners = call.integer("align_corners", 0)
    for axis, d in enumerate(size[2:]):
        i = np.arange(d, dtype=np.float64)
        places = i * 2 / max(d - 1, 1) - 1 if corners and d > 1 else (i * 2 + 1) / d - 1 if not corners else i - 1
        axes.append(places.reshape([-1 if j == axis else 1 for j in range(rank)]))
    y, wide = np.empty(shape, theta.dtype), theta.astype(np.float64).reshape(*theta.shape, *[1] * rank)
    for box in boxes(size[2:], max(1, ELEMENTS // batch)):
        for row in range(rank):
            part = np.array(wide[:, row, rank])
            for k in range(rank):
                axis = rank - 1 - k  # the last dimension comes first
                own = axes[axis][last(b if j == axis else slice(None) for j, b in enumerate(box))]
                part = part + wide[:, row, k] * own
            y[(slice(None), *box)][..., row] = part
    return [y]


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
    shape = (*x.shape[:2], *grid.shape[1:-1])
    points, step = prod(grid.shape[1:-1]), max(1, ELEMENTS // 4 // max(x.shape[1], 1))
    block = min(points, step)
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[mode]
    work = block * (x.shape[1] * (24 + x.itemsize) + 8 * rank * (8 + 6 * taps))
    call.reserve((shape, x.dtype), workspace=work + copied(grid, x))
    y = np.empty((*x.shape[:2], points), x.dtype)
    places, source = grid.reshape(x.shape[0], points, rank), np.ascontiguousarray(x)
    for n in range(x.shape[0]):
        for first in range(0, points, step):
            own = places[n, first : first + step]
            axes = [
                _grid_taps(own[:, rank - 1 - a].astype(np.float64), x.shape[2 + a], mode, padding, bool(corners))
                for a in range(rank)
            ]
            total = np.zeros((x.shape[1], len(own)))
            for choice in product(*axes):
                share = np.prod([part for _, part in choice], 0)
                total += source[n][last(at for at, _ in choice)] * share
            y[n, :, first : first + step] = total
    return [y.reshape(shape)]


def _grid_taps(place: Array, d: int, mode: str, padding: str, corners: bool) -> list[tuple[Array, Array]]:
    """Which elements of an axis with ``d`` are read for places in [-1, 1], and how much each counts."""
    at = (place + 1) / 2 * (d - 1) if corners else ((place + 1) * d - 1) / 2
    edges = (0.0, d - 1.0) if corners else (-0.5, d - 0.5)
    if padding == "border" and mode != "cubic":
        at = np.clip(at, 0, d - 1)
    elif padding == "reflection" and mode != "cubic":
        at = np.clip(_reflected(at, *edges), 0, d - 1)
    first = np.rint(at) if mode == "nearest" else np.floor(at)
    taps = []
    for shift in {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]:
        own = first + shift
        if mode == "nearest":
            part = np.ones_like(at)
        else:
            part = 1 - np.abs(own - at) if mode == "linear" else cubic(own - at, -0.75)
        if mode == "cubic" and padding == "reflection":
            own = np.clip(_reflected(own, *edges), 0, d - 1)
        if padding == "zeros":
            part = np.where((own >= 0) & (own <= d - 1), part, 0)
        taps.append((np.clip(np.rint(own), 0, d - 1).astype(np.int64), part))
    return taps


@evaluates("RoiAlign")
def roi_align(call: Call) -> list[Array]:
    """Regions of a picture, read on a grid: the mean (or largest) of samples in each cell."""
    x, rois, pictures = call.x(0), call.x(1), call.x(2)
    oh, ow = call.integer("output_height", 1), call.integer("output_width", 1)
    scale = call.number("spatial_scale", 1.0)
    shift = 0.5 if call.opset >= 16 and call.text("coordinate_transformation_mode", "half_pixel") == "half_pixel" else 0
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 4 or pictures.shape != rois.shape[:1]:
        raise call.error(f"input {x.shape}, regions {rois.shape} and pictures {pictures.shape} do not fit together")
    if pictures.size and (pictures.min() < 0 or pictures.max() >= x.shape[0]):
        raise call.error("a picture's index is out of range")
    shape = call.shape((rois.shape[0], x.shape[1], oh, ow))
    cells = [_cells(call, roi, scale, shift, (oh, ow)) for roi in rois] if prod(shape) <= 1 << 40 else []
    samples = max((h * ow * w for *_, (h, w) in cells), default=0)
    most = max((oh * h + ow * w for *_, (h, w) in cells), default=0)
    channels = max(1, min(x.shape[1], ELEMENTS // max(samples, 1)))
    call.reserve((shape, x.dtype), workspace=(40 * channels + 24) * samples + 128 * most + 512 * len(cells))
    y = np.empty(shape, x.dtype)
    largest = call.text("mode", "avg") == "max"
    for number, ((top, left), (height, width), counts) in enumerate(cells):
        if 0 in counts:
            y[number] = 0
            continue
        h = top + (np.arange(oh * counts[0]) + 0.5) * height / (oh * counts[0])
        w = left + (np.arange(ow * counts[1]) + 0.5) * width / (ow * counts[1])
        for row in range(oh):
            own = h[row * counts[0] : (row + 1) * counts[0]]
            for c in range(0, x.shape[1], channels):
                part = x[int(pictures[number]), c : c + channels]
                y[number, c : c + channels, row] = _cell_values(part, own, w, ow, largest)
    return [y]


_Cells = tuple[tuple[float, float], tuple[float, float], tuple[int, int]]
"""A region: where it begins, its size, and the samples of a cell, each for rows and columns."""


def _cells(call: Call, roi: Array, scale: float, shift: float, size: tuple[int, int]) -> _Cells:
    left, top, right, bottom = (float(v) * scale - shift for v in roi)
    height, width = bottom - top, right - left
    if not shift:
        height, width = max(height, 1.0), max(width, 1.0)
    ratio = call.integer("sampling_ratio", 0)
    if not math.isfinite(height) or not math.isfinite(width):
        raise call.error(f"region {list(roi)}")
    counts = ratio or max(0, math.ceil(height / size[0])), ratio or max(0, math.ceil(width / size[1]))
    if not all(0 <= c <= 1 << 12 for c in counts):
        raise call.error(f"region {list(roi)}")
    return (top, left), (height, width), counts


def _cell_values(x: Array, h: Array, w: Array, cells: int, largest: bool) -> Array:
    """One row of cells over x[c, height, width]: the mean or the largest of what ``_samples`` gives."""
    total: Array | None = None
    for part in _samples(x, h, w):
        if total is None:
            total = part
        else:
            (np.maximum if largest else np.add)(total, part, out=total)
    assert total is not None
    each = total.reshape(len(x), len(h), cells, -1)
    return np.asarray(each.max((1, 3)) if largest else each.mean((1, 3)))


def _samples(x: Array, h: Array, w: Array) -> Iterator[Array]:
    """Each of the four weighted neighbours of the places of a grid over x[c, height, width]; zero far outside."""
    ends = [d - 1 for d in x.shape[1:]]
    near = ((h >= -1) & (h <= x.shape[1]))[:, None] & ((w >= -1) & (w <= x.shape[2]))
    h, w = np.clip(h, 0, ends[0]), np.clip(w, 0, ends[1])
    first_h, first_w = np.floor(h).astype(np.int64), np.floor(w).astype(np.int64)
    for down in (0, 1):
        for right in (0, 1):
            rows, columns = np.minimum(first_h + down, ends[0]), np.minimum(first_w + right, ends[1])
            share_h = (h - first_h) if down else 1 - (h - first_h)
            share_w = (w - first_w) if right else 1 - (w - first_w)
            yield x[:, rows[:, None], columns] * np.where(near, share_h[:, None] * share_w, 0)


@evaluates("MaxRoiPool")
def max_roi_pool(call: Call) -> list[Array]:
    """The largest element of each cell of regions [n, 5]: a picture, and two corners that belong to the region."""
    x, rois, cells = call.x(0), call.x(1), call.integers("pooled_shape")
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or len(cells) != 2:
        raise call.error(f"input {x.shape}, regions {rois.shape} and cells {cells} do not fit together")
    if min(cells) < 1 or not np.isfinite(rois).all() or np.abs(rois).max(initial=0) > _FAR:
        raise call.error("a region is out of range")
    if rois.size and (rois[:, 0].min() < 0 or rois[:, 0].max() >= len(x)):
        raise call.error("a picture's index is out of range")
    shape = call.shape((len(rois), x.shape[1], *cells))
    call.reserve((shape, x.dtype), workspace=64 * (len(rois) + sum(cells)) + 16 * x.shape[1])
    y, scale = np.empty(shape, x.dtype), np.float32(call.number("spatial_scale", 1.0))
    for number, roi in enumerate(rois):
        corners = [int(math.copysign(math.floor(abs(v) + 0.5), v)) for v in (roi[1:] * scale).tolist()]
        ends = zip(corners[1::-1], corners[:1:-1], cells, x.shape[2:], strict=True)  # rows come second
        rows, columns = ([*_pool_cells(*own)] for own in ends)
        for i, down in enumerate(rows):
            for j, right in enumerate(columns):
                part = x[int(roi[0]), :, down, right]
                y[number, :, i, j] = part.max((1, 2)) if part.size else 0
    return [y]


_FAR = 1 << 30
"""Numbers of a region beyond it are a mistake."""


def _pool_cells(first: int, last: int, cells: int, size: int) -> Iterator[slice]:
    """The part of each cell of a region that lies inside of ``size`` elements; cells overlap."""
    each = np.float32(max(last - first + 1, 1)) / np.float32(cells)
    for i in range(cells):
        start, end = math.floor(np.float32(i) * each) + first, math.ceil(np.float32(i + 1) * each) + first
        yield slice(min(max(start, 0), size), min(max(end, 0), size))


_Limits = tuple[int, Any, Array | None]
"""The most boxes of a class, how much they may overlap, and what their scores must be above."""


@evaluates("NonMaxSuppression")
def non_max_suppression(call: Call) -> list[Array]:
    """Boxes [batch, n, 4] by scores [batch, class, n]: the best that overlap no better one too much."""
    boxes, scores, limits = _rated(call)
    most, _, least = limits
    n = scores.shape[2]
    rooms = 0
    for index in np.ndindex(scores.shape[:2]) if most else ():
        parts = (scores[index][i : i + ELEMENTS] for i in range(0, n, ELEMENTS))
        rooms += min(most, sum(int(np.count_nonzero(_fits(part, least))) for part in parts))
    call.reserve(((rooms, 3), np.dtype(np.int64)), workspace=112 * n)
    kept = np.empty((rooms, 3), np.int64)
    count = _select(call, boxes, scores, limits, kept) if rooms else 0
    kept.resize((count, 3), refcheck=False)
    return [kept]


@evaluates("NonMaxSuppression.rows")
def non_max_suppression_rows(call: Call) -> list[Array]:
    """Rows, as many as boxes can be selected; those of the selected ones first, and last one with their number."""
    boxes, scores, limits = _rated(call)
    batch, classes, n = scores.shape
    shape = call.shape((batch * classes * min(limits[0], n) + 1, 3))
    call.reserve((shape, np.dtype(np.int64)), workspace=112 * n)
    rows = np.zeros(shape, np.int64)
    rows[-1, 0] = _select(call, boxes, scores, limits, rows)
    return [rows]


def _rated(call: Call) -> tuple[Array, Array, _Limits]:
    """Boxes, their scores and the limits."""
    boxes, scores = call.x(0), call.x(1)
    most, overlap, least = (call.scalar(i) for i in (2, 3, 4))
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise call.error(f"boxes {boxes.shape} and scores {scores.shape} do not fit together")
    share = np.float32(0.0 if overlap is None else overlap)
    return boxes, scores, (0 if most is None else max(int(most), 0), share, least)


def _select(call: Call, boxes: Array, scores: Array, limits: _Limits, rows: Array) -> int:
    """Write (batch, class, box) of the boxes that are selected into ``rows``; return how many they are."""
    count = 0
    for b in range(scores.shape[0]):
        own = _corners(boxes[b], bool(call.integer("center_point_box", 0)))
        areas = np.prod(own[:, 2:] - own[:, :2], -1)
        for c in range(scores.shape[1]):
            for best in _suppressed(own, areas, scores[b, c], limits):
                rows[count] = b, c, best
                count += 1
    return count


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as their lowest and highest corner."""
    own = boxes.astype(np.float32)
    a, b = own[:, :2], own[:, 2:]
    if centred:
        half = b / 2
        return np.concatenate([a - half, a + half], -1)
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], -1)


def _fits(score: Array, least: Array | None) -> Array:
    """Which scores are high enough; without a limit, all that are numbers."""
    return np.asarray(~np.isnan(score) if least is None else score > least)


def _suppressed(box: Array, areas: Array, score: Array, limits: _Limits) -> Iterator[int]:
    """The best boxes above a score, at most so many, without those that overlap a better one too much."""
    most, overlap, least = limits
    alive = np.argsort(-score, kind="stable")
    alive = alive[_fits(score[alive], least)]
    for _ in range(most):
        if not alive.size:
            return
        best, alive = int(alive[0]), alive[1:]
        yield best
        common = np.maximum(0, np.minimum(box[best, 2], box[alive, 2]) - np.maximum(box[best, 0], box[alive, 0]))
        common *= np.maximum(0, np.minimum(box[best, 3], box[alive, 3]) - np.maximum(box[best, 1], box[alive, 1]))
        union = areas[best] + areas[alive] - common
        share = np.divide(common, union, where=union > 0, out=np.zeros_like(common))
        alive = alive[~(share > overlap)]
