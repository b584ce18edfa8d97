"""Runs like the last one, which need no walk: they read the same numbers, and one stretch is all that they run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from flexnn.regions import Read, Stretch

Found = str | tuple[Any, ...]
"""The body that Python walks next, or what an action found: shapes, or numbers."""


def read_before(
    first: Stretch | None, stretch: Stretch, findings: Sequence[Found], inputs: Collection[str]
) -> dict[str, bytes] | None:
    """Return the bytes of the ``inputs`` that a run read from its ``first`` stretch on until ``stretch`` followed;
    ``findings``: all of the run. None: the run did something else before it.
    """
    numbers: dict[str, bytes] = {}
    before = first
    for found in findings:
        if before is None or before is stretch:
            break
        names = before.action.names if isinstance(before.action, Read) and not before.tape.entries else ()
        if not names or not set(names) <= set(inputs) or isinstance(found, str):
            return None
        numbers.update(zip(names, found, strict=True))
        before = before.following.get(found)
    return numbers if before is stretch else None


Shapes = tuple[tuple[int, ...], ...]


def shapes_of(feed: Mapping[str, Any], inputs: Sequence[tuple[str, np.dtype[Any]]]) -> Shapes | None:
    """Return the shapes of the arrays of a feed, in the order of the ``inputs``; None where it is not one array of its
    type for each.
    """
    if type(feed) is not dict or len(feed) != len(inputs):
        return None
    shapes = []
    for name, dtype in inputs:
        array = feed.get(name)
        if type(array) is not np.ndarray or array.dtype != dtype:
            return None
        shapes.append(array.shape)
    return tuple(shapes)
