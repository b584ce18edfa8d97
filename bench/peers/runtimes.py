"""Runtimes behind one face, for comparisons of results, latency and memory in the same run.

A peer is opened on an ONNX file at given input shapes and takes and gives numpy arrays. FlexNN compiles the file first
(``bench/models/artifacts.py``), as ncnn and MNN convert it (``bench/peers/converted.py``). Peers but FlexNN and
onnxruntime are used where they are installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bench.models.inputs import Feed, Shapes, input_shapes
from bench.peers.converted import Mnn, Ncnn, has_pnnx


class Peer(Protocol):
    """An opened model."""

    def run(self, feed: Feed) -> list[NDArray[Any]]: ...

    def close(self) -> None: ...


def bound_model(path: Path, shapes: Shapes) -> bytes:
    """The ONNX file with its inputs' shapes replaced by ``shapes``: some files state shapes that are not meant. What
    else it claims about shapes goes, and so do weights from the inputs' list, where they stop constant folding."""
    import onnx

    model = onnx.load(path)
    graph = model.graph
    weights = {w.name for w in graph.initializer}
    inputs = [i for i in graph.input if i.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)
    for value in graph.input:
        if value.name in shapes:
            dims = value.type.tensor_type.shape.dim
            for dim, size in zip(dims, shapes[value.name], strict=True):
                dim.dim_value = size
    if shapes:
        del graph.value_info[:]
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
    return bytes(model.SerializeToString())


class OnnxRuntime:
    """onnxruntime's defaults but for the threads."""

    def __init__(self, path: Path, shapes: Shapes, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        # A path lets it read large files its own way; only files with foreign shapes go through memory.
        source = bound_model(path, shapes) if shapes else str(path)
        self._session: Any = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def run(self, feed: Feed) -> list[NDArray[Any]]:
        outputs: list[NDArray[Any]] = self._session.run(None, feed)
        return outputs

    def close(self) -> None:
        self._session = None


class OpenVino:
    """OpenVINO, tuned for the latency of single runs in fp32."""

    def __init__(self, path: Path, shapes: Shapes, threads: int) -> None:
        import openvino

        core = openvino.Core()
        model = core.read_model(bound_model(path, shapes) if shapes else str(path))
        config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        self._compiled: Any = core.compile_model(model, "CPU", config)

    def run(self, feed: Feed) -> list[NDArray[Any]]:
        outputs = self._compiled(dict(feed))
        return [np.asarray(outputs[port]) for port in self._compiled.outputs]

    def close(self) -> None:
        self._compiled = None


class FlexNN:
    """``path`` is an artifact; ``memory`` its budget."""

    def __init__(self, path: Path, threads: int, memory: int | str | None = None) -> None:
        import flexnn

        self.session = flexnn.Session(path, memory=memory, threads=threads)

    def run(self, feed: Feed) -> list[NDArray[Any]]:
        return self.session.run(None, feed)

    def close(self) -> None:
        self.session.close()


PEERS: dict[str, Callable[[Path, Shapes, int], Peer]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "ncnn": lambda path, shapes, threads: Ncnn(path, input_shapes(path, shapes), threads),
    "mnn": lambda path, shapes, threads: Mnn(path, input_shapes(path, shapes), threads),
}
MODULES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "ncnn": "ncnn", "mnn": "MNN"}
"""What a peer imports."""


def available() -> list[str]:
    """Names of the peers installed here."""
    found = [name for name, module in MODULES.items() if importlib.util.find_spec(module)]
    return [name for name in found if name != "ncnn" or has_pnnx()]
