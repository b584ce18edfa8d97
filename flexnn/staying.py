"""A process that has made an artifact stays for a moment: a program that opens one ONNX file opens others, and the next
one's artifact takes half the time where all that compiling needs is imported already.

It is the process that goes on when a copy of the session's has ended (flexnn/maker.py). It makes the next artifact in a
copy of itself, which stays in its place if all was well: so it knows what that imported, and what fails takes nobody
along. It knows nothing of what the program does meanwhile, so who asks says where relative paths begin and which the
environment is; where user or root are not those of before, it does nothing. It ends when the program does, and when
nobody asks for a while.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
from _thread import allocate_lock
from collections.abc import Callable
from typing import Any, NoReturn

from flexnn.apart import LOOK_SECONDS

SECONDS = 3.0
"""Time for which a process stays when nobody asks."""
HERE = 10, 11
"""Descriptors of the ends in a new process."""
KINDS = "open", "bound"
"""Lines that come before the last one."""
FAILED = "failed"
"""Last line of a copy that says nothing."""
REFUSED = 2
"""Status of a copy that said what is wrong."""
OFF = "FLEXNN_FORK", "FLEXNN_LATER"
"""Variables of the environment: "0" in one of them has no process stay."""
_Line = Callable[[str], None]


class Ends:
    """Descriptors of a process that stays: where it is asked, and where it answers."""

    def __init__(self, asked: int, answers: int) -> None:
        self.asked, self.answers = asked, answers

    def close(self) -> None:
        """Close both."""
        for fd in (self.asked, self.answers):
            with contextlib.suppress(OSError):
                os.close(fd)


class _Staying:
    """The process that stays for this one, if any; calls of several threads do not wait for each other."""

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.ends: Ends | None = None
        self.owner = 0
        """The process that may ask; a fork of it has the same descriptors."""


_staying = _Staying()


def is_wanted() -> bool:
    """Return whether the environment lets a process stay."""
    return all(os.environ.get(name) != "0" for name in OFF)


def offered() -> Ends | None:
    """Return the ends of a process that is about to begin, while this process keeps the others; None: none is to stay,
    as the environment says so, or another call is just asking one. Raises OSError.
    """
    if not is_wanted() or not _staying.lock.acquire(blocking=False):
        return None
    try:
        asked, asks = _pipe()
        try:
            answers, answered = _pipe()
        except OSError:
            Ends(asked, asks).close()
            raise
        if _staying.ends is not None:
            _staying.ends.close()
        _staying.ends, _staying.owner = Ends(asks, answers), os.getpid()
        return Ends(asked, answered)
    finally:
        _staying.lock.release()


def _pipe() -> tuple[int, int]:
    """Return a pipe whose descriptors are none that a new process has for something else."""
    low, found = os.pipe(), list[int]()
    try:
        for fd in low:
            found.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(HERE) + 1))
    except OSError:
        for fd in found:
            os.close(fd)
        raise
    finally:
        Ends(*low).close()
    return found[0], found[1]


def ask(asked: dict[str, Any], heard: _Line | None) -> str:
    """Have the process that stays make what is ``asked`` for; return the last line that it prints, "" if none stays or
    says anything. ``heard`` is called with the line before.
    """
    if _staying.ends is None or not is_wanted() or not _staying.lock.acquire(blocking=False):
        return ""
    ends, last = _staying.ends, ""
    try:
        if ends is not None and _staying.owner == os.getpid():
            with contextlib.suppress(OSError):
                last = _answer(
                    ends, {**asked, "environment": dict(os.environ), "folder": os.getcwd(), "who": who()}, heard
                )
        return last
    finally:
        if not last and ends is not None:  # an answer that comes late is no answer to the next question
            ends.close()
            _staying.ends = None
        _staying.lock.release()


def who() -> list[int]:
    """Return what must be the same for paths and files to be."""
    root = os.stat("/")
    return [os.geteuid(), os.getegid(), root.st_dev, root.st_ino]


def _answer(ends: Ends, asked: dict[str, Any], heard: _Line | None) -> str:
    """Ask; return the last line of the answer, "" for none."""
    question = json.dumps(asked).encode() + b"\n"
    while question:
        question = question[os.write(ends.asked, question) :]
    said = b""
    while True:
        while not select.select([ends.answers], [], [], LOOK_SECONDS)[0]:  # looks for signals meanwhile
            pass
        block = os.read(ends.answers, 1 << 16)
        said += block
        *lines, said = said.split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "surrogateescape")
            if text not in KINDS:
                return text if text != FAILED else ""
            if heard is not None:
                heard(text)
        if not block:
            return ""


def stay(ends: Ends, make: Callable[[dict[str, Any], Ends], int]) -> None:
    """Have a copy of this process ``make`` what is asked for, until one did, and stays itself, or nobody asks."""
    said = b""
    while select.select([ends.asked], [], [], SECONDS)[0]:
        block = os.read(ends.asked, 1 << 16)
        said += block
        if not block:
            return
        if not said.endswith(b"\n"):
            continue
        asked, said = json.loads(said), b""
        if asked.pop("who") != who():
            return
        process = os.fork()
        if not process:
            _make(ends, asked, make)
        status = _ended(process, ends.asked)
        if not status:
            return
        if status != REFUSED:
            os.write(ends.answers, f"{FAILED}\n".encode())


def _make(ends: Ends, asked: dict[str, Any], make: Callable[[dict[str, Any], Ends], int]) -> NoReturn:
    """Do the work of a copy, and end it."""
    status = 1
    try:
        os.dup2(ends.answers, 1)
        os.environ.clear()
        os.environ.update(asked.pop("environment"))
        os.chdir(asked.pop("folder"))
        status = make(asked, ends)
    finally:
        os._exit(status)


def _ended(process: int, asked: int) -> int | None:
    """Return the status of a copy when it has ended; None: whoever asked is gone, and so is the copy."""
    poll = select.poll()
    poll.register(asked, 0)
    while True:
        gone = poll.poll(1e3 * LOOK_SECONDS)
        if gone:
            os.kill(process, signal.SIGKILL)
        ended, status = os.waitpid(process, 0 if gone else os.WNOHANG)
        if gone:
            return None
        if ended:
            return os.waitstatus_to_exitcode(status)
