"""Probabilities of classes from those of each pair of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..attributes import Int, int_attr, node_error
from ..ir import Node, Shape, Tensor
from .record import FLOAT, Cost, Values, whole_operator

CLASSES_MAX = 1 << 14


def _infer(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    classes, (x,) = int_attr(node, "classes"), shapes
    if len(x) != 2 or x[1] != classes * (classes - 1) // 2:
        raise node_error(node, f"input of shape {x} does not hold the pairs of {classes} classes")
    return (x[0], classes), "f32"


def _encode(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return {"rows": y.shape[0], "classes": y.shape[1]}


def _flops(node: Node, shapes: Sequence[Shape], output: Shape) -> float:
    """A few rounds over the matrix of each row."""
    return 16.0 * output[0] * output[1] ** 2


OPERATORS = (
    whole_operator(
        "couple",
        attrs={"classes": Int(2, CLASSES_MAX)},
        inputs=(1, 1),
        dtypes=FLOAT,
        infer=_infer,
        encode=_encode,
        cost=Cost(passes=1.0, peak_fraction=0.01, flops=_flops),
    ),
)
