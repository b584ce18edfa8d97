"""Models that break the ONNX standard: compiling refuses each in one line that names the node and the rule."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnxruntime
import pytest

from bench.field.broken import cases, compiled, wrong
from bench.field.records import records
from flexnn.graph.standard import records as stored

RULES = 24
"""Kinds of rules, at least."""


def test_broken_models_are_refused_and_their_twins_are_not(tmp_path: Path) -> None:
    rules: Counter[str] = Counter()
    twins: dict[bytes, str] = {}
    found = []
    for case in cases():
        rules[case.rule] += 1
        twin = case.twin.SerializeToString()
        if twin not in twins:
            twins[twin] = compiled(case.twin, tmp_path)
        found.append((case.name, wrong(case, compiled(case.broken, tmp_path))))
        found.append((case.name, twins[twin] and f"its twin is refused: {twins[twin]}"))
    failures = [f"{name}: {text}" for name, text in found if text]
    assert not failures, "\n".join(failures)
    assert len(rules) >= RULES, rules
    assert rules.total() >= 1000


def test_records_are_those_of_onnxruntime() -> None:
    version = (stored.__doc__ or "").partition("onnxruntime ")[2].partition(" states")[0]
    if onnxruntime.__version__ != version:
        pytest.skip(f"the records are those of onnxruntime {version}")
    made: dict[str, object] = {}
    exec(records(), made)
    assert (made["RECORDS"], made["TYPES"]) == (stored.RECORDS, stored.TYPES)
