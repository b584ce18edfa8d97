"""Latency against memory: a model at budgets from its smallest to one that holds it whole, and other runtimes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from flexnn.median import median, quantile

from .timing import Subject, Timing

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


def curve(subject: Subject) -> list[Timing]:
    """Time the model at each budget; the last timing is without a limit."""
    minimum, whole = subject.minimum(), subject.plan(None)
    budgets = {f"{factor:g} x smallest": int(minimum * factor) for factor in FACTORS}
    timings = [
        subject.time(name, subject.plan(budget)) for name, budget in budgets.items() if budget < whole.session_bytes
    ]
    return [*timings, subject.time("no limit", whole)]


def onnxruntime(model: str, threads: int, repeat: int) -> dict[str, Any] | None:
    """Return p50, p95 (ms) and memory (bytes beside its import) of onnxruntime in its own process; None without it."""
    command = [sys.executable, "-c", _PEER, model, str(threads), str(repeat)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, text=True)
    if done.returncode:
        return None
    told = json.loads(done.stdout)
    times = told.pop("times")
    return {"name": "onnxruntime", "p50": median(times), "p95": quantile(times, 0.95), **told}


def load_matplotlib() -> tuple[Any, Any]:
    """Return matplotlib's figures and ticks, asked for before minutes of measuring. ModuleNotFoundError without it."""
    from matplotlib import ticker
    from matplotlib.figure import Figure

    return Figure, ticker


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
        axes.plot(memory, [t["p50"] for t in timings], "o-", color=LINE, label="FlexNN, median")
        axes.plot(memory, [t["predicted"] for t in timings], ":", color=INK, label="FlexNN, predicted")
        for point in points:
            at = (point["memory"] / 2**20, point["p50"])
            axes.plot(*at, "s", color=POINT, markersize=8)
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
