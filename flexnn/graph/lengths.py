"""Values of a decoder that say no more than how long its past is: masks and positions, known by what they are for a few
lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .bound_shapes import BoundShapes
from .evaluate import EVALUATORS
from .evaluate.of_node import evaluate_node
from .ir import DTYPES, Array, GraphError
from .model import Constant, Model, ModelNode, reads

MASK = "attention_mask"
HIDDEN = -1e4
"""Most that a mask adds to a score that does not count."""
EXAMPLES = ((3, 4), (9, 2), (0, 5))
"""Lengths of past and of new tokens at which positions are compared."""
MASK_BYTES_MAX = 256 << 20
"""Most bytes that computing a mask may take while a session is opened."""
_TRIED = 16
"""Rows at which it is seen how much that is."""
_SHAPES = ("Shape", "Size")


class Lengths:
    """Values of a model by lengths. ``past``: inputs that hold the past; ``tokens``: the one that holds new tokens."""

    def __init__(
        self, model: Model, past: set[str], tokens: str, given: Mapping[str, Array] | None = None, rows: int = 1
    ) -> None:
        """Take a model; ``given``: numbers of other inputs, ``rows``: those of an encoder's output."""
        self._model, self._past, self._tokens, self._given, self._rows = model, past, tokens, given or {}, rows
        self.examples = EXAMPLES if past else tuple((0, new) for _, new in EXAMPLES)
        self._bound: dict[tuple[int, int], BoundShapes] = {}
        self.most_bytes, self.taken_bytes = MASK_BYTES_MAX, 0
        self.counts_tokens = False
        """Whether a count of tokens says where new ones stand: a model without a past takes all of them."""
        self._maker = {name: node for node in model.graph.nodes for name in node.output if name}
        self._told: dict[str, bool] = {}
        self._says: dict[str, bool] = {}

    def decide(self, name: str) -> bool:
        """Return whether lengths and constants alone decide a value: of the past and the tokens it has shapes only."""
        if name not in self._told:
            node = self._maker.get(name)
            given = name in self._model.graph.constants or name in (MASK, "position_ids") or name in self._given
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
        if is_joined or self._is_embedding(node) or self.decide(name):
            return True
        try:
            self.shape(name, *self.examples[0], {})
        except GraphError:
            return False
        return True

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
            said |= self.counts_tokens
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
            sizes = self.shape(node.input[0], past, new, known)
            known[name] = (
                np.array(sizes[start:end], np.int64) if node.op_type == "Shape" else np.array(np.prod(sizes), np.int64)
            )
        else:
            inputs = [self.value(n, past, new, known) if n else None for n in node.input]
            made = evaluate_node(node, inputs, self._model.opset)
            known.update((n, v) for n, v in zip(node.output, made, strict=False) if n)
        return known[name]

    def shape(self, name: str, past: int, new: int, known: dict[str, Array]) -> tuple[int, ...]:
        """Return the shape of a value at these lengths. Raises GraphError where they do not decide it."""
        node = self._maker.get(name)
        if node is not None and node.op_type == "Concat" and node.input[0] in self._past:
            shape = list(self._input(node.input[0], past, new).shape)
            shape[2] += new
            return tuple(shape)
        if node is not None and self._is_embedding(node):
            return (1, new, *self._model.graph.constants[node.input[0]].shape[1:])
        if node is None or self.decide(name):
            return self.value(name, past, new, known).shape
        if (past, new) not in self._bound:
            shapes = {port.name: self._input(port.name, past, new).shape for port in self._model.graph.inputs}
            self._bound[past, new] = BoundShapes(self._model, shapes)
        return self._bound[past, new].shape(name)

    def _input(self, name: str, past: int, new: int) -> Array:
        port = next((port for port in self._model.graph.inputs if port.name == name), None)
        if port is None or port.dims is None:
            raise GraphError(f"nothing is known of input {name!r}")
        if name in self._given:
            return self._given[name].astype(DTYPES[str(port.dtype)])
        if name == MASK:
            return np.ones((1, past + new), DTYPES[str(port.dtype)])
        if name == "position_ids":
            return np.arange(past, past + new, dtype=np.int64)[None]
        sizes = [d if isinstance(d, int) else 1 for d in port.dims]
        if name in self._past or name == self._tokens:
            sizes[2 if name in self._past else 1] = past if name in self._past else new
        elif len(sizes) > 2 and not isinstance(port.dims[len(sizes) - 2], int):
            sizes[len(sizes) - 2] = self._rows
        return np.broadcast_to(np.zeros((), DTYPES[str(port.dtype)]), sizes)

    def shape_of_position(self, name: str) -> tuple[int, ...] | None:
        """Return the shape, with -1 for the tokens, of a value that is the positions of the new tokens; else None."""
        return self._shape_if(name, np.arange)

    def table_of_positions(self, node: ModelNode) -> str | None:
        """Return the constant of which a node cuts out the rows of the new tokens' positions; None: it does not."""
        constant = self._model.graph.constants.get(node.input[0]) if node.op_type == "Slice" else None
        if constant is None or len(node.input) < 3 or len(constant.shape) < 2:
            return None
        names = node.input[1:]
        if not any(map(self.says, names)) or not all(map(self.decide, names)):
            return None
        for past, new in self.examples:
            try:
                given = [self.value(n, past, new).item() for n in names]
            except (GraphError, ValueError):
                return None
            if given != [past, past + new, 0, 1][: len(given)]:
                return None
        return node.input[0]

    def shape_of_length(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value that is the past's length; else None."""
        return self._shape_if(name, lambda past, _: np.array([past])) if self._past else None

    def _shape_if(self, name: str, wanted: Callable[[int, int], Array]) -> tuple[int, ...] | None:
        if not self.says(name) or not self.decide(name):
            return None
        shapes = []
        for past, new in self.examples:
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
        error = _refused(mask)
        seen, added = self._laid(mask, past, new)
        if added is not None and added[seen].any():
            raise error
        own, key = np.arange(past, past + new)[:, None], np.arange(past + new)
        count = int(seen.reshape(-1, *seen.shape[-2:])[0, -1].sum())
        window = count if count < past + new else 0
        if not (seen == ((key <= own) & (key > own - (window or past + new)))).all():
            raise error
        return window

    def _laid(self, mask: str, past: int, new: int) -> tuple[Array, Array | None]:
        """Return which keys each query sees by a mask [..., new, past + new], and what is added to their scores."""
        error = _refused(mask)
        if not self.decide(mask):
            raise error
        value = self.value(mask, past, new)
        shape = (*value.shape[:-2], new, past + new)
        try:
            value = np.broadcast_to(value, shape) if value.ndim > 1 else np.broadcast_to(value, (new, past + new))
        except ValueError:
            raise error from None
        return (value, None) if value.dtype == bool else (value > HIDDEN, value)

    def over_state(self, mask: str, capacity: int, new: int) -> tuple[int, Array | None]:
        """Return the window of a mask over a state of ``capacity`` rows, 0 for none, and what it adds to scores by how
        far a key is behind, the furthest first: [heads, capacity], or None. ``new``: tokens at which it is looked at.
        Raises GraphError where it says anything else, OpeningError where that takes more than ``most_bytes``.
        """
        examples = [(past, min(count, new)) for past, count in self.examples[:2]]
        size = max(capacity, *map(sum, examples)) if new > 1 or self._past else capacity
        last = (size - new, new) if self._past else (0, size)
        seen, added = self._laid(mask, *examples[0])
        is_bias = added is not None and added[seen].any()
        if not self._past or is_bias:
            self._check_bytes(mask, size)
        if not is_bias:
            return self.window(mask, *last), None
        _, whole = self._laid(mask, *last)
        assert whole is not None
        table = whole.reshape(-1, *whole.shape[-2:])[:, -1].astype(np.float32)
        for past, count in examples:
            seen, added = self._laid(mask, past, count)
            behind = np.arange(past, past + count)[:, None] - np.arange(past + count)
            wanted = table[:, np.clip(size - 1 - behind, 0, size - 1)]
            if added is None or not (seen == (behind >= 0)).all() or ((added != wanted) & seen).any():
                raise _refused(mask)
        return 0, np.ascontiguousarray(table[:, size - capacity :])

    def _check_bytes(self, mask: str, size: int) -> None:
        """Raise OpeningError where it takes too much to compute a mask for so many rows."""
        known: dict[str, Array] = {}
        past, new = (_TRIED - 1, 1) if self._past else (0, _TRIED)
        self.value(mask, past, new, known)
        made = sum(array.nbytes for name, array in known.items() if name in self._maker)
        needed = made * (size // _TRIED + 1) ** 2
        self.taken_bytes = max(self.taken_bytes, needed)
        if needed > self.most_bytes:
            raise OpeningError(mask, needed)


class OpeningError(GraphError):
    """Computing a mask while a session is opened takes too much."""

    def __init__(self, mask: str, nbytes: int) -> None:
        super().__init__(f"computing the mask {mask!r} for a state of this capacity takes {nbytes >> 20} MiB")
        self.nbytes = nbytes


def _refused(mask: str) -> GraphError:
    return GraphError(f"the mask {mask!r} is not one that hides later keys, so its attention keeps no state")
