"""Latency against memory: a model at budgets from its smallest to one that holds it whole, and other runtimes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from flexnn.median import median, quantile

from .open_models import OpenSubject
from .timing import Subject, Timing, take_turns

FACTORS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
"""Budgets as multiples of the smallest one; those above the memory of the whole model are left out."""

INK, LINE, POINT = "#6e7781", "#2f81f7", "#d9730d"
"""Colours with a contrast of at least 3 to white and to black."""

_PEER = """
import json, sys, time, numpy as np
def peak():
    return next(int(l.split()[1]) << 10 for l in open("/proc/self/status") if l.startswith("VmHWM:"))
import onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
before = peak()
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
kinds = {"tensor(float)": "f4", "tensor(double)": "f8", "tensor(int64)": "i8", "tensor(int32)": "i4"}
random = np.random.default_rng(0)
feed = {}
for i in session.get_inputs():
    shape = [d if isinstance(d, int) else 1 for d in i.shape]
    feed[i.name] = (random.standard_normal(shape) if "f" in kinds[i.type] else np.zeros(shape)).astype(kinds[i.type])
times = []
for _ in range(int(sys.argv[3]) + 2):
    start = time.perf_counter()
    session.run(None, feed)
    times.append((time.perf_counter() - start) * 1e3)
print(json.dumps({"times": times[2:], "memory": peak() - before}))
"""


def curve(subject: Subject | OpenSubject, peer: Peer | None = None) -> list[Timing]:
    """Time the model at each budget, in rounds with ``peer``; the last timing is without a limit."""
    minimum, whole = subject.minimum(), subject.whole_bytes()
    budgets = {f"{factor:g} x smallest": int(minimum * factor) for factor in FACTORS}
    chosen: dict[str, int | None] = {name: budget for name, budget in budgets.items() if budget < whole}
    running = {name: subject.running(budget) for name, budget in (chosen | {"no limit": None}).items()}
    take_turns([*running.values(), *([peer] if peer else [])], subject.repeat)
    return [each.timing(name) for name, each in running.items()]


class Peer:
    """onnxruntime, each round in a process of its own."""

    def __init__(self, model: str, threads: int) -> None:
        self._command = [sys.executable, "-c", _PEER, model, str(threads)]
        self._times: list[float] = []
        self._rounds: list[float] = []
        self._memory = 0
        self._fails = False

    def round(self, count: int) -> None:
        """Run it, unless it failed before: it is not installed, or does not take the model."""
        if self._fails:
            return
        command = [*self._command, str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, text=True)
        self._fails = done.returncode != 0
        if not self._fails:
            told = json.loads(done.stdout)
            self._times += told["times"]
            self._rounds.append(median(told["times"]))
            self._memory = max(self._memory, told["memory"])

    def point(self) -> dict[str, Any] | None:
        """Return p50, p95 (ms) and memory (bytes beside its import); None where it does not run."""
        if self._fails or not self._times:
            return None
        times = self._times
        told = {"name": "onnxruntime", "p50": median(times), "p95": quantile(times, 0.95), "memory": self._memory}
        return told | {"rounds": self._rounds}


def load_matplotlib() -> tuple[Any, Any]:
    """Return matplotlib's figures and ticks, asked for before minutes of measuring. ModuleNotFoundError without it."""
    from matplotlib import ticker
    from matplotlib.figure import Figure

    return Figure, ticker


def _errors(rows: list[dict[str, Any]]) -> list[list[float]]:
    """Return how far the medians of rounds lie below and above the median of all runs."""
    spread = [(row["p50"], row.get("rounds") or [row["p50"]]) for row in rows]
    return [
        [max(p50 - min(rounds), 0.0) for p50, rounds in spread],
        [max(max(rounds) - p50, 0.0) for p50, rounds in spread],
    ]


def draw(path: str, title: str, timings: list[dict[str, Any]], points: list[dict[str, Any]]) -> None:
    """Draw the curve and the points into ``path``, .svg or .png; the same timings give the same bytes.

    The background is transparent, and the colours are readable on white and on black. ModuleNotFoundError without
    matplotlib.
    """
    figures, ticker = load_matplotlib()
    from matplotlib import rc_context

    coloured = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = {**dict.fromkeys(coloured, INK), "svg.hashsalt": "flexnn", "svg.fonttype": "none"}
    with rc_context(style):
        figure = figures(figsize=(7, 4.2), layout="constrained")
        axes = figure.subplots()
        memory = [t["memory"] / 2**20 for t in timings]
        label = "FlexNN, median" + (", and those of rounds" if timings[0].get("rounds") else "")
        axes.errorbar(
            memory, [t["p50"] for t in timings], _errors(timings), fmt="o-", color=LINE, capsize=3, label=label
        )
        if any(t["predicted"] is not None for t in timings):
            axes.plot(memory, [t["predicted"] for t in timings], ":", color=INK, label="FlexNN, predicted")
        for point in points:
            at = (point["memory"] / 2**20, point["p50"])
            axes.errorbar(*at, _errors([point]), fmt="s", color=POINT, markersize=8, capsize=3)
            axes.annotate(point["name"], at, (4, 9), textcoords="offset points", ha="right", color=POINT)
        axes.set(xlabel="memory (MiB)", ylabel="latency (ms)", title=title, xscale="log", ylim=(0, None))
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(ticker.ScalarFormatter())
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.grid(color=INK, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        stamp = {"Date": None} if path.endswith(".svg") else {"Software": None}
        figure.savefig(path, transparent=True, metadata=stamp)
