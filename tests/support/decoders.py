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
    sums = m.add("ReduceSum", "attention_mask", m.constant("axis", np.array([1], np.int64)), keepdims=1)
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


def _save(m: _Maker, path: Path) -> Path:
    sizes = m.sizes
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])]
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
