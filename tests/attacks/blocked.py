"""The process of test_blocked_device.py: a device that does not answer for 3 s, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from tests.support.faults import Faults
from tests.support.hangs import wait_until
from tests.support.late import Moment
from tests.support.sessions import feed

BLOCKED_MS = 3000
ARTIFACT, LEAST, IO, WHEN = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
TARGET = Path(ARTIFACT).with_suffix(".target")
"""File that is compiled to; then ARTIFACT is an ONNX file."""
faults = Faults()


def forget() -> None:
    """Have the page cache forget the artifact."""
    fd = os.open(ARTIFACT, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def interrupted(call: Callable[[], Any], waits: str = "read") -> float:
    """Return how long Ctrl-C took to end a call that ``waits`` for the device, and to let go of what it had made."""
    sent, is_over = [], True

    def send() -> None:
        time.sleep(0.3)
        sent.append(Moment())
        os.kill(os.getpid(), signal.SIGINT)

    forget()
    thread = threading.Thread(target=send)
    faults.arm(waits, 1, always=True, wait_ms=BLOCKED_MS)
    thread.start()
    try:
        call()
    except KeyboardInterrupt:
        is_over = False
    took = sent[0].since() if sent else -1.0  # the exception is gone, and what its frames held
    thread.join()
    return -1.0 if is_over else took


def open_session(memory: int | None) -> flexnn.Session:
    return flexnn.Session(ARTIFACT, memory=memory, threads=2, io=IO)


def threads() -> list[str]:
    """Return the threads of the engine."""
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found.append(Path(f"/proc/self/task/{task}/comm").read_text())
    return [name for name in found if "flexnn" in name]


def in_a_pool() -> None:
    """Interrupt a session of a pool and close it; another one goes on when the device answers."""
    before = len(os.listdir("/proc/self/fd"))
    with flexnn.Pool(None, threads=2, io=IO) as pool:
        other, session = (pool.open(ARTIFACT) for _ in range(2))
        least = pool.minimum_memory + (64 << 10)
    pool = flexnn.Pool(least, threads=2, io=IO)
    other, session = (pool.open(ARTIFACT) for _ in range(2))
    (expected,) = other.run(None, feed())
    print("interrupt", interrupted(lambda: session.run(None, feed())))
    start = Moment()
    session.close()
    print("close", start.since())
    faults.disarm()
    assert np.array_equal(other.run(None, feed())[0], expected)
    assert pool.statistics()["sessions"] == 1
    other.close()
    pool.close()
    assert len(os.listdir("/proc/self/fd")) == before


if WHEN == "pool":
    in_a_pool()
    sys.exit()
if WHEN == "compile":
    before = sorted(os.listdir(TARGET.parent))
    print("interrupt", interrupted(lambda: flexnn.compile(ARTIFACT, TARGET), "sync"))
    faults.disarm()
    assert sorted(os.listdir(TARGET.parent)) == before
    flexnn.compile(ARTIFACT, TARGET)
    sys.exit()
x = feed()
with open_session(LEAST) as session:
    expected = session.run(None, x)[0]
descriptors = len(os.listdir("/proc/self/fd"))
if WHEN == "open":
    forget()
    took = interrupted(lambda: open_session(None))
else:
    session = open_session(LEAST)
    if IO == "buffered" or isinstance(session.get_inputs()[0].shape[0], str):  # so that the caller helps, or has a plan
        session.run(None, x)
    took = 0.0
    if WHEN != "memory":
        took = interrupted(lambda: session.run(None, x))
    if "memory" in WHEN and took >= 0:  # after a run, the change would unbind a program of which something is read
        took = max(took, interrupted(lambda: setattr(session, "memory", None)))
    if WHEN in ("run", "drop"):
        start = Moment()
        if WHEN == "drop":  # as Ctrl-C may, before a session has what it opens
            del vars(session)["_run"], vars(session)["_ending"]
        else:
            session.close()
        print("close", start.since())
    else:
        assert session.memory == LEAST
        faults.disarm()
        assert np.array_equal(session.run(None, x)[0], expected)  # after the device answered
        session.close()
faults.disarm()
print("interrupt", took)
wait_until(lambda: len(os.listdir("/proc/self/fd")) == descriptors and not threads())  # when the device has answered
with open_session(LEAST) as session:
    assert np.array_equal(session.run(None, x)[0], expected)
