"""Attention and rotary embeddings of [batch,heads,tokens,d]."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..attributes import Enum, Float, Int, float_attr, int_attr, node_error
from ..ir import Attr, Node, Shape, Tensor
from ..strided import broadcast, fits_inner, is_contiguous, same
from .fields import broadcast_strides, enum_index
from .record import FLOAT, Cost, Operator, Values, always_together
from .rows import WHOLE as ALL
from .rows import Cut, Need, keep_attrs, no_halves, whole_rows

STATE_DTYPES = ("f16", "f32", "i8")
"""Types that keys and values have in state; the first is the default. Rows of bytes hold a scale for each BLOCK."""
BLOCK, SCALE = 32, 4
"""FX_STATE_BLOCK (kernels/include/flexnn/rows.h), and the bytes of a scale."""

WHOLE = (1, 1)
"""Shape of a length, else [1], where all rows of the state count, and the queries' own are not among them."""


def _infer_attention(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    q, k, v = shapes[:3]
    if any(len(s) != 4 for s in (q, k, v)) or k[:3] != v[:3] or (q[0], q[3]) != (k[0], k[3]) or q[1] % max(k[1], 1):
        raise node_error(node, f"queries {q}, keys {k} and values {v} do not fit")
    if int_attr(node, "window") and not int_attr(node, "is_causal"):
        raise node_error(node, "only queries that see no later keys have a window")
    scores = (*q[:3], k[2])
    if len(shapes) == 4 and broadcast(shapes[3], scores) != scores:
        raise node_error(node, f"a mask of shape {shapes[3]} does not broadcast to scores of shape {scores}")
    return (q[0], q[2], q[1], v[3]), "f32"


def _encode_attention(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    q, k, v = inputs[:3]
    batch, heads, m, d = q.shape
    values: Values = {"batch": batch, "heads": heads, "groups": k.shape[1], "m": m, "n": k.shape[2]}
    values |= {"d": d, "dv": v.shape[3], "y_sb": y.strides[0], "y_sh": y.strides[2], "y_st": y.strides[1]}
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        values |= {f"{name}_s{axis}": stride for axis, stride in zip("bht", tensor.strides, strict=False)}
    mask = inputs[3] if len(inputs) == 4 else None
    steps = broadcast_strides(mask, (batch, heads, m, k.shape[2])) if mask else (0, 0, 0, 0)
    values |= {f"mask_s{axis}": stride for axis, stride in zip("bhm", steps, strict=False)}
    values |= {
        "has_mask": int(mask is not None),
        "mask_sn": int(mask is not None and bool(mask.shape) and same(mask.shape[-1], k.shape[2])),
    }
    values |= {name: int_attr(node, name) for name in ("is_causal", "past", "window")}
    return values | {"scale": float_attr(node, "scale"), "softcap": float_attr(node, "softcap")}


def _attention_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    (_, _, keys, d), dv = inputs[1], output[-1]
    return 2.0 * prod(output) / dv * keys * (d + dv)


def _attention_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the queries of rows, their rows of a mask, and all keys and values."""
    if axis not in (0, 1):
        return None
    masks = []
    for mask in inputs[3:]:
        place = len(mask) - (2 if axis else 4)
        masks.append(Need(place) if place >= 0 and mask[place] == output[axis] else ALL)
    others = ALL if axis else Need(0)
    return (Need(2 if axis else 0), others, others, *masks)


def _cut_attention(node: Node, cut: Cut) -> dict[str, Attr]:
    """Return attributes by which the first of these rows has the keys of those before it."""
    if not cut.axis or not int_attr(node, "is_causal"):
        return node.attrs
    return node.attrs | {"past": int_attr(node, "past") + cut.rows[0]}


def _infer_rotary(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    x, angles, sines = shapes
    turned = int_attr(node, "turned")
    wide = (turned // 2,) if int_attr(node, "is_interleaved") else (turned // 2, turned)
    if len(x) != 4 or len(angles) != 4 or angles != sines or broadcast(angles[:3], x[:3]) != x[:3]:
        raise node_error(node, f"angles of shapes {angles} and {sines} do not broadcast to {x}")
    if turned % 2 or turned > x[3] or angles[3] not in wide:
        raise node_error(node, f"cannot turn {turned} of {x[3]} elements by {angles[3]} angles")
    return x, "f32"


def _encode_rotary(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x, angles = inputs[:2]
    batch, heads, tokens, d = x.shape
    turned = int_attr(node, "turned")
    values: Values = {"batch": batch, "heads": heads, "tokens": tokens, "d": d, "turned": turned}
    values |= {"second": angles.shape[3] - turned // 2, "is_interleaved": int_attr(node, "is_interleaved")}
    steps = broadcast_strides(angles, (*x.shape[:3], angles.shape[3]))
    for name, strides in (("x", x.strides), ("y", y.strides), ("c", steps)):
        values |= {f"{name}_s{axis}": stride for axis, stride in zip("bht", strides, strict=False)}
    return values


def _row(dtype: str, dim: int) -> int:
    """Return the elements of a row of state: those in bytes have their scales behind them."""
    return dim + -(-dim // BLOCK) * SCALE if dtype == "i8" else dim


def _infer_append(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    k, v, length = shapes
    capacity, dtype = int_attr(node, "capacity"), str(node.attrs["dtype"])
    if len(k) != 4 or k != v or k[0] != 1 or length != (1,) or dtypes != ["f32", "f32", "i64"]:
        raise node_error(node, f"keys {k}, values {v} and a length {length} of {', '.join(dtypes)} do not fit")
    if k[2] > capacity:
        raise node_error(node, f"{k[2]} tokens do not fit into state of {capacity}")
    return (2, k[1], capacity, _row(dtype, k[3])), dtype


def _state_fields(node: Node, state: Tensor, d: int) -> Values:
    _, groups, capacity, _ = state.shape
    return {"dtype": enum_index("dtype", state.dtype), "groups": groups, "capacity": capacity, "d": d}


def _encode_append(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    k, v = inputs[:2]
    strides = {"k_sh": k.strides[1], "k_st": k.strides[2], "v_sh": v.strides[1], "v_st": v.strides[2]}
    return _state_fields(node, y, k.shape[3]) | {"m": k.shape[2]} | strides


def _infer_over_state(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    q, state, length = shapes[:3]
    fits = len(q) == len(state) == 4 and q[0] == 1 and state[0] == 2 and _row(dtypes[1], q[3]) == state[3]
    fits = fits and (q[2] <= state[2] or length == WHOLE)
    if not fits or q[1] % state[1] or length not in ((1,), WHOLE) or dtypes[0] != "f32" or dtypes[2] != "i64":
        raise node_error(node, f"queries {q}, state {state} and a length {length} of {', '.join(dtypes)} do not fit")
    added = ((q[1],), (q[1], state[2]))
    if dtypes[1] not in STATE_DTYPES or (len(shapes) == 4 and (shapes[3] not in added or dtypes[3] != "f32")):
        raise node_error(node, f"state of {dtypes[1]}, or sinks or bias {shapes[3:]} of {dtypes[3:]}, do not fit")
    return (1, q[2], q[1], q[3]), "f32"


def _encode_over_state(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    q = inputs[0]
    values = _state_fields(node, inputs[1], q.shape[3]) | {"heads": q.shape[1], "m": q.shape[2]}
    values |= {"q_sh": q.strides[1], "q_st": q.strides[2], "y_sh": y.strides[2], "y_st": y.strides[1]}
    added = len(inputs[3].shape) if len(inputs) == 4 else 0
    values |= {"window": int_attr(node, "window"), "has_sinks": int(added == 1), "has_bias": int(added == 2)}
    values |= {"is_whole": int(inputs[2].shape == WHOLE)}
    return values | {"scale": float_attr(node, "scale"), "softcap": float_attr(node, "softcap")}


def _over_state_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    return 4.0 * prod(output) * inputs[1][2]


OPERATORS = (
    Operator(
        name="attention",
        attrs={"scale": Float(), "softcap": Float(), "is_causal": Int(0, 1), "past": Int(), "window": Int()},
        # q [b,heads,m,d], k [b,groups,n,d], v [b,groups,n,dv], and a mask that broadcasts to [b,heads,m,n]; the output
        # is [b,m,heads,dv].
        inputs=(3, 4),
        dtypes=FLOAT,
        infer=_infer_attention,
        encode=_encode_attention,
        strided=(fits_inner,) * 5,
        together=always_together,
        in_place=(),
        reads_transposes=True,
        order="fixed",
        rows=_attention_rows,
        cut=_cut_attention,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=0.6, flops=_attention_flops),
    ),
    Operator(
        name="rotary",
        attrs={"turned": Int(2), "is_interleaved": Int(0, 1)},
        # x [b,heads,tokens,d], then cosines and sines, which broadcast to it but for the last axis.
        inputs=(3, 3),
        dtypes=FLOAT,
        infer=_infer_rotary,
        encode=_encode_rotary,
        strided=(fits_inner, is_contiguous, is_contiguous, fits_inner),
        together=always_together,
        in_place=(0,),
        reads_transposes=True,
        order="fixed",
        rows=whole_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
    Operator(
        name="state_append",
        attrs={"capacity": Int(1), "dtype": Enum(STATE_DTYPES)},
        # k and v [1,groups,m,d] and the length before them, int64 [1]; the output is the state [2,groups,capacity,d]
        # (i8: with scales behind each d), of which nothing but their rows is written.
        inputs=(3, 3),
        dtypes=("f32", "i64"),
        infer=_infer_append,
        encode=_encode_append,
        strided=(fits_inner, fits_inner, is_contiguous, is_contiguous),
        together=always_together,
        in_place=(),
        reads_transposes=True,
        order="fixed",
        rows=whole_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
    Operator(
        name="state_attention",
        attrs={"scale": Float(), "softcap": Float(), "window": Int()},
        # q [1,heads,m,d], the state that these tokens are appended to, the length before them, and sinks [heads], or
        # what is added to scores [heads,capacity]; the output is [1,m,heads,d]. A length of shape WHOLE: the state is
        # another one's.
        inputs=(3, 4),
        dtypes=("f32", "f16", "i8", "i64"),
        infer=_infer_over_state,
        encode=_encode_over_state,
        strided=(fits_inner, is_contiguous, is_contiguous, is_contiguous, fits_inner),
        together=always_together,
        in_place=(),
        reads_transposes=True,
        order="fixed",
        rows=whole_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=0.3, flops=_over_state_flops),
    ),
)
