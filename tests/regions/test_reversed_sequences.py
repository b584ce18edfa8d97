"""ReverseSequence of open lengths, as Keras' bidirectional layers are exported: templates serve all lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.regions import Binds, check_run, graph_of, model_of, numbers, opened, value

node = helper.make_node
SIZES = (9, 1), (30, 1), (17, 3), (64, 2), (5, 4)


def reversal(whole: bool, time: int) -> onnx.ModelProto:
    """Reverse x [t, b, 4] (``time`` 1: [b, t, 4]) in time: ``whole``, or up to the lengths of the caller."""
    made = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "time"], ["t"]),
        node("Gather", ["s", "batch"], ["b"]),
        node("Expand", ["t", "b"], ["lengths"]),
    ]
    nodes = [
        *(made if whole else []),
        node("ReverseSequence", ["x", "lengths"], ["r"], time_axis=time, batch_axis=1 - time),
        node("Sin", ["r"], ["y"]),
    ]
    constants = {"time": np.array([time]), "batch": np.array([1 - time])} if whole else {}
    dims = ["t", "b", 4] if time == 0 else ["b", "t", 4]
    inputs = [value("x", dims=dims), *([] if whole else [value("lengths", TensorProto.INT64, ["b"])])]
    return model_of(graph_of(nodes, inputs, [value("y", dims=dims)], constants))


@pytest.mark.parametrize("time", [0, 1])
@pytest.mark.parametrize("whole", [True, False])
def test_lengths_need_no_templates_of_their_own(
    whole: bool, time: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = reversal(whole, time)
    with opened(tmp_path, model) as session:
        binds = Binds(monkeypatch)
        for steps, batch in SIZES:
            feed = {"x": numbers(*((steps, batch) if time == 0 else (batch, steps)), 4)}
            if not whole:
                feed["lengths"] = np.random.default_rng(steps).integers(1, steps + 1, batch)
            check_run(session, model, feed)
        assert binds.count == 0
        assert not session.statistics()["hosted_operators"]
