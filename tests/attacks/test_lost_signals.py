"""Attack: Ctrl-C comes a moment before a wait begins, or the system hands it to another thread, or it comes while
something is taken or goes that must not be lost.

Answer: whoever waits for a device or for another thread looks for signals every 20 ms; a lock that was taken is given
back; and no part of Python runs where what it raises would be swallowed.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from flexnn import files
from flexnn.apart import apart
from flexnn.graph.descriptor import Descriptor
from flexnn.graph.ledger import Ledger
from flexnn.kept_artifacts import spawned
from flexnn.run.turns import Turns
from tests.support.elsewhere import LONG_SECONDS, Elsewhere, Stop, stopping
from tests.support.hangs import wait_until


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    with stopping():
        yield


def test_work_of_another_thread() -> None:
    """Took as long as the work."""
    work = Elsewhere()
    work.interrupts(lambda: apart(work))


def test_work_where_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("flexnn.apart.start_new_thread", none)
    assert apart(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 // 0)


def test_a_device_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a file beside a blocked device took 3 s."""
    (tmp_path / "file").write_bytes(bytes(8))
    work = Elsewhere()
    monkeypatch.setattr(os, "preadv", work.preadv)
    file = Descriptor(str(tmp_path / "file"))
    work.interrupts(lambda: file.read_some(memoryview(bytearray(8)), 0))
    file.close()


def test_a_disk_that_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling beside a busy disk took as long as it."""
    work = Elsewhere()
    monkeypatch.setattr(os, "fsync", work)

    def write() -> None:
        with files.replacing(str(tmp_path / "file")) as file:
            file.write(b"text")

    work.interrupts(write)
    assert os.listdir(tmp_path) == []


def test_a_process_that_says_nothing() -> None:
    """Opening an ONNX file for the first time took as long as compiling it."""
    work = Elsewhere()
    other = threading.Thread(target=work)
    other.start()
    command = [sys.executable, "-c", f"import time; time.sleep({20 * LONG_SECONDS})"]
    work.interrupts(lambda: spawned(command))
    other.join()


def test_a_turn_of_another_thread() -> None:
    """A call that waited for the run of another thread took as long as that."""
    turns, work = Turns(), Elsewhere()
    other = threading.Thread(target=turns.take, args=(work, lambda error: None))
    other.start()
    wait_until(lambda: turns.is_busy)
    work.interrupts(lambda: turns.take(lambda: None, lambda error: None))
    other.join()
    turns.take(lambda: None, lambda error: None)


USES: dict[str, Callable[[Turns], None]] = {
    "take": lambda turns: turns.take(lambda: None, lambda error: None),
    "take_if_free": lambda turns: turns.take_if_free(lambda: None, lambda error: None),
    "leave": lambda turns: turns.leave(None),
}
INTERRUPTS, EVERY_SECONDS = 4000, 1.3e-4


@pytest.mark.parametrize("use", USES)
def test_a_turn_that_was_taken_is_given_back(use: str) -> None:
    """Closing a session left the lock taken where Ctrl-C came at once: other threads waited for it for ever."""
    turns, stopped = Turns(), 0

    def calls() -> None:
        while True:
            USES[use](turns)

    def stop(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is calls.__code__:
                raise Stop
            frame = frame.f_back

    signal.signal(signal.SIGALRM, stop)
    gc.collect()
    gc.disable()  # what other tests left would end in a call, and lose what it raises
    try:
        signal.setitimer(signal.ITIMER_REAL, EVERY_SECONDS, EVERY_SECONDS)
        while stopped < INTERRUPTS:
            try:
                calls()
            except Stop:
                stopped += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.enable()
    assert not turns.is_busy
    found: list[bool] = []
    other = threading.Thread(target=lambda: turns.lock.if_free(lambda: found.append(True)))
    other.start()
    other.join()
    assert found


def test_nothing_of_python_runs_when_an_array_goes() -> None:
    """An exception of a handler while a counted array went was lost, and compiling went on."""
    ledger = Ledger(1 << 20)
    arrays = [np.zeros(1000, np.float32) for _ in range(3)]
    ledger.add(arrays)
    assert ledger.alive == 12000
    called: list[str] = []
    sys.setprofile(lambda frame, event, argument: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del arrays
    finally:
        sys.setprofile(None)
    assert not called
    assert ledger.alive == 0
    assert ledger.left == 1 << 20


def test_arrays_count_once_and_come_again() -> None:
    ledger = Ledger(1 << 20)
    for _ in range(100):  # one takes the place of the last, which nobody asked about
        array = np.zeros(1000, np.float32)
        ledger.add([array, array[3:], None])
        ledger.add([array])
    assert ledger.alive == 4000
