"""Reading and checking an ONNX file in a process beside the one that makes an artifact of it, which imports what that
takes meanwhile. It only says what it found if all is well: else the other one reads the file again, and says why not.
Then it hashes the file, for whom has to know its contents only once an artifact is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import resource
import select
import signal
import time
from collections.abc import Callable

import onnx

from . import onnx_file  # both processes need it: it is imported once, before they part
from .descriptor import Descriptor
from .onnx_file import Checked, OnnxFile
from .ports import Port

SECONDS = 120
"""Most time of a CPU that the process takes."""
YOUNG_NS = 20_000_000
"""Age of a change up to which another one may have the same time: such files are not read beside."""
LENGTH, SHA256 = 8, 32
"""Bytes of the length of what is said of a model, and of a SHA-256."""
READ_BYTES = 1 << 20
"""Bytes that are read and hashed at once."""


class Beside:
    """A process that reads and checks the file at ``path``; ``heard`` is called when the other one need not wait any
    longer. Raises OSError.
    """

    def __init__(self, path: str, heard: Callable[[], None] = lambda: None) -> None:
        self._file, self._heard = Descriptor(path), heard
        self._status = os.fstat(self._file.fd)
        if time.time_ns() < self._status.st_ctime_ns + YOUNG_NS:
            raise BlockingIOError(f"{path}: it has just changed")
        self._reads, writes = os.pipe()
        try:
            self._process = os.fork()
            if not self._process:
                os.close(self._reads)  # or it waits for ever for a reader that is gone
                _read(self._file, writes)
        except OSError:
            os.close(self._reads)
            raise
        finally:
            os.close(writes)

    def take(self) -> tuple[OnnxFile, Checked] | None:
        """Wait until the model is read; return the open file and what is known of the model, if all is well and the
        file is what it was when it was opened.
        """
        said = self._said(int.from_bytes(self._said(LENGTH), "little"))
        self._heard()
        if not said or not self._is_same():
            self._end()
            return None
        model, bulk, about, opset, outputs = marshal.loads(said)
        file = OnnxFile(self._file.path, self._file, onnx.ModelProto.FromString(model), bulk, about)
        return file, Checked(opset, [Port(*output) for output in outputs])

    def digest(self) -> bytes | None:
        """Wait until the whole file is read, after ``take``; return its SHA-256 if it is what it was when it was
        opened.
        """
        found = self._said(SHA256)
        self._end()
        return found if found and self._is_same() else None

    def _said(self, count: int) -> bytes:
        """Return the next bytes that the process says, nothing if it says fewer: it was killed, or something is wrong
        with the model.
        """
        said = bytearray()
        while len(said) < count and self._reads >= 0:
            block = os.read(self._reads, min(count - len(said), 1 << 20))
            if not block:
                return b""
            said += block
        return bytes(said)

    def _is_same(self) -> bool:
        found = os.stat(self._file.path)
        return all(getattr(found, name) == getattr(self._status, name) for name in ("st_dev", "st_ino", "st_ctime_ns"))

    def _end(self) -> None:
        """Let the process end: it does when nobody reads what it says."""
        if self._reads >= 0:
            os.close(self._reads)
            self._reads = -1
            os.waitpid(self._process, 0)


def _end_without_reader(writes: int) -> None:
    """Have the system end this process (SIGIO) when nobody is left who could take what it finds."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(writes, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(writes, fcntl.F_SETFL, os.O_ASYNC)
    poll = select.poll()
    poll.register(writes, 0)
    if poll.poll(0):  # the other one ended before
        os._exit(1)


def _read(file: Descriptor, writes: int) -> None:
    """Do what the process is there for, and end it."""
    with contextlib.suppress(BaseException):
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        from .checked import check_onnx

        _end_without_reader(writes)
        opened = onnx_file.open_onnx(file.path, file=file)
        opset, ports = check_onnx(opened)
        outputs = [(port.name, port.dtype, port.dims) for port in ports]
        said = marshal.dumps((opened.model.SerializeToString(), opened.bulk, opened.about, opset, outputs))
        fcntl.fcntl(writes, fcntl.F_SETFL, 0)  # who reads sends the same signal
        with open(writes, "wb") as pipe:
            pipe.write(len(said).to_bytes(LENGTH, "little") + said)
            pipe.flush()
            pipe.write(_digest(file, writes))
        os._exit(0)
    os._exit(1)


def _digest(file: Descriptor, writes: int) -> bytes:
    """Return the SHA-256 of a file. Ends the process when nobody is left who could take it."""
    import hashlib

    found, poll, block = hashlib.sha256(), select.poll(), memoryview(bytearray(READ_BYTES))
    poll.register(writes, 0)
    for at in range(0, file.size, READ_BYTES):
        if poll.poll(0):
            os._exit(1)
        part = block[: file.size - at]
        file.read_into(part, at)
        found.update(part)
    return found.digest()
