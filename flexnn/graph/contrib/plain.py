"""Operators of onnxruntime that the default domain has too, or that a few of its operators make."""

from __future__ import annotations

import numpy as np

from .expansion import Expansion, expands, numbers_of

_PADS_ARE_INPUTS = 11
"""Opset since which Pad reads its pads."""


@expands("Trilu")
def trilu(e: Expansion) -> None:
    """Expand to the standard operator of the same name."""
    e.split("Trilu", e.node.input, [e.output(0)], e.attrs(["upper"]))


@expands("GridSample")
def grid_sample(e: Expansion) -> None:
    """Expand to the standard operator of the same name."""
    e.split("GridSample", e.node.input, [e.output(0)], e.attrs(["align_corners", "mode", "padding_mode"]))


@expands("Pad")
def pad(e: Expansion) -> None:
    """Expand to the standard operator of the same name, which reads its pads, too."""
    if e.shared.opset < _PADS_ARE_INPUTS:
        raise e.error(f"opset {e.shared.opset}; it is supported since {_PADS_ARE_INPUTS}")
    e.split("Pad", e.node.input, [e.output(0)], e.attrs(["mode"]))


@expands("ExpandDims")
def expand_dims(e: Expansion) -> None:
    """A dimension of size 1 more."""
    axis = numbers_of(e.constant(1, "its axis")).reshape(-1)
    if len(axis) != 1:
        raise e.error(f"{len(axis)} axes")
    value = e.unsqueezed(e.input(0), int(axis[0]))
    e.add("Identity", value, output=e.output(0))


@expands("CDist")
def cdist(e: Expansion) -> None:
    """Distances of each row of one matrix to each of another, or their squares."""
    kind = e.attr("metric", "sqeuclidean")
    if kind not in ("euclidean", "sqeuclidean"):
        raise e.error(f"attribute metric {kind} is not supported")
    a, b = e.input(0), e.input(1)
    turned = e.add("Transpose", b, perm=[1, 0])
    two = e.add("CastLike", e.array(np.full(1, -2, np.float32)), a)
    own, other = (e.add("Einsum", v, v, equation="ij,ij->i") for v in (a, b))
    sums = e.add("Add", e.unsqueezed(own, 1), e.unsqueezed(other, 0))
    squares = e.add("Relu", e.add("Add", sums, e.add("Mul", e.add("MatMul", a, turned), two)))
    e.add("Sqrt" if kind == "euclidean" else "Identity", squares, output=e.output(0))
