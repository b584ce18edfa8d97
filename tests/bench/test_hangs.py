"""Hangs are judged by the CPU: a worker that is frozen is none, one that computes for ever is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from bench.faults import files
from bench.process import cpu_seconds

WORKER = """
import sys
for line in sys.stdin:
    number = int(line)
    while number == 1:
        pass
    print('["clear error", ""]', flush=True)
"""


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[files.Worker]]:
    """Workers that answer at once, but compute for ever at mutation 1."""
    made: list[files.Worker] = []

    def start(self: files.Worker) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        made.append(self)

    monkeypatch.setattr(files.Worker, "start", start)
    monkeypatch.setattr(files, "SECONDS_MAX", 0.3)
    yield made
    for worker in made:
        worker.close()


def test_what_computes_for_ever_hangs(monkeypatch: pytest.MonkeyPatch, workers: list[files.Worker]) -> None:
    monkeypatch.setattr(files, "FIRST_SECONDS", 0.0)
    answers = files.fuzz([0, 1, 2], 0, 1, Path(), Console(quiet=True))
    assert [answers[number].outcome for number in (0, 1, 2)] == ["clear error", "hang", "clear error"]


def test_what_is_frozen_does_not(workers: list[files.Worker]) -> None:
    worker = files.Worker(0, Path())
    os.kill(worker.process.pid, signal.SIGSTOP)
    worker.give(0, files.SECONDS_MAX)
    time.sleep(2 * files.SECONDS_MAX)
    assert not worker.hangs()
    os.kill(worker.process.pid, signal.SIGCONT)
    assert worker.take().outcome == "clear error"


def test_what_waits_for_ever_does(monkeypatch: pytest.MonkeyPatch, workers: list[files.Worker]) -> None:
    monkeypatch.setattr(files, "WALL_SECONDS_MAX", 0.1)
    worker = files.Worker(0, Path())
    worker.give(1, 1e9)
    time.sleep(0.2)
    assert worker.hangs()
    assert worker.kill().outcome == "hang"


def test_seconds_of_a_process() -> None:
    before = cpu_seconds(os.getpid())
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert 0.1 < cpu_seconds(os.getpid()) - before < 2
    assert cpu_seconds(1 << 30) == 0
