"""Columns of patches become pictures, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.support.compare import check_model, model_of, ops_of


@pytest.mark.parametrize(
    ("image", "block", "attributes", "count"),
    [
        ((5, 5), (1, 5), {}, 5),
        ((5, 5), (2, 2), {"strides": [2, 2], "pads": [1, 0, 0, 1]}, 9),
        ((6, 7), (2, 3), {"dilations": [2, 1]}, 20),
        ((7, 8), (3, 3), {"strides": [2, 1], "pads": [1, 1, 1, 1], "dilations": [1, 2]}, 24),
        ((4, 5, 6), (2, 1, 3), {"strides": [1, 2, 1]}, 36),
        ((9,), (3,), {"strides": [3]}, 3),
    ],
)
def test_col2im(image, block, attributes, count):
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **attributes)
    constants = {"image": np.array(image, np.int64), "block": np.array(block, np.int64)}
    model = model_of([node], {"x": (2, 3 * int(np.prod(block)), count)}, ["y"], constants, 18)
    assert "pad" in ops_of(check_model(model))
