"""bench.faults in its short form: nothing is late, nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.faults import endurance, interrupts
from bench.process import module
from tests.support import faults


def test_long_runs_leave_nothing(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    module("bench.faults", "endurance", "--runs", 1200, "--opens", 40, "--budgets", 40, "--json", out)
    rows = json.loads(out.read_text())
    assert len(rows) == 8
    assert all(row["ok"] for row in rows)


def test_growth_is_found() -> None:
    kept = []
    row = endurance.repeated("grows", lambda number: kept.append(bytearray(40_000)), 200)
    assert not row["ok"]
    assert row["rss"] > endurance.ALLOWANCE


@pytest.mark.alone
def test_ctrl_c_comes_back(tmp_path: Path) -> None:
    """Ctrl-C at 7 moments of each stage, of which one may be late: other programs may have the machine just then."""
    faults.build(tmp_path)  # skips where there is no compiler
    out = tmp_path / "rows.json"
    module("bench.faults", "interrupts", "--count", 56, "--nodes", 400, "--share", 0.15, "--json", out)
    rows = {row["stage"]: row for row in json.loads(out.read_text())}
    assert set(rows) == set(interrupts.STAGES)
    assert all(row["moments"] >= 5 for row in rows.values())


def test_what_is_late_is_found() -> None:
    row = interrupts.shown("run", [1.0, 60.0], 0.0)
    assert row["late"] == 1
    assert not row["ok"]
    assert interrupts.shown("compile", [60.0, 200.0], 0.0)["ok"]
