"""Pictures read between their pixels, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.compare import check_model, model_of, ops_of

F32 = np.float32


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grid_sample(mode, border, aligned):
    rng = np.random.default_rng(aligned)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=border, align_corners=aligned)
    for shape, size in (((2, 3, 5, 7), (4, 6)), ((1, 20, 1, 4), (1, 9)), ((1, 1, 6, 1), (3, 2))):
        feeds = {"x": rng.random(shape, F32), "g": rng.uniform(-1.4, 1.4, (shape[0], *size, 2)).astype(F32)}
        model = model_of([node], {n: v.shape for n, v in feeds.items()}, ["y"], None, 16)
        assert "grid_sample" in ops_of(check_model(model, feeds=feeds))


def test_grid_sample_of_newer_opsets():
    rng = np.random.default_rng(0)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="linear")
    feeds = {"x": rng.random((1, 3, 8, 8), F32), "g": rng.uniform(-1, 1, (1, 4, 4, 2)).astype(F32)}
    check_model(model_of([node], {"x": (1, 3, 8, 8), "g": (1, 4, 4, 2)}, ["y"], None, 20), feeds=feeds)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(mode, opset, ratio):
    rng = np.random.default_rng(ratio)
    low = rng.uniform(-2, 20, (9, 2))
    regions = np.concatenate([low, low + rng.uniform(0, 14, (9, 2))], 1).astype(F32)
    regions[3, 2:] = regions[3, :2]
    attrs = {"output_height": 3, "output_width": 4, "sampling_ratio": ratio, "spatial_scale": 0.5, "mode": mode}
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], **attrs)
    feeds = {"x": rng.uniform(-1, 1, (2, 5, 11, 13)).astype(F32), "r": regions, "i": rng.integers(0, 2, 9)}
    shapes = {n: v.shape for n, v in feeds.items()}
    model = model_of([node], shapes, ["y"], None, opset, {"i": TensorProto.INT64})
    assert "roi_align" in ops_of(check_model(model, feeds=feeds))
