"""Pictures of blocks of channels that several convolutions make, and what computes behind them, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.support.compare import check_model, model_of


@pytest.mark.parametrize("parts", [(12,), (5, 7), (1, 2, 9), (4, 8)])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_parts_need_not_be_whole_pixels(parts: tuple[int, ...], operator: str, is_turned: bool) -> None:
    """Such models were refused: "inputs (1, 4, 5, 1), (0,) make an output of shape (1, 4, 5, 0)"."""
    rng = np.random.default_rng(sum(parts) + len(parts))
    constants = {f"w{i}": rng.standard_normal((n, 2, 1, 1)).astype(np.float32) for i, n in enumerate(parts)}
    constants["c"] = rng.standard_normal((3, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", f"w{i}"], [f"p{i}"]) for i in range(len(parts))]
    nodes.append(helper.make_node("Concat", [f"p{i}" for i in range(len(parts))], ["p"], axis=1))
    nodes.append(helper.make_node("DepthToSpace", ["p"], ["d"], blocksize=2))
    nodes.append(helper.make_node(operator, ["c", "d"] if is_turned and operator != "Div" else ["d", "c"], ["y"]))
    check_model(model_of(nodes, {"x": (1, 2, 4, 5)}, ["y"], constants, 17))


@pytest.mark.parametrize("axis", [0, 2, 3])
def test_parts_that_are_joined_along_another_axis(axis: int) -> None:
    rng = np.random.default_rng(axis)
    constants = {f"w{i}": rng.standard_normal((12, 2, 1, 1)).astype(np.float32) for i in range(2)}
    constants["c"] = rng.standard_normal((3, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", f"w{i}"], [f"p{i}"]) for i in range(2)]
    nodes.append(helper.make_node("Concat", ["p0", "p1"], ["p"], axis=axis))
    nodes.append(helper.make_node("DepthToSpace", ["p"], ["d"], blocksize=2))
    nodes.append(helper.make_node("Mul", ["d", "c"], ["y"]))
    check_model(model_of(nodes, {"x": (1, 2, 4, 5)}, ["y"], constants, 17))
