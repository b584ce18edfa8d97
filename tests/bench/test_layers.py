"""The layers of bench.kernels.single: the models say what the tables claim, and outputs that differ are noticed."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from bench.kernels import single as kernels
from bench.peers import layers

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("layer", layers.LAYERS, ids=lambda layer: layer.name)
def test_models_are_valid_and_of_the_stated_shape(layer: layers.Layer) -> None:
    model = layer.model()
    onnx.checker.check_model(model, full_check=True)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0]
    assert tuple(d.dim_value for d in inferred.type.tensor_type.shape.dim) == layer.out_shape
    assert len(model.graph.node) == layer.repeat


def test_names_tell_layers_apart() -> None:
    names = [layer.name for layer in layers.LAYERS]
    assert len(set(names)) == len(names)


def test_flops() -> None:
    assert layers.Layer("Conv", 56, 64, 64, 3).flops == 2 * 56 * 56 * 64 * 64 * 9
    assert layers.Layer("Conv", 56, 144, 144, 3, 2, 144).flops == 2 * 28 * 28 * 144 * 9
    assert layers.Layer("Conv", 14, 512, 512, 3, group=512, repeat=8).flops == 8 * 2 * 14 * 14 * 512 * 9
    assert layers.Layer("Gemm", 64, 768, 3072).flops == 2 * 64 * 768 * 3072


REPORT = """\
conv     avx512  3x3 512->512@14x14/1 g1 kernel 0            3.0000 ms   300.0 GFLOP/s 100.0 %   10.0 GB/s
conv     avx512  3x3 512->512@14x14/1 g1 kernel 3            2.0000 ms   450.0 GFLOP/s 150.0 %   10.0 GB/s
conv     avx512  3x3 512->512@14x14/1 g32 kernel 0           0.3000 ms   300.0 GFLOP/s 100.0 %   10.0 GB/s
dwconv   avx512  3x3 512@14/1                                0.0200 ms    50.0 GFLOP/s  17.0 %   20.0 GB/s
dwconv   avx512  3x3 512@14/16                               0.0100 ms    50.0 GFLOP/s  17.0 %   20.0 GB/s
"""


def test_the_fastest_bare_kernel_of_each_shape_is_found() -> None:
    found = kernels.fastest(REPORT, layers.LAYERS)
    assert {name: entry["ms"] for name, entry in found.items()} == {
        "Conv 512→512 3² @14²": 2.0,
        "Conv 512→512 3² @14² g32": 0.3,
        "depthwise 512 3² @14²": 0.02,
    }
    assert found["Conv 512→512 3² @14²"]["percent_of_peak"] == 150.0


def test_wrong_outputs_are_named() -> None:
    row = {"layer": "l", "threads": 1, "flexnn": {"error": 1e-3}, "ncnn": {"error": 1e-4}}
    assert len(kernels.wrong([row])) == 1
    assert kernels.wrong([row])[0].startswith("flexnn: l")
    assert kernels.wrong([{**row, "flexnn": {"error": float("nan")}}])
    assert not kernels.wrong([{**row, "flexnn": {"error": 1e-6}}])


@pytest.mark.parametrize("layer", layers.LAYERS, ids=lambda layer: layer.name)
def test_every_installed_peer_computes_the_same(layer: layers.Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(kernels, "ROUNDS", 1)
    monkeypatch.setattr(kernels, "TURN_SECONDS", 0.0)
    assert not kernels.wrong([kernels.measure(layer, kernels.installed(), threads=2)])
