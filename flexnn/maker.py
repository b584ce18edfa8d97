"""The process in which opening an ONNX file has its artifact made (flexnn/kept_artifacts.py says how it starts). It
prints whether the model is "open" or "bound" when that is known, and at last the artifact's name, or a line
``error: …``.

Who opens waits for it, so it does without the command line, and ends without tidying up. What first runs can do without
is left to a process that goes on when this one has ended, and so is having the disk keep it all: it takes only time
that nobody else wants, and it is the first that a system without memory ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flexnn.errors import DEFECT, ERROR, NO_MEMORY, one_line, printable
from flexnn.forking import RESIDENT_MAX
from flexnn.lightly import complete, import_messages, import_numpy, lighten
from flexnn.system.limits import Limits
from flexnn.system.process import resident

if TYPE_CHECKING:
    from types import ModuleType

    from flexnn.graph.beside import Beside
    from flexnn.staying import Ends

LATER = "FLEXNN_LATER"
"""Variable of the environment: "0" lets nothing be left for later."""
LOADED = (
    "graph.importer", "graph.lower.convolution", "graph.lower.elementwise", "graph.lower.indexing",
    "graph.lower.linear", "graph.lower.logic", "graph.lower.pooling", "graph.lower.reduction", "graph.lower.resizing",
    "graph.lower.selection", "graph.passes", "artifact.writer", "graph.prefold", "artifact.model_section",
    "regions.sampling",
)  # fmt: skip
"""Modules that compiling needs, those for open shapes last."""
CHECKS = "flexnn.graph.checked"
"""Module that reading a model needs."""
LATER_BYTES = 512 << 20
"""Memory that must be free for a process that goes on beside the session."""
LATER_AFTER = 1.0
"""Seconds until it begins: first runs take all CPUs, and are as slow as the slowest of these."""
LATER_SECONDS = 120
"""Most time of a CPU that it takes."""
_GARBAGE = 50_000, 20, 50
"""Thresholds of the garbage collector: compiling makes little garbage in cycles."""


def main(asked: dict[str, Any], ends: Ends | None = None) -> int:
    """Make what is asked for; return the exit status. ``ends``: the process stays and is asked for more there."""
    import_messages()
    core = lighten("flexnn._core", "_core")
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    status = 2
    made = _Made("", may_leave=False)
    try:
        made = _made(asked, core)
        text, status = made.name, 0
    except (ValueError, OSError) as error:
        text = f"{ERROR}{one_line(error)}"
    except MemoryError:
        text = NO_MEMORY
    except KeyboardInterrupt:
        text = f"{ERROR}interrupted"
    except Exception as error:  # a defect of ours: still one line, no traceback
        text = f"{DEFECT}{type(error).__name__}: {one_line(error)}"
    print(printable(text), flush=True)
    stays = ends is not None and made.may_leave and resident()[0] <= RESIDENT_MAX
    if (made.rest is not None or stays) and _goes_on():
        _go_on(made, ends, stays=stays)
    return status


def _go_on(made: _Made, ends: Ends | None, *, stays: bool) -> None:
    """Do what is left of an artifact; if this process ``stays``, another one does."""
    with contextlib.suppress(Exception):
        rest, made.rest = made.rest, None
        if stays and (rest is None or os.fork()):
            from flexnn.staying import stay

            del rest
            importlib.import_module(CHECKS)  # reading was done beside
            assert ends is not None
            stay(ends, main)
        elif rest is not None:
            if ends is not None:
                ends.close()  # nobody asks this process, or would wait for its end
            time.sleep(LATER_AFTER)
            rest()


def _goes_on() -> bool:
    """Return in a process of its own that nobody waits for, with True; this one gets False."""
    _loading.end()
    try:
        if os.fork():
            return False
    except OSError:
        return False
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    resource.setrlimit(resource.RLIMIT_CPU, (LATER_SECONDS, LATER_SECONDS))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    return True


def _beside(model: str) -> Beside | None:
    """Return a process that reads the model, if another CPU is there for it, and if this one has to import much."""
    if len(os.sched_getaffinity(0)) < 2 or CHECKS in sys.modules:
        return None
    try:
        from flexnn.graph.beside import Beside

        return Beside(model, _loading.stop)
    except (OSError, ImportError):  # reading it says what is not installed
        return None


class _Loading:
    """A thread that imports what compiling needs, while the model is read."""

    def __init__(self) -> None:
        self._is_enough = False
        self._lock = allocate_lock()

    def begin(self) -> None:
        """Begin to import."""
        self._is_enough = False
        self._lock.acquire()
        try:
            start_new_thread(self._load, ())
        except RuntimeError:  # no thread: compiling imports it
            self._lock.release()

    def _load(self) -> None:
        try:
            with contextlib.suppress(Exception):
                for name in LOADED:
                    if self._is_enough:
                        break
                    importlib.import_module(f"flexnn.{name}")
        finally:
            self._lock.release()

    def stop(self) -> None:
        """Let the thread import no further module: only one of them runs at a time, so it helps while the other one
        waits.
        """
        self._is_enough = True

    def end(self) -> None:
        """Wait until the thread is gone, which imports no further module: in a copy of this process what it was just
        importing would stay locked, and who imports it there would wait for ever.
        """
        self.stop()
        with self._lock:
            pass


_loading = _Loading()


def _told(kind: str) -> None:
    print(kind, flush=True)


def _may_leave() -> bool:
    """Return whether another process may go on beside the session."""
    if os.environ.get(LATER) == "0":
        return False
    with contextlib.closing(Limits()) as limits:
        return limits.free() >= LATER_BYTES


class _Made:
    """An artifact that was made."""

    def __init__(self, name: str, *, may_leave: bool, rest: Callable[[], None] | None = None) -> None:
        self.name, self.may_leave, self.rest = name, may_leave, rest


def _made(asked: dict[str, Any], core: ModuleType | None) -> _Made:
    """Make what is asked for. ``core``: the C core's package, which was lightened: numpy comes with it, when the other
    process has begun to read.
    """
    model, note = asked["model"], asked["note"]
    shapes = {str(name): tuple(dims) for name, dims in asked["shapes"].items()}
    may_leave = _may_leave()
    beside = _beside(model) if may_leave else None
    import_numpy()
    if core is not None:
        complete(core)
    _loading.begin()
    from flexnn.keeping import Waited, keep

    waited = Waited(_told, beside) if may_leave else None
    if asked["terminal"] is None:
        name = keep(model, shapes, None, note, waited)
    else:
        from flexnn.cli import progress

        with (
            os.fdopen(asked["terminal"], "w") as terminal,
            progress.shown(quiet=False, file=terminal) as report,
        ):
            name = keep(model, shapes, report, note, waited)
    return _Made(os.path.basename(name), may_leave=may_leave, rest=waited.rest if waited is not None else None)


def start() -> None:
    """Make what the last argument asks for, and end without tidying up."""
    asked, ends = json.loads(sys.argv[-1]), None
    if asked.get("stays"):
        from flexnn.staying import HERE, Ends

        ends = Ends(*HERE)
    os._exit(main(asked, ends))
