"""Products of two computed operands, and the quantisation of values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..attributes import Enum, Int, int_attr, node_error
from ..ir import RANK_MAX, Node, Shape, Tensor
from ..strided import (
    Collapsed,
    alike,
    broadcast,
    collapse,
    fits_inner,
    has_rows,
    is_contiguous,
    merge_groups,
    merge_rows,
    same,
)
from .fields import PLAIN_ACT, SUMS, act_fields, enum_index
from .record import ANY_DTYPE, FLOAT, Cost, Operator, Values, always_together, any_strides
from .rows import keep_attrs, matmul_rows, no_halves, quantize_rows


def _infer_matmul(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise node_error(node, f"shapes {a} and {b} do not multiply")
    batch = broadcast(a[:-2], b[:-2])
    if batch is None:
        raise node_error(node, f"shapes {a} and {b} do not broadcast")
    return (*batch, a[-2], b[-1]), str(node.attrs["sums"])


def _batches(a: Tensor, b: Tensor, y: Tensor) -> tuple[Collapsed | None, list[Shape]]:
    """The batch dimensions of a @ b = y in two runs, or None where they do not collapse so far; a's and b's strides."""
    batch = y.shape[:-2]
    steps = []
    for tensor in (a, b):
        missing = (0,) * (len(batch) - len(tensor.shape) + 2)
        own = zip(tensor.shape, tensor.strides, batch[len(missing) :], strict=False)
        steps.append(missing + tuple(s if same(d, out) else 0 for d, s, out in own))
    return collapse(batch, (*steps, y.strides), rank=2, rows=False, equal=alike), steps


def _encode_matmul(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    a, b = inputs
    box, steps = _batches(a, b, y)
    if box is None:
        raise node_error(node, f"batches {y.shape[:-2]} with strides that do not collapse to two dimensions")
    b0, b1 = box.sizes(y.shape[:-2])
    (a_s0, a_s1), (b_s0, b_s1), (y_s0, y_s1) = (box.strides(s) for s in (*steps, y.strides))
    values: Values = {"b0": b0, "b1": b1, "m": a.shape[-2], "n": b.shape[-1], "k": a.shape[-1]}
    values |= {"a_s0": a_s0, "a_s1": a_s1, "a_sm": a.strides[-2], "a_sk": a.strides[-1]}
    values |= {"b_s0": b_s0, "b_s1": b_s1, "b_sk": b.strides[-2], "b_sn": b.strides[-1]}
    values |= {"y_s0": y_s0, "y_s1": y_s1, "y_sm": y.strides[-2], "sums": enum_index("dtype", node.attrs["sums"])}
    return values | act_fields(node)


def _together(operands: Sequence[Tensor]) -> bool:
    """Whether the batches of both inputs and the output collapse to two dimensions."""
    a, b, y = operands
    return _batches(a, b, y)[0] is not None


def _output_strides(shape: Shape, strides: Shape) -> bool:
    """Accept contiguous rows; from three batch dimensions on, only those that one stride walks."""
    if len(shape) > 4 and len(merge_groups(shape[:-2], (strides,), equal=alike)) > 1:
        return False
    return fits_inner(shape, strides)


def _matmul_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    return 2.0 * prod(output) * inputs[0][-1]


def _is_measured(node: Node, steps: Sequence[tuple[Shape, str]]) -> bool:
    """Return whether the one operand behind the first is what ``byte_steps`` leaves: scales have zero points beside
    them where floats become bytes.
    """
    return [*steps] == [((2,), "f32")] and node.attrs["to"] == "u8"


def _infer_quantize(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    to, axis, integer = str(node.attrs["to"]), int_attr(node, "axis"), dtypes[0]
    if to != "f32":
        integer = to
    if _is_measured(node, [*zip(shapes, dtypes, strict=True)][1:]) and dtypes[0] == "f32":
        return shapes[0], to
    known = dtypes[0] in ("u8", "i8", "i32") if to == "f32" else dtypes[0] in ("f32", "i32") and to in ("u8", "i8")
    biased = len(dtypes) == 4
    if biased and (dtypes[0] != "i32" or to == "f32" or dtypes[3] != "i32"):
        raise node_error(node, f"a bias of {dtypes[3]} from {dtypes[0]} to {to}")
    if not known or dtypes[1] != "f32" or any(d != integer for d in dtypes[2:3]):
        raise node_error(node, f"cannot convert {', '.join(dtypes)} to {to}")
    count = prod(shapes[1])
    if any(prod(s) != count for s in shapes[2:]) or (
        count != 1 and (axis >= len(shapes[0]) or shapes[0][axis] != count)
    ):
        raise node_error(node, f"scales and zero points {shapes[1:]} do not fit axis {axis} of shape {shapes[0]}")
    return shapes[0], to


def _encode_quantize(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    measured = inputs[0].dtype == "f32" and _is_measured(node, [(i.shape, i.dtype) for i in inputs[1:]])
    axis, shape, n = int_attr(node, "axis"), y.shape, 1 if measured else inputs[1].size
    outer, inner = (prod(shape[:axis]), prod(shape[axis + 1 :])) if n > 1 else (1, y.size)
    values: Values = {"from": enum_index("dtype", inputs[0].dtype), "to": enum_index("dtype", y.dtype), "n": n}
    values |= {"outer": outer, "inner": inner, "has_zero": int(len(inputs) > 2), "has_bias": int(len(inputs) > 3)}
    row, pitch = (0, 0) if is_contiguous(y.shape, y.strides) else (y.shape[-1], merge_rows(y.shape, y.strides) or 0)
    return values | {"is_measured": int(measured), "row": row, "y_s": pitch}


OPERATORS = (
    Operator(
        name="matmul",
        attrs={**PLAIN_ACT, **SUMS},
        inputs=(2, 2),
        dtypes=FLOAT,
        infer=_infer_matmul,
        encode=_encode_matmul,
        strided=(any_strides, any_strides, _output_strides),
        together=_together,
        in_place=(),
        reads_transposes=True,
        order="fixed",
        rows=matmul_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=0.85, flops=_matmul_flops),
    ),
    Operator(
        name="quantize",
        attrs={"to": Enum(("f32", "u8", "i8")), "axis": Int(0, RANK_MAX - 1)},
        # x, scales, zero points, biases (of sums): one for all, or one for each slice of ``axis``; or x, ``byte_steps``
        inputs=(2, 4),
        dtypes=ANY_DTYPE,
        infer=_infer_quantize,
        encode=_encode_quantize,
        strided=(*(is_contiguous,) * 4, has_rows),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="axis",
        rows=quantize_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
)
