"""Transformers with random weights, node for node as the usual exporters write them.

Each builder says which exporter it follows; with named (open) dimensions shapes are computed in the graph, as
exporters do then, with numbers they are constants. The small variants keep the form for fast tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.models.net import Net, Port

Dim = int | str
Array = NDArray[np.generic]
F32, I64 = np.float32, np.int64
LOWEST = np.finfo(F32).min
LAST = np.iinfo(I64).max


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of a transformer."""

    layers: int
    width: int
    heads: int
    hidden: int
    """Width of the feed-forward layers."""
    vocab: int
    """Rows of the embedding table; of a picture's: classes."""
    places: int
    """Positions there are embeddings for; of a picture: its side."""
    kv_heads: int = 0
    """Heads of keys and values, where each serves several of queries."""
    batch: Dim = "batch"
    tokens: Dim = "sequence"

    @property
    def head(self) -> int:
        return self.width // self.heads


class Writer:
    """Adds nodes to a net by operator; arrays among their inputs become Constant nodes."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self._weights = 0

    def __call__(self, op: str, *inputs: str | Array | float | list[int], **attributes: Any) -> str:
        return self.several(op, 1, *inputs, **attributes)[0]

    def several(self, op: str, count: int, *inputs: str | Array | float | list[int], **attributes: Any) -> list[str]:
        """The outputs of a node that has ``count`` of them."""
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        return self.net.add_several(op, names, count, **attributes)

    def constant(self, values: Array | float | list[int]) -> str:
        """Return a constant: float32 for a number, int64 for a list."""
        if isinstance(values, float):
            values = np.array(values, F32)
        return self.net.add_constant(np.array(values, I64) if isinstance(values, list) else values)

    def weight(self, *shape: int, mean: float = 0.0, std: float = 0.0) -> str:
        self._weights += 1
        return self.net.weight(f"w{self._weights}", *shape, mean=mean, std=std)

    # shapes ----------------------------------------------------------------------------------------------------
    def size(self, x: str, axis: int) -> str:
        """One dimension of ``x``, as torch's tracer reads it: a number."""
        return self("Gather", self("Shape", x), np.array(axis, I64), axis=0)

    def shape(self, *parts: str | int) -> str:
        """A shape: numbers, and dimensions that were read."""
        if all(isinstance(p, int) for p in parts):
            return self.constant([p for p in parts if isinstance(p, int)])
        each = [self("Unsqueeze", p, [0]) if isinstance(p, str) else self.constant([p]) for p in parts]
        return self("Concat", *each, axis=0)

    def dims(self, x: str, *given: Dim) -> list[str | int]:
        """The first dimensions of ``x``: numbers where they are, read where they are open."""
        return [d if isinstance(d, int) else self.size(x, i) for i, d in enumerate(given)]

    # layers ----------------------------------------------------------------------------------------------------
    def linear(self, x: str, cin: int, cout: int, bias: bool = True, gain: float = 1.0, bias_first: bool = True) -> str:
        """Add a linear layer as exporters write it: a product with the transposed weight, then the sum."""
        y = self("MatMul", x, self.weight(cin, cout, std=(gain / cin) ** 0.5))
        if not bias:
            return y
        b = self.weight(cout, std=0.02)
        return self("Add", b, y) if bias_first else self("Add", y, b)

    def layer_norm(self, x: str, width: int, apart: bool, eps: float = 1e-5) -> str:
        """``apart``: by its steps, as before opset 17."""
        scale, bias = self.weight(width, mean=1.0, std=0.1), self.weight(width, std=0.02)
        if not apart:
            return self("LayerNormalization", x, scale, bias, axis=-1, epsilon=eps)
        centred = self("Sub", x, self("ReduceMean", x, axes=[-1]))
        variance = self("ReduceMean", self("Pow", centred, 2.0), axes=[-1])
        y = self("Div", centred, self("Sqrt", self("Add", variance, eps)))
        return self("Add", self("Mul", y, scale), bias)

    def gelu(self, x: str) -> str:
        gate = self("Add", self("Erf", self("Div", x, float(np.sqrt(2.0)))), 1.0)
        return self("Mul", self("Mul", x, gate), 0.5)

    def gelu_tanh(self, x: str) -> str:
        inner = self("Add", x, self("Mul", self("Pow", x, 3.0), 0.044715))
        gate = self("Add", self("Tanh", self("Mul", inner, float(np.sqrt(2 / np.pi)))), 1.0)
        return self("Mul", self("Mul", x, 0.5), gate)

    def scaled_product(self, q: str, k: str, v: str, mask: str | None = None) -> str:
        """torch's scaled_dot_product_attention, as its TorchScript export writes it since 2.0: the root of the scale,
        computed from the queries' shape, on both sides."""
        width = self("Cast", self("Slice", self("Shape", q), [-1], [LAST]), to=1)
        scale = self("Div", np.ones(1, F32), self("Sqrt", width))
        turned = self("Transpose", k, perm=[0, 1, 3, 2])
        left = self("Mul", q, self("Sqrt", scale))
        scores = self("MatMul", left, self("Mul", turned, self("Sqrt", scale)))
        if mask is not None:
            scores = self("Add", scores, mask)
        return self("MatMul", self("Softmax", scores, axis=-1), v)


def vit(net: Net, s: Size) -> None:
    """Dosovitskiy et al. 2021, as timm's goes through TorchScript at opset 17: one product for queries, keys and
    values, attention by torch's scaled product, fixed sizes."""
    w, patches = Writer(net), (s.places // 16) ** 2
    assert isinstance(s.batch, int)
    net.inputs.append(Port("input", (s.batch, 3, s.places, s.places)))
    kernel = w.weight(s.width, 3, 16, 16, std=1 / 768**0.5)
    x = w("Conv", "input", kernel, w.weight(s.width, std=0.02), kernel_shape=[16, 16], strides=[16, 16])
    x = w("Transpose", w("Reshape", x, [s.batch, s.width, patches]), perm=[0, 2, 1])
    x = w("Concat", w.weight(s.batch, 1, s.width, std=0.02), x, axis=1)
    x = w("Add", x, w.weight(1, patches + 1, s.width, std=0.1))
    for _ in range(s.layers):
        y = w.linear(w.layer_norm(x, s.width, apart=False, eps=1e-6), s.width, 3 * s.width)
        y = w("Reshape", y, [s.batch, patches + 1, 3, s.heads, s.head])
        y = w("Transpose", y, perm=[2, 0, 3, 1, 4])
        parts = w.several("Split", 3, y, [1, 1, 1], axis=0)
        y = w.scaled_product(*(w("Squeeze", p, [0]) for p in parts))
        y = w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), [s.batch, patches + 1, s.width])
        x = w("Add", x, w.linear(y, s.width, s.width, gain=0.2))
        y = w.gelu(w.linear(w.layer_norm(x, s.width, apart=False, eps=1e-6), s.width, s.hidden, gain=2.0))
        x = w("Add", x, w.linear(y, s.hidden, s.width, gain=0.2))
    x = w("Gather", w.layer_norm(x, s.width, apart=False, eps=1e-6), np.array(0, I64), axis=1)
    head = w.weight(s.vocab, s.width, std=1 / s.width**0.5)
    net.output(w("Gemm", x, head, w.weight(s.vocab, std=0.02), transB=1), (s.batch, s.vocab))


def gpt2(net: Net, s: Size) -> None:
    """Radford et al. 2019, as Hugging Face's goes through optimum without past, opset 14: layer norms by their steps,
    causality by a slice of a stored triangle and Where, the table of tokens shared with the head by a Transpose."""
    w = Writer(net)
    net.inputs += [Port(n, (s.batch, s.tokens), "int64") for n in ("input_ids", "attention_mask")]
    batch, tokens = w.dims("input_ids", s.batch, s.tokens)
    table = w.weight(s.vocab, s.width, std=0.02)
    ids = w("Reshape", "input_ids", w.shape(-1, tokens))
    if isinstance(tokens, int):
        places = w.constant(np.arange(tokens, dtype=I64)[None])
    else:
        places = w("Unsqueeze", w("Range", np.array(0, I64), tokens, np.array(1, I64)), [0])
    x = w("Add", w("Gather", table, ids), w("Gather", w.weight(s.places, s.width, std=0.02), places))
    padding = w("Reshape", "attention_mask", w.shape(batch, -1))
    padding = w("Cast", w("Unsqueeze", w("Unsqueeze", padding, [1]), [2]), to=1)
    padding = w("Mul", w("Sub", 1.0, padding), np.array(LOWEST))
    triangle = net.constant("triangle", np.tril(np.ones((1, 1, s.places, s.places), np.bool_)))
    for _ in range(s.layers):
        y = _conv1d(w, w.layer_norm(x, s.width, apart=True), batch, tokens, s.width, 3 * s.width)
        parts = w.several("Split", 3, y, [s.width] * 3, axis=2)
        q, k, v = (
            w("Transpose", w("Reshape", p, w.shape(*w.dims(p, s.batch, s.tokens), s.heads, s.head)), perm=perm)
            for p, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        if isinstance(s.tokens, str):
            root = w("Cast", w("Pow", w("Cast", w.size(v, 3), to=1), 0.5), to=1)
            last = w("Unsqueeze", w.size(v, 2), [0])
            first = w("Unsqueeze", w("Sub", w.size(v, 2), w.size(q, 2)), [0])
        else:
            root, last, first = w.constant(float(s.head**0.5)), w.constant([s.tokens]), w.constant([0])
        scores = w("Div", w("MatMul", q, k), root)
        seen = w("Slice", w("Slice", triangle, first, last, [2], [1]), [0], last, [3], [1])
        scores = w("Add", w("Where", seen, scores, np.array(LOWEST)), padding)
        y = w("Transpose", w("MatMul", w("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = w("Reshape", y, w.shape(*w.dims(y, s.batch, s.tokens), s.width))
        x = w("Add", _conv1d(w, y, batch, tokens, s.width, s.width, gain=0.2), x)
        y = _conv1d(w, w.layer_norm(x, s.width, apart=True), batch, tokens, s.width, s.hidden, gain=2.0)
        x = w("Add", x, _conv1d(w, w.gelu_tanh(y), batch, tokens, s.hidden, s.width, gain=0.2))
    x = w("Reshape", w.layer_norm(x, s.width, apart=True), w.shape(-1, tokens, s.width))
    net.output(w("MatMul", x, w("Transpose", table, perm=[1, 0])), (s.batch, s.tokens, s.vocab))


def _conv1d(w: Writer, x: str, batch: str | int, tokens: str | int, cin: int, cout: int, gain: float = 1.0) -> str:
    """Hugging Face's linear layer of GPT-2: a Gemm over rows between two reshapes."""
    rows = w("Reshape", x, [-1, cin])
    y = w("Gemm", rows, w.weight(cin, cout, std=(gain / cin) ** 0.5), w.weight(cout, std=0.02))
    return w("Reshape", y, w.shape(batch, tokens, cout))


def minilm(net: Net, s: Size) -> None:
    """Wang et al. 2020 (all-MiniLM-L6-v2), a BERT as Hugging Face's goes through TorchScript at opset 14: positions by
    a slice of a stored row, keys transposed with the heads, the mask added to divided scores."""
    w = Writer(net)
    names = ("input_ids", "attention_mask", "token_type_ids")
    net.inputs += [Port(n, (s.batch, s.tokens), "int64") for n in names]
    tokens = w.dims("input_ids", s.batch, s.tokens)[1]
    places = w.constant(np.arange(s.places, dtype=I64)[None])
    places = w("Slice", places, [0], w("Unsqueeze", tokens, [0]) if isinstance(tokens, str) else [tokens], [1], [1])
    words = w("Gather", w.weight(s.vocab, s.width, std=0.5), "input_ids")
    kinds = w("Gather", w.weight(2, s.width, std=0.1), "token_type_ids")
    x = w("Add", w("Add", words, kinds), w("Gather", w.weight(s.places, s.width, std=0.2), places))
    x = w.layer_norm(x, s.width, apart=True, eps=1e-12)
    mask = w("Cast", w("Unsqueeze", w("Unsqueeze", "attention_mask", [1]), [2]), to=1)
    mask = w("Mul", w("Sub", 1.0, mask), np.array(LOWEST))
    for _ in range(s.layers):
        q, k, v = (
            w("Transpose", w("Reshape", y, w.shape(*w.dims(y, s.batch, s.tokens), s.heads, s.head)), perm=perm)
            for y, perm in (
                (w.linear(x, s.width, s.width), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
            )
        )
        scores = w("Add", w("Div", w("MatMul", q, k), float(s.head**0.5)), mask)
        y = w("Transpose", w("MatMul", w("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = w("Reshape", y, w.shape(*w.dims(y, s.batch, s.tokens), s.width))
        x = w.layer_norm(w("Add", w.linear(y, s.width, s.width), x), s.width, apart=True, eps=1e-12)
        y = w.linear(w.gelu(w.linear(x, s.width, s.hidden, gain=2.0)), s.hidden, s.width)
        x = w.layer_norm(w("Add", y, x), s.width, apart=True, eps=1e-12)
    net.output(x, (s.batch, s.tokens, s.width))


def llama(net: Net, s: Size) -> None:
    """Touvron et al. 2023 with grouped queries, as Hugging Face's goes through torch.onnx's dynamo exporter, opset 18:
    root-mean-square norms by their steps, rotary angles computed from positions, one mask for all layers, repeated keys
    and values by Expand, bias-free products."""
    w, groups = Writer(net), s.heads // s.kv_heads
    net.inputs += [Port(n, (s.batch, s.tokens), "int64") for n in ("input_ids", "attention_mask")]
    batch, tokens = w.dims("input_ids", s.batch, s.tokens)
    x = w("Gather", w.weight(s.vocab, s.width, std=0.5), "input_ids")
    if isinstance(tokens, int):
        places = w.constant(np.arange(tokens, dtype=I64))
    else:
        places = w("Range", np.array(0, I64), tokens, np.array(1, I64))
    mask = _llama_mask(w, places, batch, tokens)
    frequencies = (1e4 ** -(np.arange(0, s.head, 2) / s.head)).astype(F32)
    angles = w("MatMul", frequencies.reshape(1, -1, 1), w("Cast", w("Unsqueeze", places, [0, 1]), to=1))
    angles = w("Transpose", angles, perm=[0, 2, 1])
    angles = w("Concat", angles, angles, axis=-1)
    cos, sin = (w("Unsqueeze", w("Mul", w(op, angles), 1.0), [1]) for op in ("Cos", "Sin"))

    def rotated(y: str) -> str:
        front, back = w("Slice", y, [0], [s.head // 2], [3]), w("Slice", y, [s.head // 2], [LAST], [3])
        turned = w("Concat", w("Neg", back), front, axis=-1)
        return w("Add", w("Mul", y, cos), w("Mul", turned, sin))

    def heads(y: str, count: int) -> str:
        split = w("Reshape", w.linear(y, s.width, count * s.head, bias=False), w.shape(batch, tokens, count, s.head))
        return w("Transpose", split, perm=[0, 2, 1, 3])

    def repeated(y: str) -> str:
        if groups == 1:
            return y
        wide = w("Expand", w("Unsqueeze", y, [2]), w.shape(batch, s.kv_heads, groups, tokens, s.head))
        return w("Reshape", wide, w.shape(batch, s.heads, tokens, s.head))

    for _ in range(s.layers):
        y = _rms_norm(w, x, s.width)
        q, k, v = rotated(heads(y, s.heads)), rotated(heads(y, s.kv_heads)), heads(y, s.kv_heads)
        y = w("Transpose", w.scaled_product(q, repeated(k), repeated(v), mask), perm=[0, 2, 1, 3])
        y = w.linear(w("Reshape", y, w.shape(batch, tokens, s.width)), s.width, s.width, bias=False, gain=0.2)
        x = w("Add", x, y)
        y = _rms_norm(w, x, s.width)
        gate = w.linear(y, s.width, s.hidden, bias=False, gain=2.0)
        y = w("Mul", w("Mul", gate, w("Sigmoid", gate)), w.linear(y, s.width, s.hidden, bias=False))
        x = w("Add", x, w.linear(y, s.hidden, s.width, bias=False, gain=0.2))
    y = w.linear(_rms_norm(w, x, s.width), s.width, s.vocab, bias=False)
    net.output(y, (s.batch, s.tokens, s.vocab))


def _rms_norm(w: Writer, x: str, width: int) -> str:
    mean = w("ReduceMean", w("Pow", x, 2.0), [-1], keepdims=1)
    y = w("Mul", x, w("Reciprocal", w("Sqrt", w("Add", mean, 1e-6))))
    return w("Mul", w.weight(width, mean=1.0, std=0.1), y)


def _llama_mask(w: Writer, places: str, batch: str | int, tokens: str | int) -> str:
    """[batch, 1, tokens, tokens], added to scores: a triangle, and what attention_mask leaves out."""
    square = w("Expand", np.array(LOWEST), w.shape(tokens, tokens))
    later = w("Greater", places, w("Reshape", places, [-1, 1]))
    triangle = w("Mul", w("Trilu", square, np.array(1, I64), upper=1), w("Cast", later, to=1))
    triangle = w("Expand", w("Unsqueeze", triangle, [0, 1]), w.shape(batch, 1, tokens, tokens))
    padding = w("Cast", w("Unsqueeze", "attention_mask", [1, 2]), to=1)
    unseen = w("Equal", w("Add", triangle, padding), 0.0)
    return w("Where", unseen, np.array(LOWEST), triangle)


@dataclass(frozen=True, slots=True)
class Entry:
    """A transformer of the zoo."""

    build: Callable[[Net, Size], None]
    full: Size
    small: Size
    parameters: int
    """Number of parameters of the full network; MiniLM's without the pooling layer, which exports omit."""
    opset: int
    tokens: int = 0
    """Tokens that it is measured with; 0: it takes a picture."""
    inputs: tuple[str, ...] = field(default=("input_ids", "attention_mask"))

    def shapes(self, small: bool) -> dict[str, tuple[int, ...]]:
        """Return the shapes for ``--shape``."""
        return {name: (1, min(self.tokens, 12) if small else self.tokens) for name in self.inputs if self.tokens}

    def ranges(self, small: bool) -> dict[str, tuple[int, int]]:
        """Range of each whole-numbered input, first and past the last."""
        known = {"attention_mask": (1, 2), "token_type_ids": (0, 2)}
        vocab = (self.small if small else self.full).vocab
        return {name: known.get(name, (0, vocab)) for name in self.inputs if self.tokens}


TRANSFORMERS = {
    "vit_b16": Entry(
        vit, Size(12, 768, 12, 3072, 1000, 224, batch=1), Size(2, 48, 3, 96, 10, 64, batch=1), 86_567_656, 17
    ),
    "gpt2": Entry(gpt2, Size(12, 768, 12, 3072, 50257, 1024), Size(2, 48, 3, 96, 1000, 40), 124_439_808, 14, 64),
    "minilm": Entry(
        minilm, Size(6, 384, 12, 1536, 30522, 512), Size(2, 48, 3, 96, 1000, 40), 22_565_376, 14, 128,
        ("input_ids", "attention_mask", "token_type_ids"),
    ),
    "llama": Entry(
        llama, Size(8, 512, 8, 1376, 32000, 0, kv_heads=2), Size(2, 48, 6, 80, 1000, 0, kv_heads=2), 54_927_872, 18, 64
    ),
}  # fmt: skip
"""The last is of nobody's size: a decoder for a small board."""


def make(name: str, small: bool = False) -> Net:
    """The named transformer; ``small``: its thin, shallow variant, named with ``_small``."""
    entry = TRANSFORMERS[name]
    net = Net(name + "_small" if small else name, entry.opset)
    entry.build(net, entry.small if small else entry.full)
    return net
