"""Verdicts of bench.regress: when a revision is slower, and which sources are the same."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import checkouts, regress

ROOT = Path(__file__).resolve().parents[2]


def rounds(true_ratio: float, noise: float, count: int, seed: int) -> list[float]:
    """Ratios of rounds with lognormal noise, one in ten of them disturbed by half."""
    rng = np.random.default_rng(seed)
    ratios = true_ratio * np.exp(noise * rng.standard_normal(count))
    ratios[rng.random(count) < 0.1] *= 1.5
    return [float(r) for r in ratios]


def test_the_interval_is_the_tables() -> None:
    """Sign test at 95 %, as in the tables: of 12 the 3rd and 10th, of 8 the 1st and 8th, of 20 the 6th and 15th."""
    for count, k in ((6, 1), (8, 1), (9, 2), (12, 3), (20, 6)):
        found = regress.verdict([float(i) for i in range(1, count + 1)])
        assert (found.low, found.high) == (k, count + 1 - k)
        assert found.median == (count + 1) / 2


def test_the_interval_holds_the_truth() -> None:
    inside = 0
    for seed in range(400):
        found = regress.verdict([float(r) for r in np.exp(np.random.default_rng(seed).standard_normal(12) * 0.05)])
        inside += found.low <= 1 <= found.high
    assert inside >= 0.95 * 400 - 8


def test_noise_is_not_a_slowdown() -> None:
    assert sum(regress.verdict(rounds(1.0, 0.05, 12, seed)).is_slower(0.02) for seed in range(200)) <= 4


@pytest.mark.parametrize(("true_ratio", "noise"), [(1.10, 0.03), (1.05, 0.005), (2.0, 0.3)])
def test_a_slowdown_is_found(true_ratio: float, noise: float) -> None:
    found = [regress.verdict(rounds(true_ratio, noise, 12, seed)) for seed in range(200)]
    assert sum(v.is_slower(0.02) for v in found) >= 180
    assert not any(v.is_faster(0.02) for v in found)


def test_noise_that_hides_everything_is_told() -> None:
    assert regress.verdict([0.6, 1.5, 1.1, 0.9, 1.3, 0.8]).is_blind()
    assert not regress.verdict(rounds(1.0, 0.01, 12, 0)).is_blind()


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="6"):
        regress.verdict([1.5] * 5)


def facts(**head: float) -> dict[str, dict[str, list[float]]]:
    """Both sides' facts of eight rounds, the same but for those in ``head``."""
    same = dict.fromkeys(regress.FACTS, 100.0)
    return {side: {k: [v] * 7 for k, v in told.items()} for side, told in (("base", same), ("head", same | head))}


def test_what_else_is_worse_is_told() -> None:
    row = {"model": "m", "threads": 2}
    assert regress.worse({**row, **facts()}, 0.03) == []
    assert regress.worse({**row, **facts(open_ms=102.0, plan_ms=50.0, import_bytes=90.0)}, 0.03) == []
    told = regress.worse({**row, **facts(open_ms=105.0, smallest_bytes=100.5)}, 0.03)
    assert [line.split(": ")[1].split()[0] for line in told] == ["open_ms", "smallest_bytes"]


def test_the_table_names_the_slower_models(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    rows = [
        {"model": "worse", "threads": 1, "base_ms": [10.0] * 8, "head_ms": [11.0] * 8, **facts()},
        {"model": "same", "threads": 1, "base_ms": [10.0] * 8, "head_ms": [9.9, 10.1] * 4, **facts()},
    ]
    assert regress.show(rows, 0.02, ("a", "b"), Console(width=120)) == ["worse"]
    assert regress.show(rows, 0.20, ("a", "b"), Console(width=120)) == []


def archive(content: bytes, *, mtime: int = 0, mode: int = 0o644) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("file")
        entry.size, entry.mtime, entry.mode = len(content), mtime, mode
        tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def test_a_checkout_is_known_by_its_content() -> None:
    same = checkouts.digest(archive(b"x"))
    assert checkouts.digest(archive(b"x", mtime=10**9, mode=0o664)) == same
    assert checkouts.digest(archive(b"y")) != same
    assert checkouts.digest(archive(b"x", mode=0o755)) != same


def test_a_clean_working_tree_is_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.hooksPath=/dev/null"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)

    for name in checkouts.BUILT_FROM:
        file = tmp_path / name if "." in name or name == "LICENSE" else tmp_path / name / "part.c"
        file.parent.mkdir(exist_ok=True)
        file.write_text(name)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    monkeypatch.setattr(checkouts, "ROOT", tmp_path)
    assert checkouts.digest(checkouts.source(checkouts.WORKING_TREE)) == checkouts.digest(checkouts.source("HEAD"))
    (tmp_path / "kernels" / "part.c").write_text("changed")
    assert checkouts.digest(checkouts.source(checkouts.WORKING_TREE)) != checkouts.digest(checkouts.source("HEAD"))
    with pytest.raises(checkouts.BuildError, match="nowhere"):
        checkouts.source("nowhere")


WORKER = """
import runpy, sys, time
import numpy as np
import flexnn

run, passed, clock = flexnn.Session.run, 0, time.process_time_ns
rng = np.random.default_rng({seed})
def took(ns):
    return {took}
def timed(*arguments):
    global passed
    start = clock()
    outputs = run(*arguments)
    passed += int(took(clock() - start))
    return outputs
time.process_time_ns = lambda: passed
flexnn.Session.run = timed
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""bench/peers/worker.py by a clock on which only runs pass, each in as long as ``took`` says."""
NOISY_MS = "1e6 * {factor} * np.exp(0.03 * rng.standard_normal())"


def conv_model(path: Path) -> Path:
    """One 3×3 convolution, a millisecond."""
    import onnx
    from onnx import helper, numpy_helper

    weight = np.random.default_rng(0).standard_normal((64, 64, 3, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    shape = (1, 64, 56, 56)
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([node], "conv", values[:1], values[1:], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


class Comparison:
    """Whole runs of the command with this interpreter's flexnn for both sides, each side's processes and all."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, took: dict[str, str]) -> None:
        seeds = itertools.count()

        class Installed(checkouts.Checkout):
            def worker(self, *arguments: object) -> str:
                script = WORKER.format(seed=next(seeds), took=took[self.folder.name])
                command = [sys.executable, "-P", "-c", script, str(checkouts.WORKER), *map(str, arguments)]
                return subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True).stdout

        def install(revision: str) -> Installed:
            (folder / revision).mkdir(exist_ok=True)
            return Installed(revision, folder / revision)

        self.folder = folder
        path = conv_model(folder / "conv.onnx")
        model = SimpleNamespace(name="conv", make=lambda: path, shapes={}, scale=1.0)
        monkeypatch.setattr(regress, "install", install)
        monkeypatch.setattr(regress, "chosen", lambda names, default: [model])

    def run(self, head: str) -> dict[str, Any]:
        report = self.folder / f"{head}.json"
        arguments = ["base", "--head", head, "--clock", "cpu", "--rounds", "9", "--seconds", "0.05"]
        code = regress.main([*arguments, "--json", str(report)])
        (row,) = json.loads(report.read_text())["rows"]
        assert row["is_slower"] == bool(code)
        assert row["low"] <= row["ratio"] <= row["high"]
        return dict(row)


def test_fifteen_percent_fail_and_equal_checkouts_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of the test's own, on which runs vary by 3 %, stands in for the machine's, which neighbours disturb."""
    base = NOISY_MS.format(factor=1)
    comparison = Comparison(tmp_path, monkeypatch, {"base": base, "same": base, "slow": NOISY_MS.format(factor=1.15)})
    same, slow = comparison.run("same"), comparison.run("slow")
    assert not same["is_slower"]
    assert 0.97 < same["ratio"] < 1.03
    assert slow["is_slower"]
    assert 1.12 < slow["ratio"] < 1.18


def test_twice_the_cpu_time_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three tries shows it by the machine's clock, which neighbours disturb."""
    comparison = Comparison(tmp_path, monkeypatch, {"base": "ns", "slow": "2 * ns"})
    assert any(comparison.run("slow")["is_slower"] for _ in range(3))
