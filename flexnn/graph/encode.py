"""A node's C parameters: every field of its operator's struct, from attributes, shapes and strides."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from flexnn import _core

from .attributes import INT_MAX, float_attr, int_attr, ints_attr, node_error
from .ir import DTYPES, Attr, Graph, Node, Tensor
from .pack import NR, conv_cin_panel
from .strided import Collapsed, collapse, fits_inner, is_contiguous, merge_groups, merge_rows

Shape = tuple[int, ...]
Values = dict[str, int | float]

STRIDED: dict[str, str] = {
    "conv": "inner",
    "dwconv": "inner",
    "pool": "inner",
    "resize": "inner",
    "lrn": "rows",
    "unary": "any",
    "binary": "any",
    "copy": "any",
    "pad": "any",
    "matmul": "matmul",
    "softmax": "none",
    "reduce": "none",
    "instance_norm": "none",
    "gather": "none",
    "cast": "none",
    "layer_norm": "rows",
    "pointwise": "any",
    "recurrent": "none",
    "quantize": "none",
    "rotary": "inner",
    "attention": "inner",
}
"""Which strided operands an operator takes. none: contiguous only; inner: innermost stride 1; rows: all but the last
dimension walk with one stride, the last with 1; any; matmul: inputs any (``matmul_batches`` judges them together),
output innermost 1, and from three batch dimensions on one stride for all of them."""

IN_PLACE: dict[str, tuple[int, ...]] = {
    "unary": (0,),
    "binary": (0, 1),
    "conv": (1,),
    "dwconv": (1,),
    "layer_norm": (0,),
    "rotary": (0,),
    "pointwise": (0, 1),
}
"""Inputs whose storage the output may take, where that input has the output's shape and dtype and dies there."""

OUTPUT = -1
"""Operand number of the output in ``fits``."""


def encode(graph: Graph, node: Node) -> Values:
    """Every field of the operator's struct. Raises GraphError where strides do not suit the operator or a number does
    not fit into 32 bits. Only for nodes that ``check`` and ``infer`` accept.
    """
    tensors = [graph.tensors[i] for i in node.inputs] + [graph.tensors[node.outputs[0]]]
    for i, tensor in enumerate(tensors):
        operand = OUTPUT if i == len(node.inputs) else i
        if not fits(node.op, operand, tensor.shape, tensor.strides):
            raise node_error(node, f"takes no operand with strides {tensor.strides} (tensor {tensor.name!r})")
    values = _ENCODE[node.op](node, tensors[:-1], tensors[-1])
    for name, value in values.items():
        if type(value) is int and not -INT_MAX - 1 <= value <= INT_MAX:
            raise node_error(node, f"{name} = {value} is too large")
    return values


def fits(op: str, operand: int, shape: Shape, strides: Shape) -> bool:
    """Whether ``op`` takes this operand (an input's number, or OUTPUT) with these strides."""
    rule = STRIDED[op]
    if (op == "gather" and operand == 1) or (op in ("layer_norm", "rotary") and operand > 0):
        rule = "none"
    if rule == "any" or (rule == "matmul" and operand != OUTPUT):
        return True
    if rule == "none":
        return is_contiguous(shape, strides)
    if rule == "rows":
        return merge_rows(shape, strides) is not None
    if rule == "matmul" and len(shape) > 4 and len(merge_groups(shape[:-2], (strides,))) > 1:
        return False
    return fits_inner(shape, strides)


def _index(enumeration: str, name: Attr) -> int:
    return list(_core.ENUMS[enumeration]).index(str(name))


def _act(node: Node) -> Values:
    return {
        "act": _index("act", node.attrs["act"]),
        "alpha": float_attr(node, "alpha"),
        "beta": float_attr(node, "beta"),
    }


def _window(node: Node) -> Values:
    (kh, kw), (sh, sw), (dh, dw) = (ints_attr(node, name) for name in ("kernel", "strides", "dilations"))
    pads = ints_attr(node, "pads")
    return {"kh": kh, "kw": kw, "sh": sh, "sw": sw, "dh": dh, "dw": dw, "pt": pads[0], "pl": pads[1]}


def _pixels(prefix: str, tensor: Tensor | None) -> Values:
    strides = tensor.strides[:3] if tensor else (0, 0, 0)
    return {f"{prefix}_s{axis}": stride for axis, stride in zip("nhw", strides, strict=True)}


def _encode_conv(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x, residual = inputs[0], inputs[1] if len(inputs) == 2 else None
    (n, h, w, c), (_, oh, ow, cout) = x.shape, y.shape
    values: Values = {"n": n, "h": h, "w": w, "oh": oh, "ow": ow, "nr": NR, **_window(node), **_act(node)}
    values |= _pixels("x", x) | _pixels("y", y) | _pixels("r", residual) | {"has_residual": int(residual is not None)}
    values["wtype"] = _index("wtype", node.attrs["wtype"])
    if node.op == "dwconv":
        return values | {"c": c}
    group = int_attr(node, "group")
    cin_panel = conv_cin_panel(cout, c // group, group)
    block = min(int_attr(node, "cin_block"), cin_panel)
    return values | {
        "cin": c,
        "cout": cout,
        "group": group,
        "cin_panel": cin_panel,
        "cin_block": block,
        "tile_block": 0,
    }


def _encode_pool(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    (n, h, w, c), (_, oh, ow, _) = inputs[0].shape, y.shape
    values: Values = {"kind": _index("pool_kind", node.attrs["kind"]), "n": n, "h": h, "w": w, "c": c}
    values |= {"oh": oh, "ow": ow, "pb": ints_attr(node, "pads")[2], "pr": ints_attr(node, "pads")[3]}
    values |= {"count_include_pad": int_attr(node, "count_include_pad")} | _window(node)
    return values | _pixels("x", inputs[0]) | _pixels("y", y)


def _broadcast_strides(tensor: Tensor, shape: Shape) -> Shape:
    """Strides of ``tensor`` seen with ``shape``: 0 where it is broadcast."""
    missing = len(shape) - len(tensor.shape)
    own = zip(tensor.shape, tensor.strides, shape[missing:], strict=True)
    return (0,) * missing + tuple(0 if d == 1 and out != 1 else s for d, s, out in own)


def _numbered(name: str, numbers: list[int]) -> Values:
    return {f"{name}{i}": number for i, number in enumerate(numbers)}


def _box(node: Node, shape: Shape, names: tuple[str, ...], strides: tuple[Shape, ...]) -> Values:
    """Dimensions d0..d5 and each operand's strides after collapsing."""
    collapsed = collapse(shape, strides)
    if collapsed is None:
        raise node_error(node, f"more than 6 dimensions with strides of their own: {shape}")
    values = _numbered("d", collapsed.sizes(shape))
    for name, steps in zip(names, strides, strict=True):
        values |= _numbered(name, collapsed.strides(steps))
    return values


def _encode_unary(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values = _box(node, y.shape, ("xs", "ys"), (inputs[0].strides, y.strides))
    kind = _index("unary_kind", node.attrs["kind"])
    return values | {"kind": kind, "alpha": float_attr(node, "alpha"), "beta": float_attr(node, "beta")}


def _encode_binary(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    a, b = (_broadcast_strides(tensor, y.shape) for tensor in inputs)
    values = _box(node, y.shape, ("as", "bs", "ys"), (a, b, y.strides))
    return values | {"kind": _index("binary_kind", node.attrs["kind"])} | _act(node)


def _encode_pointwise(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    steps = [_broadcast_strides(tensor, y.shape) for tensor in inputs]
    steps += [(0,) * len(y.shape)] * (3 - len(steps))
    values = _box(node, y.shape, ("as", "bs", "cs", "ys"), (*steps, y.strides))
    kind, dtype = _index("pointwise_kind", node.attrs["kind"]), _index("dtype", inputs[0].dtype)
    return values | {"kind": kind, "dtype": dtype}


def _encode_recurrent(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    steps, batch, _ = inputs[0].shape
    values: Values = {"kind": _index("cell_kind", node.attrs["kind"]), "is_reverse": int_attr(node, "is_reverse")}
    return values | {"steps": steps, "batch": batch, "hidden": y.shape[2]}


def _encode_quantize(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axis, shape, n = int_attr(node, "axis"), y.shape, inputs[1].size
    outer, inner = (prod(shape[:axis]), prod(shape[axis + 1 :])) if n > 1 else (1, y.size)
    values: Values = {"from": _index("dtype", inputs[0].dtype), "to": _index("dtype", y.dtype), "n": n}
    return values | {"outer": outer, "inner": inner, "has_zero": int(len(inputs) == 3)}


def _encode_softmax(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axis, shape = int_attr(node, "axis"), y.shape
    inner = prod(shape[axis + 1 :])
    return {"outer": prod(shape[:axis]), "n": shape[axis], "inner": inner, "log": int_attr(node, "log")}


def _encode_reduce(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axes, shape = ints_attr(node, "axes"), inputs[0].shape
    n = prod(shape[axes[0] : axes[-1] + 1])
    kind = _index("reduce_kind", node.attrs["kind"])
    return {"kind": kind, "outer": prod(shape[: axes[0]]), "n": n, "inner": prod(shape[axes[-1] + 1 :])}


def _encode_lrn(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"rows": prod(y.shape[:-1]), "c": y.shape[-1], "size": int_attr(node, "size")}
    for name, tensor in (("x_s", inputs[0]), ("y_s", y)):
        values[name] = merge_rows(tensor.shape, tensor.strides) or 0
    return values | {name: float_attr(node, name) for name in ("alpha", "beta", "bias")}


def _encode_instance_norm(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return {"n": y.shape[0], "hw": prod(y.shape[1:-1]), "c": y.shape[-1], "epsilon": float_attr(node, "epsilon")}


def _encode_resize(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    (n, h, w, c), (_, oh, ow, _) = inputs[0].shape, y.shape
    values: Values = {"n": n, "h": h, "w": w, "c": c, "oh": oh, "ow": ow}
    values |= {"mode": _index("resize_mode", node.attrs["mode"]), "coord": _index("resize_coord", node.attrs["coord"])}
    values |= {"nearest": _index("resize_nearest", node.attrs["nearest"])}
    values |= {name: float_attr(node, name) for name in ("scale_h", "scale_w")}
    return values | _pixels("x", inputs[0]) | _pixels("y", y)


def _encode_copy(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x = inputs[0]
    moved = [(x.shape[p], x.strides[p]) for p in ints_attr(node, "perm")]
    strides = tuple(0 if d == 1 and out != 1 else s for (d, s), out in zip(moved, y.shape, strict=True))
    return _box(node, y.shape, ("xs", "ys"), (strides, y.strides)) | {"elem_bytes": DTYPES[y.dtype].itemsize}


def _encode_pad(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x, interior = inputs[0], ints_attr(node, "interior")
    # An axis that is padded stays alone; between axes that are not, x and y have the same sizes.
    alone = tuple(dx != dy for dx, dy in zip(x.shape, y.shape, strict=True))
    before = ints_attr(node, "before")
    alone = tuple(a or bool(b) for a, b in zip(alone, before, strict=True))
    box = collapse(y.shape, (x.strides, y.strides), alone=alone)
    if box is None:
        raise node_error(node, f"more than 6 dimensions with strides of their own: {y.shape}")
    values: Values = {"mode": _index("pad_mode", node.attrs["mode"]), "elem_bytes": DTYPES[y.dtype].itemsize}
    values |= _numbered("d", box.sizes(y.shape)) | _numbered("xd", box.sizes(x.shape))
    values |= _numbered("b", box.sums(before)) | _numbered("interior", box.sums(interior))
    values |= _numbered("xs", box.strides(x.strides)) | _numbered("ys", box.strides(y.strides))
    return values | {"value": float_attr(node, "value"), "value_int": int_attr(node, "value_int")}


def _encode_gather(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axis, (data, indices) = int_attr(node, "axis"), inputs
    return {
        "elem_bytes": DTYPES[data.dtype].itemsize,
        "index_bytes": DTYPES[indices.dtype].itemsize,
        "outer": prod(data.shape[:axis]),
        "axis": data.shape[axis],
        "inner": prod(data.shape[axis + 1 :]),
        "count": indices.size,
    }


def _encode_cast(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return {"from": _index("dtype", inputs[0].dtype), "to": _index("dtype", y.dtype), "count": y.size}


def matmul_batches(a: Tensor, b: Tensor, y: Tensor) -> tuple[Collapsed | None, list[Shape]]:
    """The batch dimensions of a @ b = y in two runs, or None where they do not collapse so far; a's and b's strides."""
    batch = y.shape[:-2]
    steps = []
    for tensor in (a, b):
        missing = (0,) * (len(batch) - len(tensor.shape) + 2)
        own = zip(tensor.shape, tensor.strides, batch[len(missing) :], strict=False)
        steps.append(missing + tuple(0 if d == 1 and out != 1 else s for d, s, out in own))
    return collapse(batch, (*steps, y.strides), rank=2, rows=False), steps


def _encode_matmul(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    a, b = inputs
    box, steps = matmul_batches(a, b, y)
    if box is None:
        raise node_error(node, f"batches {y.shape[:-2]} with strides that do not collapse to two dimensions")
    b0, b1 = box.sizes(y.shape[:-2])
    (a_s0, a_s1), (b_s0, b_s1), (y_s0, y_s1) = (box.strides(s) for s in (*steps, y.strides))
    values: Values = {"b0": b0, "b1": b1, "m": a.shape[-2], "n": b.shape[-1], "k": a.shape[-1]}
    values |= {"a_s0": a_s0, "a_s1": a_s1, "a_sm": a.strides[-2], "a_sk": a.strides[-1]}
    values |= {"b_s0": b_s0, "b_s1": b_s1, "b_sk": b.strides[-2], "b_sn": b.strides[-1]}
    return values | {"y_s0": y_s0, "y_s1": y_s1, "y_sm": y.strides[-2]} | _act(node)


def _encode_layer_norm(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"rows": prod(y.shape[:-1]), "n": y.shape[-1], "is_rms": int_attr(node, "is_rms")}
    for name, tensor in (("x_s", inputs[0]), ("y_s", y)):
        values[name] = merge_rows(tensor.shape, tensor.strides) or 0
    return values | {"has_bias": int(len(inputs) == 3), "epsilon": float_attr(node, "epsilon")}


def _encode_rotary(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x, angles = inputs[:2]
    batch, heads, tokens, d = x.shape
    turned = int_attr(node, "turned")
    values: Values = {"batch": batch, "heads": heads, "tokens": tokens, "d": d, "turned": turned}
    values |= {"second": angles.shape[3] - turned // 2, "is_interleaved": int_attr(node, "is_interleaved")}
    steps = _broadcast_strides(angles, (*x.shape[:3], angles.shape[3]))
    for name, strides in (("x", x.strides), ("y", y.strides), ("c", steps)):
        values |= {f"{name}_s{axis}": stride for axis, stride in zip("bht", strides, strict=False)}
    return values


def _encode_attention(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    q, k, v = inputs[:3]
    batch, heads, m, d = q.shape
    values: Values = {"batch": batch, "heads": heads, "groups": k.shape[1], "m": m, "n": k.shape[2]}
    values |= {"d": d, "dv": v.shape[3], "y_sb": y.strides[0], "y_sh": y.strides[2], "y_st": y.strides[1]}
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        values |= {f"{name}_s{axis}": stride for axis, stride in zip("bht", tensor.strides, strict=False)}
    mask = inputs[3] if len(inputs) == 4 else None
    steps = _broadcast_strides(mask, (batch, heads, m, k.shape[2])) if mask else (0, 0, 0, 0)
    values |= {f"mask_s{axis}": stride for axis, stride in zip("bhm", steps, strict=False)}
    values |= {
        "has_mask": int(mask is not None),
        "mask_sn": int(mask is not None and mask.shape[-1:] not in ((), (1,))),
    }
    values |= {"is_causal": int_attr(node, "is_causal"), "past": int_attr(node, "past")}
    return values | {"scale": float_attr(node, "scale")}


_ENCODE: dict[str, Callable[[Node, list[Tensor], Tensor], Values]] = {
    "conv": _encode_conv,
    "dwconv": _encode_conv,
    "pool": _encode_pool,
    "unary": _encode_unary,
    "binary": _encode_binary,
    "pointwise": _encode_pointwise,
    "recurrent": _encode_recurrent,
    "quantize": _encode_quantize,
    "softmax": _encode_softmax,
    "reduce": _encode_reduce,
    "lrn": _encode_lrn,
    "instance_norm": _encode_instance_norm,
    "resize": _encode_resize,
    "copy": _encode_copy,
    "pad": _encode_pad,
    "gather": _encode_gather,
    "cast": _encode_cast,
    "matmul": _encode_matmul,
    "layer_norm": _encode_layer_norm,
    "rotary": _encode_rotary,
    "attention": _encode_attention,
}
