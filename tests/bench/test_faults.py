"""bench.faults in its short form: nothing is late, nothing is left."""

from __future__ import annotations

import contextlib
import json
import math
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flexnn
from bench.faults import endurance, interrupts, moments, mutants
from bench.faults.micro import KEPT, write_micro
from bench.mutate import reseal
from bench.process import ENVIRONMENT, module
from flexnn._core import crc32c
from flexnn.artifact.format import HEADER_BYTES, Header
from flexnn.planning import MachineProfile
from tests.support import faults


def test_long_runs_leave_nothing(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    module("bench.faults", "endurance", "--runs", 1200, "--opens", 40, "--budgets", 40, "--json", out)
    rows = json.loads(out.read_text())
    assert len(rows) == 8
    assert all(row["ok"] for row in rows)


def test_growth_is_found() -> None:
    kept = []
    row = endurance.repeated("grows", lambda number: kept.append(bytearray(40_000)), 200)
    assert not row["ok"]
    assert row["rss"] > endurance.ALLOWANCE


@pytest.mark.alone
def test_ctrl_c_comes_back(tmp_path: Path) -> None:
    """Ctrl-C at 7 moments of each stage. What other programs take of the machine just then does not count."""
    faults.build(tmp_path)  # skips where there is no compiler
    out = tmp_path / "rows.json"
    module("bench.faults", "interrupts", "--count", 56, "--nodes", 400, "--json", out)
    rows = {row["stage"]: row for row in json.loads(out.read_text())}
    assert set(rows) == set(interrupts.STAGES)
    assert all(row["moments"] >= 5 for row in rows.values())


def test_a_long_call_is_late() -> None:
    """Signals are seen between calls only."""
    numbers = range(6_000_000)
    late: list[float] = []
    with moments.Interrupter() as beside:
        started = time.thread_time()
        sum(numbers)
        took = time.thread_time() - started
        for look in range(10 * LOOKS):  # where the machine is busy, most moments are not known
            one = beside.interrupted(lambda: [sum(numbers) for _ in range(3)], 0.01 * (1 + look % 3))
            late += [one.ms] if one is not None and not one.stood(took * 1e3 * 4) else []
            if len(late) >= 3:
                break
    assert late
    assert max(late) > took * 1e3 / 4
    assert max(late) < took * 1e3 * 4


STILL_S = 0.3
LOOKS = 5
"""Processes of which one shows what is tested: a busy machine may spoil the others."""


def test_waiting_for_a_cpu_is_not_late() -> None:
    before = moments.Times(1.0, 2.0, {7: 3.0, 8: 1.0})
    same = before.others
    assert moments.late_s(0.1, before, moments.Times(1.01, 2.09, same)) == pytest.approx(0.01)  # ready, not running
    assert moments.late_s(0.1, before, moments.Times(1.1, 2.0, {7: 3.1})) == pytest.approx(0.1)  # computed all the time
    assert moments.late_s(0.1, before, moments.Times(1.0, 2.0, {7: 3.07})) == pytest.approx(0.03)  # slept beside one
    assert moments.late_s(0.1, before, moments.Times(1.0, 2.0, {7: 3.0, 8: 1.07})) == pytest.approx(
        0.03
    )  # not the most
    assert moments.late_s(0.1, before, moments.Times(1.0, 2.0, {9: 0.07})) == pytest.approx(0.03)  # one that is new
    assert moments.late_s(0.1, before, moments.Times(1.0, 2.0, {}), gone_s=0.07) == pytest.approx(0.03)  # it has ended


ENDING = """
import os, signal, threading, time
from bench.faults.moments import Interrupter

cpu, go = max(os.sched_getaffinity(0)), threading.Event()

def ends():
    os.sched_setaffinity(0, {{cpu}})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # of this thread alone
    go.wait()
    sum(range(1_000_000))  # more than one turn of such a thread

def joins():
    began = time.monotonic()
    go.set()
    while os.path.exists(f"/proc/self/task/{{thread.native_id}}"):
        time.sleep(0.001)
    print(time.monotonic() - began)

with Interrupter() as beside:
    spinner = os.fork()
    if not spinner:  # it takes the CPU that the thread needs
        os.sched_setaffinity(0, {{cpu}})
        while True:
            pass
    thread = threading.Thread(target=ends)
    thread.start()
    time.sleep(0.1)
    if not (killer := os.fork()):
        time.sleep(0.02 + {still})
        os.kill(spinner, signal.SIGKILL)
        os._exit(0)
    found = beside.interrupted(lambda: time.sleep(10), 0.02, joins)
    print(*(found or ()))
    os.waitpid(killer, 0)
"""


@pytest.mark.alone
def test_a_thread_that_ends_may_have_waited_for_a_cpu() -> None:
    """Closing waits for threads that end. What the system counted of them goes with them, so where other programs kept
    these from a CPU, closing seemed 64 ms late.
    """
    command = [sys.executable, "-c", ENDING.format(still=STILL_S)]
    for _ in range(LOOKS):
        said = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        if len(said) > 1 and float(said[0]) > STILL_S * 0.9:  # of waiting
            break
    else:
        pytest.skip("the machine is so busy that the moment is not known, or gave the thread a CPU all the same")
    assert moments.Taken(*map(float, said[1:])).ms < 50.0


def taken(*ms: float, stood: float = 0.0) -> list[moments.Taken]:
    return [moments.Taken(one, stood) for one in ms]


def test_what_is_late_is_found() -> None:
    row = interrupts.shown("run", taken(1.0, 60.0))
    assert row["late"] == 1
    assert not row["ok"]
    assert interrupts.shown("compile", taken(60.0, 200.0))["ok"]


def test_what_stood_still_is_counted_apart() -> None:
    row = interrupts.shown("run", taken(1.0, 2.0) + taken(2440.0, 2430.0, stood=2400.0) + taken(9.0, stood=5.0))
    assert (row["moments"], row["late"], row["stood"], row["stood_ms"]) == (3, 0, 2, 2400.0)
    assert row["ok"]
    for ms in (2500.0, math.inf):  # late all the same, and what went on
        assert interrupts.shown("run", taken(1.0) + taken(ms, stood=2400.0))["late"] == 1


STANDING = """
import os, signal, sys, time
from bench.faults.moments import Interrupter

numbers = range(30_000_000)  # half a second in one call, which sees no signal
first, who = os.getpid(), sys.argv[1].split()
with Interrupter() as beside:
    processes = [{{"first": first, "beside": beside.process}}[one] for one in who]
    if not os.fork():
        time.sleep(0.1)
        for one in processes:
            os.kill(one, signal.SIGSTOP)
        time.sleep({still})
        for one in processes:
            os.kill(one, signal.SIGCONT)
        os._exit(0)
    found = beside.interrupted(lambda: sum(numbers), 0.02)
    print(*(found or ()))
"""


@pytest.mark.parametrize("who", ["first beside", "first", "beside", ""])
def test_standing_still_is_not_late(who: str) -> None:
    """Processes that were stopped and went on made Ctrl-C seem 3 s late."""
    command = [sys.executable, "-c", STANDING.format(still=STILL_S), who]
    for _ in range(LOOKS):
        said = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        found = moments.Taken(*map(float, said)) if said else None
        if found is not None and (found.stood_ms > STILL_S * 900 if who else not found.stood(50.0)):
            break  # else who stops it came late, or the machine stood still by itself
    if found is None:
        pytest.skip("the machine is so busy that the moment is not known")
    if who:
        assert found.stood_ms > STILL_S * 900
        assert found.stood(found.ms - STILL_S * 900)
    else:
        assert not found.stood(50.0)


def test_what_goes_on_is_late() -> None:
    def swallows() -> None:
        with contextlib.suppress(moments.InterruptError):
            time.sleep(0.1)

    with moments.Interrupter() as beside:
        found = beside.interrupted(swallows, 0.02)
    assert found is not None
    assert math.isinf(found.ms)


def damaged_model(name: str, folder: Path) -> mutants.Subject:
    source = write_micro(name, folder / f"{name}.onnx")
    return mutants.Subject(Path(flexnn.compile(source, folder / f"{name}.flexnn", keep=KEPT.get(name))))


@pytest.mark.parametrize("name", ["bands", "queries", "sound", "blocks_of_maps", "phases"])
def test_models_that_are_damaged_run_as_they_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MachineProfile, "measure", lambda: mutants.RATES)
    subject = damaged_model(name, tmp_path)
    with flexnn.Session(tmp_path / f"{name}.flexnn", subject.memory, 1, profile="analytic") as session:
        plan = session.plan
    if name != "phases":
        assert plan.graph.added
        return
    once = {weight.offset: weight.nbytes for weight in plan.graph.weights}
    assert plan.bytes_read_per_run == sum(once.values())


@pytest.mark.parametrize("name", ["texts", "pictures"])
def test_templates_and_texts_are_damaged_under_right_checksums(name: str, tmp_path: Path) -> None:
    content = damaged_model(name, tmp_path).content
    header = Header.unpack(content[:HEADER_BYTES], len(content))
    section = json.loads(content[header.graph_offset :][: header.graph_bytes])
    spans = {row[0]: (slice(row[4], row[4] + row[2]), row[5]) for row in section["weights"] if row[1] == "raw"}
    assert spans.keys() == {"templates", "about and labels" if name == "texts" else "about"}
    hit = set()
    for seed in range(100):
        mutant = reseal(content, random.Random(seed))
        for kind, (span, crc) in spans.items():
            if len(mutant) == len(content) and mutant[span] != content[span]:
                hit.add(kind)
                at = header.crc_offset + 4 * crc
                assert int.from_bytes(mutant[at : at + 4], "little") == crc32c(mutant[span])
    assert hit == spans.keys()
