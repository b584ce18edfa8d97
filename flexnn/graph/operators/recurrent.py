"""Recurrent cells: RNN, GRU and LSTM over a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..attributes import Int, int_attr, node_error
from ..ir import Node, Shape, Tensor
from ..panels import NR
from .fields import enum, enum_index
from .record import Cost, Operator, Values, always_together, contiguous_operands


def _infer_recurrent(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    (x, packed, initial), lengths = shapes[:3], shapes[3:]
    kind = str(node.attrs["kind"])
    gates, states = (4, 2) if kind == "lstm" else (3, 1) if kind.startswith("gru") else (1, 1)
    hidden = initial[2] if len(initial) == 3 else 0
    parts = [2 * hidden, hidden] if gates == 3 else [gates * hidden]
    floats = sum(-(-part // NR) * NR * hidden for part in parts) + (hidden if kind == "gru_after" else 0)
    sizes = [(floats,), (floats + 3 * hidden,)] if kind == "lstm" else [(floats,)]  # with peepholes
    fits = len(x) == 3 and x[2] == gates * hidden and initial == (states, x[1], hidden) and packed in sizes
    if not fits or lengths not in ([], [x[1:2]]) or dtypes != ["f32"] * 3 + ["i32"] * len(lengths):
        raise node_error(node, f"inputs of shapes {shapes} do not fit a cell of kind {kind}")
    return (x[0] + states, x[1], hidden), "f32"


def _encode_recurrent(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    steps, batch, columns = inputs[0].shape
    hidden = y.shape[2]
    panels = -(-columns // NR) * NR * hidden
    values: Values = {"kind": enum_index("cell_kind", node.attrs["kind"]), "is_reverse": int_attr(node, "is_reverse")}
    values |= {"steps": steps, "batch": batch, "hidden": hidden, "has_lengths": int(len(inputs) > 3)}
    return values | {
        "has_peepholes": int(values["kind"] == enum_index("cell_kind", "lstm") and inputs[1].size > panels)
    }


def _flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    return 2.0 * prod(inputs[0]) * inputs[2][2]


OPERATORS = (
    Operator(
        name="recurrent",
        attrs={"kind": enum("cell_kind"), "is_reverse": Int(0, 1)},
        inputs=(3, 4),  # as params.h states
        dtypes=("f32", "i32"),
        infer=_infer_recurrent,
        encode=_encode_recurrent,
        strided=contiguous_operands(4),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="fixed",
        rows="whole",
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=0.2, flops=_flops),
    ),
)
