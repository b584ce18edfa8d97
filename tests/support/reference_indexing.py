"""The meaning of internal operators that data steer (flexnn/graph/operators/indexing.py), in numpy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from flexnn.graph.evaluate import evaluate
from flexnn.graph.ir import Graph, Node

Array = np.ndarray

COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "none": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _places(node: Node, shape: tuple[int, ...], indices: Array) -> list[tuple[int, ...]]:
    """Places that the rows of indices point to, in order."""
    axis, batch = int(node.attrs["axis"]), int(node.attrs["batch"])
    found = []
    rows = indices.shape if axis >= 0 else indices.shape[:-1]
    for at in product(*map(range, rows)):
        if axis >= 0:
            place, names = (*at[:axis], int(indices[at]), *at[axis + 1 :]), [axis]
        else:
            place = (*at[:batch], *(int(i) for i in indices[at]))
            names = list(range(batch, batch + indices.shape[-1]))
        assert all(-shape[i] <= place[i] < shape[i] for i in names)
        found.append(tuple(p + shape[i] if p < 0 else p for i, p in enumerate(place)))
    return found


def gather_at(graph: Graph, node: Node, data: Array, indices: Array) -> Array:
    out = graph.tensors[node.outputs[0]].shape
    return np.array([data[place] for place in _places(node, data.shape, indices)], data.dtype).reshape(out)


def scatter_at(graph: Graph, node: Node, data: Array, indices: Array, updates: Array) -> Array:
    y, combine = data.copy(), COMBINE[str(node.attrs["kind"])]
    places = _places(node, data.shape, indices)
    for place, update in zip(places, updates.reshape(len(places), *y[places[0]].shape), strict=True):
        y[place] = combine(y[place], update)
    return y


def top_k(graph: Graph, node: Node, x: Array) -> Array:
    axis, k = int(node.attrs["axis"]), int(node.attrs["k"])
    values = x.astype(np.float64) if x.dtype.kind == "f" else x.astype(object)
    sign = -1 if node.attrs["is_largest"] else 1

    def order(line: Array) -> Array:
        def key(i: int) -> tuple:
            nan = line[i] != line[i]
            return (nan * sign, 0 if nan else line[i] * sign, i)

        return np.array(sorted(range(line.size), key=key)[:k], np.int64)

    return np.apply_along_axis(order, axis, values)


def count_nonzero(graph: Graph, node: Node, x: Array) -> Array:
    return np.array(np.count_nonzero(x), np.int64)


def nonzero(graph: Graph, node: Node, x: Array) -> Array:
    return np.array(np.nonzero(x), np.int64)


def unique(graph: Graph, node: Node, x: Array) -> Array:
    rows = [tuple((v != v, 0 if v != v else v) for v in row.reshape(-1).tolist()) for row in x]
    known = sorted(set(rows)) if node.attrs["is_sorted"] else list(dict.fromkeys(rows))
    return np.array([*map(known.index, rows), len(known)], np.int64)


def tally(graph: Graph, node: Node, x: Array) -> Array:
    _, first, members = np.unique(x, return_index=True, return_counts=True)
    return np.asarray(first if node.attrs["kind"] == "first" else members, np.int64)


def nms(graph: Graph, node: Node, boxes: Array, scores: Array, overlap: Array, least: Array | None = None) -> Array:
    rows = []
    for b, c in product(*map(range, scores.shape[:2])):
        value, kept = scores[b, c], []
        order = [i for i in range(value.size) if value[i] == value[i] and (least is None or value[i] > least.item())]
        for i in sorted(order, key=lambda i: (-value[i], i)):
            if len(kept) == int(node.attrs["most"]):
                break
            if not any(_overlap(node, boxes[b, i], boxes[b, k]) > overlap.item() for k in kept):
                kept.append(i)
        rows += [(b, c, i) for i in kept]
    y = np.full(graph.tensors[node.outputs[0]].shape, 77, np.int64)
    y[: len(rows)] = np.array(rows, np.int64).reshape(-1, 3)
    y[-1] = (len(rows), 0, 0)
    return y


def _overlap(node: Node, a: Array, b: Array) -> float:
    def corners(box: Array) -> tuple[Array, Array]:
        if node.attrs["is_centered"]:
            return box[:2] - box[2:] / np.float32(2), box[:2] + box[2:] / np.float32(2)
        return np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])

    (low, high), (lower, higher) = corners(a), corners(b)
    sides = np.minimum(high, higher) - np.maximum(low, lower)
    if (sides <= 0).any():
        return 0.0
    common, areas = sides.prod(), ((high - low).prod(), (higher - lower).prod())
    whole = areas[0] + areas[1] - common
    return float(common / whole) if min(common, *areas, whole) > 0 else 0.0


def grid_sample(graph: Graph, node: Node, x: Array, grid: Array) -> Array:
    attrs = {"mode": node.attrs["mode"], "padding_mode": node.attrs["border"]}
    attrs["align_corners"] = node.attrs["is_aligned"]
    (y,) = evaluate("GridSample", attrs, [x.transpose(0, 3, 1, 2), grid], 20)
    return y.transpose(0, 2, 3, 1)


def roi_align(graph: Graph, node: Node, x: Array, regions: Array, pictures: Array) -> Array:
    high, wide = node.attrs["sizes"]
    attrs = {"output_height": high, "output_width": wide, "mode": "max" if node.attrs["is_max"] else "avg"}
    attrs |= {"sampling_ratio": node.attrs["ratio"], "spatial_scale": node.attrs["scale"]}
    attrs["coordinate_transformation_mode"] = "half_pixel" if node.attrs["is_half"] else "output_half_pixel"
    (y,) = evaluate("RoiAlign", attrs, [x.transpose(0, 3, 1, 2), regions, pictures], 16)
    return y.transpose(0, 2, 3, 1)


OPERATORS: dict[str, Callable[..., Array]] = {
    "gather_at": gather_at,
    "scatter_at": scatter_at,
    "top_k": top_k,
    "count_nonzero": count_nonzero,
    "nonzero": nonzero,
    "unique": unique,
    "tally": tally,
    "nms": nms,
    "grid_sample": grid_sample,
    "roi_align": roi_align,
}
