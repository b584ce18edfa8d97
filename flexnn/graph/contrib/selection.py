"""Operators whose output has as many elements as the data say: a node that counts, and one that knows the count.

The run computes the count, and binds the nodes after it with its number: so every output has its exact size before it
gets memory. Operators that only these nodes have carry the name of ONNX's after which they are made, a dot, and their
part; no file may name them.
"""

from __future__ import annotations

import numpy as np

from .expansion import Expansion, expands

DEFAULT = ""
"""The domain of ONNX's own operators."""


@expands("NonZero", domain=DEFAULT)
def nonzero(e: Expansion) -> None:
    """Indices of elements that are not zero."""
    x = e.input(0)
    e.add("NonZero.indices", x, e.add("NonZero.count", x), output=e.output(0))


@expands("Compress", domain=DEFAULT)
def compress(e: Expansion) -> None:
    """Slices that a condition picks."""
    x, condition, axis = e.input(0), e.input(1), e.attrs(["axis"])
    (count,) = e.split("Compress.count", [x, condition], [""], axis)
    e.split("Compress.slices", [x, condition, count], [e.output(0)], axis)


@expands("Unique", domain=DEFAULT)
def unique(e: Expansion) -> None:
    """Elements or slices without those that are equal to others; which is where, and how many there are of each."""
    x, axis = e.input(0), e.attrs(["axis"])
    (groups,) = e.split("Unique.groups", [x], [""], axis | e.attrs(["sorted"]))
    count = e.add("Gather", groups, e.array(np.array(-1)), axis=0)
    first = e.add("Unique.first", groups, count, output=e.output(1))
    flat = x if axis else e.add("Reshape", x, e.array(np.array([-1])))
    if e.output(0):
        e.split("Gather", [flat, first], [e.output(0)], {"axis": 0} | axis)
    if e.output(2):
        bounds = (e.array(np.array([end])) for end in (0, -1))
        e.add("Slice", groups, *bounds, output=e.output(2))
    if e.output(3):
        e.add("Unique.members", groups, count, output=e.output(3))


@expands("NonMaxSuppression", domain=DEFAULT)
def non_max_suppression(e: Expansion) -> None:
    """Boxes that overlap no better one too much: selected into as many rows as can be, of which the first are kept."""
    inputs = [e.input(0), e.input(1), *(e.optional(i) for i in range(2, 5))]
    (rows,) = e.split("NonMaxSuppression.rows", inputs, [""], e.attrs(["center_point_box"]))
    last = e.add("Gather", rows, e.array(np.array(-1)), axis=0)
    count = e.add("Gather", last, e.array(np.array([0])), axis=0)
    e.add("Slice", rows, e.array(np.array([0])), count, output=e.output(0))
