"""The angle of a complex number, as PyTorch's exporters write atan2, with zeros among its numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from tests.support.regions import F32, graph_of, model_of, opened, value, wanted

node = helper.make_node


def angle(*, is_whole: bool = True) -> onnx.ModelProto:
    nodes = [node("Div", ["y", "x"], ["slope"]), node("Atan", ["slope"], ["atan"])]
    if is_whole:
        nodes += [
            node("Greater", ["y", "zero"], ["is_above"]),
            node("Add", ["atan", "pi"], ["more"]),
            node("Sub", ["atan", "pi"], ["less"]),
            node("Where", ["is_above", "more", "less"], ["turned"]),
            node("Less", ["x", "zero"], ["is_left"]),
            node("Where", ["is_left", "turned", "atan"], ["angle"]),
        ]
    else:
        nodes.append(node("Identity", ["atan"], ["angle"]))
    constants = {"zero": np.array(0, np.float32), "pi": np.array(np.pi, np.float32)} if is_whole else {}
    inputs = [value("y", F32, ["n"]), value("x", F32, ["n"])]
    return model_of(graph_of(nodes, inputs, [value("angle", F32, ["n"])], constants))


def every_pair() -> dict[str, np.ndarray]:
    own = np.array([0.0, -0.0, 1e-30, -1e-30, 0.3, -0.3, 2e10, -2e10], np.float32)
    y, x = np.meshgrid(own, own)
    return {"y": y.reshape(-1), "x": x.reshape(-1)}


def test_the_angle_of_zero_is_zero(tmp_path: Path) -> None:
    """Everywhere else it is what the formula gives, which onnxruntime computes."""
    model, feed = angle(), every_pair()
    with opened(tmp_path, model) as session:
        got = session.run(None, feed)[0]
    formula = wanted(model, feed)[0]
    is_zero = (feed["y"] == 0) & (feed["x"] == 0)
    assert np.isnan(formula[is_zero]).all()
    assert not got[is_zero].any()
    np.testing.assert_allclose(got[~is_zero], formula[~is_zero], rtol=1e-6)


def test_a_quotient_that_is_no_angle_stays_as_it_is(tmp_path: Path) -> None:
    model, feed = angle(is_whole=False), every_pair()
    with opened(tmp_path, model) as session:
        np.testing.assert_array_equal(np.isnan(session.run(None, feed)[0]), np.isnan(wanted(model, feed)[0]))
