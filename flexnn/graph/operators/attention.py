"""Attention and rotary embeddings of [batch,heads,tokens,d]."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..attributes import Float, Int, float_attr, int_attr, node_error
from ..ir import Node, Shape, Tensor
from ..strided import broadcast, fits_inner, is_contiguous
from .fields import broadcast_strides
from .record import FLOAT, Cost, Operator, Values, always_together
from .rows import keep_attrs, whole_rows


def _infer_attention(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    q, k, v = shapes[:3]
    if any(len(s) != 4 for s in (q, k, v)) or k[:3] != v[:3] or (q[0], q[3]) != (k[0], k[3]) or q[1] % max(k[1], 1):
        raise node_error(node, f"queries {q}, keys {k} and values {v} do not fit")
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
        "mask_sn": int(mask is not None and mask.shape[-1:] not in ((), (1,))),
    }
    values |= {"is_causal": int_attr(node, "is_causal"), "past": int_attr(node, "past")}
    return values | {"scale": float_attr(node, "scale")}


def _attention_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    (_, _, keys, d), dv = inputs[1], output[-1]
    return 2.0 * prod(output) / dv * keys * (d + dv)


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


OPERATORS = (
    Operator(
        name="attention",
        attrs={"scale": Float(), "is_causal": Int(0, 1), "past": Int()},
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
        rows=whole_rows,
        cut=keep_attrs,
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
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
)
