"""A decoder of a GGUF file as a model (graph/model.py): token numbers and positions in, logits out."""

from __future__ import annotations

import math

import numpy as np

from flexnn.graph.about import About
from flexnn.graph.ir import GraphError
from flexnn.graph.model import Model
from flexnn.graph.ports import Port
from flexnn.graph.tied import mark_tied

from .families import Sizes, frequencies, read_sizes
from .gguf_file import GgufFile, open_gguf
from .weights import Nodes

OPSET = 24
ROUNDED = frozenset({"Q4_0", "Q4_1", "Q8_0"})
"""Types of weights whose products round rows to 8 bits, as llama.cpp's do."""


def load_gguf(path: str, rows: str | None = None) -> Model:
    """The model of the file at ``path``, whose weights stay there. ``rows``: f32 rounds none. Raises OSError or
    GraphError, one line.
    """
    opened = open_gguf(path)
    try:
        return import_gguf(opened, rows)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def import_gguf(opened: GgufFile, rows: str | None = None) -> Model:
    """The model of an open file. Raises GraphError that names what is not supported."""
    sizes = read_sizes(opened)
    made = _Decoder(Nodes(opened, frozenset() if rows == "f32" else ROUNDED), sizes)
    made.build()
    unread = sorted(set(opened.tensors) - made.nodes.taken)
    if unread:
        raise GraphError(f"tensor {unread[0]!r} is not supported in this architecture")
    name = opened.text("general.name", "")[:256]
    model = Model(made.nodes.graph, OPSET, About(producer_name="GGUF", graph_name=name))
    mark_tied(model)
    return model


class _Decoder:
    def __init__(self, nodes: Nodes, sizes: Sizes) -> None:
        self.nodes, self.sizes = nodes, sizes
        self.angles: dict[bool, tuple[str, str]] = {}

    def build(self) -> None:
        """Add all nodes."""
        nodes, sizes, graph = self.nodes, self.sizes, self.nodes.graph
        graph.inputs = [Port("input_ids", "i64", (1, "tokens")), Port("position_ids", "i64", (1, "tokens"))]
        x = nodes.picked("token_embd.weight", "input_ids", sizes.vocabulary, sizes.width)
        if sizes.family.scales_embedding:
            x = nodes.add("Mul", x, nodes.array(np.array(math.sqrt(sizes.width), np.float32)))
        positions = nodes.add("Cast", "position_ids", to=1)
        column = nodes.add("Unsqueeze", positions, nodes.array(np.array([2], np.int64)))
        self._turn(column)
        for layer in range(sizes.layers):
            x = self._layer(x, layer)
        x = self._normal(x, "output_norm.weight", sizes.width)
        head = "output" if nodes.has("output.weight") else "token_embd"
        logits = nodes.linear(x, head, sizes.vocabulary, sizes.width)
        self._capped(logits, "logits")
        graph.outputs.insert(0, Port("logits", "f32", (1, "tokens", sizes.vocabulary)))

    def _turn(self, column: str) -> None:
        """Make cosines and sines of all positions, once for all layers."""
        nodes, sizes = self.nodes, self.sizes
        factors = None
        if nodes.has("rope_freqs.weight"):
            found = nodes.tensor("rope_freqs.weight", (sizes.turned // 2,))
            name = nodes.vector(found.name, sizes.turned // 2)
            factors = np.asarray(nodes.graph.constants.pop(name).source.load(), np.float64)
            if not (np.isfinite(factors) & (factors > 0)).all():
                raise GraphError("tensor 'rope_freqs.weight': factors of angles must be positive")
        for windowed in {sizes.is_windowed(i) for i in range(sizes.layers)}:
            row = nodes.array(frequencies(sizes, windowed=windowed, factors=factors))
            angles = nodes.add("Mul", column, row)
            self.angles[windowed] = nodes.add("Cos", angles), nodes.add("Sin", angles)

    def _layer(self, x: str, layer: int) -> str:
        nodes, sizes = self.nodes, self.sizes
        at = f"blk.{layer}"
        y = self._attention(self._normal(x, f"{at}.attn_norm.weight", sizes.width), layer)
        y = nodes.linear(y, f"{at}.attn_output", sizes.width, sizes.heads * sizes.value)
        x = nodes.add("Add", x, self._normal(y, f"{at}.post_attention_norm.weight", sizes.width, optional=True))
        y = self._normal(x, f"{at}.ffn_norm.weight", sizes.width)
        hidden = sizes.hidden[layer]
        gate = nodes.linear(y, f"{at}.ffn_gate", hidden, sizes.width)
        gate = nodes.add("Gelu", gate, approximate="tanh") if sizes.family.is_gelu else nodes.add("Swish", gate)
        gated = nodes.add("Mul", gate, nodes.linear(y, f"{at}.ffn_up", hidden, sizes.width))
        y = nodes.linear(gated, f"{at}.ffn_down", sizes.width, hidden)
        return nodes.add("Add", x, self._normal(y, f"{at}.post_ffw_norm.weight", sizes.width, optional=True))

    def _attention(self, x: str, layer: int) -> str:
        nodes, sizes = self.nodes, self.sizes
        at = f"blk.{layer}"
        q = nodes.linear(x, f"{at}.attn_q", sizes.heads * sizes.key, sizes.width)
        k = nodes.linear(x, f"{at}.attn_k", sizes.kv_heads * sizes.key, sizes.width)
        v = nodes.linear(x, f"{at}.attn_v", sizes.kv_heads * sizes.value, sizes.width)
        q, k = (
            self._of_heads(q, f"{at}.attn_q_norm.weight", sizes.heads),
            self._of_heads(k, f"{at}.attn_k_norm.weight", sizes.kv_heads),
        )
        if sizes.turns(layer):
            q, k = (self._turned(y, n, layer) for y, n in ((q, sizes.heads), (k, sizes.kv_heads)))
        return self._attended((q, k, v), layer)

    def _attended(self, parts: tuple[str, str, str], layer: int) -> str:
        """Attention over the rows before and these; keys and values with these are outputs."""
        nodes, sizes = self.nodes, self.sizes
        names = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        presents = [f"present.{layer}.{part}" for part in ("key", "value")]
        for name, present, size in zip(names, presents, (sizes.key, sizes.value), strict=True):
            nodes.graph.inputs.append(Port(name, "f32", (1, sizes.kv_heads, "past", size)))
            nodes.graph.outputs.append(Port(present, "f32", (1, sizes.kv_heads, "total", size)))
        attrs = {"q_num_heads": sizes.heads, "kv_num_heads": sizes.kv_heads, "is_causal": 1, "scale": sizes.scale}
        if sizes.score_cap:
            attrs["softcap"] = sizes.score_cap
        if sizes.is_windowed(layer):
            attrs["left_window_size"] = sizes.window - 1
        return nodes.split("Attention", (*parts, "", *names), ["", *presents], {**attrs})[0]

    def _turned(self, y: str, heads: int, layer: int) -> str:
        sizes = self.sizes
        cos, sin = self.angles[sizes.is_windowed(layer)]
        interleaved = int(sizes.family.is_interleaved)
        return self.nodes.add(
            "RotaryEmbedding", y, cos, sin, num_heads=heads, interleaved=interleaved, rotary_embedding_dim=sizes.turned
        )

    def _of_heads(self, y: str, name: str, heads: int) -> str:
        """Each head normalised, where the file has a weight for that."""
        nodes, size = self.nodes, self.sizes.key
        if not nodes.has(name):
            return y
        y = nodes.add("Reshape", y, nodes.array(np.array([1, -1, heads, size], np.int64)))
        y = self._normal(y, name, size)
        return nodes.add("Reshape", y, nodes.array(np.array([1, -1, heads * size], np.int64)))

    def _normal(self, x: str, name: str, size: int, *, optional: bool = False) -> str:
        if optional and not self.nodes.has(name):
            return x
        weight = self.nodes.vector(name, size)
        return self.nodes.add("RMSNormalization", x, weight, axis=-1, epsilon=self.sizes.epsilon)

    def _capped(self, logits: str, output: str) -> None:
        nodes, cap = self.nodes, self.sizes.logit_cap
        if cap:
            limit = nodes.array(np.array(cap, np.float32))
            nodes.add("Mul", nodes.add("Tanh", nodes.add("Div", logits, limit)), limit, output=output)
        else:
            nodes.graph.nodes[-1].output[0] = output
