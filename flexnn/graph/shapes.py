"""Output shapes and dtypes of the internal operators, from their inputs' and the attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod

from .attributes import INT_MAX, float_attr, int_attr, ints_attr, node_error
from .ir import Graph, Node
from .pack import NR

Shape = tuple[int, ...]
_ANY_TYPE = ("copy", "pad", "gather", "cast", "pointwise", "quantize")
Inferred = list[tuple[Shape, str]]


def infer(graph: Graph, node: Node) -> Inferred:
    """Shape and dtype of each output, from the inputs' and the attributes. Raises GraphError where they do not fit."""
    inputs = [graph.tensors[i] for i in node.inputs]
    return infer_shapes(node, [t.shape for t in inputs], [t.dtype for t in inputs])


def infer_shapes(node: Node, shapes: list[Shape], dtypes: list[str]) -> Inferred:
    """As ``infer``, from shapes and dtypes alone."""
    if node.op not in _ANY_TYPE and any(dtype != "f32" for dtype in dtypes):
        raise node_error(node, f"computes float32 only, not {', '.join(dtypes)}")
    shape, dtype = _INFER[node.op](node, shapes, dtypes)
    if any(not 1 <= d <= INT_MAX for d in shape):
        raise node_error(node, f"inputs {', '.join(map(str, shapes))} make an output of shape {shape}")
    return [(shape, dtype)]


def _image(node: Node, shape: Shape) -> tuple[int, int, int, int]:
    if len(shape) != 4:
        raise node_error(node, f"input of shape {shape} is not [n,h,w,c]")
    return shape[0], shape[1], shape[2], shape[3]


def _spatial(node: Node, height: int, width: int, ceil: bool = False) -> tuple[int, int]:
    """Output height and width of a sliding window."""
    sizes = []
    for i, size in enumerate((height, width)):
        kernel, stride, dilation = (ints_attr(node, name)[i] for name in ("kernel", "strides", "dilations"))
        before, after = ints_attr(node, "pads")[i], ints_attr(node, "pads")[i + 2]
        room = size + before + after - ((kernel - 1) * dilation + 1)
        out = room // stride + 1
        # A last (or only) window may hang over the end, but must start inside the input or the padding before it.
        if ceil and room % stride and out * stride < size + before:
            out += 1
        if out < 1:
            raise node_error(node, f"a window of {kernel} does not fit into {size} elements")
        sizes.append(out)
    return sizes[0], sizes[1]


def _infer_conv(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    n, h, w, c = _image(node, shapes[0])
    cout, group = (int_attr(node, "cout"), int_attr(node, "group")) if node.op == "conv" else (c, c)
    if c % group or cout % group:
        raise node_error(node, f"{c} input and {cout} output channels in {group} groups")
    shape = (n, *_spatial(node, h, w), cout)
    if len(shapes) == 2 and shapes[1] != shape:
        raise node_error(node, f"residual of shape {shapes[1]}, output {shape}")
    return shape, "f32"


def _infer_pool(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    n, h, w, c = _image(node, shapes[0])
    return (n, *_spatial(node, h, w, bool(int_attr(node, "ceil_mode"))), c), "f32"


def _infer_same(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    return shapes[0], dtypes[0]


def _infer_axis(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if int_attr(node, "axis") >= len(shapes[0]):
        raise node_error(node, f"axis {node.attrs['axis']} of shape {shapes[0]}")
    return shapes[0], dtypes[0]


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """Numpy's broadcast shape, or None."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(x != y and x != 1 and y != 1 for x, y in zip(a, b, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def _infer_binary(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    shape = broadcast(shapes[0], shapes[1])
    if shape is None:
        raise node_error(node, f"shapes {shapes[0]} and {shapes[1]} do not broadcast")
    return shape, "f32"


COMPARISONS = ("equal", "less", "less_equal")


def _infer_pointwise(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    kind, own = str(node.attrs["kind"]), dtypes[0]
    shape: Shape | None = ()
    for operand in shapes:
        shape = None if shape is None else broadcast(shape, operand)
    numbers = own not in ("f32", "f16", "f64") or (kind in COMPARISONS and own != "f16")
    typed = dtypes == [own, own, "bool"] if kind == "where" else dtypes == [own, own] and numbers
    if shape is None or not typed:
        raise node_error(node, f"{kind} of {', '.join(dtypes)} with shapes {shapes}")
    return shape, "bool" if kind in COMPARISONS else own


def _infer_recurrent(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    x, packed, initial = shapes
    kind = str(node.attrs["kind"])
    gates, states = (4, 2) if kind == "lstm" else (3, 1) if kind.startswith("gru") else (1, 1)
    hidden = initial[2] if len(initial) == 3 else 0
    parts = [2 * hidden, hidden] if gates == 3 else [gates * hidden]
    floats = sum(-(-part // NR) * NR * hidden for part in parts) + (hidden if kind == "gru_after" else 0)
    if len(x) != 3 or x[2] != gates * hidden or initial != (states, x[1], hidden) or packed != (floats,):
        raise node_error(node, f"{kind} of shapes {shapes}")
    return (x[0] + states, x[1], hidden), "f32"


def _infer_quantize(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    to, axis, integer = str(node.attrs["to"]), int_attr(node, "axis"), dtypes[0]
    if to != "f32":
        integer = to
    known = dtypes[0] == "f32" if to != "f32" else dtypes[0] in ("u8", "i8", "i32")
    if not known or dtypes[1] != "f32" or any(d != integer for d in dtypes[2:]):
        raise node_error(node, f"{', '.join(dtypes)} to {to}")
    count = prod(shapes[1])
    if any(prod(s) != count for s in shapes[2:]) or (
        count != 1 and (axis >= len(shapes[0]) or shapes[0][axis] != count)
    ):
        raise node_error(node, f"shapes {shapes}, axis {axis}")
    return shapes[0], to


def _infer_reduce(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    axes, shape = ints_attr(node, "axes"), shapes[0]
    if not axes or axes != list(range(axes[0], axes[0] + len(axes))) or axes[-1] >= len(shape):
        raise node_error(node, f"axes {axes} of shape {shape}")
    kept = (1,) * len(axes) if int_attr(node, "keepdims") else ()
    return shape[: axes[0]] + kept + shape[axes[-1] + 1 :], "f32"


def _infer_lrn(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if not shapes[0]:
        raise node_error(node, "the input has no channels")
    return shapes[0], "f32"


def _infer_instance_norm(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if len(shapes[0]) < 3 or not shapes[1] == shapes[2] == shapes[0][-1:]:
        raise node_error(node, f"shapes {shapes}")
    return shapes[0], "f32"


def _infer_resize(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    n, _, _, c = _image(node, shapes[0])
    if not all(0 < float_attr(node, name) < math.inf for name in ("scale_h", "scale_w")):
        raise node_error(node, "a scale is not positive")
    return (n, *ints_attr(node, "sizes"), c), "f32"


def _infer_copy(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    perm, expand, shape = ints_attr(node, "perm"), ints_attr(node, "expand"), shapes[0]
    if sorted(perm) != list(range(len(shape))) or len(expand) != len(shape):
        raise node_error(node, f"perm {perm}, expand {expand} of shape {shape}")
    moved = [shape[p] for p in perm]
    if any(e and d not in (1, e) for d, e in zip(moved, expand, strict=True)):
        raise node_error(node, f"shape {tuple(moved)} does not expand to {expand}")
    return tuple(e or d for d, e in zip(moved, expand, strict=True)), dtypes[0]


def _infer_pad(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    lists = [ints_attr(node, name) for name in ("before", "after", "interior")]
    if any(len(values) != len(shapes[0]) for values in lists):
        raise node_error(node, f"{[len(values) for values in lists]} pads for shape {shapes[0]}")
    before, after, interior = lists
    if node.attrs["mode"] != "constant":
        limit = 1 if node.attrs["mode"] == "reflect" else INT_MAX
        if any(interior) or any(
            max(b, a) > 0 and limit == 1 and max(b, a) > d - 1 for b, a, d in zip(before, after, shapes[0], strict=True)
        ):
            raise node_error(node, f"pads {before}, {after} exceed shape {shapes[0]}")
    shape = tuple(d + (d - 1) * i + b + a for d, b, a, i in zip(shapes[0], before, after, interior, strict=True))
    return shape, dtypes[0]


def _infer_gather(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    axis = int_attr(node, "axis")
    if axis >= len(shapes[0]) or dtypes[1] not in ("i64", "i32"):
        raise node_error(node, f"axis {axis} of shape {shapes[0]}, indices {dtypes[1]}")
    return shapes[0][:axis] + shapes[1] + shapes[0][axis + 1 :], dtypes[0]


def _infer_cast(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    return shapes[0], str(node.attrs["to"])


def _infer_matmul(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise node_error(node, f"shapes {a} and {b} do not multiply")
    batch = broadcast(a[:-2], b[:-2])
    if batch is None:
        raise node_error(node, f"shapes {a} and {b} do not broadcast")
    return (*batch, a[-2], b[-1]), "f32"


def _infer_layer_norm(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if not shapes[0] or any(s != shapes[0][-1:] for s in shapes[1:]):
        raise node_error(node, f"shapes {shapes}")
    return shapes[0], "f32"


def _infer_rotary(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    x, angles, sines = shapes
    turned = int_attr(node, "turned")
    wide = (turned // 2,) if int_attr(node, "is_interleaved") else (turned // 2, turned)
    if len(x) != 4 or len(angles) != 4 or angles != sines or broadcast(angles[:3], x[:3]) != x[:3]:
        raise node_error(node, f"angles of shapes {angles} and {sines} for {x}")
    if turned % 2 or turned > x[3] or angles[3] not in wide:
        raise node_error(node, f"turns {turned} of {x[3]} elements by {angles[3]} angles")
    return x, "f32"


def _infer_attention(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    q, k, v = shapes[:3]
    if any(len(s) != 4 for s in (q, k, v)) or k[:3] != v[:3] or (q[0], q[3]) != (k[0], k[3]) or q[1] % max(k[1], 1):
        raise node_error(node, f"queries {q}, keys {k} and values {v} do not fit")
    scores = (*q[:3], k[2])
    if len(shapes) == 4 and broadcast(shapes[3], scores) != scores:
        raise node_error(node, f"a mask of shape {shapes[3]} for scores {scores}")
    return (q[0], q[2], q[1], v[3]), "f32"


_INFER: dict[str, Callable[[Node, list[Shape], list[str]], tuple[Shape, str]]] = {
    "conv": _infer_conv,
    "dwconv": _infer_conv,
    "pool": _infer_pool,
    "unary": _infer_same,
    "binary": _infer_binary,
    "pointwise": _infer_pointwise,
    "recurrent": _infer_recurrent,
    "quantize": _infer_quantize,
    "softmax": _infer_axis,
    "reduce": _infer_reduce,
    "lrn": _infer_lrn,
    "instance_norm": _infer_instance_norm,
    "resize": _infer_resize,
    "copy": _infer_copy,
    "pad": _infer_pad,
    "gather": _infer_gather,
    "cast": _infer_cast,
    "matmul": _infer_matmul,
    "layer_norm": _infer_layer_norm,
    "rotary": _infer_rotary,
    "attention": _infer_attention,
}
