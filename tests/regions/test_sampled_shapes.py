"""Shapes at which models with open shapes are sampled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from flexnn.graph import load_model
from flexnn.graph.ir import Array
from flexnn.regions import sampling


def test_a_size_that_is_fixed_does_not_make_all_walks_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product with 64 columns takes no height but 64, though the file leaves it open."""
    nodes = [helper.make_node("MatMul", ["w", "x"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "h", "w_"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weight = numpy_helper.from_array(np.ones((8, 64), np.float32), "w")
    graph = helper.make_graph(nodes, "g", ports, outputs, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    walked: list[tuple[int, ...]] = []
    run = sampling.Sampler.run

    def noted(self: sampling.Sampler, feeds: Mapping[str, Array]) -> None:
        walked.append(feeds["x"].shape)
        run(self, feeds)

    monkeypatch.setattr(sampling.Sampler, "run", noted)
    sampled = sampling.sample(load_model(str(tmp_path / "m.onnx")))
    assert sampled.shapes == [[(1, 64, 64)], [(1, 64, 128)]]
    assert len(walked) == 4, walked
