"""``flexnn run --live``: figures on standard error, and Ctrl-C as its end."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flexnn
from tests.support.hangs import HANG_SECONDS
from tests.support.sessions import smallest, write_model
from tests.test_dependencies import without

COMMAND = [sys.executable, "-P", "-m", "flexnn", "run"]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_model(tmp_path_factory.mktemp("live") / "small.onnx")))


def test_lines_where_nobody_looks(artifact: Path) -> None:
    command = [*COMMAND, str(artifact), "--live", "--repeat", "5", "--memory", str(smallest(artifact)), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_SECONDS)
    assert json.loads(done.stdout)["latency_ms"]["runs"] == 5
    for word in ("memory ", "MiB at most (budget", "rate ", "runs per second", "stalls ", "of the time", "reading "):
        assert word in done.stderr


@pytest.mark.parametrize("lacking", ["rich", "nothing"])
def test_it_runs_until_ctrl_c(artifact: Path, tmp_path: Path, lacking: str) -> None:
    """On a terminal; then it prints the figures of the runs, and that is no error."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, str(artifact), "--live"], env=without(tmp_path, lacking), stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while b"runs per second" not in said:
        said += os.read(ours, 4096)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=HANG_SECONDS)
    os.close(ours)
    assert process.returncode == 0, said
    runs = re.search(rb"over (\d+) runs", out)
    assert runs
    assert int(runs[1]) >= 1
