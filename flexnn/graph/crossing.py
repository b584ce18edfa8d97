"""Attention without a past: a decoder's over keys and values of an encoder, which are made once for many runs, and over
its own tokens alone, where it is exported without a past.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .eager import EagerAttention
from .ir import DTYPE_NAMES, GraphError
from .lengths import HIDDEN, Lengths
from .model import Constant, Model, ModelAttr, ModelGraph, ModelNode, reads
from .ports import Port
from .sources import ArraySource
from .state import CROSS, CROSS_LENGTH, ONCE

_SHAPES = ("Shape", "Size")
_SWAP = [0, 1, 3, 2]
_ROWS, _HIDDEN_ROWS = 7, 3
"""Rows of an encoder's output at which masks over them are looked at, and how many of these a mask hides."""


class Attended(NamedTuple):
    """Attention over keys and values that are no past."""

    node: ModelNode
    q: str
    k: str
    v: str
    mask: str
    is_swapped: bool
    """Whether keys are [1, heads, dim, tokens]."""
    attrs: dict[str, ModelAttr]
    """Those of CachedAttention."""


@quick_dataclass(frozen=True)
class Once:
    """Model of what is made once for many runs."""

    model: Model
    """Its outputs are state."""
    given: tuple[str, ...]
    """Names of its inputs."""
    masks: tuple[str, ...]
    """Names of inputs that say no more than how many rows of these count."""
    states: tuple[str, ...]
    capacity: int


class Dependence:
    """Inputs of a graph whose numbers, not shapes alone, go into a value."""

    def __init__(self, graph: ModelGraph) -> None:
        self._found = {port.name: frozenset([port.name]) for port in graph.inputs}
        for node in graph.nodes:
            names = () if node.op_type in _SHAPES else reads(node)
            found = frozenset[str]().union(*(self._found.get(name, ()) for name in names))
            self._found.update(dict.fromkeys(node.output, found))

    def of(self, name: str) -> frozenset[str]:
        """Return the inputs that go into a value."""
        return self._found.get(name, frozenset())


def attended(graph: ModelGraph, finder: EagerAttention, node: ModelNode) -> Attended | None:
    """Return the attention without a past whose last node is ``node``; None: it is none."""
    if node.op_type == "Attention" and not any(node.input[4:]) and not any(node.output[1:]):
        q, k, v, mask = [*node.input, ""][:4]
        known = {"scale": "scale", "softcap": "softcap", "q_num_heads": "num_heads", "kv_num_heads": "kv_heads"}
        attrs = {known[name]: value for name, value in node.attrs.items() if name in known}
        return Attended(node, q, k, v, mask, False, attrs | {"is_causal": node.attrs.get("is_causal", 0)})
    scores = finder.plain(node)
    if scores is None:
        return None
    shape: dict[str, ModelAttr] = {"scale": scores.scale, "softcap": scores.softcap, "is_causal": 0}
    return Attended(node, scores.product.input[0], scores.product.input[1], node.input[1], scores.mask, True, shape)


def keys_of(found: Attended) -> tuple[list[ModelNode], str]:
    """Return the keys [1, heads, tokens, dim], and the node that makes them where they lie otherwise."""
    if not found.is_swapped:
        return [], found.k
    name = f"{found.k}.swapped.{found.node.output[0]}"
    return [ModelNode("Transpose", name, [found.k], [name], {"perm": _SWAP})], name


class Crossing:
    """Cross-attention of a decoder. ``own``: inputs that are its tokens, its past, or say how long that is."""

    def __init__(self, model: Model, own: Iterable[str], tokens: str, capacity: int, dtype: str) -> None:
        self._model, self._tokens, self._dtype = model, tokens, dtype
        inputs = [port for port in model.graph.inputs if port.name not in set(own)]
        self._masks = [p.name for p in inputs if p.dims is not None and len(p.dims) == 2 and p.dtype in ("i64", "i32")]
        self._inputs = [port for port in inputs if port.name not in self._masks]
        self._names = {port.name for port in self._inputs}
        self.depends = Dependence(model.graph)
        rows = [axis_of(port) for port in self._inputs]
        fixed = {p.dims[a] for p, a in zip(self._inputs, rows, strict=True) if p.dims is not None and len(p.dims) > a}
        sizes = [d for d in fixed if isinstance(d, int)]
        self.capacity = sizes[0] if len(sizes) == 1 and len(fixed) == 1 else capacity
        self._nodes: list[ModelNode] = []
        self._states: list[str] = []
        self._constants: dict[str, Constant] = {}

    def is_cross(self, found: Attended) -> bool:
        """Return whether keys and values are made of what is given once."""
        sources = self.depends.of(found.k) | self.depends.of(found.v)
        return bool(sources) and sources <= self._names

    def node(self, found: Attended, past: set[str]) -> ModelNode:
        """Return the attention over state; what makes that is noted. Raises GraphError for a mask that says more than
        how many rows there are.
        """
        self._check_mask(found, past)
        state, zero = f"cross.{len(self._states)}", "cross.zero"
        self._states.append(state)
        self._constants[zero] = Constant(zero, (1,), "i64", ArraySource(np.zeros(1, np.int64)))
        made, keys = keys_of(found)
        attrs: dict[str, ModelAttr] = {"capacity": self.capacity, "dtype": self._dtype}
        if "kv_heads" in found.attrs:
            attrs["kv_heads"] = found.attrs["kv_heads"]
        self._nodes += [*made, ModelNode(ONCE, found.node.name, [keys, found.v, zero], [state], attrs)]
        own = {name: value for name, value in found.attrs.items() if name in ("scale", "softcap", "num_heads")}
        return ModelNode(CROSS, found.node.name, [found.q, state, CROSS_LENGTH], [found.node.output[0]], own)

    def _check_mask(self, found: Attended, past: set[str]) -> None:
        if found.attrs.get("is_causal"):
            raise GraphError(f"{found.node.where}: causal attention over an encoder's output is not supported")
        if not found.mask:
            return
        for hidden in (0, _HIDDEN_ROWS):
            seen = np.ones((1, _ROWS), np.int64)
            seen[:, _ROWS - hidden :] = 0
            lengths = Lengths(self._model, past, self._tokens, dict.fromkeys(self._masks, seen), _ROWS)
            error = GraphError(f"{found.node.where}: its mask says more than how many rows the encoder made")
            if not lengths.decide(found.mask):
                raise error
            value = lengths.value(found.mask, *lengths.examples[0])
            if value.shape[-1] not in (1, _ROWS):
                raise error
            value = np.broadcast_to(value, (*value.shape[:-1], _ROWS)).reshape(-1, _ROWS)
            shown = value if value.dtype == bool else value > HIDDEN
            if value.dtype != bool and (value[shown] != 0).any():
                raise error
            if not shown.all() and (shown[:, : _ROWS - hidden].all() and not shown[:, _ROWS - hidden :].any()) == 0:
                raise error

    def once(self, past: set[str]) -> Once | None:
        """Return what is made once; None where there is nothing."""
        if not self._states:
            return None
        lengths = [Lengths(self._model, past, self._tokens, rows=rows) for rows in (_ROWS, _ROWS + 2)]
        for each in lengths:
            each.counts_tokens = True
        wanted = {name for node in self._nodes for name in reads(node)}
        kept: list[ModelNode] = []
        for node in reversed(self._model.graph.nodes):
            if not wanted.intersection(node.output):
                continue
            same = self._same(node, lengths)
            if same is not None:  # the decoder's tokens say no more than that there is one sequence
                self._constants[node.output[0]] = same
                continue
            kept.append(node)
            wanted |= reads(node)
        constants = {n: c for n, c in self._model.graph.constants.items() if n in wanted} | self._constants
        inputs = [port for port in self._inputs if port.name in wanted]
        graph = ModelGraph([*kept[::-1], *self._nodes], constants, inputs, [])
        graph.outputs = [Port(name, None, None) for name in self._states]
        names = tuple(port.name for port in inputs)
        return Once(replace(self._model, graph=graph), names, tuple(self._masks), tuple(self._states), self.capacity)

    def _same(self, node: ModelNode, lengths: Sequence[Lengths]) -> Constant | None:
        """Return the value of a node that shapes decide, if it is the same whatever they are; else None."""
        name = node.output[0]
        if len(node.output) > 1 or self.depends.of(name) or not lengths[0].says(name):
            return None
        try:
            first, second = (each.value(name, *each.examples[i]) for i, each in enumerate(lengths) if each.decide(name))
        except (GraphError, ValueError):
            return None
        if first.shape != second.shape or not np.array_equal(first, second):
            return None
        return Constant(name, first.shape, DTYPE_NAMES[first.dtype], ArraySource(first))


def axis_of(port: Port) -> int:
    """Return the axis of the rows of an input that is given once: an encoder's output, or keys and values of it."""
    return 2 if port.dims is not None and len(port.dims) == 4 else 1


def rows_given(arrays: Sequence[np.ndarray], ports: Sequence[Port]) -> int:
    """Return how many rows all of them have. Raises ValueError where they differ."""
    rows = {array.shape[axis_of(port)] for array, port in zip(arrays, ports, strict=True)}
    if len(rows) != 1:
        raise ValueError(f"inputs {', '.join(port.name for port in ports)} have {sorted(rows)} rows: they must agree")
    return int(rows.pop())
