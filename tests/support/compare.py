"""Small ONNX models through import, passes and the reference interpreter, against onnxruntime."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from flexnn import _core
from flexnn.graph import load_onnx, operators
from flexnn.graph.ir import DTYPES, Graph
from tests.support.reference import run_graph

Array = np.ndarray
TOLERANCE = 1e-5
"""Error allowed, relative to the largest value: float32 sums may be taken in another order."""


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
    types: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model; outputs have no declared shape."""
    kinds = types or {}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in outputs],
        [numpy_helper.from_array(np.asarray(v, order="C"), n) for n, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(10, 3 + opset // 3))


def load(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """The model's graph after all passes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return load_onnx(str(path), shapes)


def feeds_of(graph: Graph, seed: int = 0, low: float = -2.0, high: float = 2.0) -> dict[str, Array]:
    """Seeded random inputs."""
    rng = np.random.default_rng(seed)
    return {
        graph.tensors[i].name: rng.uniform(low, high, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs
    }


def expected(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of onnxruntime without its optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = {i.name for i in session.get_inputs()}
    return dict(zip(names, session.run(None, {k: v for k, v in feeds.items() if k in wanted}), strict=True))


def run_on_core(
    graph: Graph, feeds: Mapping[str, Array], level: str | None = None, convolution: str = "direct"
) -> dict[str, Array]:
    """Outputs by name, each node computed by the C core from its encoded parameters. ``level``: None, the best;
    ``convolution``: the kernel of convolutions that it fits.
    """
    storage: dict[int, Array] = {}
    for i, tensor in enumerate(graph.tensors):
        if tensor.root < 0:
            dtype = DTYPES[tensor.dtype]
            storage[i] = np.frombuffer(b"\xff" * max(tensor.nbytes, 1), np.uint8).copy()[: tensor.nbytes].view(dtype)
            if tensor.weight >= 0:
                storage[i][:] = graph.weights[tensor.weight].source.load().reshape(-1)
            elif i in graph.inputs:
                storage[i][:] = feeds[tensor.name].reshape(-1)
    for node in graph.nodes:
        params = _core.encode_params(node.op, operators.encode(graph, node))
        kernel = ""
        if node.op == "conv":
            kernel = convolution if _core.conv_kernel_fits(convolution, params) else "direct"
        weight = np.concatenate(list(graph.weights[node.weight].panels)) if node.weight >= 0 else None
        operands = [graph.tensors[i] for i in (*node.inputs, node.outputs[0])]
        offsets = [t.offset * DTYPES[t.dtype].itemsize for t in operands]
        arrays = [storage[graph.root(i)] for i in (*node.inputs, node.outputs[0])]
        _core.run_op(node.op, kernel, params, arrays[:-1], arrays[-1], weight, threads=2, offsets=offsets, isa=level)
    return {graph.tensors[i].name: storage[i].reshape(graph.tensors[i].shape) for i in graph.outputs}


def check_model(
    model: onnx.ModelProto,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    feeds: Mapping[str, Array] | None = None,
    tolerance: float = TOLERANCE,
) -> Graph:
    """Asserts that the graph computes what onnxruntime computes, as the reference reads it and as the C core does;
    returns the graph.
    """
    graph = load(model, shapes)
    given = dict(feeds) if feeds is not None else feeds_of(graph)
    want = expected(model, given)
    for run in (run_graph, run_on_core):
        got = run(graph, given)
        assert list(got) == list(want)
        for name, values in want.items():
            assert got[name].shape == values.shape, name
            scale = max(1e-6, float(np.abs(values).max(initial=0)))
            message = f"{name} by {run.__name__}"
            np.testing.assert_allclose(got[name], values, rtol=0, atol=tolerance * scale, err_msg=message)
    return graph


def ops_of(graph: Graph) -> list[str]:
    """The operators of a graph, in execution order."""
    return [node.op for node in graph.nodes]


def weights(*shape: int, seed: int = 1) -> Array:
    """Seeded float32 numbers around zero."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def numbers_of_type(dtype: type, *shape: int, seed: int = 5) -> Array:
    """Seeded integers, all that the type has."""
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)
