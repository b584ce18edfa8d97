"""docs/operators.md is what the code supports today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_the_codes() -> None:
    spec = importlib.util.spec_from_file_location("operators_page", ROOT / "docs" / "operators.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run python docs/operators.py"
