"""Single layers as models of one node, for onnxruntime's kind of peer and, by hand, for ncnn."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bench import CACHE
from bench.models.net import OPSET
from bench.peers.converted import ncnn_net

Array = NDArray[np.float32]
FOLDER = CACHE / "layers"


@dataclass(frozen=True, slots=True)
class Layer:
    """``op``: Conv, Gemm, MaxPool, Softmax. ``size``: height and width (Gemm: rows; Softmax: the axis' length).
    ``repeat``: so many nodes in a chain, as large at its end as at its beginning: conversions of layouts at the ends,
    which a single node pays alone, are shared.
    """

    op: str
    size: int
    cin: int
    cout: int
    kernel: int = 1
    stride: int = 1
    group: int = 1
    repeat: int = 1

    @property
    def name(self) -> str:
        if self.op == "Gemm":
            return f"Gemm {self.size}×{self.cin}×{self.cout}"
        if self.op == "Softmax":
            return f"Softmax {self.cin}×{self.size}×{self.size}"
        is_depthwise = self.op == "Conv" and self.group == self.cin
        what = "depthwise" if is_depthwise else self.op
        channels = f"{self.cin}→{self.cout}" if self.op == "Conv" and not is_depthwise else f"{self.cin}"
        stride = f" /{self.stride}" if self.stride > 1 else ""
        group = f" g{self.group}" if self.group > 1 and not is_depthwise else ""
        chain = f" ×{self.repeat}" if self.repeat > 1 else ""
        return f"{what} {channels} {self.kernel}² @{self.size}²{stride}{group}{chain}"

    @property
    def flops(self) -> float:
        """A multiply-add counts two; 0 where none are needed."""
        if self.op == "Gemm":
            return 2.0 * self.size * self.cin * self.cout
        if self.op != "Conv":
            return 0.0
        out = -(-self.size // self.stride)
        return 2.0 * out * out * self.cout * self.kernel**2 * (self.cin // self.group) * self.repeat

    @property
    def check_name(self) -> str | None:
        """The start of its line in ``flexnn-check --bench``, after the operator and the level."""
        k, s, size = self.kernel, self.stride, self.size
        if self.repeat > 1:
            return None
        if self.op == "Conv" and self.group == self.cin:
            return f"{k}x{k} {self.cin}@{size}/{s}"
        if self.op == "Conv":
            return f"{k}x{k} {self.cin}->{self.cout}@{size}x{size}/{s} g{self.group} "
        if self.op == "Gemm":
            return f"1x1 {self.cin}->{self.cout}@{size}x1/1 g1 "
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        if self.op == "Gemm":
            return (self.size, self.cin)
        return (1, self.cin, self.size, self.size)

    @property
    def out_shape(self) -> tuple[int, ...]:
        if self.op == "Gemm":
            return (self.size, self.cout)
        out = -(-self.size // self.stride)
        return (1, self.cout, out, out)

    def weights(self) -> tuple[Array, Array]:
        """Weights (cout, cin / group, kernel, kernel) or (cout, cin), and a bias; seeded by the layer."""
        rng = np.random.default_rng(int.from_bytes(hashlib.sha256(repr(self).encode()).digest()[:8]))
        fan_in = self.cin // self.group * self.kernel**2
        shape = (self.cout, self.cin) if self.op == "Gemm" else (self.cout, self.cin // self.group, *[self.kernel] * 2)
        return (
            rng.standard_normal(shape, np.float32) * np.float32(fan_in**-0.5),
            rng.standard_normal(self.cout, np.float32),
        )

    def make(self) -> Path:
        """The ONNX file, written anew when the layer's description is."""
        path = FOLDER / (hashlib.sha256(repr(self).encode()).hexdigest()[:16] + ".onnx")
        if not path.exists():
            FOLDER.mkdir(parents=True, exist_ok=True)
            onnx.save(self.model(), path)
        return path

    def model(self) -> onnx.ModelProto:
        names, values, attributes = ["x"], [], dict[str, Any]()
        if self.op in ("Conv", "Gemm"):
            names += ["w", "b"]
            values = [numpy_helper.from_array(v, n) for n, v in zip("wb", self.weights(), strict=True)]
        if self.op in ("Conv", "MaxPool"):
            attributes = {
                "kernel_shape": [self.kernel] * 2,
                "strides": [self.stride] * 2,
                "pads": [self.kernel // 2] * 4,
            }
        if self.op == "Conv":
            attributes["group"] = self.group
        if self.op == "Gemm":
            attributes["transB"] = 1
        if self.op == "Softmax":
            attributes["axis"] = -1
        ends = ["x", *(f"y{n}" for n in range(1, self.repeat)), "y"]
        graph = helper.make_graph(
            [
                helper.make_node(self.op, [before, *names[1:]], [after], **attributes)
                for before, after in pairwise(ends)
            ],
            "layer",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, self.out_shape)],
            values,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        return model


class Ncnn:
    """ncnn's defaults on one layer: its param text and weight file (layout: ncnn's docs, ``param and model file
    structure``) made from the layer, since ncnn reads no ONNX."""

    def __init__(self, layer: Layer, threads: int) -> None:
        import ncnn

        self._mat: Any = ncnn.Mat
        self._net = ncnn_net(threads)
        self._is_in_place = layer.op == "Softmax"
        stem = FOLDER / layer.make().stem
        count = layer.repeat
        ends = ["x", *(f"y{n}" for n in range(1, count)), "y"]
        lines = [self._line(layer, f"layer{n} 1 1 {ends[n]} {ends[n + 1]}") for n in range(count)]
        text = "\n".join([f"7767517\n{count + 1} {count + 1}\nInput in 0 1 x", *lines, ""])
        stem.with_suffix(".param").write_text(text)
        weights = layer.weights() if layer.op in ("Conv", "Gemm") else ()
        # A weight starts with a word that says fp32; a bias has none.
        blob = b"".join(bytes(4) * (n == 0) + w.tobytes() for n, w in enumerate(weights)) * count
        stem.with_suffix(".bin").write_bytes(blob)
        if self._net.load_param(str(stem.with_suffix(".param"))) or self._net.load_model(str(stem.with_suffix(".bin"))):
            raise RuntimeError(f"ncnn cannot load {layer.name}")

    @staticmethod
    def _line(layer: Layer, ends: str) -> str:
        window = f"1={layer.kernel} 3={layer.stride} 4={layer.kernel // 2}"
        count = layer.cout * layer.cin // layer.group * layer.kernel**2
        match layer.op:
            case "Gemm":
                return f"InnerProduct {ends} 0={layer.cout} 1=1 2={count}"
            case "Conv" if layer.group > 1:
                return f"ConvolutionDepthWise {ends} 0={layer.cout} {window} 5=1 6={count} 7={layer.group}"
            case "Conv":
                return f"Convolution {ends} 0={layer.cout} {window} 5=1 6={count}"
            case "MaxPool":  # kernel 1=, stride 2=, pad 3=; 5=1: no more padding than stated
                return f"Pooling {ends} 0=0 1={layer.kernel} 2={layer.stride} 3={layer.kernel // 2} 5=1"
        return f"Softmax {ends} 0=2 1=1"

    def run(self, feed: dict[str, Array]) -> list[Array]:
        x = feed["x"]
        # One row is a vector to InnerProduct; several are a matrix.
        x = x.reshape(x.shape[1:] if x.ndim == 4 or x.shape[0] == 1 else x.shape)
        mat = self._mat(x)
        extractor = self._net.create_extractor()
        # Layers that work in place would write into the array, and want its channels aligned.
        extractor.input("x", mat.clone() if self._is_in_place else mat)
        _, y = extractor.extract("y")
        return [np.array(y)]

    def close(self) -> None:
        self._net.clear()


def _convs() -> list[Layer]:
    square = [Layer("Conv", size, c, c, 3) for size, c in ((56, 64), (28, 256), (14, 512), (7, 512))]
    others = [
        Layer("Conv", 224, 3, 64, 7, 2),
        Layer("Conv", 56, 64, 256),
        Layer("Conv", 14, 1024, 256),
        Layer("Conv", 28, 32, 192),
    ]
    depthwise = [Layer("Conv", size, c, c, 3, group=c) for size, c in ((112, 64), (56, 128), (28, 256), (14, 512))]
    strided = replace(depthwise[1], cin=144, cout=144, stride=2, group=144)
    grouped = Layer("Conv", 14, 512, 512, 3, group=32)
    chains = [replace(layer, repeat=8) for layer in depthwise]
    return [*square, *others, *depthwise, *chains, strided, grouped]


LAYERS = [
    *_convs(),
    Layer("Gemm", 1, 4096, 4096),
    Layer("Gemm", 1, 8192, 4096),
    Layer("Gemm", 64, 768, 3072),
    Layer("MaxPool", 112, 64, 64, 3, 2),
    Layer("Softmax", 197, 12, 12),
]
