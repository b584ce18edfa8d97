"""Runs commands, a line of standard input each: as many at a time as there are CPUs, and in this order. The end of
what each printed comes when it is done, behind its seconds. Where one fails, or takes longer than --limit seconds, all
that it printed and its name come, nothing more is started, and the status is 1.

usage: .ci/together.py [--limit SECONDS] [WORD...] <COMMANDS
    WORD...: before each command, and not printed (an emulator)
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock

LIMIT = 900
"""Seconds, unless others are given: several times what the longest command takes on a slow machine."""

LINES = 8
"""Of what a command printed that did well: its end. A log should have room for what went wrong."""


class Programs:
    """What runs, and whether anything failed."""

    def __init__(self, before: list[str], limit: float) -> None:
        self.before = before
        self.limit = limit
        self.failed = Event()
        self._running: set[int] = set()
        self._printing = Lock()

    def run(self, line: str) -> None:
        """Run one command, unless an earlier one failed, and print what it said."""
        if self.failed.is_set():
            return
        started = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            status = self._status([*self.before, *shlex.split(line)], said)
            seconds = time.monotonic() - started
            said.seek(0)
            lines = said.read().rstrip().split("\n")
        if status:
            self.failed.set()
            lines = [*lines, f"FAILED: {line}: {status}"]
        elif len(lines) > LINES:
            lines = [f"({len(lines) - LINES} lines more)", *lines[-LINES:]]
        with self._printing:
            if len(lines) == 1:
                print(f"{seconds:6.1f} s  {line}: {lines[0]}", flush=True)
            else:
                print(f"{seconds:6.1f} s  {line}", *lines, sep="\n          ", flush=True)

    def kill(self) -> None:
        """End all that runs."""
        self.failed.set()
        for pid in tuple(self._running):
            os.killpg(pid, signal.SIGKILL)

    def _status(self, command: list[str], said: tempfile._TemporaryFileWrapper[str]) -> str:
        """How a command ended; nothing: well. Each is a group of its own, so that its children end with it."""
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        ) as program:
            self._running.add(program.pid)
            try:
                status = program.wait(self.limit)
            except subprocess.TimeoutExpired:
                os.killpg(program.pid, signal.SIGKILL)
                return f"not done after {self.limit:.0f} s"
            finally:
                self._running.discard(program.pid)
        return f"status {status}" if status else ""


def main() -> int:
    """Run what standard input says; the status."""
    words = sys.argv[1:]
    limit = LIMIT
    if words[:1] == ["--limit"]:
        limit, words = int(words[1]), words[2:]
    programs = Programs(words, limit)
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            for done in [pool.submit(programs.run, line) for line in sys.stdin.read().splitlines() if line.strip()]:
                done.result()
        except BaseException:
            programs.kill()
            raise
    return int(programs.failed.is_set())


if __name__ == "__main__":
    sys.exit(main())
