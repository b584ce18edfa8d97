"""The budget is kept: what opening and running a session adds to its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flexnn.measure.cache import KEPT_MAX
from flexnn.planning.overhead import MEASURING_BYTES
from tests.support.hangs import HANG_SECONDS
from tests.support.missing import missing
from tests.support.models import ALL, QUICK, ROOT, Compiled

ALLOWANCE = 1 << 20
"""Bytes that the interpreter itself may take while a model runs: the promise is about the whole process."""
SMALLEST_MIB = {"vgg19": 30, "resnet152": 10, "mobilenet_v2": 9, "squeezenet1_1": 8}


def flexnn(
    *arguments: str | Path, folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, away from the source tree."""
    command = [sys.executable, "-P", "-m", "flexnn", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS, env=environment)


@pytest.mark.parametrize("compiled", ALL, indirect=True)
def test_promise(compiled: Compiled, tmp_path: Path) -> None:
    budgets = [compiled.minimum, *(compiled.minimum * quarters // 4 for quarters in (5, 6, 8, 16)), None]
    for budget in budgets:
        limit = [] if budget is None else ["--memory", str(budget)]
        done = flexnn("run", compiled.artifact, *limit, "--threads", "2", "--repeat", "3", "--json", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        added = report["peak_rss"] - report["baseline_rss"]
        promised = report["session_bytes"] if budget is None else budget
        assert report["memory_budget"] == budget
        assert report["session_bytes"] <= promised
        assert added <= promised + ALLOWANCE, f"budget {budget}: {added - promised} bytes over"


MANY_FORMS = [one for one in QUICK if one.id in ("efficientnet_lite0", "ddddocr_det", "dnsmos_sig_bak_ovr")]
"""Models whose plans are chosen among several forms of the graph."""


@pytest.mark.parametrize("compiled", MANY_FORMS, indirect=True)
def test_promise_of_first_openings(compiled: Compiled, tmp_path: Path) -> None:
    """The first opening on a machine measures, the second may measure more and searches, the third follows what is
    kept. All of them among as many profiles of others as are kept.
    """
    for percent in (100, 104, 110, 117, 125):
        home = tmp_path / str(percent)
        (home / "flexnn").mkdir(parents=True, mode=0o700)
        for i in range(KEPT_MAX):
            (home / "flexnn" / f"{i:016x}-{i:08x}.json").touch(mode=0o600)
        budget = (compiled.minimum + MEASURING_BYTES) * percent // 100
        for opening in range(3):
            limit = ["--memory", str(budget), "--threads", "2", "--json"]
            environment = os.environ | {"XDG_CACHE_HOME": str(home)}
            done = flexnn("run", compiled.artifact, *limit, folder=tmp_path, environment=environment)
            assert done.returncode == 0, done.stderr
            report = json.loads(done.stdout)
            added = report["peak_rss"] - report["baseline_rss"]
            assert added <= budget + ALLOWANCE, f"opening {opening} at {percent} %: {added - budget} bytes over"


@pytest.mark.parametrize("compiled", ALL, indirect=True)
def test_below_the_minimum(compiled: Compiled, tmp_path: Path) -> None:
    for command in ("run", "plan"):
        done = flexnn(command, compiled.artifact, "--memory", str(compiled.minimum - 1), folder=tmp_path)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert str(compiled.minimum) in done.stderr.replace(",", ""), "the smallest budget is not named"


@pytest.mark.full
@pytest.mark.parametrize("compiled", [p for p in ALL if p.id in SMALLEST_MIB], indirect=True)
def test_smallest_budgets(compiled: Compiled) -> None:
    assert compiled.minimum <= SMALLEST_MIB[compiled.model.name] << 20


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.parametrize("compiled", [p for p in ALL if p.id == "resnet152"], indirect=True)
def test_plan_time(compiled: Compiled, tmp_path: Path) -> None:
    times = []
    for _ in range(3):
        done = flexnn("plan", compiled.artifact, "--memory", str(compiled.minimum * 2), "--json", folder=tmp_path)
        times.append(json.loads(done.stdout)["plan_ms"])
    assert min(times) <= 200


IMPORT = """
import numpy
def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
before = rss()
import flexnn
print(rss() - before)
"""

RUN = """
import sys
import numpy, flexnn
with flexnn.Session(sys.argv[1]) as session:
    feed = {i.name: numpy.zeros(i.shape, i.numpy_dtype) for i in session.get_inputs()}
    session.run(None, feed)
print(*sorted(m for m in sys.modules if m.split(".")[0] in ("onnx", "google", "rich", "onnxruntime")))
"""


def script(text: str, *arguments: object, folder: Path) -> str:
    command = [sys.executable, "-P", "-c", text, *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    ).stdout.strip()


def test_import_is_small(tmp_path: Path) -> None:
    assert min(int(script(IMPORT, folder=tmp_path)) for _ in range(3)) <= 3_000_000


@pytest.mark.parametrize("compiled", ALL[:1], indirect=True)
def test_running_needs_no_onnx(compiled: Compiled, tmp_path: Path) -> None:
    assert script(RUN, compiled.artifact, folder=tmp_path) == ""


COMPILE = """
import sys
import numpy, onnx, flexnn
def peak():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM:"))
before = peak()
flexnn.compile(sys.argv[1], sys.argv[2])
print(peak() - before)
"""


@pytest.mark.full
@pytest.mark.parametrize("name", ["vgg19", "resnet152"])
def test_compiling_streams(name: str, tmp_path: Path) -> None:
    """Peak memory while compiling: what holding the file costs and 1.5 of the largest weight."""
    path = ROOT / "bench" / ".cache" / "models" / f"{name}.onnx"
    if not path.exists():
        missing(f"{name} is not built: python -m bench.models build {name}")
    import onnx

    largest = max(len(w.raw_data) for w in onnx.load(path).graph.initializer)
    added = int(script(COMPILE, path, tmp_path / "out.flexnn", folder=tmp_path))
    os.unlink(tmp_path / "out.flexnn")
    assert added <= path.stat().st_size + 1.5 * largest
