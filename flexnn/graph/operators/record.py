"""The record of an internal operator: everything that the Python side knows of one operator, complete or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from ..attributes import Spec
from ..ir import DTYPES, Node, Shape, Tensor
from ..strided import is_contiguous

Values = dict[str, int | float]
"""Fields of an operator's C struct, by name."""

OUTPUT = -1
"""Operand number of the output."""

FLOAT = ("f32",)
ANY_DTYPE = tuple(DTYPES)

Order = Literal["any", "fixed", "axis", "axes", "own", "late"]
"""How an operator sees the order of dimensions in memory, which the layout pass changes.

any: it computes element by element, in whatever order the operands are stored. fixed: it takes the order that its
definition states (channels last). axis: its attribute ``axis`` names an axis of its one input. axes: its attributes
that are lists have a number for each axis of its one input. own: the layout pass has a handler for it. late: the layout
pass makes it, and does not meet it.
"""

Rows = Literal["window", "row", "whole"]
"""Rows of the input [n,h,w,c] that rows of the output need.

window: those under a sliding window (kernel, strides, dilations, pads). row: the same rows. whole: all.
"""

StrideRule = Callable[[Shape, Shape], bool]
"""Whether an operand of this shape may have these strides."""


def any_strides(shape: Shape, strides: Shape) -> bool:
    """Accept every stride."""
    return True


def always_together(operands: Sequence[Tensor]) -> bool:
    """Accept every combination of operands that are accepted one at a time."""
    return True


def no_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    """Return 0: memory decides the time."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Analytic time of an operator with one kernel: its bytes or its flops, whichever takes longer."""

    passes: float
    """Time of its bytes, as a multiple of the time that a plain copy of them takes."""
    peak_fraction: float = 1.0
    """Share of the machine's peak that its flops reach."""
    flops: Callable[[Node, Sequence[Shape], Shape], float] = no_flops
    """Floating-point operations, from the shapes of inputs and output; a multiply-add counts twice."""


_MISSING: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One internal operator. Every field must be given; a record that lacks some raises TypeError and names them."""

    name: str
    """Name in FX_OPS (kernels/include/flexnn/params.h)."""
    attrs: Mapping[str, Spec] = _MISSING
    """Attributes: all that a node must have; it may have no others."""
    inputs: tuple[int, int] = _MISSING
    """Fewest and most inputs."""
    dtypes: tuple[str, ...] = _MISSING
    """Types that inputs may have; ``infer`` refuses combinations that make no sense."""
    infer: Callable[[Node, list[Shape], list[str]], tuple[Shape, str]] = _MISSING
    """Shape and dtype of the output, from those of the inputs. Raises GraphError where they do not fit."""
    encode: Callable[[Node, list[Tensor], Tensor], Values] = _MISSING
    """Fields of the C struct, from attributes, inputs and output."""
    strided: tuple[StrideRule, ...] = _MISSING
    """Strides that each input may have, and last those of the output."""
    together: Callable[[Sequence[Tensor]], bool] = _MISSING
    """Whether inputs and output, each accepted by ``strided``, are accepted together."""
    in_place: tuple[int, ...] = _MISSING
    """Inputs whose storage the output may take where shape and dtype are the same and the input dies there."""
    reads_transposes: bool = _MISSING
    """Whether inputs are read transposed as fast as in order, so that a transposition becomes a view."""
    order: Order = _MISSING
    rows: Rows = _MISSING
    interleaves: bool = _MISSING
    """Whether the engine knows outputs to be rows of channels, so that several may share one (engine/overlaps.c)."""
    has_panels: bool = _MISSING
    """Whether weights are packed panels. Such an operator takes a residual as its second input, and factors and slopes
    of its output channels into the panels."""
    kernels: tuple[str, ...] = _MISSING
    """Kernels among which the planner chooses; () where there is one."""
    cost: Cost = _MISSING
    """Time of an operator with one kernel; times of a choice of kernels are in flexnn/planning/costs.py."""

    def __post_init__(self) -> None:
        missing = [field.name for field in fields(self) if getattr(self, field.name) is _MISSING]
        if missing:
            raise TypeError(f"operator {self.name}: no {', no '.join(missing)}")
        if len(self.strided) != self.inputs[1] + 1:
            raise TypeError(
                f"operator {self.name}: {len(self.strided)} rules for strides of {self.inputs[1] + 1} operands"
            )
        if any(operand >= self.inputs[1] for operand in self.in_place):
            raise TypeError(f"operator {self.name}: in_place {self.in_place} with {self.inputs[1]} inputs")

    def kernel(self, number: int) -> str:
        """Name of kernel ``number`` of a program; "" where there is no choice."""
        return self.kernels[number] if self.kernels else ""


def elementwise_strides(inputs: int) -> tuple[StrideRule, ...]:
    """Return rules that accept every stride of so many inputs and of the output."""
    return (any_strides,) * (inputs + 1)


def contiguous_operands(inputs: int) -> tuple[StrideRule, ...]:
    """Return rules that accept only contiguous inputs, so many, and a contiguous output."""
    return (is_contiguous,) * (inputs + 1)
