"""The record of an internal operator: everything that the Python side knows of one operator, complete or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, dataclass_transform

from ..attributes import Spec
from ..ir import DTYPES, Node, Shape, Tensor
from ..strided import is_contiguous
from .rows import CutRule, HalvesRule, RowRule, keep_attrs, no_halves, whole_rows

Values = dict[str, int | float]
"""Fields of an operator's C struct, by name."""

OUTPUT = -1
"""Operand number of the output."""

FLOAT = ("f32",)
ANY_DTYPE = tuple(DTYPES)

Order = Literal["any", "fixed", "axis", "axes", "own", "late"]
"""How an operator sees the order of dimensions in memory, which the layout pass changes.

any: it computes element by element, in whatever order the operands are stored. fixed: it takes the order that its
definition states (channels last). axis: its attribute ``axis`` names an axis of its first input; others have at most
one dimension above 1. axes: its attributes that are lists have a number for each axis of its one input. own: the layout
pass has a handler for it. late: the layout pass makes it, and does not meet it.
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


class Cost(NamedTuple):
    """Analytic time of an operator with one kernel: its bytes or its flops, whichever takes longer."""

    passes: float
    """Time of its bytes, as a multiple of the time that a plain copy of them takes."""
    peak_fraction: float = 1.0
    """Share of the machine's peak that its flops reach."""
    flops: Callable[[Node, Sequence[Shape], Shape], float] = no_flops
    """Floating-point operations, from the shapes of inputs and output; a multiply-add counts twice."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class _Facts:
    """A frozen record whose facts are the annotations of its class.

    The methods that ``dataclass`` generates for a record this wide would add 0.2 MB to each process that imports
    flexnn.
    """

    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: records do not change")


class Operator(_Facts):
    """One internal operator. Every fact must be given; a record that lacks some raises TypeError and names them."""

    name: str
    """Name in FX_OPS (kernels/include/flexnn/params.h)."""
    attrs: Mapping[str, Spec]
    """Attributes: all that a node must have; it may have no others."""
    inputs: tuple[int, int]
    """Fewest and most inputs."""
    dtypes: tuple[str, ...]
    """Types that inputs may have; ``infer`` refuses combinations that make no sense."""
    infer: Callable[[Node, list[Shape], list[str]], tuple[Shape, str]]
    """Shape and dtype of the output, from those of the inputs. Raises GraphError where they do not fit."""
    encode: Callable[[Node, list[Tensor], Tensor], Values]
    """Fields of the C struct, from attributes, inputs and output."""
    strided: tuple[StrideRule, ...]
    """Strides that each input may have, and last those of the output."""
    together: Callable[[Sequence[Tensor]], bool]
    """Whether inputs and output, each accepted by ``strided``, are accepted together."""
    in_place: tuple[int, ...]
    """Inputs whose storage the output may take where shape and dtype are the same and the input dies there."""
    reads_transposes: bool
    """Whether inputs are read transposed as fast as in order, so that a transposition becomes a view."""
    order: Order
    rows: RowRule
    """Rows of the inputs that some rows of the output need (operators/rows.py)."""
    cut: CutRule
    """Attributes of a node that computes some rows of the output."""
    halves: HalvesRule
    """Two nodes that compute the operator, one of which leaves something of each row; for one that mixes rows."""
    interleaves: bool
    """Whether the engine knows outputs to be rows of channels, so that several may share one (engine/overlaps.c)."""
    has_panels: bool
    """Whether weights are packed panels. Such an operator takes a residual as its second input, and factors and slopes
    of its output channels into the panels."""
    kernels: tuple[str, ...]
    """Kernels among which the planner chooses; () where there is one."""
    cost: Cost
    """Time of an operator with one kernel; times of a choice of kernels are in flexnn/planning/costs.py."""

    if not TYPE_CHECKING:  # type checkers make it from the facts

        def __init__(self, **facts: Any) -> None:
            super().__init__(**facts)
            self._check()

    def _check(self) -> None:
        known = list(Operator.__annotations__)
        missing = [fact for fact in known if fact not in self.__dict__]
        if missing:
            raise TypeError(f"operator {self.__dict__.get('name')}: no {', no '.join(missing)}")
        if unknown := [fact for fact in self.__dict__ if fact not in known]:
            raise TypeError(f"operator {self.name}: there is no fact {', '.join(unknown)}")
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


def whole_operator(
    name: str,
    *,
    attrs: Mapping[str, Spec],
    inputs: tuple[int, int],
    dtypes: tuple[str, ...],
    infer: Callable[[Node, list[Shape], list[str]], tuple[Shape, str]],
    encode: Callable[[Node, list[Tensor], Tensor], Values],
    cost: Cost,
    in_place: tuple[int, ...] = (),
) -> Operator:
    """Return the record of an operator that computes all of its output at once, over contiguous operands: it has no
    panels, one kernel, and takes no part in what passes do with layouts.
    """
    return Operator(
        name=name,
        attrs=attrs,
        inputs=inputs,
        dtypes=dtypes,
        infer=infer,
        encode=encode,
        strided=contiguous_operands(inputs[1]),
        together=always_together,
        in_place=in_place,
        reads_transposes=False,
        order="fixed",
        rows=whole_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=cost,
    )
