"""Attention over a past as exporters write it step by step: joined keys, scores, a mask, softmax, values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .ir import GraphError
from .model import ModelGraph, ModelNode

_MOVES = frozenset({"Unsqueeze", "Expand", "Reshape", "Transpose", "Cast", "Identity"})
"""Operators between joined keys, or values, and the product: each is repeated for the queries of its group."""
_STEPS_MAX = 12


@quick_dataclass(frozen=True)
class Eager:
    """One attention. ``node`` is the product with the values."""

    node: ModelNode
    q: str
    """Queries [1, heads, tokens, dim]."""
    new: tuple[str, str]
    """New keys and values [1, groups, tokens, dim]."""
    past: tuple[str, str]
    present: tuple[str, str]
    """Keys and values with the past before them."""
    scale: float
    softcap: float
    mask: str
    """Value that is added to scores, or says which count; "" without."""


class Scores(NamedTuple):
    """Scores of keys before softmax."""

    product: ModelNode
    scale: float
    softcap: float
    mask: str


class EagerAttention:
    """Finder of such attention in a graph."""

    def __init__(self, graph: ModelGraph) -> None:
        self._graph = graph
        self._maker = {name: node for node in graph.nodes for name in node.output if name}
        self._inputs = {port.name for port in graph.inputs}

    def found(self, node: ModelNode) -> Eager | None:
        """Return the attention whose last product is ``node``; None: it is none."""
        if node.op_type != "MatMul":
            return None
        values = self._joined(node.input[1])
        softmax = self._softmax(node.input[0]) if values else None
        if values is None or softmax is None:
            return None
        scores = self._scores(softmax.input[0])
        keys = self._joined(scores.product.input[1]) if scores is not None else None
        if scores is None or keys is None or values[1] != 1:
            return None
        past, new = ((keys[0].input[i], values[0].input[i]) for i in (0, 1))
        present = keys[0].output[0], values[0].output[0]
        scale = scores.scale * keys[1]
        return Eager(node, scores.product.input[0], new, past, present, scale, scores.softcap, scores.mask)

    def plain(self, node: ModelNode) -> Scores | None:
        """Return the scores of attention whose last product is ``node``, whatever its keys are; None: it is none."""
        softmax = self._softmax(node.input[0]) if node.op_type == "MatMul" else None
        return self._scores(softmax.input[0]) if softmax is not None else None

    def _scores(self, name: str) -> Scores | None:
        """Return what softmax is taken of: a product, scaled, perhaps capped, and a mask."""
        scale, softcap, mask = 1.0, 0.0, ""
        for _ in range(_STEPS_MAX):
            step = self._maker.get(name)
            if step is None:
                return None
            number = self._number(step)
            if step.op_type == "MatMul":
                return Scores(step, scale * (softcap or 1.0), softcap, mask)
            if step.op_type in ("Mul", "Div") and number is not None:
                factor = number if step.op_type == "Mul" else 1 / number
                scale, name = scale * factor, self._other(step)
            elif step.op_type == "Tanh" and not softcap:  # what multiplies behind it is the cap; scale begins anew
                softcap, scale, name = scale, 1.0, step.input[0]
            elif step.op_type == "Add" and not mask and not softcap and scale == 1:
                name, mask = self._masked(step)
            elif step.op_type in ("Cast", "Identity"):
                name = step.input[0]
            else:
                return None
        return None

    def _softmax(self, name: str) -> ModelNode | None:
        for _ in range(_STEPS_MAX):
            node = self._maker.get(name)
            if node is None or node.op_type == "Softmax":
                return node if node is not None and node.attrs.get("axis", -1) in (-1, 3) else None
            if node.op_type == "Where":  # rows that see nothing become zeros
                name = node.input[2]
            elif node.op_type in ("Cast", "Identity", "Dropout"):
                name = node.input[0]
            else:
                return None
        return None

    def _masked(self, node: ModelNode) -> tuple[str, str]:
        """Return the scores and the mask of a sum: scores are computed of a product of two computed values."""
        first, second = node.input
        return (second, first) if self._is_scores(second) else (first, second)

    def _is_scores(self, name: str) -> bool:
        for _ in range(_STEPS_MAX):
            node = self._maker.get(name)
            if node is None:
                return False
            if node.op_type == "MatMul":
                return True
            if node.op_type in ("Mul", "Div") and self._number(node) is not None:
                name = self._other(node)
            elif node.op_type in ("Cast", "Identity", "Tanh"):
                name = node.input[0]
            else:
                return False
        return False

    def _joined(self, name: str) -> tuple[ModelNode, float] | None:
        """Return the node that joins a past and new rows, from which a value is made, and what it is multiplied by."""
        factor = 1.0
        for _ in range(_STEPS_MAX):
            node = self._maker.get(name)
            if node is None:
                return None
            if node.op_type == "Concat":
                is_past = len(node.input) == 2 and node.input[0] in self._inputs
                return (node, factor) if is_past and node.attrs.get("axis") in (2, -2) else None
            number = self._number(node) if node.op_type == "Mul" else None
            if number is not None:
                factor, name = factor * number, self._other(node)
            elif node.op_type in _MOVES:
                name = node.input[0]
            else:
                return None
        return None

    def _number(self, node: ModelNode) -> float | None:
        """Return the one number that is an operand: a constant, or computed of constants and shapes that do not
        change.
        """
        for name in reversed(node.input):
            number = self._constant(name)
            if number is not None:
                return number
        return None

    def _constant(self, name: str) -> float | None:
        constant = self._graph.constants.get(name)
        if constant is not None:
            if constant.nbytes > 8 or int(np.prod(constant.shape)) != 1:
                return None
            return float(np.asarray(constant.source.load()).reshape(()))
        node = self._maker.get(name)
        if node is not None and node.op_type in ("Sqrt", "Cast", "Identity"):
            inner = self._constant(node.input[0])
            return inner**0.5 if inner is not None and node.op_type == "Sqrt" else inner
        return None

    def _other(self, node: ModelNode) -> str:
        """Return the operand that is no number. Raises GraphError where both are."""
        others = [name for name in node.input if self._constant(name) is None]
        if len(others) != 1:
            raise GraphError(f"{node.where}: a product of constants in attention")
        return others[0]
