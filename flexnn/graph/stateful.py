"""Models whose keys and values are state of the session (docs/decisions/0053-state.md): a decoder that takes them from
its caller and returns them longer (past and present) becomes one that keeps them.

Attention with a past that is an input, and a present that is an output, becomes ``flexnn.CachedAttention``, which some
importers write themselves. Inputs that only said how long the past is are made of the state's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .ir import DTYPE_NAMES, Array, GraphError
from .model import Constant, Model, ModelAttr, ModelGraph, ModelNode, reads
from .ports import Port
from .sources import ArraySource

ATTENTION = "flexnn.CachedAttention"
LENGTH = "state_length"
"""Input that says how many rows the state has before a run, int64 [1]."""
CAPACITY = 1024
"""Rows of state where nothing says how many."""
POSITIONS = "position_ids"
IDS = ("input_ids", "inputs_embeds")
"""Names of the input that holds the new tokens, [1, tokens] or [1, tokens, hidden]."""
_PER_ROW = frozenset({"Cast", "Identity", "Tanh", "Add", "Mul", "Div", "Sub", "Gemm", "MatMul"})
"""Operators that compute each row of the logits from the same row alone, if their other operands are constants."""


@dataclass(frozen=True)
class Stateful:
    """A model with state. Its first output are the logits."""

    model: Model
    tokens: str
    """Name of the input that holds the new tokens."""
    states: tuple[str, ...]
    """Names of the outputs that are state."""


def has_state(model: Model) -> bool:
    """Return whether the model keeps state without being asked to."""
    return any(node.op_type == ATTENTION for node in model.graph.nodes)


def stateful(model: Model, capacity: int, dtype: str, *, all_rows: bool = False) -> Stateful:
    """Return the model with state of ``capacity`` rows of ``dtype``; with ``all_rows`` it computes logits of all new
    tokens, else of the last. Raises GraphError where it has no state that is recognised.
    """
    return _Rewriting(model, capacity, dtype).done(all_rows=all_rows)


class _Rewriting:
    def __init__(self, model: Model, capacity: int, dtype: str) -> None:
        self._model = model
        self._graph = ModelGraph(
            list(model.graph.nodes), dict(model.graph.constants), list(model.graph.inputs), list(model.graph.outputs)
        )
        self._attrs: dict[str, ModelAttr] = {"capacity": capacity, "dtype": dtype}
        self._states: list[str] = []
        self._past: set[str] = set()
        self._present: set[str] = set()

    def done(self, *, all_rows: bool) -> Stateful:
        graph = self._graph
        graph.nodes = [self._node(node) for node in graph.nodes]
        if not self._states:
            raise GraphError(
                "no past keys and values were recognised: inputs of Attention, MultiHeadAttention or "
                "GroupQueryAttention whose present ones are outputs"
            )
        graph.outputs = [port for port in graph.outputs if port.name not in self._present]
        graph.inputs = [port for port in graph.inputs if port.name not in self._past]
        tokens = next((port.name for port in graph.inputs if port.name in IDS), "")
        if not tokens or not graph.outputs:
            raise GraphError(f"a model with state needs an input {' or '.join(IDS)}, and logits as its first output")
        if all(port.name != LENGTH for port in graph.inputs):
            graph.inputs.append(Port(LENGTH, "i64", (1,)))
        self._derive(tokens)
        if not all_rows:
            self._last_row(graph.outputs[0].name)
        graph.outputs = [graph.outputs[0], *(Port(name, None, None) for name in self._states)]
        self._drop_unread(tokens)
        return Stateful(replace(self._model, graph=graph), tokens, tuple(self._states))

    def _node(self, node: ModelNode) -> ModelNode:
        if node.op_type == ATTENTION:
            return self._attention(node, node.input, node.attrs)
        past = [node.input[i] if i < len(node.input) else "" for i in (4, 5)]
        inputs, outputs = {port.name for port in self._graph.inputs}, {port.name for port in self._graph.outputs}
        if node.op_type != "Attention" or not inputs.issuperset(past) or not outputs.issuperset(node.output[1:3]):
            return node
        mask = node.input[3]
        if not mask and not node.attrs.get("is_causal"):
            raise GraphError(f"{node.where}: attention that is not causal keeps no state")
        known = {"scale": "scale", "softcap": "softcap", "q_num_heads": "num_heads", "kv_num_heads": "kv_heads"}
        attrs = {known[name]: value for name, value in node.attrs.items() if name in known}
        window = node.attrs.get("left_window_size", -1)
        attrs["window"] = window + 1 if isinstance(window, int) and window >= 0 else 0
        self._past.update(past)
        self._present.update(node.output[1:3])
        return self._attention(node, [*node.input[:3], LENGTH], attrs)

    def _attention(self, node: ModelNode, inputs: Sequence[str], attrs: dict[str, ModelAttr]) -> ModelNode:
        state = f"state.{len(self._states)}"
        self._states.append(state)
        return ModelNode(ATTENTION, node.name, list(inputs), [node.output[0], state], attrs | self._attrs)

    # ---- what the length says ----

    def _derive(self, tokens: str) -> None:
        """Make positions of the length and the number of new tokens."""
        graph = self._graph
        given = {port.name: port for port in graph.inputs}
        made: list[ModelNode] = []
        if POSITIONS in given:
            count = self._add(made, "Shape", [tokens], start=1, end=2)
            zero, one = (self._constant(np.array(n, np.int64)) for n in (0, 1))
            shape = self._constant(np.array([1, -1], np.int64))
            count = self._add(made, "Reshape", [count, self._constant(np.array([], np.int64))])
            steps = self._add(made, "Reshape", [self._add(made, "Range", [zero, count, one]), shape])
            made.append(ModelNode("Add", POSITIONS, [LENGTH, steps], [POSITIONS]))
        graph.inputs = [port for port in graph.inputs if port.name != POSITIONS]
        graph.nodes = [
            replace(node, op_type="Identity", input=[LENGTH], attrs={}) if self._asks_length(node) else node
            for node in made + graph.nodes
        ]

    def _asks_length(self, node: ModelNode) -> bool:
        return node.op_type == "Shape" and node.input[0] in self._past and node.attrs == {"start": 2, "end": 3}

    def _constant(self, values: Array) -> str:
        name = f"state.constant.{len(self._graph.constants)}"
        dtype = DTYPE_NAMES[values.dtype]
        self._graph.constants[name] = Constant(name, values.shape, dtype, ArraySource(values))
        return name

    def _add(self, nodes: list[ModelNode], op: str, inputs: list[str], **attrs: ModelAttr) -> str:
        name = f"state.value.{len(self._graph.constants)}.{len(nodes)}"
        nodes.append(ModelNode(op, name, inputs, [name], attrs))
        return name

    # ---- logits ----

    def _last_row(self, logits: str) -> None:
        """Have the logits computed of the last new token alone."""
        graph = self._graph
        makers = {name: i for i, node in enumerate(graph.nodes) for name in node.output}
        known = set(graph.constants)
        for node in graph.nodes:
            if node.input and known.issuperset(name for name in node.input if name) and not node.graphs:
                known.update(node.output)
        at, name = -1, logits
        while name in makers:
            node = graph.nodes[makers[name]]
            others = [n for n in node.input if n and n not in known]
            if node.op_type not in _PER_ROW or len(others) != 1:
                break
            at, name = makers[name], others[0]
        made: list[ModelNode] = []
        bounds = [self._constant(np.array([n], np.int64)) for n in (-1, np.iinfo(np.int64).max, -2)]
        if at < 0:  # nothing but the whole can be cut
            at = makers[logits]
            inner = f"{logits}.rows"
            node = graph.nodes[at]
            graph.nodes[at] = replace(node, output=[inner if n == logits else n for n in node.output])
            graph.nodes.append(ModelNode("Slice", logits, [inner, *bounds], [logits]))
            return
        row = self._add(made, "Slice", [name, *bounds])
        node = graph.nodes[at]
        graph.nodes[at] = replace(node, input=[row if n == name else n for n in node.input])
        graph.nodes[at:at] = made

    def _drop_unread(self, tokens: str) -> None:
        """Drop nodes that nothing reads, and inputs: those that said how long the past is, as masks do."""
        graph = self._graph
        wanted = {port.name for port in graph.outputs}
        kept: list[ModelNode] = []
        for node in reversed(graph.nodes):
            if wanted.intersection(node.output):
                kept.append(node)
                wanted |= reads(node)
        graph.nodes = kept[::-1]
        missing = sorted(name for name in wanted & self._past if name)
        if missing:
            raise GraphError(f"input {missing[0]!r} is read by other nodes than attention, so it cannot be state")
        graph.inputs = [port for port in graph.inputs if port.name in wanted or port.name in (tokens, LENGTH)]
