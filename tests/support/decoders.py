"""Small random decoders with a past, as exporters write them, and runs of them by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Sizes(NamedTuple):
    """Sizes of a decoder."""

    layers: int = 2
    heads: int = 4
    groups: int = 2
    dim: int = 16
    vocabulary: int = 97
    inner: int = 96
    longest: int = 256
    """Rows of the caches of cosines and sines."""

    @property
    def hidden(self) -> int:
        """Numbers of a token."""
        return self.heads * self.dim


USUAL = Sizes()


class _Maker:
    def __init__(self, sizes: Sizes, seed: int) -> None:
        self.sizes = sizes
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)
        self._count = 0

    def constant(self, name: str, values: np.ndarray[Any, Any]) -> str:
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def add(self, op: str, *inputs: str, outputs: tuple[str, ...] = (), domain: str = "", **attrs: Any) -> str:
        self._count += 1
        made = outputs or (f"t{self._count}",)
        node = helper.make_node(op, list(inputs), list(made), name=f"{op}{self._count}", domain=domain, **attrs)
        self.nodes.append(node)
        return made[0]

    def product(self, x: str, rows: int, columns: int) -> str:
        self._count += 1
        values = self._random.standard_normal((rows, columns)).astype(np.float32) / np.float32(rows) ** 0.5
        return self.add("MatMul", x, self.constant(f"w{self._count}", values))

    def norm(self, x: str) -> str:
        self._count += 1
        scale = 1 + 0.1 * self._random.standard_normal(self.sizes.hidden).astype(np.float32)
        return self.add("LayerNormalization", x, self.constant(f"s{self._count}", scale), axis=-1, epsilon=1e-5)

    def table(self) -> str:
        values = self._random.standard_normal((self.sizes.vocabulary, self.sizes.hidden)).astype(np.float32)
        return self.constant("table", values)

    def angles(self) -> tuple[str, str]:
        half = self.sizes.dim // 2
        turns = np.arange(self.sizes.longest)[:, None] / 100.0 ** (np.arange(half) / half)
        cosines, sines = (f(turns).astype(np.float32) for f in (np.cos, np.sin))
        return self.constant("cosines", cosines), self.constant("sines", sines)


def write_grouped(path: Path, sizes: Sizes = USUAL, seed: int = 0, *, rotary: bool = True, **attrs: Any) -> Path:
    """A decoder of GroupQueryAttention, as onnxruntime-genai's builder writes it; ``attrs``: more of that node's."""
    m = _Maker(sizes, seed)
    mask_one = m.constant("one", np.array(1, np.int64))
    sums = m.add("ReduceSum", "attention_mask", m.constant("axis", np.array([1], np.int64)), keepdims=0)
    lengths = m.add("Cast", m.add("Sub", sums, mask_one), to=TensorProto.INT32)
    total = m.add("Gather", m.add("Shape", "attention_mask"), mask_one, axis=0)
    total = m.add("Cast", total, to=TensorProto.INT32)
    cosines, sines = m.angles()
    x = m.add("Gather", m.table(), "input_ids")
    wide, narrow = sizes.hidden, sizes.groups * sizes.dim
    for i in range(sizes.layers):
        h = m.norm(x)
        q, k, v = m.product(h, wide, wide), m.product(h, wide, narrow), m.product(h, wide, narrow)
        turning = [cosines, sines] if rotary else []
        y = m.add(
            "GroupQueryAttention",
            *(q, k, v, f"past.{i}.key", f"past.{i}.value", lengths, total, *turning),
            outputs=(f"y{i}", f"present.{i}.key", f"present.{i}.value"),
            domain="com.microsoft",
            num_heads=sizes.heads,
            kv_num_heads=sizes.groups,
            do_rotary=int(rotary),
            **attrs,
        )
        x = m.add("Add", x, m.product(y, wide, wide))
        h = m.product(m.norm(x), wide, sizes.inner)
        x = m.add("Add", x, m.product(m.add("Mul", h, m.add("Sigmoid", h)), sizes.inner, wide))
    m.nodes.append(helper.make_node("Identity", [m.product(m.norm(x), wide, sizes.vocabulary)], ["logits"]))
    return _save(m, path)


def write_eager(path: Path, sizes: Sizes = USUAL, seed: int = 0, *, positions: bool = True, window: int = 0) -> Path:
    """A decoder whose attention is written step by step, as torch's exporter does; ``positions``: they are an input."""
    m = _Maker(sizes, seed)
    one, zero, two = (m.constant(n, np.array(i, np.int64)) for n, i in (("one", 1), ("zero", 0), ("two", 2)))
    count = m.add("Gather", m.add("Shape", "input_ids"), one, axis=0)
    past = m.add("Gather", m.add("Shape", "past.0.key"), two, axis=0)
    total = m.add("Add", past, count)
    own = m.add("Range", past, total, one)
    front = m.constant("front", np.array([0], np.int64))
    own_rows = "position_ids" if positions else m.add("Unsqueeze", own, front)
    last = m.constant("last", np.array([-1], np.int64))
    columns = m.add("Unsqueeze", own, last)
    keys = m.add("Range", zero, total, one)
    hidden = m.add("Greater", keys, columns)
    if window:
        m.constant("window", np.array(window, np.int64))
        hidden = m.add("Or", hidden, m.add("LessOrEqual", keys, m.add("Sub", columns, "window")))
    given = m.add("Cast", m.add("Slice", "attention_mask", "zeros1", m.add("Unsqueeze", total, "front1"), last), to=9)
    m.constant("zeros1", np.array([0], np.int64))
    m.constant("front1", np.array([0], np.int64))
    hidden = m.add("Or", hidden, m.add("Not", given))
    least, none = (m.constant(n, np.array(v, np.float32)) for n, v in (("least", -3.4e38), ("none", 0)))
    mask = m.add("Unsqueeze", m.add("Where", hidden, least, none), m.constant("fronts", np.array([0, 1], np.int64)))
    half = sizes.dim // 2
    rates = m.constant("rates", (100.0 ** -(np.arange(half) / half)).astype(np.float32))
    turns = m.add("Mul", m.add("Unsqueeze", m.add("Cast", own_rows, to=1), last), rates)
    turns = m.add("Unsqueeze", m.add("Concat", turns, turns, axis=-1), m.constant("one_dim", np.array([1])))
    cosines, sines = m.add("Cos", turns), m.add("Sin", turns)
    ends = [m.constant(f"end{i}", np.array([v], np.int64)) for i, v in enumerate((0, half, sizes.dim))]

    def turned(x: str) -> str:
        front, back = (m.add("Slice", x, ends[i], ends[i + 1], last) for i in (0, 1))
        other = m.add("Concat", m.add("Neg", back), front, axis=-1)
        return m.add("Add", m.add("Mul", x, cosines), m.add("Mul", other, sines))

    def heads(x: str, number: int) -> str:
        shape = m.constant(f"heads{len(m.weights)}", np.array([0, 0, number, sizes.dim], np.int64))
        return m.add("Transpose", m.add("Reshape", x, shape), perm=[0, 2, 1, 3])

    def repeated(x: str) -> str:
        if sizes.heads == sizes.groups:
            return x
        each = m.add("Unsqueeze", x, m.constant(f"axis{len(m.weights)}", np.array([2], np.int64)))
        name = f"wide{len(m.weights)}"
        wide = m.constant(name, np.array([1, sizes.groups, sizes.heads // sizes.groups, 1, sizes.dim], np.int64))
        shape = m.constant(f"{name}.shape", np.array([0, sizes.heads, -1, sizes.dim], np.int64))
        return m.add("Reshape", m.add("Expand", each, wide), shape)

    x = m.add("Gather", m.table(), "input_ids")
    wide, narrow = sizes.hidden, sizes.groups * sizes.dim
    scale = m.constant("scale", np.array(sizes.dim**0.5, np.float32))
    flat = m.constant("flat", np.array([0, 0, wide], np.int64))
    for i in range(sizes.layers):
        h = m.norm(x)
        q, k = (
            turned(heads(m.product(h, wide, wide), sizes.heads)),
            turned(heads(m.product(h, wide, narrow), sizes.groups)),
        )
        v = heads(m.product(h, wide, narrow), sizes.groups)
        k = m.add("Concat", f"past.{i}.key", k, outputs=(f"present.{i}.key",), axis=2)
        v = m.add("Concat", f"past.{i}.value", v, outputs=(f"present.{i}.value",), axis=-2)
        scores = m.add("MatMul", q, m.add("Transpose", repeated(k), perm=[0, 1, 3, 2]))
        shares = m.add("Softmax", m.add("Add", m.add("Div", scores, scale), mask), axis=-1)
        y = m.add("Transpose", m.add("MatMul", shares, repeated(v)), perm=[0, 2, 1, 3])
        x = m.add("Add", x, m.product(m.add("Reshape", y, flat), wide, wide))
        h = m.product(m.norm(x), wide, sizes.inner)
        x = m.add("Add", x, m.product(m.add("Mul", h, m.add("Sigmoid", h)), sizes.inner, wide))
    m.nodes.append(helper.make_node("Identity", [m.product(m.norm(x), wide, sizes.vocabulary)], ["logits"]))
    return _save(m, path, has_positions=positions)


def _save(m: _Maker, path: Path, *, has_positions: bool = False) -> Path:
    sizes = m.sizes
    ids = ["input_ids", "position_ids"] if has_positions else ["input_ids"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in ids]
    inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]))
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "tokens", sizes.vocabulary])]
    for i in range(sizes.layers):
        for name in ("key", "value"):
            dims = ["batch", sizes.groups, "past", sizes.dim], ["batch", sizes.groups, "total", sizes.dim]
            inputs.append(helper.make_tensor_value_info(f"past.{i}.{name}", TensorProto.FLOAT, dims[0]))
            outputs.append(helper.make_tensor_value_info(f"present.{i}.{name}", TensorProto.FLOAT, dims[1]))
    graph = helper.make_graph(m.nodes, "decoder", inputs, outputs, m.weights)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


class Caller:
    """Runs of a decoder in onnxruntime's manner: the caller holds the past."""

    def __init__(self, session: Any, sizes: Sizes = USUAL) -> None:
        self.session, self.length = session, 0
        shape = (1, sizes.groups, 0, sizes.dim)
        names = [arg.name for arg in session.get_inputs()]
        self.past = {name: np.zeros(shape, np.float32) for name in names if name.startswith("past")}
        self._takes_positions = "position_ids" in names

    def run(self, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Logits of all new tokens."""
        self.length += ids.shape[1]
        feed = {"input_ids": ids, "attention_mask": np.ones((1, self.length), np.int64), **self.past}
        if self._takes_positions:
            feed["position_ids"] = np.arange(self.length - ids.shape[1], self.length)[None]
        logits, *present = self.session.run(None, feed)
        self.past = dict(zip(self.past, present, strict=True))
        return logits
