"""Models whose keys and values are state of the session (docs/decisions/0053-state.md): a decoder that takes them from
its caller and returns them longer (past and present) becomes one that keeps them.

Attention with a past that is an input, and a present that is an output, becomes ``flexnn.CachedAttention``, which some
importers write themselves. Inputs that only said how long the past is are made of the state's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .crossing import Attended, Crossing, Once, attended, keys_of
from .eager import Eager, EagerAttention
from .ir import DTYPE_NAMES, Array, GraphError
from .lengths import MASK, MASK_BYTES_MAX, Lengths
from .merged import unmerged
from .model import Constant, Model, ModelAttr, ModelGraph, ModelNode, reads
from .ports import Port
from .sources import ArraySource
from .state import ATTENTION, CAPACITY, CROSS_LENGTH, LENGTH, LENGTHS

POSITIONS = "position_ids"
IDS = ("input_ids", "inputs_embeds")
"""Names of the input that holds the new tokens, [1, tokens] or [1, tokens, hidden]."""
WINDOW_ROWS = 4
"""New tokens at which masks are looked at, behind a past that fills the capacity."""
_PER_ROW = frozenset({"Cast", "Identity", "Tanh", "Add", "Mul", "Div", "Sub", "Gemm", "MatMul", "flexnn.RoundedMatMul"})
"""Operators that compute each row of the logits from the same row alone, if their other operands are constants."""


@quick_dataclass(frozen=True)
class Stateful:
    """A model with state. Its first output are the logits."""

    model: Model
    tokens: str
    """Name of the input that holds the new tokens."""
    states: tuple[str, ...]
    """Names of the outputs that are state."""
    once: Once | None = None
    """Model of what is made of an encoder's output; its states are inputs here."""
    opening_bytes: int = 0
    """Bytes that computing masks took, at most."""


def stateful(
    model: Model,
    capacity: int,
    dtype: str,
    *,
    all_rows: bool = False,
    cross_capacity: int = CAPACITY,
    most_bytes: int = MASK_BYTES_MAX,
) -> Stateful:
    """Return the model with state of ``capacity`` rows of ``dtype``; with ``all_rows`` it computes logits of all new
    tokens, else of the last. Cross-attention has room for ``cross_capacity`` rows of an encoder. Raises GraphError
    where it has no state that is recognised, OpeningError where its masks take more than ``most_bytes``.
    """
    rewriting = _Rewriting(unmerged(model), capacity, dtype)
    rewriting.cross_capacity, rewriting.most_bytes = cross_capacity, min(most_bytes, MASK_BYTES_MAX)
    return rewriting.done(all_rows=all_rows)


def _unchecked(node: ModelNode) -> ModelNode:
    """Return the node; where it checks how long a past is, which is no input any more, one that passes on."""
    return replace(node, op_type="Identity", input=node.input[:1]) if node.op_type == LENGTHS else node


_ONNX_TYPES = {"f4": 1, "f8": 11, "i4": 6, "f2": 10}
"""Types of TensorProto that positions have, beside int64."""


class _Rewriting:
    def __init__(self, model: Model, capacity: int, dtype: str) -> None:
        self._model = model
        self._graph = ModelGraph(
            [_unchecked(node) for node in model.graph.nodes],
            dict(model.graph.constants),
            list(model.graph.inputs),
            list(model.graph.outputs),
        )
        self._capacity = max(capacity, WINDOW_ROWS)
        self._attrs: dict[str, ModelAttr] = {"capacity": capacity, "dtype": dtype}
        self._states: list[str] = []
        self._past: set[str] = set()
        self._present: set[str] = set()
        self._biases: dict[str, tuple[int, str]] = {}
        """The window of each mask, and the constant of what it adds."""
        self._swapped: dict[int, list[ModelNode]] = {}
        """Nodes that make the keys of a node, by that node."""
        self.cross_capacity, self.most_bytes = CAPACITY, MASK_BYTES_MAX

    def done(self, *, all_rows: bool) -> Stateful:
        graph = self._graph
        tokens = self._tokens_input()
        steps = self._eager()
        kept = {id(node) for node in graph.nodes if self._takes_past(node)}
        lengths = Lengths(self._model, self._past, tokens.name)
        lengths.most_bytes = self.most_bytes
        is_single = tokens.dims is not None and tokens.dims[1:2] == (1,)
        if not is_single and any(not step.mask for step in steps.values()):
            is_single = True  # it sees all new tokens, so there is one at a time
            one = tokens._replace(dims=(None, 1, *(tokens.dims or ())[2:]))
            graph.inputs = [one if port.name == tokens.name else port for port in graph.inputs]
        own = {tokens.name, MASK, POSITIONS, LENGTH, *self._past}
        crossing = Crossing(self._model, own, tokens.name, self.cross_capacity, str(self._attrs["dtype"]))
        others = self._without_past(crossing, tokens.name, {*steps, *kept})
        lengths.counts_tokens = any(not crossing.is_cross(found) for found in others.values())
        graph.nodes = [
            self._of_step(node, steps[id(node)], lengths, is_single)
            if id(node) in steps
            else self._of_node(node, lengths, is_single)
            if id(node) in kept
            else self._attention(node, node.input, node.attrs)
            if node.op_type == ATTENTION
            else crossing.node(others[id(node)], self._past)
            if id(node) in others and crossing.is_cross(others[id(node)])
            else self._of_own(others[id(node)], lengths, is_single)
            if id(node) in others
            else node
            for node in graph.nodes
        ]
        graph.nodes = [part for node in graph.nodes for part in [*self._swapped.get(id(node), []), node]]
        if not self._states:
            raise GraphError(
                "no past keys and values were recognised: inputs that attention reads, or joins with new ones, and "
                "gives out as present ones"
            )
        graph.outputs = [port for port in graph.outputs if port.name not in self._present]
        graph.inputs = [port for port in graph.inputs if port.name not in self._past]
        if not graph.outputs:
            raise GraphError("a model with state needs logits as its first output")
        if all(port.name != LENGTH for port in graph.inputs):
            graph.inputs.append(Port(LENGTH, "i64", (1,)))
        once = crossing.once(self._past)
        self._derive(tokens.name, lengths)
        if once is not None:
            graph.inputs.append(Port(CROSS_LENGTH, "i64", (1,)))
            graph.inputs += [Port(name, str(self._attrs["dtype"]), None) for name in once.states]
        if not all_rows:
            self._last_row(graph.outputs[0].name)
        graph.outputs = [graph.outputs[0], *(Port(name, None, None) for name in self._states)]
        self._drop_unread(tokens.name)
        known = {tokens.name, LENGTH, CROSS_LENGTH, *(once.states if once is not None else ())}
        for port in graph.inputs:
            if port.name not in known:
                raise GraphError(
                    f"input {port.name!r} is read by other nodes than attention over an encoder's output, so it cannot "
                    "be given once"
                )
        return Stateful(replace(self._model, graph=graph), tokens.name, tuple(self._states), once, lengths.taken_bytes)

    def _without_past(self, crossing: Crossing, tokens: str, known: set[int]) -> dict[int, Attended]:
        """Return attention over an encoder's output, and over tokens alone where the model has no past, by its last
        node.
        """
        finder, found = EagerAttention(self._graph), {}
        for node in self._graph.nodes:
            seen = attended(self._graph, finder, node) if id(node) not in known else None
            if seen is None:
                continue
            sources = [crossing.depends.of(name) for name in (seen.k, seen.v)]
            if crossing.is_cross(seen) or (not self._past and all(tokens in names for names in sources)):
                found[id(node)] = seen
        return found

    def _of_own(self, found: Attended, lengths: Lengths, is_single: bool) -> ModelNode:
        """Return the attention over state for one over new tokens alone."""
        made, keys = keys_of(found)
        is_causal = is_single or bool(found.attrs.get("is_causal"))
        window, bias = self._laid(found.node, found.q, found.mask, lengths, is_causal=is_causal)
        attrs = {name: value for name, value in found.attrs.items() if name != "is_causal"} | {"window": window}
        node = self._attention(found.node, [found.q, keys, found.v, LENGTH, *bias], attrs)
        self._swapped[id(node)] = made
        return node

    def _eager(self) -> dict[int, Eager]:
        """Return attention that is written step by step, by its last node."""
        finder, outputs = EagerAttention(self._graph), {port.name for port in self._graph.outputs}
        same = {
            n.output[0]: n.input[0] for n in self._graph.nodes if n.op_type == "Identity" and n.output[0] in outputs
        }
        given = {same.get(name, name): name for name in outputs}
        steps = {id(node): step for node in self._graph.nodes if (step := finder.found(node)) is not None}
        found = {key: step for key, step in steps.items() if set(step.present) <= given.keys()}
        for step in found.values():
            self._past.update(step.past)
            self._present.update(given[name] for name in step.present)
        return found

    def _tokens_input(self) -> Port:
        """Return the input that holds the new tokens: by its name, or the one of whole numbers."""
        ports = self._graph.inputs
        others = [port for port in ports if port.dtype == "i64" and port.name not in (MASK, POSITIONS, LENGTH)]
        named = [port for port in ports if port.name in IDS]
        found = named[:1] or (others if len(others) == 1 else [])
        if not found:
            raise GraphError(f"a model with state needs an input {' or '.join(IDS)}")
        return found[0]

    def _takes_past(self, node: ModelNode) -> bool:
        """Return whether attention has a past that is an input and a present that is an output, and note these."""
        past, present = node.input[4:6], node.output[1:3]
        inputs, outputs = {port.name for port in self._graph.inputs}, {port.name for port in self._graph.outputs}
        if node.op_type != "Attention" or len(past) < 2 or len(present) < 2:
            return False
        if not inputs.issuperset(past) or not outputs.issuperset(present):
            return False
        self._past.update(past)
        self._present.update(present)
        return True

    def _of_step(self, node: ModelNode, step: Eager, lengths: Lengths, is_single: bool) -> ModelNode:
        window, bias = self._laid(node, step.q, step.mask, lengths, is_causal=is_single)
        attrs: dict[str, ModelAttr] = {"scale": step.scale, "softcap": step.softcap, "window": window}
        return self._attention(node, [step.q, *step.new, LENGTH, *bias], attrs)

    def _of_node(self, node: ModelNode, lengths: Lengths, is_single: bool) -> ModelNode:
        is_causal = is_single or bool(node.attrs.get("is_causal"))
        masked, bias = self._laid(node, node.input[0], node.input[3], lengths, is_causal=is_causal)
        known = {"scale": "scale", "softcap": "softcap", "q_num_heads": "num_heads", "kv_num_heads": "kv_heads"}
        attrs = {known[name]: value for name, value in node.attrs.items() if name in known}
        left = node.attrs.get("left_window_size", -1)
        attrs["window"] = left + 1 if isinstance(left, int) and left >= 0 else masked
        return self._attention(node, [*node.input[:3], LENGTH, *bias], attrs)

    def _laid(
        self, node: ModelNode, q: str, mask: str, lengths: Lengths, *, is_causal: bool
    ) -> tuple[int, tuple[str, ...]]:
        """Return how many keys a query sees, 0 for all before it, and the constant that is added to scores, if any.
        Raises GraphError where it sees others.
        """
        if not mask:
            if not is_causal:
                raise GraphError(f"{node.where}: attention that sees later tokens keeps no state")
            return 0, ()
        if mask not in self._biases:
            window, table = lengths.over_state(mask, self._capacity, 1 if is_causal else WINDOW_ROWS)
            name = ""
            if table is not None:
                heads = node.attrs.get("q_num_heads") or lengths.shape(q, *lengths.examples[0], {})[1]
                assert isinstance(heads, int)
                capacity = self._attrs["capacity"]
                assert isinstance(capacity, int)
                own = table[:, -capacity:]
                name = self._constant(np.ascontiguousarray(np.broadcast_to(own, (heads, own.shape[1]))))
            self._biases[mask] = window, name
        window, name = self._biases[mask]
        return window, (name,) if name else ()

    def _attention(self, node: ModelNode, inputs: Sequence[str], attrs: dict[str, ModelAttr]) -> ModelNode:
        state = f"state.{len(self._states)}"
        self._states.append(state)
        return ModelNode(ATTENTION, node.name, list(inputs), [node.output[0], state], attrs | self._attrs)

    # ---- what the length says ----

    def _derive(self, tokens: str, lengths: Lengths) -> None:
        """Make positions of the length and the number of new tokens, wherever the model has them."""
        graph = self._graph
        made: list[ModelNode] = []
        count = self._add(made, "Shape", [tokens], start=1, end=2)
        zero, one = (self._constant(np.array(n, np.int64)) for n in (0, 1))
        count = self._add(made, "Reshape", [count, self._constant(np.zeros(0, np.int64))])
        positions = self._add(made, "Add", [LENGTH, self._add(made, "Range", [zero, count, one])])
        if any(port.name == POSITIONS for port in graph.inputs):
            made.append(self._shaped(positions, (1, -1), POSITIONS))
        graph.inputs = [port for port in graph.inputs if port.name != POSITIONS]
        wanted = self._wanted()
        nodes: list[ModelNode] = []
        for node in graph.nodes:
            if len(node.output) != 1 or node.output[0] not in wanted:
                nodes.append(node)
            elif (table := lengths.table_of_positions(node)) is not None:
                nodes.append(ModelNode("Gather", node.name, [table, positions], node.output))
            elif (shape := lengths.shape_of_position(node.output[0])) is not None:
                nodes += self._said(positions, shape, node.output[0], lengths)
            elif (shape := lengths.shape_of_length(node.output[0])) is not None:
                nodes += self._said(LENGTH, shape, node.output[0], lengths)
            else:
                nodes.append(node)
        graph.nodes = made + nodes

    def _said(self, value: str, shape: tuple[int, ...], name: str, lengths: Lengths) -> list[ModelNode]:
        """Return the nodes that make ``name`` of the length, or of positions."""
        dtype = lengths.value(name, *lengths.examples[0]).dtype
        if dtype == np.int64:
            return [self._shaped(value, shape, name)]
        inner = f"{name}.int64"
        cast = ModelNode("Cast", inner, [inner], [name], {"to": _ONNX_TYPES[dtype.str[1:]]})
        return [self._shaped(value, shape, inner), cast]

    def _shaped(self, positions: str, shape: tuple[int, ...], name: str) -> ModelNode:
        return ModelNode("Reshape", name, [positions, self._constant(np.array(shape, np.int64))], [name])

    def _wanted(self) -> set[str]:
        """Return the values that outputs and state are computed of."""
        wanted = {port.name for port in self._graph.outputs}
        for node in reversed(self._graph.nodes):
            if wanted.intersection(node.output):
                wanted |= reads(node)
        return wanted

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
