"""Is one checkout slower than another? Builds two revisions and runs models with both, turn by turn.

    python -m bench.regress HEAD~5                     against the working tree, the eight classics, 1 thread
    python -m bench.regress HEAD~5 resnet152 --head HEAD --threads 2 --memory 48MiB --json out.json

Each revision is unpacked and installed, in a virtual environment of its own, under bench/.cache/regress (again only
when its files changed), and compiles the models itself. A round is a fresh process of each, in turn the first, so what
a process happens to get (pages, addresses) varies too. From the rounds' ratios comes a distribution-free interval of
the median ratio: between the k-th smallest and the k-th largest, k from the binomial distribution (Hettmansperger and
McKean 2011, "Robust Nonparametric Statistical Methods", sect. 1.3). Exit 1 if a model's whole interval lies above
1 + --slack. A wide interval says that the machine was busy, not that all is well: more rounds, or --clock cpu, which
counts neither what other processes take nor waiting for storage, help.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import shutil
import statistics
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench import CACHE, ROOT, WIDTH
from bench.models.catalogue import CLASSICS, Model, chosen

CONFIDENCE = 0.95
ROUNDS = 12
NOISE_MAX = 0.2
ROUNDS_MIN = 6
"""Fewer have no interval at 95 %."""
WORKING_TREE = "."
WORKER = ROOT / "bench" / "peers" / "worker.py"
BUILT_FROM = ["CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "flexnn", "kernels", "engine", "planner"]
"""What a revision is built from, as far as it has it: older ones hold the engine and the planner in flexnn/_core."""


class BuildError(RuntimeError):
    """A revision that git does not know, or that does not install."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """An installed revision."""

    label: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def worker(self, *arguments: object) -> str:
        """What bench/peers/worker.py prints under this checkout."""
        command = [str(self.python), "-P", str(WORKER), *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{self.label}: {done.stderr.strip()}")
        return done.stdout

    def artifact(self, model: Model) -> Path:
        """The model compiled by this checkout, once."""
        path = model.make()
        target = self.folder / f"{model.name}.flexnn"
        if not target.exists() or target.stat().st_mtime < path.stat().st_mtime:
            self.worker("compile", path, target, json.dumps(model.shapes))
        return target


def source(revision: str) -> bytes:
    """A tar archive of the revision's package; ``.`` is the working tree: its files that git knows, as they are."""
    if revision != WORKING_TREE:
        held = subprocess.run(["git", "ls-tree", "--name-only", revision], cwd=ROOT, capture_output=True, check=False)
        parts = [part for part in BUILT_FROM if part in held.stdout.decode().split("\n")]
        command = ["git", "archive", "--format=tar", revision, *parts]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        if done.returncode:
            raise BuildError(f"{revision}: {done.stderr.decode().strip()}")
        return done.stdout
    listed = subprocess.run(["git", "ls-files", "-z", *BUILT_FROM], cwd=ROOT, capture_output=True, check=True).stdout
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in sorted(filter(None, listed.decode().split("\0"))):
            if (ROOT / name).exists():
                entry = tarfile.TarInfo(name)
                data = (ROOT / name).read_bytes()
                entry.size, entry.mode = len(data), (ROOT / name).stat().st_mode & 0o777
                tar.addfile(entry, io.BytesIO(data))
    return archive.getvalue()


def digest(archive: bytes) -> str:
    """Of the files' names, modes and contents; git's archives also hold the commit's name and time."""
    total = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in sorted((m for m in tar if m.isfile()), key=lambda m: m.name):
            content = tar.extractfile(entry)
            assert content
            is_executable = bool(entry.mode & 0o100)
            total.update(f"{entry.name}\0{is_executable}\0{entry.size}\0".encode() + content.read())
    return total.hexdigest()[:16]


def install(revision: str) -> Checkout:
    """The revision, built; kept by the digest of its source."""
    archive = source(revision)
    checkout = Checkout(revision, CACHE / "regress" / digest(archive))
    done = checkout.folder / "installed"
    if done.exists():
        return checkout
    shutil.rmtree(checkout.folder, ignore_errors=True)
    tree = checkout.folder / "source"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(tree, filter="data")
    subprocess.run([sys.executable, "-m", "venv", str(checkout.folder / "venv")], check=True)
    command = [str(checkout.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(tree)]
    report = subprocess.run(command, capture_output=True, text=True, check=False)
    if report.returncode:
        raise BuildError(f"{revision}: {report.stderr.strip()}")
    done.touch()
    return checkout


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of ratios of times, head / base: the median, and the interval that holds the true one."""

    median: float
    low: float
    high: float

    def is_slower(self, slack: float) -> bool:
        return self.low > 1 + slack

    def is_blind(self) -> bool:
        """Whether even a slowdown of NOISE_MAX could have hidden."""
        return self.high - self.low > NOISE_MAX

    def is_faster(self, slack: float) -> bool:
        return self.high < 1 - slack


def verdict(ratios: list[float]) -> Verdict:
    """The largest k with P(Binomial(n, ½) < k) ≤ (1 - CONFIDENCE) / 2 bounds the median by order statistics."""
    n = len(ratios)
    if n < ROUNDS_MIN:
        raise ValueError(f"{n} rounds say nothing at {CONFIDENCE:.0%}: {ROUNDS_MIN} is the least")
    k = tail = 0
    while (tail + math.comb(n, k)) / 2**n <= (1 - CONFIDENCE) / 2:
        tail += math.comb(n, k)
        k += 1
    ordered = sorted(ratios)
    return Verdict(statistics.median(ordered), ordered[k - 1], ordered[n - k])


def measure(model: Model, sides: tuple[Checkout, Checkout], options: argparse.Namespace) -> dict[str, Any]:
    """The fastest runs of base and head in ms, round by round."""
    artifacts = [side.artifact(model) for side in sides]
    times: list[list[float]] = [[], []]
    for turn in range(options.rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            arguments = (options.threads, options.memory, options.seconds, model.scale, options.clock)
            times[which].append(float(sides[which].worker("time", artifacts[which], *arguments)))
    return {"model": model.name, "base_ms": times[0], "head_ms": times[1]}


def judge(row: dict[str, Any]) -> Verdict:
    return verdict([head / base for base, head in zip(row["base_ms"], row["head_ms"], strict=True)])


def show(rows: list[dict[str, Any]], slack: float, labels: tuple[str, str], console: Console) -> list[str]:
    """The table; the models that are slower."""
    table = Table(
        title=f"fastest ms (median of {len(rows[0]['base_ms'])} rounds); {CONFIDENCE:.0%} interval of the ratio"
    )
    table.add_column("model")
    for column in (*labels, "ratio", "interval", ""):
        table.add_column(column, justify="right")
    slower = []
    for row in rows:
        v = judge(row)
        word = "slower" if v.is_slower(slack) else "faster" if v.is_faster(slack) else "noisy" if v.is_blind() else ""
        if v.is_slower(slack):
            slower.append(row["model"])
        medians = [f"{statistics.median(row[side]):.2f}" for side in ("base_ms", "head_ms")]
        table.add_row(row["model"], *medians, f"{v.median:.3f}", f"{v.low:.3f} – {v.high:.3f}", word)
    console.print(table)
    return slower


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.regress", description=__doc__.split("\n\n")[0])
    parser.add_argument("base", help="a git revision")
    parser.add_argument("names", nargs="*", help="models, or small, full, trained, all; default: the eight classics")
    parser.add_argument("--head", default=WORKING_TREE, help="another revision; default: the working tree")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", default="", help="a budget for both")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=0.5, help="of runs, each round and side")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for busy machines, 1 thread")
    parser.add_argument("--slack", type=float, default=0.02, help="a slowdown that is let pass")
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_intermixed_args()
    if options.rounds < ROUNDS_MIN:
        parser.error(f"--rounds: at least {ROUNDS_MIN}")
    models = chosen(options.names, CLASSICS)
    try:
        sides = install(options.base), install(options.head)
        rows = [measure(model, sides, options) for model in track(models, "measuring", console=Console(stderr=True))]
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for row in rows:
        v = judge(row)
        row |= {"ratio": v.median, "low": v.low, "high": v.high, "is_slower": v.is_slower(options.slack)}
    if options.json:
        report = {"base": options.base, "head": options.head, "threads": options.threads, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1))
    slower = show(rows, options.slack, (options.base, options.head), Console(width=WIDTH))
    if slower:
        print(f"error: slower than {options.base}: {', '.join(slower)}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
