"""The internal operators: which there are, their attributes, and what one can ask of a node.

``check`` and ``infer`` are what the artifact's reader trusts a file by, so they accept nothing that is malformed;
``encode`` turns a node into the fields of its operator's struct (kernels/include/flexnn/params.h). Attributes say what
a node means and hold no shapes, except where a shape is the meaning (``expand`` of copy, ``sizes`` of resize).
"""

from __future__ import annotations

from flexnn import _core

from .attributes import DIMS_MAX, INT_MAX, Enum, Float, Int, Ints, Spec, node_error
from .encode import IN_PLACE, OUTPUT, STRIDED, encode, fits
from .ir import DTYPES, Node
from .shapes import infer, infer_shapes

__all__ = ["INPUTS", "IN_PLACE", "OUTPUT", "SCHEMA", "STRIDED", "check", "encode", "fits", "infer", "infer_shapes"]


def _enum(name: str) -> Enum:
    return Enum(tuple(_core.ENUMS[name]))


def _without(name: str, missing: str) -> Enum:
    return Enum(tuple(n for n in _core.ENUMS[name] if n != missing))


_PAIR = Ints(2, 1)
_ACT: dict[str, Spec] = {"act": _enum("act"), "alpha": Float(), "beta": Float()}
_PLAIN_ACT: dict[str, Spec] = {"act": _without("act", "prelu"), "alpha": Float(), "beta": Float()}
_SPATIAL: dict[str, Spec] = {"kernel": _PAIR, "strides": _PAIR, "dilations": _PAIR, "pads": Ints(4)}
"""Over (height, width); pads: top, left, bottom, right."""

SCHEMA: dict[str, dict[str, Spec]] = {
    "conv": {**_SPATIAL, "group": Int(1), "cout": Int(1), "cin_block": Int(1), "wtype": _enum("wtype"), **_ACT},
    "dwconv": {**_SPATIAL, "wtype": _enum("wtype"), **_ACT},
    "pool": {"kind": _enum("pool_kind"), **_SPATIAL, "ceil_mode": Int(0, 1), "count_include_pad": Int(0, 1)},
    "unary": {"kind": _without("unary_kind", "prelu"), "alpha": Float(), "beta": Float()},
    "binary": {"kind": _enum("binary_kind"), **_PLAIN_ACT},
    "softmax": {"axis": Int(0, DIMS_MAX - 1), "log": Int(0, 1)},
    "reduce": {"kind": _enum("reduce_kind"), "axes": Ints(-1, 0, DIMS_MAX - 1), "keepdims": Int(0, 1)},
    "lrn": {"size": Int(1), "alpha": Float(), "beta": Float(), "bias": Float()},
    "instance_norm": {"epsilon": Float()},
    "resize": {
        "mode": _enum("resize_mode"),
        "coord": _enum("resize_coord"),
        "nearest": _enum("resize_nearest"),
        "sizes": _PAIR,
        "scale_h": Float(),
        "scale_w": Float(),
    },
    "copy": {"perm": Ints(-1, 0, DIMS_MAX - 1), "expand": Ints()},
    "pad": {
        "mode": _enum("pad_mode"),
        "before": Ints(-1, -INT_MAX),
        "after": Ints(-1, -INT_MAX),
        "interior": Ints(),
        "value": Float(),
        "value_int": Int(-INT_MAX - 1),
    },
    "gather": {"axis": Int(0, DIMS_MAX - 1)},
    "cast": {"to": Enum(tuple(DTYPES))},
    "matmul": {**_PLAIN_ACT},
    "layer_norm": {"is_rms": Int(0, 1), "epsilon": Float()},
    "recurrent": {"kind": _enum("cell_kind"), "is_reverse": Int(0, 1)},
    "quantize": {"to": Enum(("f32", "u8", "i8")), "axis": Int(0, DIMS_MAX - 1)},
    "pointwise": {"kind": _enum("pointwise_kind")},
    "rotary": {"turned": Int(2), "is_interleaved": Int(0, 1)},
    "attention": {"scale": Float(), "is_causal": Int(0, 1), "past": Int()},
}
"""The attributes of each operator: all of them, and no others.

conv, dwconv: ``wtype`` is the form its weights are stored in.
copy: ``perm`` transposes; then ``expand`` broadcasts axes of size 1 to the size it says (0: keeps).
recurrent: inputs as params.h says. quantize: x, scales, zero points, one or one for each slice of ``axis``.
pointwise: a, b and for ``where`` the condition.
reduce: ``axes`` are consecutive and ascending. resize: over (height, width) of [n,h,w,c].
rotary: x [b,heads,tokens,d], cosines and sines that broadcast to it but for the last axis.
layer_norm: over the last axis of x; scale and bias have its length. attention: q [b,heads,m,d], k [b,groups,n,d], v
[b,groups,n,dv] and a mask that broadcasts to [b,heads,m,n] make [b,m,heads,dv].
"""

INPUTS: dict[str, tuple[int, int]] = {
    "conv": (1, 2),
    "dwconv": (1, 2),
    "binary": (2, 2),
    "gather": (2, 2),
    "matmul": (2, 2),
    "instance_norm": (3, 3),
    "layer_norm": (2, 3),
    "pointwise": (2, 3),
    "recurrent": (3, 3),
    "quantize": (2, 3),
    "rotary": (3, 3),
    "attention": (3, 4),
}
"""Fewest and most inputs; one where not listed. conv, dwconv: x, residual."""


def check(node: Node) -> None:
    """Raises GraphError unless operator, attributes and numbers of inputs and outputs are legal."""
    schema = SCHEMA.get(node.op)
    if schema is None:
        raise node_error(node, "unknown operator")
    if node.attrs.keys() != schema.keys():
        raise node_error(node, f"attributes {sorted(node.attrs)}, expected {sorted(schema)}")
    for name, spec in schema.items():
        if not spec.accepts(node.attrs[name]):
            raise node_error(node, f"attribute {name} = {str(node.attrs[name])[:60]} is out of range")
    low, high = INPUTS.get(node.op, (1, 1))
    if not low <= len(node.inputs) <= high or len(node.outputs) != 1:
        raise node_error(node, f"{len(node.inputs)} inputs and {len(node.outputs)} outputs")
