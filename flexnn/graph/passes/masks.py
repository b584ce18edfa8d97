"""Masks over attention's scores: added, or chosen by Where, several over each other. Their sum is one tensor, computed
once for all layers that mask alike.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod

import numpy as np

from ..build import NO_ACT, add_array, constant_value
from ..ir import Array, Node
from ..sources import ArraySource
from .rewrite import Rewriter, only, operands, scaled

HIDDEN_MAX = -1e9
"""A number that Where puts in place of scores stands for "not seen" from here down: what it hides weighs nothing."""
ABSORBS = -1e30
"""Float32 loses any score that is added to it, so that rows that see nothing, too, come out as Where gives them."""

Mask = tuple[str, int, int, float]
"""("add", mask, 0, 0), or ("where", condition, hides, number): the number stands where the condition is ``hides``."""


class Masks:
    """Sums of masks, each computed once: layers of a model mask alike."""

    def __init__(self) -> None:
        self._made: dict[object, int] = {}

    def sum(self, uses: Rewriter, before: Node, masks: list[Mask]) -> int:
        """The tensor of all masks together, made before the node."""
        if len(masks) == 1 and masks[0][0] == "where":
            masks = [(*masks[0][:3], min(masks[0][3], ABSORBS))]
        parts = [self._part(uses, before, mask) for mask in masks]
        total, *rest = sorted(parts)
        for part in rest:
            total = self._once(("add", total, part), lambda t=total, p=part: _emit_sum(uses, before, t, p))  # type: ignore[misc]
        return total

    def _once(self, key: object, make: Callable[[], int]) -> int:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _part(self, uses: Rewriter, before: Node, mask: Mask) -> int:
        kind, tensor, hides, number = mask
        if kind == "add":
            return tensor
        value = _fixed(uses, tensor)
        if value is not None:
            bias = np.where(value == bool(hides), np.float32(number), np.float32(0))
            key = ArraySource(bias).key
            return self._once(key, lambda: add_array(uses.graph, f"{before.name}.mask", bias))
        return self._once((tensor, hides, number), lambda: _emit_choice(uses, before, tensor, hides, number))


def _fixed(uses: Rewriter, tensor: int) -> Array | None:
    """Numbers of a mask that is the same always; None of one that depends on sizes: looking at its numbers would make
    these sizes conditions, and a decoder's graph would be bound anew for each token.
    """
    return None if uses.is_sized(tensor) else constant_value(uses.graph, tensor)


def _emit_sum(uses: Rewriter, before: Node, a: int, b: int) -> int:
    return uses.emit(before, "binary", [a, b], {"kind": "add", **NO_ACT})


def _emit_choice(uses: Rewriter, before: Node, condition: int, hides: int, number: float) -> int:
    ends = [add_array(uses.graph, f"{before.name}.{n}", np.array(n, np.float32)) for n in (0.0, number)]
    return uses.emit(before, "pointwise", [*(ends[::-1] if hides else ends), condition], {"kind": "where"})


def _mask_of(uses: Rewriter, tensor: int) -> tuple[int, Mask] | None:
    """(scores, mask) where ``tensor`` is scores with one mask laid over them, which broadcasts, and nothing else reads
    these scores.
    """
    node = uses.producer.get(tensor)
    if node is None:
        return None
    found: list[tuple[int, Mask]] = []
    if node.op == "binary" and node.attrs["kind"] == "add" and node.attrs["act"] == "none":
        found = [(scores, ("add", mask, 0, 0.0)) for scores, mask in operands(node)]
    elif node.op == "pointwise" and node.attrs["kind"] == "where":
        a, b, condition = node.inputs
        for hides, scores, other in ((0, a, b), (1, b, a)):
            number = uses.scalar(other)
            if number is not None and number <= HIDDEN_MAX:
                found.append((scores, ("where", condition, hides, number)))
    for scores, mask in found:
        if uses.shape(scores) == uses.shape(tensor) and only(uses, scores, node) and _is_scores(uses, scores):
            return scores, mask
    return None


def _is_scores(uses: Rewriter, tensor: int) -> bool:
    return product_of(uses, tensor) is not None or _mask_of(uses, tensor) is not None


def product_of(uses: Rewriter, scores: int) -> tuple[Node, float, float] | None:
    """Return the product of queries and keys of which scores are made, what they are scaled by, and their cap, 0 where
    there is none: cap tanh(scale product / cap).
    """
    made, softcap = [scores], 0.0
    scale = _unscaled(uses, made)
    tanh = uses.producer.get(made[-1])
    if tanh is not None and tanh.op == "unary" and tanh.attrs["kind"] == "tanh" and scale > 0:
        made.append(tanh.inputs[0])
        softcap, scale = scale, scale * _unscaled(uses, made)
    first = uses.producer.get(made[-1])
    if first is None or first.op != "matmul" or first.attrs["act"] != "none":
        return None
    alone = all(only(uses, tensor, uses.producer[reader]) for reader, tensor in pairwise(made))
    return (first, scale, softcap) if alone else None


def _unscaled(uses: Rewriter, made: list[int]) -> float:
    """Return what the last of ``made`` is multiplied by, and append what it is made of."""
    scale = 1.0
    while True:
        inner, factor = scaled(uses, made[-1])
        if inner == made[-1]:
            return scale
        made.append(inner)
        scale *= factor


def masked(uses: Rewriter, tensor: int) -> tuple[int, list[Mask]]:
    """Scores and the masks over them, where ``tensor`` is all these."""
    masks = []
    while (found := _mask_of(uses, tensor)) is not None:
        tensor, mask = found
        masks.append(mask)
    return tensor, masks


def causal_past(uses: Rewriter, masks: list[Mask], tokens: int, keys: int) -> int | None:
    """Number of keys before the first query, where the mask hides exactly the keys after each query; else None."""
    if len(masks) != 1:
        return None
    kind, tensor, hides, _ = masks[0]
    if uses.graph.tensors[tensor].weight < 0 or uses.is_sized(tensor) or tokens > keys:
        return None  # sizes are looked at last: of masks that a run makes they decide nothing
    shape = uses.shape(tensor)
    if shape[-2:] != (tokens, keys) or prod(shape[:-2]) != 1:
        return None
    value = _fixed(uses, tensor)
    if value is None:
        return None
    rows, seen = value.reshape(tokens, keys), np.tri(tokens, keys, keys - tokens, dtype=np.bool_)
    if kind == "add":
        fits = bool((rows[~seen] <= HIDDEN_MAX).all() and not rows[seen].any())
    else:
        fits = np.array_equal(rows != bool(hides), seen)
    return keys - tokens if fits else None
