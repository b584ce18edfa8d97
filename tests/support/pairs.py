"""Small random decoders that read an encoder's output, as exporters write them, and runs of them by onnxruntime.

Two kinds: "t5" adds a bias by distance to scores and masks the encoder's rows, "whisper" has a table of positions.
Three forms: "alone" takes all tokens in each run, "past" the last one, its past, and keys and values of the encoder's
output, and "merged" is both in an If, as optimum writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .decoders import Sizes, _Maker

SMALL = Sizes(layers=2, heads=4, groups=4, dim=8, vocabulary=61, inner=48, longest=64)
BUCKETS = 12
_LEAST = -3.4028234663852886e38


class _Decoder:
    """One graph; ``weights`` are shared between graphs, by name."""

    def __init__(self, maker: _Maker, kind: str, has_past: bool, prefix: str) -> None:
        self.m, self.kind, self.has_past, self.prefix = maker, kind, has_past, prefix
        self.sizes, self.weights = maker.sizes, 0

    def add(self, op: str, *inputs: str, outputs: tuple[str, ...] = (), **attrs: Any) -> str:
        made = outputs or (f"{self.prefix}{op}{len(self.m.nodes)}",)
        self.m.nodes.append(helper.make_node(op, list(inputs), list(made), name=made[0], **attrs))
        return made[0]

    def number(self, value: Any, dtype: Any = np.int64) -> str:
        array = np.array(value, dtype)
        name = f"c.{array.dtype}.{array.tolist()}"
        if all(weight.name != name for weight in self.m.weights):
            self.m.constant(name, array)
        return name

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        """The next weight, the same in all graphs of a model."""
        self.weights += 1
        name = f"weight.{self.weights}"
        if all(weight.name != name for weight in self.m.weights):
            random = np.random.default_rng(100 + self.weights)
            self.m.constant(name, (scale * random.standard_normal(shape)).astype(np.float32))
        return name

    def product(self, x: str, rows: int, columns: int) -> str:
        return self.add("MatMul", x, self.weight(rows, columns, scale=rows**-0.5))

    def norm(self, x: str) -> str:
        scale = self.weight(self.sizes.hidden)
        if self.kind == "whisper":
            return self.add("LayerNormalization", x, scale, self.weight(self.sizes.hidden), axis=-1)
        squares = self.add("Pow", x, self.number(2.0, np.float32))
        mean = self.add("ReduceMean", squares, self.number([-1]), keepdims=1)
        root = self.add("Sqrt", self.add("Add", mean, self.number(1e-6, np.float32)))
        return self.add("Mul", scale, self.add("Div", x, root))

    def size(self, value: str, axis: int) -> str:
        return self.add("Gather", self.add("Shape", value), self.number(axis), axis=0)

    def heads(self, x: str) -> str:
        ends = [self.number([-1]), self.number([self.sizes.heads]), self.number([self.sizes.dim])]
        batch = self.add("Unsqueeze", self.size("input_ids", 0), self.number([0]))
        return self.add(
            "Transpose", self.add("Reshape", x, self.add("Concat", batch, *ends, axis=0)), perm=[0, 2, 1, 3]
        )

    def attend(self, q: str, k: str, v: str, masks: list[str]) -> str:
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        for mask in masks:
            scores = self.add("Add", scores, mask)
        y = self.add("Transpose", self.add("MatMul", self.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = self.add("Reshape", y, self.number([0, 0, self.sizes.hidden]))
        return self.product(y, self.sizes.hidden, self.sizes.hidden)

    def own_masks(self, count: str, total: str, before: str) -> list[str]:
        zero, one = self.number(0), self.number(1)
        rows = self.add("Unsqueeze", self.add("Range", before, total, one), self.number([1]))
        keys = self.add("Unsqueeze", self.add("Range", zero, total, one), self.number([0]))
        hidden = self.add(
            "Where", self.add("Greater", keys, rows), self.number(_LEAST, np.float32), self.number(0.0, np.float32)
        )
        mask = self.add("Unsqueeze", hidden, self.number([0, 1]))
        if self.kind == "whisper":
            return [] if self.has_past else [mask]
        behind = self.add("Neg", self.add("Min", self.add("Sub", keys, rows), zero))
        bucket = self.add("Min", behind, self.number(BUCKETS - 1))
        bias = self.add("Transpose", self.add("Gather", self.weight(BUCKETS, self.sizes.heads), bucket), perm=[2, 0, 1])
        return [self.add("Add", self.add("Unsqueeze", bias, self.number([0])), mask)]

    def write(self, logits: str) -> list[str]:
        """Add all nodes; return the names of the outputs."""
        sizes, wide = self.sizes, self.sizes.hidden
        table = self.weight(sizes.vocabulary, wide)
        x = self.add("Gather", table, "input_ids")
        count = self.size("input_ids", 1)
        before = self.size("past_key_values.0.decoder.key", 2) if self.has_past else self.number(0)
        total = self.add("Add", before, count)
        if self.kind == "whisper":
            positions = self.weight(sizes.longest, wide)
            ends = [self.add("Unsqueeze", n, self.number([0])) for n in (before, total)]
            x = self.add("Add", x, self.add("Slice", positions, *ends, self.number([0])))
        own_masks, masks = self.own_masks(count, total, before), []
        if self.kind == "t5":
            seen = self.add("Cast", self.add("Unsqueeze", "encoder_attention_mask", self.number([1, 2])), to=1)
            hidden = self.add("Sub", self.number(1.0, np.float32), seen)
            masks = [self.add("Mul", hidden, self.number(_LEAST, np.float32))]
        outputs = [logits]
        for i in range(sizes.layers):
            h = self.norm(x)
            q, k, v = (self.heads(self.product(h, wide, wide)) for _ in range(3))
            own = [f"{self.prefix}present.{i}.decoder.{name}" for name in ("key", "value")]
            if self.has_past:
                k, v = (
                    self.add("Concat", f"past_key_values.{i}.decoder.{name}", part, outputs=(end,), axis=2)
                    for name, part, end in zip(("key", "value"), (k, v), own, strict=True)
                )
            else:
                k, v = (self.add("Identity", part, outputs=(end,)) for part, end in zip((k, v), own, strict=True))
            q = self.add("Mul", q, self.number(sizes.dim**-0.5, np.float32))
            x = self.add("Add", x, self.attend(q, k, v, own_masks))
            h = self.norm(x)
            q = self.add("Mul", self.heads(self.product(h, wide, wide)), self.number(sizes.dim**-0.5, np.float32))
            crossing = [f"past_key_values.{i}.encoder.{name}" for name in ("key", "value")]
            outputs += own
            if self.has_past:
                self.weights += 2
                k, v = crossing
            else:
                ends = [f"{self.prefix}present.{i}.encoder.{name}" for name in ("key", "value")]
                k, v = (
                    self.add("Identity", self.heads(self.product("encoder_hidden_states", wide, wide)), outputs=(end,))
                    for end in ends
                )
                outputs += ends
            x = self.add("Add", x, self.attend(q, k, v, masks))
            h = self.add("Relu", self.product(self.norm(x), wide, sizes.inner))
            x = self.add("Add", x, self.product(h, sizes.inner, wide))
        self.add("MatMul", self.norm(x), self.weight(wide, sizes.vocabulary, scale=wide**-0.5), outputs=(logits,))
        return outputs


def _infos(kind: str, form: str, sizes: Sizes) -> tuple[list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]]:
    def info(name: str, kind: int, *dims: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, dims)

    inputs = [info("input_ids", TensorProto.INT64, "batch", "tokens")]
    if form != "past":
        inputs.append(info("encoder_hidden_states", TensorProto.FLOAT, "batch", "rows", sizes.hidden))
    if kind == "t5":
        inputs.append(info("encoder_attention_mask", TensorProto.INT64, "batch", "rows"))
    outputs = [info("logits", TensorProto.FLOAT, "batch", "tokens", sizes.vocabulary)]
    for i in range(sizes.layers):
        for part, rows in (("decoder", "past"), ("encoder", "rows")):
            for name in ("key", "value"):
                dims = ("batch", sizes.heads, rows, sizes.dim)
                if form != "alone":
                    inputs.append(info(f"past_key_values.{i}.{part}.{name}", TensorProto.FLOAT, *dims))
                if part == "decoder" or form != "past":
                    own = (dims[0], dims[1], f"{part}_total", dims[3])
                    outputs.append(info(f"present.{i}.{part}.{name}", TensorProto.FLOAT, *own))
    return inputs, outputs


def write_pair(path: Path, kind: str, form: str, sizes: Sizes = SMALL) -> Path:
    """A decoder of this kind, in this form."""
    maker = _Maker(sizes, 0)
    inputs, outputs = _infos(kind, form, sizes)
    if form != "merged":
        decoder = _Decoder(maker, kind, form == "past", "")
        decoder.write("logits")
        nodes = maker.nodes
    else:
        branches = {}
        for name, has_past in (("then_branch", True), ("else_branch", False)):
            maker.nodes = []
            decoder = _Decoder(maker, kind, has_past, f"{name}.")
            made = decoder.write(f"{name}.logits")
            ends = []
            for port in outputs:
                end = f"{name}.{port.name}"
                if end not in made:  # what the encoder made stays
                    given = port.name.replace("present", "past_key_values")
                    decoder.add("Identity", given, outputs=(end,))
                ends.append(helper.make_tensor_value_info(end, TensorProto.FLOAT, None))
            branches[name] = helper.make_graph(maker.nodes, name, [], ends)
        nodes = [
            helper.make_node("If", ["use_cache_branch"], [port.name for port in outputs], name="merged", **branches)
        ]
        inputs.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, maker.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


class PairCaller:
    """Runs of a decoder "alone" in onnxruntime's manner."""

    def __init__(self, session: Any, kind: str) -> None:
        self.session, self.kind = session, kind

    def outputs(self, ids: np.ndarray[Any, Any], hidden: np.ndarray[Any, Any], seen: int) -> dict[str, Any]:
        """Outputs for all tokens so far; ``seen``: rows of the encoder's output that count."""
        feed = {"input_ids": ids, "encoder_hidden_states": hidden}
        if self.kind == "t5":
            mask = np.zeros((1, hidden.shape[1]), np.int64)
            mask[:, :seen] = 1
            feed["encoder_attention_mask"] = mask
        names = [port.name for port in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, feed), strict=True))
