"""A test marked ``alone`` overlaps no other test, in as many workers as there are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

TESTS = """
import json, os, time
import pytest

def stamp(name):
    start = time.monotonic()
    time.sleep(0.02)
    with open(os.environ["STAMPS"], "a") as file:
        file.write(json.dumps([name, start, time.monotonic()]) + "\\n")

@pytest.mark.parametrize("i", range(30))
def test_beside(i):
    stamp("beside")

@pytest.mark.alone
@pytest.mark.parametrize("i", range(6))
def test_alone(i):
    stamp("alone")
"""


def test_alone_is_alone(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = alone\n")
    root = Path(__file__).resolve().parents[1]
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.append({str(root)!r})\nfrom tests.conftest import *\n")
    hidden = ("FLEXNN_TEST_TURNS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID")
    env = {k: v for k, v in os.environ.items() if k not in hidden} | {"STAMPS": str(tmp_path / "stamps")}
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-n", "3", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    stamps = [json.loads(line) for line in (tmp_path / "stamps").read_text().splitlines()]
    assert len(stamps) == 36
    overlapping = [{a, b} for (a, s, e), (b, s2, e2) in combinations(stamps, 2) if s < e2 and s2 < e]
    assert {"beside"} in overlapping
    assert all("alone" not in pair for pair in overlapping)
