"""Reading and checking an ONNX file in a process beside the one that makes an artifact of it, which imports what that
takes meanwhile. It only says what it found if all is well: else the other one reads the file again, and says why not.
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

import onnx

from . import onnx_file  # both processes need it: it is imported once, before they part
from .descriptor import Descriptor
from .onnx_file import Checked, OnnxFile
from .ports import Port

SECONDS = 120
"""Most time of a CPU that the process takes."""
YOUNG_NS = 20_000_000
"""Age of a change up to which another one may have the same time: such files are not read beside."""


class Beside:
    """A process that reads and checks the file at ``path``. Raises OSError."""

    def __init__(self, path: str) -> None:
        self._file = Descriptor(path)
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
        """Wait for the process; return the open file and what is known of its model, if all is well and the file is
        what it was when it was opened.
        """
        with open(self._reads, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(self._process, 0)
        found = os.stat(self._file.path)
        same = (getattr(found, name) == getattr(self._status, name) for name in ("st_dev", "st_ino", "st_ctime_ns"))
        if status or not all(same):  # one that was killed may have said a part
            return None
        model, bulk, about, opset, outputs = marshal.loads(said)
        file = OnnxFile(self._file.path, self._file, onnx.ModelProto.FromString(model), bulk, about)
        return file, Checked(opset, [Port(*output) for output in outputs])


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
            pipe.write(said)
        os._exit(0)
    os._exit(1)
