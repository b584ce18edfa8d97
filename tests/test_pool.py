"""Pools: sessions of many models in one budget, with one arena."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import flexnn
from flexnn.planning import Plan, Planner
from flexnn.planning.overhead import BASE_BYTES
from flexnn.pool import Pool, open_pool_for_tests
from flexnn.run import pooled_open, sharing
from flexnn.run.choosing import HALF_LIFE, Point, Rate, choose, cost
from flexnn.run.pooled_open import PooledOpenRun
from tests.support.hangs import HANG_SECONDS
from tests.support.regions import F32, check_run, compiled, graph_of, model_of, numbers, value
from tests.support.sessions import write_branched_model

THREADS = 2
CLOSED, OPEN = ("small", "large"), ("open",)
LAYERS = {"small": 4, "large": 8, "open": 5}


@pytest.fixture(autouse=True)
def analytic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXNN_PROFILE", "analytic")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: flexnn.compile(
            write_branched_model(folder / f"{name}.onnx", layers, **({"batch": "n"} if name in OPEN else {}))
        )
        for name, layers in LAYERS.items()
    }


def feed(batch: int = 1) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(batch).standard_normal((batch, 128, 8, 8), np.float32)}


@pytest.fixture(scope="module")
def wanted(artifacts: dict[str, str]) -> dict[tuple[str, int], np.ndarray]:
    found = {}
    for name, path in artifacts.items():
        with flexnn.Session(path, threads=THREADS, profile="analytic", deterministic=True) as session:
            for batch in (1, 2, 3) if name in OPEN else (1,):
                found[name, batch] = session.run(None, feed(batch))[0]
    return found


def least(path: str) -> int:
    return flexnn.plan(path, threads=THREADS).minimum_memory


@pytest.fixture
def pool() -> Iterator[Pool]:
    with open_pool_for_tests(None, THREADS, poison=True) as opened:
        yield opened


def test_results_are_those_of_sessions_alone(
    pool: Pool, artifacts: dict[str, str], wanted: dict[tuple[str, int], np.ndarray]
) -> None:
    sessions = {name: pool.open(path, deterministic=True) for name, path in artifacts.items()}
    for name, batch in wanted:
        sessions[name].run(None, feed(batch))
    smallest, most = pool.minimum_memory, pool.session_bytes
    for memory in (None, smallest, (smallest + most) // 2, most, smallest):
        pool.memory = memory
        assert all(session.memory == memory for session in sessions.values())
        for (name, batch), expected in wanted.items():
            for _ in range(2):
                np.testing.assert_array_equal(sessions[name].run(None, feed(batch))[0], expected)
            assert memory is None or pool.session_bytes <= memory
    with pytest.raises(flexnn.BudgetError) as refusal:
        pool.memory = smallest // 2
    assert pool.memory == smallest
    pool.memory = refusal.value.minimum
    with pytest.raises(flexnn.SessionError, match="pool"):
        sessions["small"].memory = "1GiB"


def test_working_memory_is_the_largest(artifacts: dict[str, str]) -> None:
    with Pool(None, THREADS) as pool:
        sessions = [pool.open(artifacts[name]) for name in CLOSED * 2]
        beside = least(artifacts["large"]) - BASE_BYTES
        assert pool.minimum_memory - BASE_BYTES < 3.75 * beside  # programs of all, and what works in one
        assert pool.minimum_memory < 0.6 * 2 * sum(least(artifacts[name]) for name in CLOSED)
        assert pool.threads == THREADS
        threads = set(os.listdir("/proc/self/task"))
        more = pool.open(artifacts["large"])
        for session in (*sessions, more):
            session.run(None, feed())
        assert len(set(os.listdir("/proc/self/task")) - threads) <= 3  # readers


def test_a_budget_that_is_refused_names_what_works(artifacts: dict[str, str]) -> None:
    with Pool(None, THREADS) as pool:
        alone = pool.open(artifacts["small"])
        one = pool.minimum_memory
        assert one <= least(artifacts["small"])
        alone.close()
    with Pool(one, THREADS) as pool:
        small = pool.open(artifacts["small"])
        with pytest.raises(flexnn.BudgetError, match="beside the other one") as refusal:
            pool.open(artifacts["large"])
        assert refusal.value.budget == one
        small.run(None, feed())
        pool.memory = refusal.value.minimum
        large = pool.open(artifacts["large"])
        small.run(None, feed())
        large.run(None, feed())
        assert pool.session_bytes <= refusal.value.minimum
    with Pool(one - 1, THREADS) as pool, pytest.raises(flexnn.BudgetError) as refusal:
        pool.open(artifacts["small"])
    assert refusal.value.minimum == one


def test_weights_follow_use(artifacts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "LOOKS", 8)
    with Pool(None, THREADS, profile="analytic") as pool:
        sessions = [pool.open(artifacts["large"]) for _ in range(2)]
        most = pool.session_bytes
        pool.memory = (2 * pool.minimum_memory + 3 * most) // 5  # all weights of one, and few of the other
        for number in (0, 1, 0):
            for _ in range(3 * HALF_LIFE):
                sessions[number].run(None, feed())
            pinned = pool.statistics()["pinned_bytes"]
            assert pinned[number] > 2 * pinned[1 - number]
            assert sessions[1 - number].run(None, feed())[0].shape
        moves = pool.statistics()["moves"]
        assert 2 <= moves <= 8
        for _ in range(HALF_LIFE):  # used alike: after at most one move nothing is to be gained
            for session in sessions:
                session.run(None, feed())
        assert pool.statistics()["moves"] <= moves + 2


def test_outputs_count_until_they_are_let_go(artifacts: dict[str, str]) -> None:
    with Pool(None, THREADS) as pool:
        session = pool.open(artifacts["open"])
        other = pool.open(artifacts["small"])
        kept = [session.run(None, feed(3)) for _ in range(12)]
        nbytes = sum(array.nbytes for arrays in kept for array in arrays)
        other.run(None, feed())
        most = pool.session_bytes
        del kept
        other.run(None, feed())
        assert nbytes > 4 * sharing.SMALL_BYTES
        assert most - pool.session_bytes >= nbytes - 2 * sharing.SMALL_BYTES


def test_a_refused_run_names_what_works(artifacts: dict[str, str]) -> None:
    with Pool(None, THREADS) as pool:
        closed = [pool.open(artifacts[name]) for name in CLOSED]
        for other in closed:
            other.run(None, feed())
        session = pool.open(artifacts["open"])
        session.run(None, feed(1))
        pool.memory = pool.minimum_memory
        with pytest.raises(flexnn.BudgetError) as refusal:
            session.run(None, feed(64))
        session.run(None, feed(1))
        pool.memory = refusal.value.minimum
        assert session.run(None, feed(64))[0].shape[0] == 64
        assert pool.session_bytes <= refusal.value.minimum


def test_a_damaged_file_leaves_the_others_usable(artifacts: dict[str, str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.flexnn"
    copy.write_bytes(Path(artifacts["large"]).read_bytes())
    with Pool(None, THREADS) as pool:
        bad, good = pool.open(copy), pool.open(artifacts["small"])
        pool.memory = pool.minimum_memory
        expected = [session.run(None, feed())[0] for session in (bad, good)]
        whole = copy.read_bytes()
        with copy.open("r+b") as file:
            file.seek(len(whole) // 2)
            file.write(bytes(len(whole) // 2))
        for _ in range(3):
            with pytest.raises(flexnn.SessionError):
                for _ in range(3):
                    bad.run(None, feed())
            np.testing.assert_allclose(good.run(None, feed())[0], expected[1], 1e-5, 1e-5)
        pool.memory = None
        pool.open(artifacts["open"]).run(None, feed(2))
        np.testing.assert_allclose(good.run(None, feed())[0], expected[1], 1e-5, 1e-5)
        with copy.open("r+b") as file:
            file.write(whole)
        np.testing.assert_allclose(bad.run(None, feed())[0], expected[0], 1e-5, 1e-5)


def test_threads_take_turns(artifacts: dict[str, str], wanted: dict[tuple[str, int], np.ndarray]) -> None:
    failed: list[BaseException] = []
    with Pool(None, THREADS) as pool, Pool("1GiB", 1) as beside:
        sessions = {name: pool.open(path, deterministic=True) for name, path in artifacts.items()}
        other = beside.open(artifacts["small"], deterministic=True)
        pool.memory = pool.minimum_memory * 5 // 4

        def work(name: str) -> None:
            try:
                for _ in range(20):
                    np.testing.assert_array_equal(sessions[name].run(None, feed())[0], wanted[name, 1])
                    np.testing.assert_allclose(other.run(None, feed())[0], wanted["small", 1], 1e-4, 1e-4)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in [*artifacts, "large"]]
        for thread in threads:
            thread.start()
        for memory in (None, pool.minimum_memory * 2, "1GiB"):
            pool.memory = memory
        for thread in threads:
            thread.join()
    assert not failed, failed


def test_closing(artifacts: dict[str, str]) -> None:
    pool = Pool(None, THREADS)
    first, second = pool.open(artifacts["large"]), pool.open(artifacts["open"])
    first.run(None, feed())
    second.run(None, feed())
    before = pool.session_bytes
    first.close()
    first.close()
    assert pool.session_bytes < before
    assert pool.statistics()["sessions"] == 1
    second.run(None, feed())
    del second
    assert pool.statistics()["sessions"] == 0
    third = pool.open(artifacts["small"])
    assert "1 session" in repr(pool)
    pool.close()
    pool.close()
    assert pool.closed
    assert "closed" in repr(pool)
    for use in (lambda: third.run(None, feed()), lambda: pool.open(artifacts["small"]), lambda: pool.session_bytes):
        with pytest.raises(flexnn.SessionError, match="closed"):
            use()
    third.close()


def test_a_signal_handler_closes_another_session(artifacts: dict[str, str]) -> None:
    with Pool(None, THREADS) as pool:
        first, second = pool.open(artifacts["large"]), pool.open(artifacts["small"])
        seen: list[str] = []

        def handler(*_: object) -> None:
            second.close()
            try:
                first.run(None, feed())
            except flexnn.SessionError as error:
                seen.append(str(error))

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            while not any("signal handler" in text for text in seen):
                first.run(None, feed())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert pool.statistics()["sessions"] == 1
        first.run(None, feed())


def test_a_fork_has_no_pool(artifacts: dict[str, str]) -> None:
    with Pool(None, THREADS) as pool:
        session = pool.open(artifacts["small"])
        session.run(None, feed())
        child = os.fork()
        if not child:
            texts = []
            for use in (lambda: session.run(None, feed()), lambda: pool.open(artifacts["small"])):
                try:
                    use()
                except flexnn.SessionError as error:
                    texts.append(str(error))
            session.close()
            pool.close()
            os._exit(0 if len(texts) == 2 and all("fork" in text for text in texts) else 1)
        assert os.waitpid(child, 0)[1] == 0
        session.run(None, feed())


@pytest.mark.parametrize("seed", range(3))
def test_random_runs(
    artifacts: dict[str, str], wanted: dict[tuple[str, int], np.ndarray], pool: Pool, seed: int
) -> None:
    random_numbers, held = random.Random(seed), []
    sessions: dict[str, flexnn.Session] = {}
    for _ in range(80):
        name, batch = random_numbers.choice(list(wanted))
        match random_numbers.randrange(8):
            case 0:
                if name in sessions:
                    sessions.pop(name).close()
            case 1:
                pool.memory = None
            case 2:
                pool.memory = pool.minimum_memory + random_numbers.randrange(1 << 20)
            case _:
                for _ in range(3):  # too small to open it, too small for the run
                    try:
                        if name not in sessions:
                            sessions[name] = pool.open(artifacts[name], deterministic=True)
                        held.append(sessions[name].run(None, feed(batch)))
                        break
                    except flexnn.BudgetError as error:
                        pool.memory = error.minimum
                np.testing.assert_array_equal(held[-1][0], wanted[name, batch])
                assert pool.memory is None or pool.session_bytes <= pool.memory
        held = held[-random_numbers.randrange(1, 5) :]


def test_nothing_moves_where_all_have_room(artifacts: dict[str, str], pool: Pool) -> None:
    """Many shapes in turn need more than those of the last run, by which a point of a curve is made."""
    pool.memory = 1 << 30
    pool.open(artifacts["small"])
    session = pool.open(artifacts["open"])
    feeds = [feed(batch) for batch in range(1, 12)]
    for given in feeds * 2:
        session.run(None, given)
    pinned = pool.statistics()["pinned_bytes"]
    for given in feeds * 40:
        session.run(None, given)
    assert (pool.statistics()["moves"], pool.statistics()["pinned_bytes"]) == (0, pinned)


@pytest.mark.parametrize("name", ["open", "small"])
def test_outputs_that_only_garbage_holds_do_not_count(artifacts: dict[str, str], pool: Pool, name: str) -> None:
    sessions = [pool.open(artifacts[name]) for _ in range(2)]
    for session in sessions:
        session.run(None, feed())
    pool.memory = pool.minimum_memory + (64 << 10)
    gc.disable()
    try:
        for _ in range(20):
            for session in sessions:
                garbage = [session.run(None, feed())]
                garbage.append(garbage)
    finally:
        gc.enable()


def test_a_refusal_names_outputs_that_the_program_holds(artifacts: dict[str, str], pool: Pool) -> None:
    session, other = pool.open(artifacts["open"]), pool.open(artifacts["small"])
    held = [session.run(None, feed(40))]
    pool.memory = pool.minimum_memory + (1 << 20)
    with pytest.raises(
        flexnn.BudgetError, match=r"beside the other one of its pool and .*MiB of outputs that the program"
    ):
        for _ in range(8):
            held.append(session.run(None, feed(40)))
    held.clear()
    other.run(None, feed())


SCRIPT = """
import random, sys
import numpy as np
import flexnn

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

*paths, memory = sys.argv[1:]
x = {path: {"x": np.ones((1, 128, 8, 8), np.float32)} for path in paths}
flexnn.Pool
before = status("VmRSS")
pool = flexnn.Pool(int(memory), 2)
sessions = {path: pool.open(path) for path in paths}
numbers = random.Random(0)
for _ in range(500):
    path = numbers.choice(paths)
    y = sessions[path].run(None, x[path])
assert pool.session_bytes <= int(memory)
print(status("VmHWM") - before - int(memory))
"""


def test_the_promise(artifacts: dict[str, str], tmp_path: Path) -> None:
    with Pool(None, THREADS) as pool:
        sessions = [pool.open(path) for path in artifacts.values()]
        for session in sessions:
            session.run(None, feed())
        smallest, most = pool.minimum_memory, pool.session_bytes
    for memory in (smallest, (smallest + most) // 2, most):
        command = [sys.executable, "-P", "-c", SCRIPT, *artifacts.values(), str(memory)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_SECONDS)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) <= 1 << 20, f"{memory}: {done.stdout} bytes over"


def test_slots_are_a_session_s_own(pool: Pool, artifacts: dict[str, str], tmp_path: Path) -> None:
    """Values between the segments of one session lie where no other one works: they run in turns, in any order."""
    ways = {
        f"{way}_branch": graph_of([helper.make_node(kind, ["c"], ["b"])], [], [value("b", F32, None)], name=way)
        for way, kind in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["is"]),
        helper.make_node("If", ["is"], ["y"], **ways),
    ]
    shape = [1, 128, "h", 8]
    constants = {"w": numbers(128, 128, 3, 3) / 24, "zero": np.float32(0)}
    model = model_of(graph_of(nodes, [value("x", F32, shape)], [value("y", F32, shape)], constants))
    branching = pool.open(compiled(tmp_path, model))
    others = [pool.open(artifacts[name]) for name in ("small", "open")]
    for memory in (None, 24 << 20, None):
        pool.memory = memory
        for height in (8, 4, 8):
            check_run(branching, model, {"x": numbers(1, 128, height, 8)})
            for other in others:
                other.run(None, feed())
    assert any(found.slot_bytes for found in branching._run._open._ready.values())  # type: ignore[attr-defined]


def test_a_session_that_joins_where_all_have_room_has_no_curve_made(
    pool: Pool, artifacts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans for smaller budgets, of which nobody needed one, were most of the time that opening a second model took."""
    budgets: list[int | None] = []

    def planned(self: Planner, memory: int | None, plan: Callable[..., Plan] = Planner.plan) -> Plan:
        budgets.append(memory)
        return plan(self, memory)

    pool.memory = "256MiB"
    first = pool.open(artifacts["open"])
    first.run(None, feed())
    monkeypatch.setattr(Planner, "plan", planned)
    pool.open(artifacts["open"]).run(None, feed())
    assert None in budgets
    assert all(memory is None or memory > 128 << 20 for memory in budgets)  # the run's own has all that is left
    fastest = pool._shared.seats[0].member.fastest()
    assert fastest == pool._shared.seats[0].member.curve()[-1]._replace(memory=None)
    assert fastest.ms > 0


def test_the_smallest_budget_is_looked_for_when_it_is_asked_for(
    pool: Pool, artifacts: dict[str, str], wanted: dict[tuple[str, int], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took most of the time in which a model of fixed shapes opened."""
    asked: list[int] = []
    found = vars(Planner)["minimum"].func

    def minimum(planner: Planner) -> int:
        asked.append(found(planner))
        return asked[-1]

    monkeypatch.setattr(Planner, "minimum", property(minimum))
    pool.memory = "256MiB"
    session = pool.open(artifacts["large"])
    np.testing.assert_allclose(session.run(None, feed())[0], wanted["large", 1], rtol=1e-4, atol=1e-4)
    assert not asked
    assert pool.minimum_memory > least(artifacts["large"]) - (1 << 20)
    assert asked


def test_what_nobody_has_is_taken(artifacts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that gave back gets its weights again where there is room, however little time that saves."""
    monkeypatch.setattr(sharing, "LOOKS", 8)
    monkeypatch.setattr(sharing, "WORTH", 0.0)
    with Pool(None, THREADS) as pool:
        sessions = [pool.open(artifacts["small"]) for _ in range(2)]
        full = pool.statistics()["pinned_bytes"]
        sessions[0].run(None, feed())
        pool.memory = 4 * pool.session_bytes
        seat = pool._shared.seats[0]
        seat.member.adopt(seat.member.smallest())
        assert pool.statistics()["pinned_bytes"][0] < full[0]
        for _ in range(8):
            sessions[1].run(None, feed())
        assert pool.statistics()["pinned_bytes"] == full


def test_a_choice_that_fails_half_way_is_taken_back(
    artifacts: dict[str, str], pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of a session of open shapes may be open than the choice says. If that cannot close, all stays as it was."""
    sessions = [pool.open(artifacts[name]) for name in ("small", "open")]
    for session in sessions:
        session.run(None, feed())
    low = pool.minimum_memory + (256 << 10)
    before = pool.memory, pool.statistics()["pinned_bytes"]
    adopt = PooledOpenRun.adopt

    def fails(run: PooledOpenRun, point: Point) -> object:
        if point == run.smallest():
            raise MemoryError
        return adopt(run, point)

    with monkeypatch.context() as patch:
        patch.setattr(pooled_open, "NEAR", 1)  # what is open stays so beside a choice of much less
        patch.setattr(PooledOpenRun, "adopt", fails)
        with pytest.raises(MemoryError):
            pool.memory = low
    assert (pool.memory, pool.statistics()["pinned_bytes"]) == before
    pool.memory = low
    for session in sessions:
        session.run(None, feed())
        assert pool.session_bytes <= low


def test_sessions_do_without_pools() -> None:
    code = "import sys, flexnn; print('flexnn.pool' in sys.modules, 'flexnn.run.sharing' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True).stdout == "False False\n"


def test_choosing() -> None:
    curves = [
        [Point(None, 0, 10, 1, 9.0), Point(None, 50, 5, 1, 1.0)],
        [Point(None, 0, 20, 1, 9.0), Point(None, 50, 5, 1, 1.0), Point(None, 5, 30, 1, 8.0)],
    ]
    assert choose(curves, [1, 1], 21) is None
    assert choose(curves, [1, 1], 22) == [curves[0][0], curves[1][0]]
    assert choose(curves, [1, 0], 80) == [curves[0][1], curves[1][0]]
    assert choose(curves, [0, 1], 80) == [curves[0][0], curves[1][1]]
    both = choose(curves, [0, 0], 107)
    assert both == [curves[0][1], curves[1][1]]
    assert cost(both) == 107
    steps = [Point(None, 0, 0, 1, 10.0), Point(None, 10, 30, 1, 3.0), Point(None, 60, 0, 1, 0.0)]
    assert choose([steps] * 2, [2, 6], 77) == [steps[0], steps[2]]  # a step of each leaves no room for the best one
    rate = Rate()
    assert rate.at(5) == 0
    rate.ran(1)
    assert rate.at(1 + HALF_LIFE) == 0.5


def test_an_output_that_is_an_input_counts_once(pool: Pool, tmp_path: Path) -> None:
    """Each run gave the same array out, and it counted again each time."""
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Relu", ["x"], ["y"])]
    graph = graph_of(nodes, [value("x", F32, ["n", 1024])], [value(name, F32, ["n", 1024]) for name in ("same", "y")])
    session = pool.open(compiled(tmp_path, model_of(graph)))
    given = {"x": np.ones((64, 1024), np.float32)}
    taken = []
    for _ in range(20):
        same, _ = session.run(None, given)
        assert np.array_equal(same, given["x"])
        taken.append(pool.session_bytes)
    assert taken[-1] == taken[2]
    (seat,) = pool._shared.seats
    assert len(seat._outputs) <= 4


def test_bytes_are_counted_again_where_they_change(pool: Pool, artifacts: dict[str, str]) -> None:
    sessions = [pool.open(artifacts["open"]) for _ in range(2)]
    for session in sessions:
        for batch in (1, 2, 3):
            session.run(None, feed(batch))
    smallest, most = pool.minimum_memory, pool.session_bytes
    rng = random.Random(3)
    for turn in range(60):
        if turn % 7 == 0:
            pool.memory = rng.choice([None, smallest, (smallest + most) // 2, most])
        session = rng.choice(sessions)
        session.run(None, feed(rng.choice([1, 2, 3])))
        for seat in pool._shared.seats:
            opened = seat.member._open  # type: ignore[attr-defined]
            assert opened.bytes(again=False) == opened.bytes(), turn
