"""The process in which opening an ONNX file has its artifact made (flexnn/kept_artifacts.py):
``python -m flexnn.maker ASKED``. It prints the artifact's name, or a line ``error: …``.

Who opens waits for it, so it does without the command line, and ends without tidying up.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from _thread import start_new_thread
from typing import Any

from flexnn.errors import one_line, printable

_GARBAGE = 50_000, 20, 50
"""Thresholds of the garbage collector: compiling makes little garbage in cycles."""


def main() -> int:
    """Make what the argument asks for; return the exit status."""
    start_new_thread(_load, ())
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    status = 2
    try:
        text = _made(json.loads(sys.argv[1]))
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
    return status


def _load() -> None:
    """Import what compiling needs, while the model is read for its SHA-256."""
    with contextlib.suppress(Exception):
        import flexnn.graph.importer
        import flexnn.graph.passes  # noqa: F401


def _made(asked: dict[str, Any]) -> str:
    from flexnn.keeping import keep

    model, note = asked["model"], asked["note"]
    shapes = {str(name): tuple(dims) for name, dims in asked["shapes"].items()}
    if asked["terminal"] is None:
        return os.path.basename(keep(model, shapes, None, note))
    from flexnn.cli import progress

    with progress.shown(quiet=False, file=os.fdopen(asked["terminal"], "w")) as report:
        return os.path.basename(keep(model, shapes, report, note))


if __name__ == "__main__":
    os._exit(main())
