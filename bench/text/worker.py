"""FlexNN in a process of its own, which imports little: it may be in a control group with a limit.

Its arguments are HOW FILE THREADS CAPACITY TOKENS SECONDS PROMPT [BYTES]; it writes greedy text and prints one object.
``HOW``: free, without a limit; limited, in a group of so many bytes (0: none); long, inside so many bytes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import flexnn
from bench.budgets.reading import device
from bench.process import MIB, reset_peak, status
from bench.summary import median

from .decoding import prompt_of

SLACK = MIB
"""Part of a limit that the session does not get: the control group also counts page tables and the like."""
FACTOR, EARLY, AROUND = 1.15, 100, 10
TURNS = 3
"""Turns of text and of reading alone, or of tokens with few and with many before them."""


class Text(NamedTuple):
    """The text that is asked for."""

    path: Path
    threads: int
    capacity: int
    tokens: int
    """Tokens of the answer, or of prompt and answer where it is long."""
    seconds: int
    prompt: list[int]

    def open(self, memory: int | None) -> flexnn.Session:
        """Return the session."""
        how: dict[str, Any] = {"io": "direct", "kv_capacity": self.capacity, "reuse_outputs": True}
        return flexnn.Session(self.path, memory, self.threads, **how)


def decoded(session: flexnn.Session, prompt: Sequence[int], count: int, seconds: float) -> dict[str, Any]:
    """Return the time of a prompt, and text and times of ``count`` tokens after it, or of those in ``seconds``."""
    start = time.perf_counter()
    (logits,) = session.run(None, {"input_ids": np.array([prompt], np.int64)})
    prefill, times, text = time.perf_counter() - start, [], []
    token, end = np.zeros((1, 1), np.int64), time.perf_counter() + seconds
    while len(times) < count and time.perf_counter() < end:
        start = time.perf_counter()
        token[0, 0] = logits[0, -1].argmax()
        (logits,) = session.run(None, {"input_ids": token})
        text.append(int(token[0, 0]))
        times.append(time.perf_counter() - start)
    return {"prefill_s": prefill, "times_s": times, "text": text}


def free(asked: Text, _: int) -> dict[str, Any]:
    """Text without a limit."""
    with asked.open(None) as session:
        decoded(session, asked.prompt[:41], 2, asked.seconds)  # all programs, so that what they use is there
        session.reset()
        return decoded(session, asked.prompt, asked.tokens, asked.seconds)


def limited(asked: Text, limit: int) -> dict[str, Any]:
    """Text in a group of ``limit`` bytes."""
    before = status("VmRSS")
    budget = limit - before - SLACK if limit else None
    try:
        session = asked.open(budget)
    except flexnn.BudgetError as error:
        return {"minimum": error.minimum, "budget": budget}
    takes = [_take(session, asked)]
    takes += [_take(asked.open(budget), asked) for _ in range(TURNS - 1)]
    middle = sorted(takes, key=lambda take: take["gap"])[TURNS // 2]
    times = [seconds for take in takes for seconds in take["times_s"]]
    read_ms = median([take["read_ms"] for take in takes])
    return middle | {"budget": budget, "times_s": times, "read_ms": read_ms, "peak": status("VmHWM") - before}


def _take(session: flexnn.Session, asked: Text) -> dict[str, Any]:
    """Return the figures of a text, and of reading alone after it. It closes the session."""
    made = decoded(session, asked.prompt, asked.tokens // TURNS, asked.seconds / TURNS)
    bound_ms, pinned = session.plan.bound_ms, session.plan.pinned_bytes
    rate = session.statistics()["machine"]["storage_bytes_per_second"]
    told = device(session, asked.path)
    if told["bytes"]:  # the device may be faster now than it was when it was measured
        bound_ms *= min(1.0, told["read_ms"] * rate / told["bytes"] / 1e3)
    gap = median(made["times_s"]) * 1e3 / max(bound_ms, told["read_ms"])
    return made | told | {"bound_ms": bound_ms, "pinned": pinned, "gap": gap}


def read_rate() -> float:
    """Return the bytes a second that one thread reads out of memory."""
    values, best = np.ones(16 << 20, np.float32), 1e9
    for _ in range(7):
        start = time.perf_counter()
        values.max()
        best = min(best, time.perf_counter() - start)
    return values.nbytes / best


def long(asked: Text, budget: int) -> dict[str, Any]:
    """Text until the state has so many tokens, and a prompt beyond its capacity after that. Then tokens with few and
    with many in the state, in turns: a device that others use, too, is not as fast at the end of a text as before.
    """
    np.ones((4, 4)) @ np.ones((4, 4))
    before = reset_peak()
    with tempfile.TemporaryDirectory() as folder, asked.open(budget) as session:
        states = [(EARLY - AROUND, f"{folder}/early"), (asked.tokens - 2 * AROUND, f"{folder}/late")]
        times, prompt = list[float](), asked.prompt
        for length, path in states:
            made = decoded(session, prompt, length - session.state_length - len(prompt), 1e3)
            times, prompt = times + made["times_s"], made["text"][-1:]
            session.save_state(path)
        times += decoded(session, prompt, asked.tokens - session.state_length - 1, 1e3)["times_s"]
        length, refused = session.state_length, "not refused"
        try:
            session.run(None, {"input_ids": np.ones((1, asked.capacity), np.int64)})
        except flexnn.StateError as error:
            refused = str(error)
        is_kept, state = session.state_length == length, session.statistics()["bytes"]["state"]
        found: list[list[float]] = [[], []]
        for _ in range(TURNS):
            for (_, path), own in zip(states, found, strict=True):
                session.load_state(path)
                own += decoded(session, prompt, 2 * AROUND - 1, 1e3)["times_s"]
    peak = status("VmHWM")
    early, late = map(median, found)
    between = state * (asked.tokens - EARLY) / asked.capacity
    return {
        "beyond": peak - before - budget,
        "early_ms": early * 1e3,
        "late_ms": late * 1e3,
        "allowed_ms": (FACTOR * early + between / read_rate()) * 1e3,
        "tokens_per_s": len(times) / sum(times),
        "refused": refused,
        "is_state_kept": is_kept,
    }


def main() -> None:
    """Print what the arguments ask for."""
    how, path, *numbers = sys.argv[1:]
    threads, capacity, tokens, seconds, prompt, *most = map(int, numbers)
    asked = Text(Path(path), threads, capacity, tokens, seconds, prompt_of(prompt))
    print(json.dumps({"free": free, "limited": limited, "long": long}[how](asked, *(most or [0]))))


if __name__ == "__main__":
    main()
