"""Models with open shapes or control flow through compilation and a session, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.graph import load_model
from flexnn.regions import Recorder, templates, walk
from flexnn.regions.scope import Scope, Value, is_few
from flexnn.regions.stretch import Turns
from flexnn.session import open_for_tests

Array = np.ndarray
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, kind: int = F32, dims: Sequence[int | str | None] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, None if dims is None else list(dims))


def graph_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Mapping[str, Array] | None = None,
    name: str = "g",
) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(np.asarray(v, order="C"), n) for n, v in (constants or {}).items()]
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs), tensors)


def model_of(graph: onnx.GraphProto, opset: int = 17) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def compiled(folder: Path, model: onnx.ModelProto) -> str:
    """Path of the model's artifact."""
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return flexnn.compile(path)


def opened(folder: Path, model: onnx.ModelProto, **options: Any) -> flexnn.Session:
    """A poisoned session of the model's artifact."""
    return open_for_tests(compiled(folder, model), threads=2, poison=True, **options)


def wanted(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feed))


def check_run(session: flexnn.Session, model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    """Asserts that the session's outputs are onnxruntime's; returns them."""
    got = session.run(None, feed)
    for mine, theirs in zip(got, wanted(model, feed), strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    return got


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def is_taped(path: Path, feed: Mapping[str, Array], *, grows: bool = False) -> bool:
    """Whether the engine walks all loops and branches of a model, in the first stretch of a run; up to the first loop
    whose turns only the run knows if ``grows``.
    """
    recorder = Recorder(load_model(path))
    scope = Scope({name: Value(array.shape, array.dtype) for name, array in feed.items()})
    for name, array in feed.items():
        scope.own[name].is_steady = is_few(array.dtype, array.nbytes)
    stretch = recorder.record(recorder.region, scope, recorder.region.all)
    is_all = isinstance(stretch.action, Turns) if grows else stretch.action is None
    return is_all and not any(region.walked for region in recorder.region.walk())


def check_runs(
    artifact: Path, feeds: Sequence[Mapping[str, Array]], wanted: Sequence[Sequence[Array]], memory: int | None
) -> None:
    """Compare runs with poisoned buffers with what another runtime computed; in a budget, the session's bytes, too."""
    with open_for_tests(artifact, memory=memory, threads=2, poison=True) as session:
        for feed, expected in zip(feeds, wanted, strict=True):
            for mine, theirs in zip(session.run(None, feed), expected, strict=True):
                assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
            assert memory is None or session.session_bytes <= memory


class Binds:
    """Counter of segments that are bound, whether for a template or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        own = templates.build_segment

        def build(*args: Any) -> Any:
            self.count += 1
            return own(*args)

        for module in (templates, walk):  # with templates, and without
            monkeypatch.setattr(module, "build_segment", build)
