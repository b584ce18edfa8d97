"""``flexnn bench`` and traces: what they measure is what they say."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn import cli
from flexnn.artifact import open_artifact
from flexnn.benchmark import ablations, curve, timing
from flexnn.planning import MachineProfile, Setting, make_plan
from flexnn.run.engine import BoundProgram, Engine, Switches
from flexnn.session import open_for_tests
from tests.support.sessions import LAYERS, feed, smallest, write_choosing_model, write_model

MACHINE = MachineProfile(flops_per_second=5e10, bytes_per_second=1e10)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_model(tmp_path_factory.mktemp("bench") / "small.onnx")))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("align", [64, 4096])
@pytest.mark.parametrize("name", ["on demand", "fresh", "layers", "slices"])
def test_ablations_compute_the_same(artifact: Path, name: str, align: int) -> None:
    """Bit for bit, with NaNs where nothing was loaded, several runs."""
    x = feed()["x"]
    with open_artifact(str(artifact)) as opened:
        graph = opened.graph
        direct = opened.open_direct() if align > 64 else None
        direct_fd = direct.fd if direct is not None else -1
        whole = make_plan(graph, Setting(MACHINE, 2, align))
        minimum = make_plan(graph, Setting(MACHINE, 2, align)).minimum_memory
        tight = make_plan(graph, Setting(MACHINE, 2, align), minimum)
        plan = {
            "on demand": lambda: ablations.on_demand(tight),
            "fresh": lambda: tight,
            "layers": lambda: ablations.streamed(graph, whole, None, 1, align)[0],
            "slices": lambda: ablations.streamed(graph, whole, 200 << 10, 2, align)[0],
        }[name]()
        outputs = []
        for candidate in (tight if name in ("on demand", "fresh") else whole, plan):
            fresh = name == "fresh" and candidate is plan
            host = Engine(Switches(2, direct_fd >= 0, poison=not fresh, fresh=fresh))
            engine = BoundProgram(host, opened, candidate, direct_fd=direct_fd)
            for _ in range(3):
                y = np.empty_like(x)
                read = engine.run([x, y], [engine])["bytes_read"]
            outputs.append(y)
            host.close()
    np.testing.assert_array_equal(*outputs)
    assert read == int(plan.program.loads["bytes"].sum()) > 0
    if name == "layers":
        assert len(plan.program.loads) == LAYERS
    if name == "slices":
        assert len(plan.program.loads) > LAYERS


def test_the_command_measures_every_part(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = smallest(artifact) + (1 << 20)
    base = ["bench", "ablations", str(artifact), "--memory", str(memory), "--threads", "1", "--repeat", "2"]
    assert cli.main([*base, "--storage", "400MB/s", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    found = {row["name"]: row for row in report["timings"]}
    assert list(found) == ["all parts", *cli.ABLATIONS]
    for name in ("all parts", "without preloading", "without static memory", "without both", "direct kernels only"):
        assert found[name]["memory"] <= memory
    for row in found.values():  # the throttle is real, and the plan knows it
        if row["bytes_read"]:
            assert row["p50"] >= row["bytes_read"] / 400e6 * 1e3 * 0.9
    assert found["all parts"]["predicted"] >= found["all parts"]["bytes_read"] / 400e6 * 1e3 * 0.99
    assert [name for name, row in found.items() if row["predicted"]] == ["all parts", "direct kernels only"]
    assert found["layer by layer"]["pinned_bytes"] == 0
    assert cli.main([*base, "--only", "without preloading"]) == 0
    assert capsys.readouterr().out.count("\n") == 2


def test_the_curve_falls_with_memory(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "curve", str(artifact), "--threads", "1", "--repeat", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["timings"]
    assert [row["memory"] for row in rows] == sorted(row["memory"] for row in rows)
    assert rows[-1]["bytes_read"] == 0 < rows[0]["bytes_read"]


def test_budgets_take_turns(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each budget is opened once in each round, one at a time, and the order alternates."""
    monkeypatch.setattr(timing, "SETTLE_S", 0.0)
    order: list[int | None] = []
    opened: list[object] = []

    class Watched(timing.Running):
        def open(self) -> None:
            order.append(self._plan.memory)
            opened.append(self)
            assert len(opened) == 1
            super().open()

        def close(self) -> None:
            super().close()
            opened.remove(self)

    monkeypatch.setattr(timing, "Running", Watched)
    with timing.opened(str(artifact), threads=1, io="buffered", storage=0, repeat=6) as subject:
        found = curve.curve(subject)
    count = len(found)
    turns = [order[i : i + count] for i in range(0, len(order), count)]
    assert len(turns) == timing.ROUNDS
    assert turns[0] == turns[1][::-1] == turns[2]
    for each in found:
        assert len(each.rounds) == timing.ROUNDS
        assert min(each.rounds) <= each.p50 <= max(each.rounds)


def test_the_curve_of_a_model_that_branches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "SETTLE_S", 0.0)
    model = flexnn.compile(write_choosing_model(tmp_path / "choosing.onnx"))
    base = ["bench", "curve", model, "--shape", "x=5", "--repeat", "2", "--json"]
    assert cli.main([*base, "--set", "rate=16000"]) == 0
    rows = json.loads(capsys.readouterr().out)["timings"]
    assert rows[0]["name"] == "1 x smallest"
    assert rows[-1]["name"] == "no limit"
    assert all(len(row["rounds"]) == 2 and row["p50"] > 0 for row in rows)
    assert cli.main(["bench", "ablations", model, "--shape", "x=5", "--set", "rate=16000"]) == 2
    assert "ablations need fixed shapes" in capsys.readouterr().err


def test_a_slower_run_than_the_stored_one_is_an_error(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["bench", "curve", str(artifact), "--threads", "1", "--repeat", "2", "--json"]
    assert cli.main(base) == 0
    report = json.loads(capsys.readouterr().out)
    stored = tmp_path / "stored.json"

    def against(scale: float, **changes: Any) -> int:
        rows = [row | {"p50": row["p50"] * scale} for row in report["timings"]]
        stored.write_text(json.dumps({**report, "timings": rows, **changes}))
        return cli.main([*base, "--compare", str(stored)])

    assert against(1000.0) == 0
    assert capsys.readouterr().err.count("SLOWER") == 0
    assert against(0.001) == 1
    assert capsys.readouterr().err.count("SLOWER") == len(report["timings"])
    assert against(1.0, threads=2) == 2
    assert "the two measurements differ in threads: 2 and 1" in capsys.readouterr().err
    assert against(1.0, timings=[{"name": "no limit"}]) == 2
    assert "not a file of flexnn bench --json" in capsys.readouterr().err


def test_drawing_without_matplotlib_says_so(
    artifact: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    assert cli.main(["bench", "curve", str(artifact), "--repeat", "1", "--draw", "x.svg"]) == 2
    assert "pip install flexnn[plot]" in capsys.readouterr().err


def test_a_curve_is_drawn_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [{"memory": m << 20, "p50": 100 / m, "predicted": 90 / m, "rounds": [99 / m, 120 / m]} for m in (1, 2, 4)]
    for name in ("a.svg", "b.svg"):
        curve.draw(str(tmp_path / name), "model", rows, [{"name": "onnxruntime", "memory": 8 << 20, "p50": 30.0}])
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert all(word in text for word in ("onnxruntime", "FlexNN, median, and those of rounds", "memory (MiB)"))
    assert len(text) < 50_000


def test_a_trace_explains_its_stalls(artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "trace.json"
    with open_for_tests(
        artifact, memory=smallest(artifact), threads=2, trace=True, read_bytes_per_second=100_000_000
    ) as s:
        s.run(None, feed())
        s.run(None, feed())
        events, stall_ns, plan = s.trace_events()["traceEvents"], s.last_run["stall_ns"], s.plan
    lanes = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    assert list(lanes) == ["loader", "stalls", "compute 1", "compute 2"]
    spans = {name: [e for e in events if e["ph"] == "X" and e["tid"] == lane] for name, lane in lanes.items()}
    for lane in spans.values():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in itertools.pairwise(lane))
    assert len(spans["loader"]) == len(plan.loads)
    computed = [*spans["compute 1"], *spans["compute 2"]]
    assert {e["args"]["step"] for e in computed} == set(range(len(plan.steps)))
    assert {"waits for loads", "op"} <= computed[0]["args"].keys()
    assert stall_ns
    assert sum(e["dur"] for e in spans["stalls"]) * 1e3 == pytest.approx(stall_ns, abs=1)
    for event in spans["stalls"]:
        load = spans["loader"][event["args"]["load"]]
        assert event["args"]["weight"] == load["name"]
        assert event["args"]["could start at us"] <= load["ts"] + 1000
        assert event["ts"] <= load["ts"] + load["dur"] + 1e-6
    counters = [e["args"] for e in events if e["ph"] == "C"]
    assert counters[-1]["streamed"] == counters[-1]["activations"] == 0
    assert max(c["streamed"] + c["activations"] + c["pinned"] for c in counters) <= plan.arena_bytes
    assert min(c["streamed"] for c in counters) == 0

    assert cli.main(["run", str(artifact), "--repeat", "1", "--trace", str(target), "--json"]) == 0
    assert json.loads(target.read_text())["traceEvents"]
    assert cli.main(["run", str(artifact), "--trace", str(tmp_path / "no" / "x.json")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_no_trace_without_asking(artifact: Path) -> None:
    with flexnn.Session(artifact, trace=True) as s, pytest.raises(flexnn.SessionError, match="no trace"):
        s.trace_events()
    with flexnn.Session(artifact) as s:
        s.run(None, feed())
        with pytest.raises(flexnn.SessionError, match="no trace"):
            s.trace_events()


def test_the_smallest_budget_of_a_setting(artifact: Path) -> None:
    with timing.opened(str(artifact), threads=2, io="buffered", storage=0, repeat=1) as setting:
        assert setting.minimum() == smallest(artifact)
