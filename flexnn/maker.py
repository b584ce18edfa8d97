"""The process in which opening an ONNX file has its artifact made (flexnn/kept_artifacts.py):
``python -m flexnn.maker ASKED``. It prints whether the model is "open" or "bound" when that is known, and at last the
artifact's name, or a line ``error: …``.

Who opens waits for it, so it does without the command line, and ends without tidying up. What first runs can do without
is left to a process that goes on when this one has ended, and so is having the disk keep it all: it takes only time
that nobody else wants, and it is the first that a system without memory ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import sys
from _thread import start_new_thread
from collections.abc import Callable
from typing import Any

from flexnn.errors import one_line, printable
from flexnn.system.limits import Limits

LATER = "FLEXNN_LATER"
"""Variable of the environment: "0" lets nothing be left for later."""
LATER_BYTES = 512 << 20
"""Memory that must be free for a process that goes on beside the session."""
LATER_SECONDS = 120
"""Most time of a CPU that it takes."""
_GARBAGE = 50_000, 20, 50
"""Thresholds of the garbage collector: compiling makes little garbage in cycles."""


def main() -> int:
    """Make what the argument asks for; return the exit status."""
    start_new_thread(_load, ())
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    status = 2
    rest = None
    try:
        text, rest = _made(json.loads(sys.argv[1]))
        status = 0
    except (ValueError, OSError) as error:
        text = f"error: {one_line(error)}"
    except MemoryError:
        text = "error: out of memory"
    except KeyboardInterrupt:
        text = "error: interrupted"
    except Exception as error:  # a defect of ours: still one line, no traceback
        text = f"error: internal: {type(error).__name__}: {one_line(error)}"
    print(printable(text), flush=True)
    if rest is not None and _goes_on():
        with contextlib.suppress(Exception):
            rest()
    return status


def _goes_on() -> bool:
    """Return in a process of its own that nobody waits for, with True; this one gets False."""
    try:
        if os.fork():
            return False
    except OSError:
        return False
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_CPU, (LATER_SECONDS, LATER_SECONDS))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    return True


def _load() -> None:
    """Import what compiling needs, while the model is read for its SHA-256."""
    with contextlib.suppress(Exception):
        import flexnn.graph.importer
        import flexnn.graph.passes  # noqa: F401


def _told(kind: str) -> None:
    print(kind, flush=True)


def _may_leave() -> bool:
    """Return whether another process may go on beside the session."""
    if os.environ.get(LATER) == "0":
        return False
    with contextlib.closing(Limits()) as limits:
        return limits.free() >= LATER_BYTES


def _made(asked: dict[str, Any]) -> tuple[str, Callable[[], None] | None]:
    from flexnn.keeping import Waited, keep

    model, note = asked["model"], asked["note"]
    shapes = {str(name): tuple(dims) for name, dims in asked["shapes"].items()}
    waited = Waited(_told) if _may_leave() else None
    if asked["terminal"] is None:
        name = keep(model, shapes, None, note, waited)
    else:
        from flexnn.cli import progress

        with (
            os.fdopen(asked["terminal"], "w") as terminal,
            progress.shown(quiet=False, file=terminal) as report,
        ):
            name = keep(model, shapes, report, note, waited)
    return os.path.basename(name), waited.rest if waited is not None else None


if __name__ == "__main__":
    os._exit(main())
