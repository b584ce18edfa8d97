"""Ensembles of trees: one operator walks all of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..attributes import Enum, Int, int_attr, node_error
from ..ir import Node, Shape, Tensor
from .fields import enum, enum_index
from .record import Cost, Values, whole_operator

_COUNTS = ("trees", "nodes", "entries", "results", "depth", "is_plain", "is_positive", "has_base")
_ENUMS = {"aggregate": "forest", "transform": "transform", "classes": "classes"}


def _infer_trees(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    x, forest = shapes
    number = 2 if dtypes[0] == "f64" else 1
    nodes, entries, results = (int_attr(node, name) for name in ("nodes", "entries", "results"))
    words = nodes * (number + 2) + entries * (number + 1) + int_attr(node, "has_base") * results * number
    if len(x) != 2 or dtypes[0] not in ("f32", "f64") or dtypes[1] != "i32" or forest != (words,):
        raise node_error(
            node, f"inputs of shapes {shapes} and types {', '.join(dtypes)} are not rows and {words} words"
        )
    if node.attrs["classes"] == "none":
        return (x[0], results), str(node.attrs["to"])
    return (x[0] * (results + 1),), str(node.attrs["to"])


def _encode_trees(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    rows, features = inputs[0].shape
    values: Values = {name: int_attr(node, name) for name in _COUNTS}
    values |= {name: enum_index(kind, node.attrs[name]) for name, kind in _ENUMS.items()}
    values |= {"is_wide": int(inputs[0].dtype == "f64"), "to": enum_index("dtype", node.attrs["to"])}
    return values | {"rows": rows, "features": features}


def _flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    """One for each comparison."""
    return float(inputs[0][0]) * int_attr(node, "trees") * (int_attr(node, "depth") + 1)


OPERATORS = (
    whole_operator(
        "trees",
        attrs={
            "to": Enum(("f32", "f64")),
            "trees": Int(1),
            "nodes": Int(1),
            "entries": Int(),
            "results": Int(1),
            "depth": Int(),
            "is_plain": Int(0, 1),
            "is_positive": Int(0, 1),
            "has_base": Int(0, 1),
            "aggregate": enum("forest"),
            "transform": enum("transform"),
            "classes": enum("classes"),
        },
        inputs=(2, 2),  # rows of features, the forest's words (params.h)
        dtypes=("f32", "f64", "i32"),
        infer=_infer_trees,
        encode=_encode_trees,
        cost=Cost(passes=1.0, peak_fraction=0.004, flops=_flops),
    ),
)
