"""Operators whose data say where elements come from, where they go, or which ones are chosen."""

from __future__ import annotations

from math import prod

from ..attributes import INT_MAX, Float, Int, Ints, float_attr, int_attr, ints_attr, node_error
from ..ir import DTYPES, RANK_MAX, Node, Shape, Tensor, contiguous_strides
from ..strided import DIMS, Collapsed, collapse
from .fields import enum, enum_index, image, numbered
from .record import ANY_DTYPE, Cost, Values, whole_operator

INDICES = ("i64", "i32")
SORTED = tuple(dtype for dtype in DTYPES if dtype != "f16")
"""Types whose elements the core compares."""
COMBINED = tuple(dtype for dtype in SORTED if dtype != "bool")
"""Types that the core adds, multiplies and chooses the larger of."""
ELEMENTS: dict[str, Int] = {"axis": Int(-1, RANK_MAX - 1), "batch": Int(0, RANK_MAX - 1)}
"""``axis`` of at least 0: each index picks one element, at its own place but for this axis. -1: the last dimension of
the indices holds tuples, which pick slices in each of ``batch`` leading dimensions."""


def _index_dtype(node: Node, dtype: str) -> None:
    if dtype not in INDICES:
        raise node_error(node, f"indices of type {dtype} are not i64 or i32")


def _walk(shape: Shape, indices: Shape, axis: int) -> Collapsed | None:
    """Dimensions of indices along ``axis`` and of the elements that they pick, walked together."""
    strides = contiguous_strides(shape)
    return collapse(indices, ((*strides[:axis], 0, *strides[axis + 1 :]), contiguous_strides(indices)), rows=False)


def _picked(node: Node, shape: Shape, indices: Shape) -> Shape:
    """Shape of what indices pick from a tensor. Raises GraphError where they do not fit."""
    axis, batch = int_attr(node, "axis"), int_attr(node, "batch")
    if axis >= 0:
        same = len(indices) == len(shape) > axis
        if not same or any(i > d for k, (i, d) in enumerate(zip(indices, shape, strict=True)) if k != axis):
            raise node_error(node, f"indices of shape {indices} do not fit axis {axis} of shape {shape}")
        if _walk(shape, indices, axis) is None:
            raise node_error(node, f"indices of shape {indices} into shape {shape} have too many dimensions")
        return indices
    depth = indices[-1] if indices else 0
    if len(indices) <= batch or indices[:batch] != shape[:batch] or not 1 <= depth <= len(shape) - batch:
        raise node_error(node, f"indices of shape {indices} do not fit shape {shape} after {batch} batch dimensions")
    if depth > DIMS:
        raise node_error(node, f"tuples of {depth} indices; at most {DIMS} are supported")
    return indices[:-1] + shape[batch + depth :]


def _pick_fields(node: Node, data: Tensor, indices: Tensor) -> Values:
    axis, batch = int_attr(node, "axis"), int_attr(node, "batch")
    strides = contiguous_strides(data.shape)
    if axis >= 0:
        walk = _walk(data.shape, indices.shape, axis)
        assert walk is not None
        moved = (*strides[:axis], 0, *strides[axis + 1 :])
        sizes, steps, inner = walk.sizes(indices.shape), walk.strides(moved), 1
        picked = [axis]
    else:
        depth = indices.shape[-1]
        lead = prod(data.shape[:batch])
        inner = prod(data.shape[batch + depth :])
        sizes = [1] * (DIMS - 2) + [lead, indices.size // (lead * depth)]
        steps = [0] * (DIMS - 2) + [prod(data.shape[batch:]), 0]
        picked = list(range(batch, batch + depth))
    rest = [0] * (DIMS - len(picked))
    values: Values = {"index_bytes": DTYPES[indices.dtype].itemsize, "depth": len(picked), "inner": inner}
    values |= numbered("d", sizes) | numbered("xs", steps)
    values |= numbered("n", [data.shape[i] for i in picked] + [1 for _ in rest])
    return values | numbered("ns", [strides[i] for i in picked] + rest)


def _infer_gather_at(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    _index_dtype(node, dtypes[1])
    return _picked(node, shapes[0], shapes[1]), dtypes[0]


def _encode_gather_at(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return _pick_fields(node, inputs[0], inputs[1]) | {"elem_bytes": DTYPES[y.dtype].itemsize}


def _infer_scatter_at(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    _index_dtype(node, dtypes[1])
    picked = _picked(node, shapes[0], shapes[1])
    if picked != shapes[2] or dtypes[2] != dtypes[0]:
        found = f"updates of shape {shapes[2]} and type {dtypes[2]}"
        raise node_error(node, f"{found} do not fit indices that pick {picked} of {dtypes[0]}")
    if node.attrs["kind"] != "none" and dtypes[0] not in COMBINED:
        raise node_error(node, f"{node.attrs['kind']} of type {dtypes[0]} is not supported")
    return shapes[0], dtypes[0]


def _encode_scatter_at(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    kind, dtype = enum_index("scatter_kind", node.attrs["kind"]), enum_index("dtype", y.dtype)
    return _pick_fields(node, inputs[0], inputs[1]) | {"kind": kind, "dtype": dtype, "total": y.size}


def _infer_top_k(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    axis, k, shape = int_attr(node, "axis"), int_attr(node, "k"), shapes[0]
    if axis >= len(shape) or k > shape[axis]:
        raise node_error(node, f"the {k} best along axis {axis} of shape {shape}")
    return (*shape[:axis], k, *shape[axis + 1 :]), "i64"


def _encode_top_k(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axis, shape = int_attr(node, "axis"), inputs[0].shape
    sizes: Values = {"outer": prod(shape[:axis]), "n": shape[axis], "inner": prod(shape[axis + 1 :])}
    sizes["k"] = y.shape[axis]
    return {"dtype": enum_index("dtype", inputs[0].dtype), "is_largest": int_attr(node, "is_largest")} | sizes


def _infer_count(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    return (), "i64"


def _encode_count(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return {"dtype": enum_index("dtype", inputs[0].dtype), "n": inputs[0].size}


def _infer_nonzero(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    count = int_attr(node, "count")
    if not shapes[0] or count > prod(shapes[0]):
        raise node_error(node, f"{count} indices into shape {shapes[0]}")
    return (len(shapes[0]), count), "i64"


def _encode_nonzero(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    shape = inputs[0].shape
    values: Values = {"dtype": enum_index("dtype", inputs[0].dtype), "rank": len(shape), "count": y.shape[1]}
    return values | numbered("d", [*shape, *[1] * (RANK_MAX - len(shape))])


def _infer_unique(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if not shapes[0]:
        raise node_error(node, "a scalar has no rows")
    return (shapes[0][0] + 1,), "i64"


def _encode_unique(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x = inputs[0]
    sizes: Values = {"n": x.shape[0], "inner": prod(x.shape[1:])}
    return {"dtype": enum_index("dtype", x.dtype), "is_sorted": int_attr(node, "is_sorted")} | sizes


def _infer_tally(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if len(shapes[0]) != 1:
        raise node_error(node, f"numbers of groups of shape {shapes[0]}")
    return (int_attr(node, "groups"),), "i64"


def _encode_tally(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    kind = enum_index("tally_kind", node.attrs["kind"])
    return {"kind": kind, "n": inputs[0].size, "groups": y.size}


def _infer_nms(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    boxes, scores = shapes[:2]
    if len(scores) != 3 or boxes != (scores[0], scores[2], 4) or any(prod(s) != 1 for s in shapes[2:]):
        raise node_error(node, f"boxes {boxes}, scores {scores} and limits {shapes[2:]} do not fit together")
    if int_attr(node, "most") > scores[2]:
        raise node_error(node, f"selects {node.attrs['most']} of {scores[2]} boxes")
    return (scores[0] * scores[1] * int_attr(node, "most") + 1, 3), "i64"


def _encode_nms(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    batch, classes, boxes = inputs[1].shape
    sizes: Values = {"batch": batch, "classes": classes, "boxes": boxes, "most": int_attr(node, "most")}
    return sizes | {"is_centered": int_attr(node, "is_centered"), "has_score": int(len(inputs) == 4)}


def _infer_grid_sample(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    n, _, _, c = image(node, shapes[0])
    grid = shapes[1]
    if len(grid) != 4 or grid[0] != n or grid[3] != 2:
        raise node_error(node, f"a grid of shape {grid} does not fit pictures of shape {shapes[0]}")
    return (*grid[:3], c), "f32"


def _encode_grid_sample(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    n, h, w, c = inputs[0].shape
    values: Values = {"mode": enum_index("resize_mode", node.attrs["mode"])}
    values |= {"border": enum_index("border", node.attrs["border"]), "is_aligned": int_attr(node, "is_aligned")}
    return values | {"n": n, "h": h, "w": w, "c": c, "oh": y.shape[1], "ow": y.shape[2]}


def _infer_roi_align(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    channels = image(node, shapes[0])[3]
    regions, pictures = shapes[1:]
    if len(regions) != 2 or regions[1] != 4 or pictures != regions[:1] or dtypes != ["f32", "f32", "i64"]:
        raise node_error(node, f"regions of shape {regions} and their pictures of shape {pictures}, {dtypes}")
    return (regions[0], *ints_attr(node, "sizes"), channels), "f32"


def _encode_roi_align(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    n, h, w, c = inputs[0].shape
    values: Values = {name: int_attr(node, name) for name in ("is_max", "is_half", "ratio")}
    values |= {"scale": float_attr(node, "scale"), "n": n, "h": h, "w": w, "c": c}
    return values | {"regions": y.shape[0], "oh": y.shape[1], "ow": y.shape[2]}


OPERATORS = (
    whole_operator(
        "gather_at",
        attrs=ELEMENTS,
        inputs=(2, 2),  # data, indices
        dtypes=ANY_DTYPE,
        infer=_infer_gather_at,
        encode=_encode_gather_at,
        cost=Cost(passes=3.0),
    ),
    whole_operator(
        "scatter_at",
        attrs={**ELEMENTS, "kind": enum("scatter_kind")},
        inputs=(3, 3),  # data, indices, updates
        dtypes=ANY_DTYPE,
        infer=_infer_scatter_at,
        encode=_encode_scatter_at,
        in_place=(0,),
        cost=Cost(passes=3.0),
    ),
    whole_operator(
        "top_k",
        attrs={"axis": Int(0, RANK_MAX - 1), "k": Int(1), "is_largest": Int(0, 1)},
        inputs=(1, 1),
        dtypes=SORTED,
        infer=_infer_top_k,
        encode=_encode_top_k,
        cost=Cost(passes=10.0),
    ),
    whole_operator(
        "count_nonzero",
        attrs={},
        inputs=(1, 1),
        dtypes=ANY_DTYPE,
        infer=_infer_count,
        encode=_encode_count,
        cost=Cost(passes=1.0),
    ),
    whole_operator(
        "nonzero",
        attrs={"count": Int(1)},
        inputs=(1, 1),
        dtypes=ANY_DTYPE,
        infer=_infer_nonzero,
        encode=_encode_nonzero,
        cost=Cost(passes=2.0),
    ),
    whole_operator(
        "unique",
        attrs={"is_sorted": Int(0, 1)},
        inputs=(1, 1),
        dtypes=SORTED,
        infer=_infer_unique,
        encode=_encode_unique,
        cost=Cost(passes=50.0),
    ),
    whole_operator(
        "tally",
        attrs={"kind": enum("tally_kind"), "groups": Int(1)},
        inputs=(1, 1),
        dtypes=("i64",),
        infer=_infer_tally,
        encode=_encode_tally,
        cost=Cost(passes=2.0),
    ),
    whole_operator(
        "nms",
        attrs={"most": Int(1, INT_MAX), "is_centered": Int(0, 1)},
        inputs=(3, 4),  # boxes, scores, greatest overlap, score to be above
        dtypes=("f32",),
        infer=_infer_nms,
        encode=_encode_nms,
        cost=Cost(passes=10.0),
    ),
    whole_operator(
        "grid_sample",
        attrs={"mode": enum("resize_mode"), "border": enum("border"), "is_aligned": Int(0, 1)},
        inputs=(2, 2),  # pictures, grid
        dtypes=("f32",),
        infer=_infer_grid_sample,
        encode=_encode_grid_sample,
        cost=Cost(passes=4.0),
    ),
    whole_operator(
        "roi_align",
        attrs={
            "sizes": Ints(2, 1),
            "is_max": Int(0, 1),
            "is_half": Int(0, 1),
            "ratio": Int(0, 4096),
            "scale": Float(),
        },
        inputs=(3, 3),  # pictures, regions, the picture of each region
        dtypes=("f32", "i64"),
        infer=_infer_roi_align,
        encode=_encode_roi_align,
        cost=Cost(passes=16.0),
    ),
)
