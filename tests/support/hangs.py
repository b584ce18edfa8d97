"""Waiting for what must come. Tests bound no time on the clock: a slow or busy machine is not wrong."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_SECONDS = 600
"""Time after which a test, or what it waits for, hangs. A guard, no bound of what is tested."""


def wait_until(ready: Callable[[], object], pause: float = 0.005) -> None:
    """Wait until something is so; fail where it hangs."""
    end = time.monotonic() + HANG_SECONDS
    while not ready():
        assert time.monotonic() < end, "it hangs"
        time.sleep(pause)
