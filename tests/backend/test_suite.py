"""The official ONNX backend suite: what fails for a reason that bench/field/suite.py does not list is a failure."""

from __future__ import annotations

import json

import pytest

from bench.field.suite import count


@pytest.mark.slow
def test_official_suite() -> None:
    groups, failures = count()
    assert not failures, json.dumps(failures, indent=1)
    assert groups["all"]["passed"] >= 1734, groups["all"]
    for group in ("strict core", "control flow", "recurrent", "pytorch"):
        assert groups[group]["passed"] == groups[group].total(), groups[group]
