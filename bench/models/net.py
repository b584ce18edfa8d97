"""A builder of ONNX networks with seeded random weights, and a writer that never holds them all.

The graph is made by ``onnx.helper``; initializers are only described (shape, scale, seed). ``write`` puts the protobuf
wire format of the graph's ``initializer`` field down itself, one block of numbers at a time, so that a model of any
size is built in a few MiB.

Scales keep activations O(1): the builder carries the second moment E[x²] of each value; a convolution draws its
weights with variance gain/(fan_in·E[x²]) — He et al. 2015, "Delving deep into rectifiers", eq. 10 — or, before a
BatchNormalization, with the plain He variance and running statistics that fit what then comes out.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

BLOCK = 1 << 20
"""Numbers drawn at a time."""
OPSET = 17
DRAW = "normal, SFC64, block 2^20"
"""Part of the recipe's hash: change it with ``Init.blocks``."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor under way: its ONNX name, shape and estimated second moment."""

    name: str
    shape: tuple[int, ...]
    moment: float = 1.0


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the graph; a dimension that stays open has a name."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Init:
    """An initializer: constants (``values``), or ``mean + std·N(0,1)``; clipped to [low, ∞)."""

    name: str
    shape: tuple[int, ...]
    mean: float = 0.0
    std: float = 0.0
    low: float = -np.inf
    values: NDArray[np.generic] | None = None

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def blocks(self) -> Iterator[bytes]:
        """Little-endian bytes, BLOCK numbers at a time; the same on every machine."""
        if self.values is not None:
            yield self.values.tobytes()
            return
        rng = np.random.Generator(np.random.SFC64(zlib.crc32(self.name.encode())))
        for start in range(0, self.size, BLOCK):
            count = min(BLOCK, self.size - start)
            block = rng.standard_normal(count, dtype=np.float32) * np.float32(self.std) + np.float32(self.mean)
            yield np.maximum(block, np.float32(self.low)).astype("<f4").tobytes()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload_bytes: int) -> bytes:
    """Tag and length of a length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(payload_bytes)


@dataclass(slots=True)
class Net:
    """One network being built. Methods add a node and return its output."""

    name: str
    opset: int = OPSET
    inputs: list[Port] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inits: list[Init] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    # graph ---------------------------------------------------------------------------------------------------------
    def input(self, name: str, *shape: int) -> Value:
        self.inputs.append(Port(name, shape))
        return Value(name, shape)

    def output(self, made: str, shape: tuple[int | str, ...], name: str = "output") -> None:
        """Makes the value ``made``, under ``name``, an output of the graph."""
        for node in self.nodes:
            for i, out in enumerate(node.output):
                if out == made:
                    node.output[i] = name
        self.outputs.append(Port(name, shape))

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], moment: float, **attributes: Any) -> Value:
        stem = self._stem(op)
        self.nodes.append(helper.make_node(op, inputs, [stem], stem, **attributes))
        return Value(stem, shape, moment)

    def add_several(self, op: str, inputs: list[str], count: int, **attributes: Any) -> list[str]:
        """A node with ``count`` outputs, whose shapes nobody asks for."""
        stem = self._stem(op)
        names = [stem] if count == 1 else [f"{stem}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, inputs, names, stem, **attributes))
        return names

    def add_constant(self, values: NDArray[np.generic]) -> str:
        """A Constant node."""
        return self.add_several(
            "Constant", [], 1, value=numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape))
        )[0]

    def _stem(self, op: str) -> str:
        self.counts[op] = self.counts.get(op, -1) + 1
        return f"{op}_{self.counts[op]}"

    def weight(self, name: str, *shape: int, mean: float = 0.0, std: float = 0.0, low: float = -np.inf) -> str:
        self.inits.append(Init(f"{self.name}.{name}", shape, mean, std, low))
        return self.inits[-1].name

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        self.inits.append(Init(f"{self.name}.{name}", values.shape, values=np.ascontiguousarray(values)))
        return self.inits[-1].name

    # layers --------------------------------------------------------------------------------------------------------
    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pad: int | tuple[int, int] | str = 0,
        groups: int = 1,
        *,
        bias: bool = True,
        gain: float = 2.0,
    ) -> Value:
        """Conv; ``pad``: both sides, (rows, columns), or "same". With ``bias`` the output's second moment is gain/1:
        the input's is divided out; without (a BatchNormalization follows) it is gain·E[x²]."""
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        attributes, height, width = _padding(x.shape[2], x.shape[3], kh, kw, stride, pad)
        stem = f"conv{self.counts.get('Conv', -1) + 1}"
        fan_in = x.shape[1] // groups * kh * kw
        scale = gain / fan_in / (x.moment if bias else 1.0)
        inputs = [x.name, self.weight(f"{stem}.weight", channels, x.shape[1] // groups, kh, kw, std=scale**0.5)]
        if bias:
            inputs.append(self.weight(f"{stem}.bias", channels, std=0.1))
        attributes |= {"kernel_shape": [kh, kw], "strides": [stride, stride], "group": groups}
        moment = gain * (1.0 if bias else x.moment)
        return self.add("Conv", inputs, (x.shape[0], channels, height, width), moment, **attributes)

    def norm(self, x: Value, eps: float = 1e-5, gamma: float = 1.0) -> Value:
        """BatchNormalization whose running statistics fit the estimated moment of ``x``."""
        stem, c = f"bn{self.counts.get('BatchNormalization', -1) + 1}", x.shape[1]
        rms = x.moment**0.5
        parts = [
            self.weight(f"{stem}.gamma", c, mean=gamma, std=0.1 * gamma, low=0.1 * gamma),
            self.weight(f"{stem}.beta", c, std=0.1 * gamma),
            self.weight(f"{stem}.mean", c, std=0.1 * rms),
            self.weight(f"{stem}.var", c, mean=x.moment, std=0.2 * x.moment, low=0.3 * x.moment),
        ]
        return self.add("BatchNormalization", [x.name, *parts], x.shape, gamma**2, epsilon=eps)

    def relu(self, x: Value, kept: float = 0.5) -> Value:
        """Relu; ``kept``: the part of the second moment that is positive, 1/2 of a symmetric value."""
        return self.add("Relu", [x.name], x.shape, x.moment * kept)

    def relu6(self, x: Value) -> Value:
        """Clip to [0, 6] with its bounds as inputs, as exporters write it since opset 11."""
        if "relu6" not in self.counts:
            self.counts["relu6"] = 0
            self.constant("zero", np.array(0, np.float32))
            self.constant("six", np.array(6, np.float32))
        return self.add("Clip", [x.name, f"{self.name}.zero", f"{self.name}.six"], x.shape, x.moment / 2)

    def pool(
        self, x: Value, op: str, kernel: int, stride: int, pad: int | str = 0, ceil: bool = False, counted: bool = False
    ) -> Value:
        """MaxPool or AveragePool (``counted``: padding counts in the average)."""
        attributes, height, width = _padding(x.shape[2], x.shape[3], kernel, kernel, stride, pad, ceil)
        attributes |= {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
        if ceil:
            attributes["ceil_mode"] = 1
        if counted:
            attributes["count_include_pad"] = 1
        return self.add(op, [x.name], (*x.shape[:2], height, width), x.moment, **attributes)

    def add_values(self, a: Value, b: Value) -> Value:
        return self.add("Add", [a.name, b.name], a.shape, a.moment + b.moment)

    def concat(self, *parts: Value) -> Value:
        channels = sum(p.shape[1] for p in parts)
        moment = sum(p.moment * p.shape[1] for p in parts) / channels
        first = parts[0].shape
        return self.add("Concat", [p.name for p in parts], (first[0], channels, *first[2:]), moment, axis=1)

    def split(self, x: Value, parts: int) -> list[Value]:
        """Split along the channels into equal parts."""
        names = self.add_several("Split", [x.name], parts, axis=1)
        return [Value(n, (x.shape[0], x.shape[1] // parts, *x.shape[2:]), x.moment) for n in names]

    def lrn(self, x: Value) -> Value:
        """Local response normalisation as in Krizhevsky et al. 2012, §3.3, in Caffe's form."""
        return self.add("LRN", [x.name], x.shape, x.moment, size=5, alpha=1e-4, beta=0.75, bias=1.0)

    def global_pool(self, x: Value) -> Value:
        return self.add("GlobalAveragePool", [x.name], (*x.shape[:2], 1, 1), x.moment / 2)

    def flatten(self, x: Value) -> Value:
        return self.add("Flatten", [x.name], (x.shape[0], int(np.prod(x.shape[1:]))), x.moment, axis=1)

    def gemm(self, x: Value, features: int, gain: float = 2.0) -> Value:
        stem = f"fc{self.counts.get('Gemm', -1) + 1}"
        std = (gain / x.shape[1] / x.moment) ** 0.5
        weights = [self.weight(f"{stem}.weight", features, x.shape[1], std=std)]
        weights.append(self.weight(f"{stem}.bias", features, std=0.1))
        return self.add("Gemm", [x.name, *weights], (x.shape[0], features), gain, transB=1)

    # result --------------------------------------------------------------------------------------------------------
    @property
    def parameters(self) -> int:
        """Trainable numbers, as papers and torchvision count them: without running statistics and clip bounds."""
        return sum(i.size for i in self.inits if i.values is None and not i.name.endswith((".mean", ".var")))

    def skeleton(self) -> onnx.ModelProto:
        """The model without its initializers."""

        def infos(ports: list[Port]) -> list[onnx.ValueInfoProto]:
            kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(p.dtype)) for p in ports]
            return [helper.make_tensor_value_info(p.name, k, p.shape) for p, k in zip(ports, kinds, strict=True)]

        graph = helper.make_graph(self.nodes, self.name, infos(self.inputs), infos(self.outputs))
        opset = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, producer_name="flexnn bench", ir_version=8, opset_imports=opset)

    def recipe(self) -> str:
        """A hash over everything that determines the file's bytes."""
        inits = [
            (i.name, i.shape, i.mean, i.std, i.low, None if i.values is None else i.values.tolist()) for i in self.inits
        ]
        text = self.skeleton().SerializeToString(deterministic=True) + repr((DRAW, inits)).encode()
        return hashlib.sha256(text).hexdigest()

    def write(self, path: Path) -> None:
        """Writes the model, complete or not at all; needs memory for the skeleton and one block."""
        model = self.skeleton()
        graph = model.graph.SerializeToString()
        model.ClearField("graph")
        heads = []
        for init in self.inits:
            dtype = np.dtype(np.float32) if init.values is None else init.values.dtype
            kind = helper.np_dtype_to_tensor_dtype(dtype)
            head = TensorProto(dims=init.shape, data_type=kind, name=init.name).SerializeToString()
            data = init.size * dtype.itemsize
            heads.append(head + _field(9, data))  # 9: TensorProto.raw_data
        sizes = [
            len(h) + i.size * (4 if i.values is None else i.values.itemsize)
            for h, i in zip(heads, self.inits, strict=True)
        ]
        tags = [_field(5, size) for size in sizes]  # 5: GraphProto.initializer
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            file.write(model.SerializeToString())
            file.write(_field(7, len(graph) + sum(map(len, tags)) + sum(sizes)))  # 7: ModelProto.graph
            file.write(graph)
            for tag, head, init in zip(tags, heads, self.inits, strict=True):
                file.write(tag + head)
                _write_blocks(file, init)
        part.replace(path)


def _write_blocks(file: BinaryIO, init: Init) -> None:
    for block in init.blocks():
        file.write(block)


def _padding(
    height: int, width: int, kh: int, kw: int, stride: int, pad: int | tuple[int, int] | str, ceil: bool = False
) -> tuple[dict[str, Any], int, int]:
    """Padding attributes, output height and width."""
    if isinstance(pad, str):
        return {"auto_pad": "SAME_UPPER"}, -(-height // stride), -(-width // stride)
    ph, pw = (pad, pad) if isinstance(pad, int) else pad

    def extent(size: int, kernel: int, padding: int) -> int:
        free = size + 2 * padding - kernel
        out = (-(-free // stride) if ceil else free // stride) + 1
        return out - 1 if ceil and (out - 1) * stride >= size + padding else out  # no window starts in the padding

    return {"pads": [ph, pw, ph, pw]}, extent(height, kh, ph), extent(width, kw, pw)
