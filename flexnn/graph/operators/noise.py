"""Random numbers of the shape of an input, which is not read."""

from __future__ import annotations

from math import prod

from ..attributes import Float, Int, float_attr, int_attr
from ..ir import DTYPES, Node, Shape, Tensor
from .record import ANY_DTYPE, Cost, Values, whole_operator


def _infer(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    return shapes[0], "f32"


def _encode(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"elem_bytes": DTYPES[inputs[0].dtype].itemsize, "count": prod(y.shape)}
    values |= {name: int_attr(node, name) for name in ("is_uniform", "is_seeded", "seed_lo", "seed_hi")}
    return values | {name: float_attr(node, name) for name in ("shift", "factor", "end")}


OPERATORS = (
    whole_operator(
        "noise",
        attrs={
            "is_uniform": Int(0, 1),
            "is_seeded": Int(0, 1),
            "seed_lo": Int(),
            "seed_hi": Int(),
            "shift": Float(),
            "factor": Float(),
            "end": Float(),
        },
        inputs=(1, 1),
        dtypes=ANY_DTYPE,
        infer=_infer,
        encode=_encode,
        in_place=(0,),
        cost=Cost(passes=8.0),
    ),
)
