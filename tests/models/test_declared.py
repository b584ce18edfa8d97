"""Trained models say of their outputs what onnxruntime says of them."""

from __future__ import annotations

import onnxruntime
import pytest

from bench.models.fetch import FetchError
from bench.models.subjects import SUBJECTS, Subject
from flexnn.graph import load_model
from flexnn.session import described
from tests.support.missing import missing

FOLDED = {"silero_vad_sequence": {"hn", "cn"}, "ppocr_v5_rec": {"fetch_name_0"}}
"""Outputs of which onnxruntime knows more, because it folds constants before it infers."""


@pytest.mark.parametrize("subject", [pytest.param(s, id=s.name) for s in SUBJECTS if not s.is_large])
def test_outputs_are_those_of_onnxruntime(subject: Subject) -> None:
    try:
        path = subject.fetch()
    except FetchError as error:
        missing(f"{subject.name} cannot be fetched: {error}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    mine = [described(port) for port in load_model(str(path)).graph.outputs]
    for port, other in zip(mine, peer.get_outputs(), strict=True):
        assert (port.name, port.type) == (other.name, other.type)
        if port.name not in FOLDED.get(subject.name, ()):
            assert port.shape == other.shape, port.name
