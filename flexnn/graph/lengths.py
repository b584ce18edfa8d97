"""Values of a decoder that say no more than how long its past is: masks and positions, known by what they are for a few
lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .evaluate import EVALUATORS
from .evaluate.of_node import evaluate_node
from .ir import DTYPES, Array, GraphError
from .model import Constant, Model, ModelNode, reads

MASK = "attention_mask"
HIDDEN = -1e4
"""Most that a mask adds to a score that does not count."""
EXAMPLES = ((3, 4), (9, 2), (0, 5))
"""Lengths of past and of new tokens at which positions are compared."""
_SHAPES = ("Shape", "Size")


class Lengths:
    """Values of a model by lengths. ``past``: inputs that hold the past; ``tokens``: the one that holds new tokens."""

    def __init__(self, model: Model, past: set[str], tokens: str) -> None:
        self._model, self._past, self._tokens = model, past, tokens
        self._maker = {name: node for node in model.graph.nodes for name in node.output if name}
        self._told: dict[str, bool] = {}
        self._says: dict[str, bool] = {}

    def decide(self, name: str) -> bool:
        """Return whether lengths and constants alone decide a value: of the past and the tokens it has shapes only."""
        if name not in self._told:
            node = self._maker.get(name)
            given = name in self._model.graph.constants or name in (MASK, "position_ids")
            self._told[name] = given
            if node is not None and not node.graphs and (node.op_type in EVALUATORS or node.op_type in _SHAPES):
                data = self._past | {self._tokens}
                self._told[name] = all(
                    (n in data or self._is_shaped(n)) if node.op_type in _SHAPES else self.decide(n)
                    for n in node.input
                    if n
                )
        return self._told[name]

    def _is_shaped(self, name: str) -> bool:
        """Return whether lengths decide the shape of a value, as far as is known."""
        node = self._maker.get(name)
        is_joined = node is not None and node.op_type == "Concat" and node.input[0] in self._past
        return is_joined or self._is_embedding(node) or self.decide(name)

    def _is_embedding(self, node: ModelNode | None) -> bool:
        """Return whether a node looks up the new tokens' rows of a table."""
        if node is None or node.op_type != "Gather" or node.attrs.get("axis", 0) != 0:
            return False
        return node.input[0] in self._model.graph.constants and node.input[1] == self._tokens

    def says(self, name: str) -> bool:
        """Return whether a value says something of the past: the mask or a shape of the past goes into it."""
        if name in self._says:
            return self._says[name]
        node = self._maker.get(name)
        if node is None:
            said = name == MASK
        elif node.op_type in _SHAPES:
            source = node.input[0]
            joined = self._maker.get(source)
            said = source in self._past or source == MASK or (joined is not None and joined.op_type == "Concat")
        else:
            said = any(self.says(n) for n in reads(node))
        self._says[name] = said
        return said

    def value(self, name: str, past: int, new: int, known: dict[str, Array] | None = None) -> Array:
        """Return what a value is at these lengths. Raises GraphError."""
        known = {} if known is None else known
        if name in known:
            return known[name]
        constants: Mapping[str, Constant] = self._model.graph.constants
        node = self._maker.get(name)
        if name in constants:
            known[name] = np.asarray(constants[name].source.load()).reshape(constants[name].shape)
        elif node is None:
            known[name] = self._input(name, past, new)
        elif node.op_type in _SHAPES:
            start, end = node.attrs.get("start", 0), node.attrs.get("end")
            assert isinstance(start, int)
            assert isinstance(end, int | None)
            sizes = self._shape(node.input[0], past, new, known)
            known[name] = (
                np.array(sizes[start:end], np.int64) if node.op_type == "Shape" else np.array(np.prod(sizes), np.int64)
            )
        else:
            inputs = [self.value(n, past, new, known) if n else None for n in node.input]
            made = evaluate_node(node, inputs, self._model.opset)
            known.update((n, v) for n, v in zip(node.output, made, strict=False) if n)
        return known[name]

    def _shape(self, name: str, past: int, new: int, known: dict[str, Array]) -> tuple[int, ...]:
        node = self._maker.get(name)
        if node is not None and node.op_type == "Concat" and node.input[0] in self._past:
            shape = list(self._input(node.input[0], past, new).shape)
            shape[2] += new
            return tuple(shape)
        if node is not None and self._is_embedding(node):
            return (1, new, *self._model.graph.constants[node.input[0]].shape[1:])
        return self.value(name, past, new, known).shape

    def _input(self, name: str, past: int, new: int) -> Array:
        port = next((port for port in self._model.graph.inputs if port.name == name), None)
        if port is None or port.dims is None:
            raise GraphError(f"nothing is known of input {name!r}")
        if name == MASK:
            return np.ones((1, past + new), DTYPES[str(port.dtype)])
        if name == "position_ids":
            return np.arange(past, past + new, dtype=np.int64)[None]
        sizes = [d if isinstance(d, int) else 1 for d in port.dims]
        sizes[2 if name in self._past else 1] = past if name in self._past else new
        return np.broadcast_to(np.zeros((), DTYPES[str(port.dtype)]), sizes)

    def shape_of_position(self, name: str) -> tuple[int, ...] | None:
        """Return the shape, with -1 for the tokens, of a value that is the positions of the new tokens; else None."""
        return self._shape_if(name, np.arange)

    def shape_of_length(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value that is the past's length; else None."""
        return self._shape_if(name, lambda past, _: np.array([past]))

    def _shape_if(self, name: str, wanted: Callable[[int, int], Array]) -> tuple[int, ...] | None:
        if not self.decide(name) or not self.says(name):
            return None
        shapes = []
        for past, new in EXAMPLES:
            try:
                value = self.value(name, past, new)
            except GraphError:
                return None
            expected = wanted(past, past + new)
            if value.dtype.kind not in "if" or value.size != expected.size or (value.reshape(-1) != expected).any():
                return None
            shapes.append(tuple(-1 if d == expected.size > 1 else d for d in value.shape))
        return shapes[0] if len(set(shapes)) == 1 and shapes[0].count(-1) <= 1 else None

    def window(self, mask: str, past: int, new: int) -> int:
        """Return how many keys a query sees by a mask, which is added or says which keys count: 0 for all before it.
        Raises GraphError where it says anything else.
        """
        error = GraphError(f"the mask {mask!r} is not one that hides later keys, so its attention keeps no state")
        if not self.decide(mask):
            raise error
        value = self.value(mask, past, new)
        seen = value if value.dtype == bool else value > HIDDEN
        if value.dtype != bool and (value[seen] != 0).any():
            raise error
        try:
            seen = np.broadcast_to(seen, (*seen.shape[:-2], new, past + new)) if seen.ndim > 1 else seen[None]
        except ValueError:
            raise error from None
        own, key = np.arange(past, past + new)[:, None], np.arange(past + new)
        count = int(seen.reshape(-1, *seen.shape[-2:])[0, -1].sum())
        window = count if count < past + new else 0
        if not (seen == ((key <= own) & (key > own - (window or past + new)))).all():
            raise error
        return window
