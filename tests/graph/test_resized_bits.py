"""Linear resizing gives onnxruntime's bits, on which integers hang that a network makes of it."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from onnx import helper

from flexnn import _core
from tests.support.compare import expected, feeds_of, load, model_of, run_on_core


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere compilers contract onnxruntime's sums")
@pytest.mark.parametrize("coord", ["half_pixel", "pytorch_half_pixel", "asymmetric"])
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_linear_resizing_has_the_bits_of_onnxruntime(coord: str, factor: int) -> None:
    """Factors whose fractions are exact: others are computed in double here."""
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode=coord)
    scales = np.array([1, 1, factor, factor], np.float32)
    model = model_of([node], {"x": (2, 37, 9, 7)}, ["y"], {"s": scales})
    graph = load(model)
    feeds = feeds_of(graph)
    wanted = expected(model, feeds)
    for level in _core.isa_levels():
        for name, got in run_on_core(graph, feeds, level).items():
            np.testing.assert_array_equal(got, wanted[name], err_msg=level)
