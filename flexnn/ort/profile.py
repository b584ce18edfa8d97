"""Profiles, which ``end_profiling`` writes: trace events of a session's opening and runs, and of the steps of the last
run where shapes are fixed.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from flexnn.errors import FlexNNError

EVENTS_MAX = 10_000
"""Most runs that are kept; onnxruntime keeps a million events."""


class Profile:
    """Times of a session, from when it began to open."""

    def __init__(self) -> None:
        self.start_ns = time.perf_counter_ns()
        self._events: list[dict[str, Any]] = []

    def add(self, name: str, start_ns: int, **facts: Any) -> None:
        """Note what began at ``start_ns`` and ends now."""
        if len(self._events) >= EVENTS_MAX:
            return
        now = time.perf_counter_ns()
        self._events.append(
            {
                "cat": "Session",
                "name": name,
                "ph": "X",
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "ts": (start_ns - self.start_ns) / 1e3,
                "dur": (now - start_ns) / 1e3,
                "args": facts,
            }
        )

    def ran(self, start_ns: int, feed: Mapping[str, Any], session: Any) -> None:
        """Note a run that ends now."""
        shapes = {name: list(getattr(value, "shape", ())) for name, value in feed.items()}
        self.add("model_run", start_ns, shapes=shapes, **getattr(session, "last_run", {}))

    def write(self, prefix: str, session: Any) -> str:
        """Write all events to a file; return its name. Raises OSError."""
        events = list(self._events)
        with contextlib.suppress(AttributeError, FlexNNError):  # onnxruntime's, or open shapes: runs are all
            events += session.trace_events()["traceEvents"]
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        name = f"{prefix}_{stamp}.json".replace("__", "_")
        with open(name, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)
        return name
