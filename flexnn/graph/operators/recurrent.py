"""Recurrent cells: RNN, GRU and LSTM over a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..attributes import Float, Int, Spec, float_attr, int_attr, node_error
from ..ir import DTYPES, Node, Shape, Tensor
from ..panels import NR
from ..weight_form import FORMS
from .fields import enum, enum_index, enum_without
from .record import Cost, Values, whole_operator

_FORMS = {"f32": "f32", "f16": "f16", "i8": "s8"}
"""Forms of the recurrent weights by the type of the operand: stored panels are as many numbers of it as they have bytes
for."""

_ATTRS: dict[str, Spec] = {"kind": enum("cell_kind"), "is_reverse": Int(0, 1), "is_coupled": Int(0, 1), "clip": Float()}
for _letter in "fgh":
    _ATTRS |= {f"{_letter}_act": enum_without("unary_kind", "prelu"), f"{_letter}_alpha": Float()}
    _ATTRS[f"{_letter}_beta"] = Float()


def _panels_bytes(dtype: str, kind: str, hidden: int) -> int:
    """Bytes of the recurrent weights' panels."""
    columns = [2 * hidden, hidden] if kind.startswith("gru") else [(4 if kind.startswith("lstm") else 1) * hidden]
    panel = NR * hidden * 4 if dtype == "f32" else FORMS[_FORMS[dtype]].layout(NR * hidden).end
    return sum(-(-n // NR) for n in columns) * panel


def _gates(kind: str) -> int:
    return 4 if kind.startswith("lstm") else 3 if kind.startswith("gru") else 1


def _directions(width: int, row: int) -> int:
    """Directions of an input of ``width`` columns, of which each has ``row``; 0 where they do not fit."""
    return 1 if width == row else 2 if width == 2 * row else 0


def _infer_recurrent(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    (x, packed, initial), lengths = shapes[:3], shapes[3:]
    kind = str(node.attrs["kind"])
    gates, states = _gates(kind), 2 if kind.startswith("lstm") else 1
    hidden = initial[2] if len(initial) == 3 else 0
    fits = dtypes in (["f32", form, "f32", *["i32"] * len(lengths)] for form in _FORMS) and lengths in ([], [x[1:2]])
    fits = fits and len(x) == 3 and hidden > 0
    count = _directions(x[2], gates * hidden) if fits else 0
    fits = fits and 0 < count <= 2 - int_attr(node, "is_reverse") and initial == (states, count * x[1], hidden)
    if fits:
        panels = _panels_bytes(dtypes[1], kind, hidden) + (4 * hidden if kind == "gru_after" else 0)
        sizes = (panels, panels + 12 * hidden) if kind.startswith("lstm") else (panels,)  # with peepholes
        fits = len(packed) == 1 and packed[0] * DTYPES[dtypes[1]].itemsize in [count * size for size in sizes]
    if not fits or int_attr(node, "is_coupled") > kind.startswith("lstm") or float_attr(node, "clip") < 0:
        raise node_error(node, f"inputs of shapes {shapes} or attributes do not fit a cell of kind {kind}")
    return (x[0] + states, count * x[1], hidden), "f32"


def _encode_recurrent(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    steps, batch, _ = inputs[0].shape
    kind, dtype, hidden = str(node.attrs["kind"]), inputs[1].dtype, y.shape[2]
    directions = _directions(inputs[0].shape[2], _gates(kind) * hidden)
    more = inputs[1].size * DTYPES[dtype].itemsize > directions * _panels_bytes(dtype, kind, hidden)
    values: Values = {"kind": enum_index("cell_kind", kind), "is_reverse": int_attr(node, "is_reverse")}
    values |= {"directions": directions}
    values |= {"steps": steps, "batch": batch, "hidden": hidden, "has_lengths": int(len(inputs) > 3)}
    values |= {"has_peepholes": int(kind.startswith("lstm") and more), "wtype": enum_index("wtype", _FORMS[dtype])}
    values |= {"is_coupled": int_attr(node, "is_coupled"), "clip": float_attr(node, "clip")}
    for letter in "fgh":
        values[f"{letter}_act"] = enum_index("unary_kind", node.attrs[f"{letter}_act"])
        values |= {name: float_attr(node, name) for name in (f"{letter}_alpha", f"{letter}_beta")}
    return values


def _flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    return 2.0 * prod(inputs[0]) * inputs[2][2]


OPERATORS = (
    whole_operator(
        "recurrent",
        attrs=_ATTRS,
        inputs=(3, 4),  # as params.h states
        dtypes=("f32", "f16", "i8", "i32"),
        infer=_infer_recurrent,
        encode=_encode_recurrent,
        cost=Cost(passes=1.0, peak_fraction=0.2, flops=_flops),
    ),
)
