"""Recordings against a Python interpreter of tapes; every field of a tape wrong in turn; faults, forks, signals."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from bench.process import status
from flexnn import _core
from tests.support.late import interrupt_after
from tests.support.programs import Chain
from tests.support.tapes import Bench, RandomTape, Tape, interpret

pytestmark = pytest.mark.sanitized

N = np.int64


def int64(number: int) -> np.ndarray:
    return np.array([number], N)


@pytest.fixture(scope="module")
def bench():
    return Bench(options={"threads": 2})


@pytest.fixture(scope="module")
def bare():
    """An engine without programs."""
    return _core.Engine(poison=True)


# ---- behaviour ----


def check_random(seed: int, *, holds: bool = False, **options) -> int:
    """Run a random tape five times with other values and flags; return how often a full stack stopped it."""
    bench = Bench(options={"threads": 2, "poison": True, **options}, holds=holds)
    rng, stops = np.random.default_rng(seed), 0
    functions = bench.functions
    for _ in range(6):
        tape = RandomTape(rng, bench)
        recording = tape.open(bench.engine, bench.programs, looks_ahead=bool(rng.integers(4)))
        for _ in range(4):
            given = tape.given(rng, bench)
            wanted, got = np.zeros(tape.size, np.uint8), np.zeros(tape.size, np.uint8)
            whole, stack = np.zeros(8 * bench.nbytes, np.uint8), np.zeros(0, np.uint8)
            counters = interpret(tape, [given, wanted, whole], functions)
            stopped = recording.run([given, got, stack])[0]
            while stopped >= 0:
                assert tape.entries[stopped][:3] == (_core.ENTRY_ROW, tape.row_out, tape.stack)
                stack = np.concatenate([stack, np.zeros(bench.nbytes * int(rng.integers(1, 3)), np.uint8)])
                stopped = recording.run([given, got, stack], goes_on=True)[0]
                stops += 1
            np.testing.assert_array_equal(got, wanted)
            np.testing.assert_array_equal(stack, whole[: len(stack)])
            assert [recording.turns(i) for i in range(tape.counters)] == counters
        recording.close()
    bench.engine.close()
    return stops


@pytest.mark.parametrize("block", [*range(8), *(pytest.param(i, marks=pytest.mark.long) for i in range(8, 40))])
def test_random_tapes_do_what_the_interpreter_does(block):
    """With weights that stream: what was announced need not come."""
    stops = sum(check_random(1000 * block + seed) for seed in range(12))
    assert stops > 5


@pytest.mark.parametrize("seed", range(5))
def test_random_tapes_with_jitter(seed):
    check_random(seed, jitter_seed=1 + seed)


@pytest.mark.parametrize("block", [*range(3), *(pytest.param(i, marks=pytest.mark.full) for i in range(3, 30))])
def test_random_tapes_whose_loops_hold_weights(block):
    """Outside of these loops, other programs read theirs into the same places."""
    for seed in range(10):
        check_random(5000 * block + seed, holds=True)
    check_random(block, holds=True, jitter_seed=1 + block, read_bytes_per_second=50 << 20)


def holding(bench: Bench, inside: int) -> Tape:
    """A loop with a holder that runs a program, and another program behind it."""
    tape = Tape(bench.free, inputs=1, buffers=2, counters=1)
    h, other = tape.slot(bench.nbytes), tape.slot(bench.nbytes)
    tape.add("copy", h, tape.slot(bench.nbytes, 1), n=bench.nbytes)
    tape.add("begin")
    turn = tape.add("turn", 0, 0, -1, -1, 3)
    tape.entries[turn] = (*tape.entries[turn][:5], 5, *tape.entries[turn][6:])
    tape.run(inside, h, other)
    tape.add("swap", h, other)
    tape.add("next", 0, turn)
    tape.go(turn)
    tape.run(2, h, tape.slot(bench.nbytes, 2))
    return tape


def test_a_loop_reads_what_it_holds_once():
    bench = Bench(options={"threads": 2, "poison": True}, holds=True)
    recording = holding(bench, 3).open(bench.engine, bench.programs)
    held, streamed = (int(bench.chains[3].program[name]["bytes"].sum()) for name in ("pinned", "loads"))
    x, y = np.ones(bench.nbytes // 4, np.float32), np.zeros(bench.nbytes // 4, np.float32)
    for _ in range(3):
        assert recording.run([x, y])[3] == held + 3 * streamed + bench.chains[2].streamed_bytes
    bench.engine.close()


def test_holders_that_are_refused():
    """Something in the loop writes over what stays; no such program; one with buffers; a holder of something else."""
    bench = Bench(options={"threads": 2}, holds=True)

    def status_of(tape: Tape, at: int, holder: int) -> str:
        tape.entries[at] = (*tape.entries[at][:5], holder, *tape.entries[at][6:])
        with pytest.raises(_core.EngineError) as refused:
            tape.open(bench.engine, bench.programs)
        return refused.value.status

    assert status_of(holding(bench, 2), 2, 5) == "overlap"
    assert [status_of(holding(bench, 3), 2, holder) for holder in (-1, 6, 4)] == ["params"] * 3
    assert status_of(holding(bench, 3), 3, 5) == "params"
    bench.engine.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_branches_that_alternate_do_not_mislead_loads(seed):
    """In each turn the branch goes elsewhere than announced; a slow loader, so that loads are under way."""
    bench = Bench(options={"threads": 2, "poison": True, "jitter_seed": seed, "read_bytes_per_second": 50 << 20})
    tape = Tape(bench.free, inputs=1, buffers=2, counters=1)
    ways, x = tape.slot(8, 1), tape.slot(bench.nbytes, 1, 64)
    h, other, y = tape.slot(bench.nbytes), tape.slot(bench.nbytes), tape.slot(bench.nbytes, 2)
    way = tape.slot(1, _core.BASE_ROW)
    tape.add("copy", h, x, n=bench.nbytes)
    tape.add("begin")
    turn = tape.add("turn", 0, 0, -1, -1, 8)
    tape.add("row", way, ways, 0, 0, 1)
    branch = tape.add("branch", way)
    tape.run(1, h, other)
    jump = tape.add("jump")
    tape.go(branch)
    tape.run(2, h, other)
    tape.go(jump)
    tape.add("swap", h, other)
    tape.add("next", 0, turn)
    tape.go(turn)
    tape.run(0, h, y)
    recording, rng = tape.open(bench.engine, bench.programs), np.random.default_rng(seed)
    for number in range(20):
        given = np.zeros(64 + bench.nbytes, np.uint8)
        given[:8] = np.arange(8) % 2 if number % 2 else rng.integers(2, size=8)
        given[64:] = rng.standard_normal(bench.nbytes // 4).astype(np.float32).view(np.uint8)
        wanted, got = np.zeros(bench.nbytes, np.uint8), np.zeros(bench.nbytes, np.uint8)
        interpret(tape, [given, wanted], bench.functions)
        assert recording.run([given, got])[0] == -1
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(  # another program between two runs
            run_alone(bench, number % 3, given[64:]), bench.functions[number % 3](given[64:])
        )
    bench.engine.close()


def run_alone(bench: Bench, number: int, x: np.ndarray) -> np.ndarray:
    program, y = bench.programs[number], np.zeros(bench.nbytes, np.uint8)
    program.run([x, y], [program])
    return y


def test_slots_are_filled_with_nans_before_a_run(bare):
    tape = Tape(0, buffers=1)
    tape.add("copy", tape.slot(4096, 1), tape.slot(4096), n=4096)
    with_value = Tape(0, inputs=1, buffers=1)
    with_value.add("copy", with_value.slot(4096), with_value.slot(4096, 1), n=4096)
    recording, before = tape.open(bare), with_value.open(bare)
    for _ in range(2):
        before.run([np.ones(1024, np.float32)])
        y = np.zeros(1024, np.float32)
        recording.run([y])
        assert np.isnan(y).all()
    recording.close()
    before.close()


# ---- full stacks ----


def stacking() -> Tape:
    """Stacks two counters, one forward and one backward, in nested loops of as many turns as the input says."""
    tape = Tape(0, inputs=1, buffers=3, counters=2)
    trips, number = tape.slot(8, 1), tape.slot(8)
    whole, other = tape.slot(0, 2), tape.slot(0, 3)
    row, other_row = tape.slot(8, _core.BASE_ROW), tape.slot(8, _core.BASE_ROW)
    tape.add("begin", 0)
    turn = tape.add("turn", 0, 0, -1, trips, -1)
    tape.add("row", row, whole, 0, 0, 8)
    tape.add("row", other_row, other, 0, 1, 8)
    tape.add("count", 0, number)
    tape.add("copy", row, number, n=8)
    tape.add("count", 0, other_row)
    tape.add("next", 0, turn)
    tape.go(turn)
    return tape


def test_a_run_goes_on_with_other_buffers(bare):
    """Rows that had their places before the run stopped move with their buffers."""
    recording = stacking().open(bare)
    first, second = np.zeros(2, N), np.zeros(3, N)
    stopped = recording.run([int64(5), first, second])[0]
    assert stopped == recording.entry
    assert recording.turns(0) == 2
    first = np.concatenate([first, np.full(3, -1, N)])
    assert recording.run([int64(5), first, second], goes_on=True)[0] == stopped + 1
    assert recording.turns(0) == 3
    moved = np.full(5, -1, N)  # the row of the first has its place already
    again = np.concatenate([np.full(2, -1, N), second])
    kept, first = first, np.concatenate([first[:3], np.full(2, -1, N)])
    assert recording.run([int64(5), first, again], goes_on=True)[0] == -1
    np.testing.assert_array_equal(first, np.arange(5))
    np.testing.assert_array_equal(again, np.arange(5)[::-1])
    np.testing.assert_array_equal(kept[3:], -1)
    np.testing.assert_array_equal(moved, -1)
    with pytest.raises(_core.EngineError) as caught:
        recording.run([int64(5), first, again], goes_on=True)
    assert caught.value.status == "params"
    recording.close()


def test_a_run_goes_on_only_if_nothing_came_between(bare):
    tape = stacking()
    recording, other = tape.open(bare), tape.open(bare)
    full = [int64(2), np.zeros(2, N), np.zeros(2, N)]
    few = [int64(2), np.zeros(1, N), np.zeros(2, N)]

    def grows():
        larger = Tape(1 << 24)
        larger.slot(8)
        larger.open(bare).close()

    between = [lambda: other.run(full), lambda: other.run(few), grows, other.close]
    for number, come in enumerate(between):
        assert recording.run(few)[0] >= 0
        come()
        if number < 3:
            with pytest.raises(_core.EngineError):
                recording.run(full, goes_on=True)
        else:
            assert recording.run(full, goes_on=True)[0] == -1
    assert recording.run(few)[0] >= 0
    with pytest.raises(_core.EngineError) as caught:  # a row that has its place no longer fits
        recording.run([int64(2), np.zeros(0, N), np.zeros(2, N)], goes_on=True)
    assert caught.value.status == "bounds"
    with pytest.raises(_core.EngineError) as caught:
        recording.run(few, goes_on=True)
    assert caught.value.status == "params"
    assert recording.run(full)[0] == -1
    recording.close()
    bare.trim()


def test_rows_beyond_a_slot_of_the_arena_are_an_error(bare):
    tape = Tape(0, counters=1)
    whole, row = tape.slot(16), tape.slot(8, _core.BASE_ROW)
    tape.add("begin")
    turn = tape.add("turn", 0, 0, -1, -1, 3)
    at = tape.add("row", row, whole, 0, 0, 8)
    tape.add("next", 0, turn)
    tape.go(turn)
    recording = tape.open(bare)
    with pytest.raises(_core.EngineError) as caught:
        recording.run([])
    assert caught.value.status == "bounds"
    assert (recording.entry, recording.turns(0)) == (at, 2)
    recording.close()


@pytest.mark.parametrize("kind", ["copy", "copied", "branch", "turn", "trips", "count", "run"])
def test_a_row_that_has_no_place_is_an_error(bench, kind):
    """Also where it had one in an earlier run, in a buffer that is gone."""
    tape = Tape(bench.free, inputs=1, buffers=2, counters=1)
    size = bench.nbytes
    has_place, whole, h = tape.slot(8, 1), tape.slot(size, 2), tape.slot(size)
    row = tape.slot(size, _core.BASE_ROW)
    tape.add("begin")
    branch = tape.add("branch", has_place)
    tape.add("row", row, whole, 0, 0, size)
    tape.go(branch)
    at = len(tape.entries)
    if kind == "run":
        tape.run(0, row, h)
    elif kind in ("copy", "copied"):
        tape.add("copy", *((row, h) if kind == "copy" else (h, row)), n=size)
    elif kind == "branch":
        tape.add("branch", row, at + 1)
    elif kind == "count":
        tape.add("count", 0, row)
    else:
        tape.add("turn", 0, at + 1, row if kind == "turn" else -1, row if kind == "trips" else -1, -1)
    recording = tape.open(bench.engine, bench.programs)
    for _ in range(2):
        recording.run([int64(1), np.zeros(size, np.uint8)])
        with pytest.raises(_core.EngineError) as caught:
            recording.run([int64(0), np.zeros(size, np.uint8)])
        assert caught.value.status == "bounds"
        assert recording.entry == at
    recording.close()


def test_buffers_that_are_wrong(bare):
    recording = stacking().open(bare)
    good = [int64(1), np.zeros(1, N), np.zeros(1, N)]
    with pytest.raises(ValueError, match="2 buffers, not 3"):
        recording.run(good[:2])
    with pytest.raises(_core.EngineError) as caught:
        recording.run([np.zeros(7, np.uint8), *good[1:]])
    assert caught.value.status == "bounds"
    with pytest.raises(ValueError, match="aligned"):
        recording.run([np.zeros(17, np.uint8)[1:9].view(N), *good[1:]])
    fixed = np.zeros(1, N)
    fixed.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        recording.run([*good[:2], fixed])
    assert recording.run([fixed, *good[1:]])[0] == -1
    recording.close()


# ---- what fx_recording_make refuses ----


def every_kind(bench: Bench) -> tuple[Tape, dict[str, int], dict[str, int]]:
    """A tape with every kind of entry and of slot, and their numbers."""
    tape = Tape(bench.free, inputs=1, buffers=2, counters=2)
    size = bench.nbytes
    slots = {"x": tape.slot(size, 1), "y": tape.slot(size, 2), "h": tape.slot(size), "g": tape.slot(size)}
    slots |= {"flag": tape.slot(8), "trips": tape.slot(8, 1), "rows": tape.slot(4 * size, 1)}
    slots |= {"row": tape.slot(size, _core.BASE_ROW), "short": tape.slot(4), "none": tape.slot(0)}
    entries = {"begin": tape.add("begin", 0), "count": tape.add("count", 0, slots["flag"])}
    entries["turn"] = tape.add("turn", 0, 0, slots["flag"], slots["trips"], 4)
    entries["row"] = tape.add("row", slots["row"], slots["rows"], 0, 1, size)
    entries["copy"] = tape.add("copy", slots["h"], slots["row"], n=size)
    entries["run"] = tape.run(0, slots["h"], slots["g"])
    entries["swap"] = tape.add("swap", slots["h"], slots["g"])
    entries["branch"] = tape.add("branch", slots["flag"])
    tape.run(1, slots["x"], slots["y"])
    entries["jump"] = tape.add("jump")
    tape.go(entries["branch"])
    tape.run(2, slots["x"], slots["y"])
    tape.go(entries["jump"])
    entries["next"] = tape.add("next", 0, entries["turn"])
    tape.go(entries["turn"])
    return tape, entries, slots


NOT_SLOTS = (-1, -(1 << 31), 1 << 30, "count")
NOT_COUNTERS = (-1, 2, 1 << 30)
NOT_AFTER = (-1, 0, "self", "beyond", -(1 << 31))
WRONG_ENTRIES = {
    ("run", "a"): (-1, 3, 1 << 30),
    ("run", "b"): (-1, 1, 5, 6, 1 << 30),
    ("copy", "a"): (*NOT_SLOTS, "x", "short", "none", "flag"),
    ("copy", "b"): (*NOT_SLOTS, "short", "none", "flag"),
    ("copy", "n"): (-1, "more", 1 << 62, -(1 << 63)),
    ("swap", "a"): (*NOT_SLOTS, "x", "row", "flag", "rows"),
    ("swap", "b"): (*NOT_SLOTS, "y", "row", "flag", "rows"),
    ("branch", "a"): (*NOT_SLOTS, "none"),
    ("branch", "b"): NOT_AFTER,
    ("jump", "b"): NOT_AFTER,
    ("begin", "a"): NOT_COUNTERS,
    ("turn", "a"): NOT_COUNTERS,
    ("turn", "b"): NOT_AFTER,
    ("turn", "c"): (-2, *NOT_SLOTS[1:], "none"),
    ("turn", "d"): (-2, *NOT_SLOTS[1:], "none", "short"),
    ("turn", "n"): (-2, -(1 << 63)),
    ("next", "a"): NOT_COUNTERS,
    ("next", "b"): (-1, "self", "beyond", -(1 << 31)),
    ("count", "a"): NOT_COUNTERS,
    ("count", "b"): (*NOT_SLOTS, "x", "short", "none", "trips"),
    ("row", "a"): (*NOT_SLOTS, "h", "rows"),
    ("row", "b"): (*NOT_SLOTS, "row"),
    ("row", "c"): NOT_COUNTERS,
    ("row", "d"): (-1, 2),
    ("row", "n"): (-1, 0, 4, "more", 1 << 62),
}
WRONG_SLOTS = {
    ("h", "base"): (-1, -2, -4, 3, 1 << 30, -(1 << 31)),
    ("h", "offset"): (-8, 1, 4, 1 << 60, -(1 << 63)),
    ("h", "bytes"): (-1, 0, 8, "more", 1 << 60, -(1 << 63)),
    ("x", "base"): (-1, 3),
    ("x", "offset"): (-8, 4, (1 << 63) - 8),
    ("x", "bytes"): (-1, 0, "more"),
    ("y", "base"): (1, 3),
    ("row", "base"): (0, 1, 2),
    ("row", "bytes"): (-1, 0, "more"),
    ("rows", "base"): (_core.BASE_ROW,),
    ("trips", "bytes"): (7, -1),
}


@pytest.mark.parametrize(("kind", "field"), WRONG_ENTRIES)
def test_wrong_entries_are_refused(bench, kind, field):
    tape, entries, slots = every_kind(bench)
    tape.open(bench.engine, bench.programs).close()
    at = entries[kind]
    symbols = {"count": len(tape.slots), "self": at, "beyond": len(tape.entries) + 1, "more": bench.nbytes + 8, **slots}
    for wrong in WRONG_ENTRIES[kind, field]:
        arguments = tape.arguments()
        arguments["entries"][field][at] = symbols[wrong] if isinstance(wrong, str) else wrong
        with pytest.raises(_core.EngineError) as caught:
            tape.open(bench.engine, bench.programs, **arguments).close()
        assert (caught.value.status, caught.value.index) == ("params", at), wrong


@pytest.mark.parametrize(("name", "field"), WRONG_SLOTS)
def test_wrong_slots_are_refused(bench, name, field):
    tape, _, slots = every_kind(bench)
    for wrong in WRONG_SLOTS[name, field]:
        arguments = tape.arguments()
        arguments["slots"][field][slots[name]] = bench.nbytes + 8 if isinstance(wrong, str) else wrong
        with pytest.raises(_core.EngineError) as caught:
            tape.open(bench.engine, bench.programs, **arguments).close()
        assert caught.value.status == "params", wrong


def test_wrong_kinds_operands_and_numbers_are_refused(bench):
    tape, entries, slots = every_kind(bench)
    other = Bench(1)

    def refused(programs=bench.programs, **changed):
        with pytest.raises(_core.EngineError) as caught:
            tape.open(bench.engine, programs, **(tape.arguments() | changed)).close()
        assert caught.value.status == "params"

    for kind in (len(_core_kinds()), 1 << 31, (1 << 32) - 1):
        arguments = tape.arguments()
        arguments["entries"]["kind"][entries["jump"]] = kind
        refused(**arguments)
    for number in range(len(tape.operands)):
        for wrong in (len(tape.slots), (1 << 32) - 1, slots["short"], *([slots["x"]] if number % 2 else [])):
            arguments = tape.arguments()
            arguments["operands"][number] = wrong
            refused(**arguments)
    refused(operands=tape.arguments()["operands"][:-1])
    refused(counter_count=0)
    refused(counter_count=65)
    refused(buffer_count=1)
    refused(input_count=2)
    refused(input_count=3)
    refused(programs=bench.programs[:2])
    refused(programs=[*bench.programs[:2], *other.programs])
    refused(programs=[*bench.programs, *other.programs])
    for table in ("entries", "slots", "operands"):
        with pytest.raises(ValueError, match=table):
            tape.open(bench.engine, bench.programs, **{table: np.zeros(3, np.uint8)})
    tape.open(bench.engine, bench.programs, counter_count=64, buffer_count=3).close()


def _core_kinds() -> list[str]:
    return [name for name in dir(_core) if name.startswith("ENTRY_") and name != "ENTRY_DTYPE"]


def test_rows_of_inputs_are_not_written(bench):
    for kind in ("copy", "count", "run"):
        tape = Tape(bench.free, inputs=1, buffers=1, counters=1)
        size = bench.nbytes
        whole, row, h = tape.slot(size, 1), tape.slot(size, _core.BASE_ROW), tape.slot(size)
        tape.add("begin")
        if kind == "run":
            tape.run(0, h, row)
        else:
            tape.add(kind, row if kind == "copy" else 0, h if kind == "copy" else row, n=8)
        tape.add("row", row, whole, 0, 0, size)
        with pytest.raises(_core.EngineError):
            tape.open(bench.engine, bench.programs)
        tape.open(bench.engine, bench.programs, input_count=0).close()


def test_an_empty_tape(bare):
    recording = Tape(0).open(bare)
    assert recording.run([])[0] == -1
    assert recording.entry == 0
    assert recording.turns(0) == 0
    assert recording.bytes > 0
    recording.close()


def test_mutated_tapes_never_crash(bench):
    """Random bytes of a tape changed: refused, or it runs and ends; a loop that has become endless is cancelled."""
    tape, *_ = every_kind(bench)
    rng, counts = np.random.default_rng(0), {"refused": 0, "ran": 0, "stopped": 0, "failed": 0, "endless": 0}
    interesting = np.array([0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 64, 127, 128, 255], np.uint8)
    given = np.zeros(4 * bench.nbytes, np.uint8)
    given[0] = 3
    y = np.zeros(bench.nbytes, np.uint8)

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    try:
        for _ in range(3000):
            arguments = tape.arguments()
            for _ in range(int(rng.integers(1, 4))):
                raw = arguments[str(rng.choice(["entries", "entries", "slots", "operands"]))].view(np.uint8).reshape(-1)
                raw[rng.integers(raw.size)] = rng.choice(interesting)
            try:
                recording = tape.open(bench.engine, bench.programs, **arguments)
            except _core.EngineError as error:
                assert error.status in ("params", "overlap", "memory")
                counts["refused"] += 1
                continue
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.03)
                try:
                    stopped = recording.run([given, y])[0]
                    counts["stopped" if stopped >= 0 else "ran"] += 1
                except _core.EngineError:
                    counts["failed"] += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except TimeoutError:  # on a busy machine it may come when the run is over
                counts["endless"] += 1
            recording.close()
            bench.engine.trim()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert counts["refused"] > 300
    assert counts["ran"] > 300
    assert counts["failed"] > 30


# ---- other programs, threads and processes ----


def test_a_recording_ends_with_its_programs():
    bench = Bench()
    tape, *_ = every_kind(bench)
    recording, rest = tape.open(bench.engine, bench.programs), Tape(bench.free).open(bench.engine, bench.programs[1:])
    buffers = [np.zeros(4 * bench.nbytes, np.uint8), np.zeros(bench.nbytes, np.uint8)]
    recording.run(buffers)
    bench.programs[0].close()
    with pytest.raises(_core.EngineError) as caught:
        recording.run(buffers)
    assert caught.value.status == "params"
    rest.run([])
    bench.programs[1].close()
    with pytest.raises(_core.EngineError):
        rest.run([])
    recording.close()
    recording.close()
    again = _core.BoundProgram(bench.engine, **bench.chains[0].program)
    x = np.ones(bench.nbytes // 4, np.float32).view(np.uint8)
    y = np.zeros(bench.nbytes, np.uint8)
    again.run([x, y])
    np.testing.assert_array_equal(y, bench.functions[0](x))
    bench.engine.close()
    for use in (lambda: recording.run(buffers), lambda: rest.run([]), lambda: rest.bytes, lambda: rest.turns(0)):
        with pytest.raises(ValueError, match="closed"):
            use()
    rest.close()
    with pytest.raises(ValueError, match="closed"):
        tape.open(bench.engine, [])


def test_slots_and_weights_do_not_overlap():
    chain = Chain(layers=2, side=2, channels=40, slots=1, kernel=3, pinned_every=2)
    engine = _core.Engine()
    program = _core.BoundProgram(engine, **chain.program)
    end = chain.program["arena_bytes"]
    places = [int(chain.program[table]["address"][0]) for table in ("pinned", "loads")]
    places += [int(chain.program["nodes"]["out"]["offset"][0]), int(chain.program["zeros_offset"])]

    def slot_at(at: int) -> Tape:
        tape = Tape(at)
        tape.slot(8)
        return tape

    for programs in ([program], []):  # also where it is not one of the recording's own: its loads may be under way
        for at in places:
            with pytest.raises(_core.EngineError) as caught:
                slot_at(at).open(engine, programs)
            assert caught.value.status == "overlap"
        slot_at(end).open(engine, programs).close()
    program.close()
    for at in places:
        recording = slot_at(at).open(engine)
        with pytest.raises(_core.EngineError) as caught:
            _core.BoundProgram(engine, **chain.program)
        assert caught.value.status == "overlap"
        recording.close()
        recording.close()
    recording = slot_at(end).open(engine)
    _core.BoundProgram(engine, **chain.program).close()
    recording.run([])
    engine.close()


def test_the_arena_has_room_for_slots():
    engine = _core.Engine(poison=True)
    small = engine.bytes
    tape = Tape((1 << 20) - 64, inputs=1, buffers=2)
    h = tape.slot(64)
    tape.add("copy", h, tape.slot(64, 1), n=64)
    tape.add("copy", tape.slot(64, 2), h, n=64)
    recording = tape.open(engine)
    assert engine.bytes >= small + (1 << 20) + recording.bytes
    engine.trim()
    x, y = np.arange(8), np.zeros(8, N)
    recording.run([x, y])
    np.testing.assert_array_equal(x, y)
    with pytest.raises(_core.EngineError) as caught:
        Tape(1 << 48, slots=[(0, 0, 1 << 47, 8)]).open(engine)
    assert caught.value.status == "memory"
    recording.run([x, y])
    recording.close()
    engine.trim()
    assert engine.bytes < small + (1 << 20)
    engine.close()


def test_without_a_budget_some_arena_stays_and_is_backed_before_it_is_used():
    engine = _core.Engine()
    engine.loosen(True)
    small, sizes = engine.bytes, (1 << 20, 16 << 20)
    for size in sizes:
        recording = Tape(0, slots=[(0, 0, 0, size)]).open(engine)
        before = status("VmRSS")
        engine.back()
        is_able = status("VmRSS") - before >= size // 2
        assert is_able or tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14)
        recording.close()
        engine.trim()
    Tape(0, slots=[(0, 0, 0, 1 << 20)]).open(engine).close()
    engine.trim()
    assert engine.bytes >= small + (1 << 20)  # little enough to stay
    engine.loosen(False)
    engine.trim()
    assert engine.bytes < small + (1 << 20)
    engine.close()
    engine.loosen(True)


def endless() -> Tape:
    tape = Tape(0, inputs=1, buffers=1, counters=1)
    going = tape.slot(8, 1)
    tape.add("begin")
    turn = tape.add("turn", 0, 0, going, -1, -1)
    tape.add("next", 0, turn)
    tape.go(turn)
    return tape


@pytest.mark.alone
def test_ctrl_c_ends_an_endless_loop():
    engine = _core.Engine()
    recording = endless().open(engine)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            sent = interrupt_after(0.1)
            recording.run([int64(1)])
        assert sent[0].since() < 0.1
        assert recording.turns(0) > 100
        assert recording.run([int64(0)])[0] == -1
        assert recording.turns(0) == 0
    engine.close()


def test_one_thing_runs_at_a_time():
    bench, going = Bench(), int64(1)
    tape = endless()
    tape.at = bench.free
    recording, others = tape.open(bench.engine), [tape.open(bench.engine)]
    thread = threading.Thread(target=recording.run, args=([going],))
    thread.start()
    while recording.turns(0) < 10:
        time.sleep(0.001)
    x, y = np.zeros(bench.nbytes, np.uint8), np.zeros(bench.nbytes, np.uint8)
    for use in (
        lambda: recording.run([going]),
        lambda: others[0].run([going]),
        lambda: bench.programs[0].run([x, y]),
        lambda: tape.open(bench.engine),
        recording.close,
        bench.programs[0].close,
        bench.engine.close,
        bench.engine.trim,
        bench.engine.back,
    ):
        with pytest.raises(RuntimeError):
            use()
    del others[0]  # freed when the run is over
    going[0] = 0
    thread.join()
    assert recording.run([going])[0] == -1
    bench.engine.close()


def test_a_fork_has_no_recordings():
    bench = Bench()
    tape, *_ = every_kind(bench)
    recording = tape.open(bench.engine, bench.programs)
    buffers = [np.zeros(4 * bench.nbytes, np.uint8), np.zeros(bench.nbytes, np.uint8)]
    recording.run(buffers)
    child = os.fork()
    if not child:
        code = 1
        try:
            for use in (lambda: recording.run(buffers), lambda: tape.open(bench.engine, bench.programs)):
                try:
                    use()
                except _core.EngineError as error:
                    assert error.status == "fork"
                else:
                    raise AssertionError("it ran")
            recording.close()
            bench.engine.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert recording.run(buffers)[0] == -1
    bench.engine.close()


def test_a_recording_is_made_once(bare):
    tape = endless()
    recording = tape.open(bare)
    with pytest.raises(RuntimeError, match="made already"):
        recording.__init__(bare, programs=[], **tape.arguments())
    recording.close()
