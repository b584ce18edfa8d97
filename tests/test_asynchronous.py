"""``arun``: the event loop goes on, runs take turns, and a task that is cancelled breaks its run off."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn.asynchronous import Call, Calls, Cancelled
from flexnn.session import open_for_tests
from tests.support.hangs import HANG_SECONDS
from tests.support.late import Moment
from tests.support.sessions import feed, write_branched_model, write_model

BYTES_PER_SECOND = 20_000_000
"""A run takes 0.2 s, in which it waits for loads."""
BOUND_SECONDS = 0.05
"""Time in which Ctrl-C comes back, and so a cancelled task; of it, the time without a CPU is not counted."""
LOOKS = 20
"""Runs of which one shows what is tested: a busy machine may hold the caller up for as long as one takes."""
WRITERS: dict[str, Callable[[Path], Path]] = {
    "closed": write_model,
    "open": lambda path: write_branched_model(path, 24, batch="n"),
}


@pytest.fixture(scope="module", params=WRITERS)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return flexnn.compile(WRITERS[request.param](tmp_path_factory.mktemp("m") / "m.onnx"))


def slow(artifact: str) -> flexnn.Session:
    """A session whose runs take long: it streams weights from a slow device."""
    with flexnn.Session(artifact, threads=1) as session:
        session.run(None, feed())
        least = session.plan.minimum_memory + (64 << 10)
    return open_for_tests(artifact, memory=least, threads=1, read_bytes_per_second=BYTES_PER_SECOND)


def test_results_are_those_of_run(artifact: str) -> None:
    with flexnn.Session(artifact, threads=2) as session:
        (expected,) = session.run(None, feed())

        async def work() -> list[Any]:
            out = np.empty_like(expected)
            (into,) = await session.arun(["y"], feed(), out=[out])
            assert into is out
            return [out, *(await session.arun(None, feed()))]

        for y in asyncio.run(work()):
            np.testing.assert_array_equal(y, expected)


def test_runs_that_are_awaited_together_take_turns_in_one_thread(artifact: str) -> None:
    with flexnn.Session(artifact, threads=1) as session:
        (expected,) = session.run(None, feed())
        before = threading.active_count(), len(os.listdir("/proc/self/task"))

        async def work() -> list[list[Any]]:
            tasks = [asyncio.ensure_future(session.arun(None, feed())) for _ in range(40)]
            await asyncio.sleep(0)
            assert len(os.listdir("/proc/self/task")) <= before[1] + 1
            return await asyncio.gather(*tasks)

        for (y,) in asyncio.run(work()):
            np.testing.assert_array_equal(y, expected)


def test_the_loop_goes_on_meanwhile(artifact: str) -> None:
    with slow(artifact) as session:

        async def work() -> tuple[int, list[Any]]:
            task = asyncio.ensure_future(session.arun(None, feed()))
            turns = 0
            while not task.done():
                await asyncio.sleep(0.001)
                turns += 1
            return turns, await task

        turns = 0
        for _ in range(LOOKS):
            found, (y,) = asyncio.run(work())
            turns = max(turns, found)
            np.testing.assert_array_equal(y, session.run(None, feed())[0])
            if turns > 10:
                break
        assert turns > 10


def test_errors_are_those_of_run(artifact: str) -> None:
    session = flexnn.Session(artifact, threads=1)
    for wrong in ({}, {"x": np.zeros((1, 2), np.float32)}):
        with pytest.raises(ValueError, match="input 'x'"):
            asyncio.run(session.arun(None, wrong))
    session.close()
    with pytest.raises(flexnn.SessionError, match="closed"):
        asyncio.run(session.arun(None, feed()))


async def cancelled(call: Awaitable[Any], after: float) -> float:
    """Cancel a call after a time; return the seconds, with a CPU, until it had ended."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(after)
    start = Moment()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return start.since()


@pytest.mark.alone
def test_a_cancelled_task_ends_soon_and_the_session_can_run(artifact: str) -> None:
    generator = random.Random(16)
    with slow(artifact) as session:
        (expected,) = session.run(None, feed())
        for _ in range(12):
            assert asyncio.run(cancelled(session.arun(None, feed()), generator.uniform(0, 0.15))) <= BOUND_SECONDS
            if generator.random() < 0.3:
                np.testing.assert_array_equal(session.run(None, feed())[0], expected)
        np.testing.assert_array_equal(session.run(None, feed())[0], expected)


def test_a_time_out_leaves_arrays_alone(artifact: str) -> None:
    with slow(artifact) as session:
        (expected,) = session.run(None, feed())
        out = np.empty_like(expected)

        async def work() -> bool:
            is_in_time = False
            try:
                await asyncio.wait_for(session.arun(None, feed(), out=[out]), 0.03)
            except TimeoutError:
                is_in_time = True
            out[:] = 7
            await asyncio.sleep(0.3)
            return is_in_time

        is_in_time = False
        for _ in range(LOOKS):
            is_in_time = asyncio.run(work())
            assert (out == 7).all()
            if is_in_time:
                break
        assert is_in_time


def test_cancelling_what_waits_for_its_turn(artifact: str) -> None:
    with slow(artifact) as session:
        (expected,) = session.run(None, feed())

        async def work() -> bool:
            first, second, third = (asyncio.ensure_future(session.arun(None, feed())) for _ in range(3))
            await asyncio.sleep(0.02)
            is_in_time = second.cancel()
            results: list[Any] = await asyncio.gather(first, second, third, return_exceptions=True)
            assert isinstance(results[1], asyncio.CancelledError) == is_in_time
            for (y,) in (results[0], results[2]):
                np.testing.assert_array_equal(y, expected)
            return is_in_time

        assert any(asyncio.run(work()) for _ in range(LOOKS))


def test_what_waits_in_the_queue_is_cancelled_at_once(artifact: str) -> None:
    """It waited for the run before it, which beside a device that does not answer takes as long as that."""
    with slow(artifact) as session:

        async def work() -> bool:
            first, second = (asyncio.ensure_future(session.arun(None, feed())) for _ in range(2))
            await asyncio.sleep(0.02)
            second.cancel()
            await asyncio.wait([second])
            is_in_time = not first.done()
            assert second.cancelled()
            await first
            return is_in_time

        assert any(asyncio.run(work()) for _ in range(LOOKS))


def test_cancelling_what_waits_for_another_thread(artifact: str) -> None:
    with slow(artifact) as session:
        for _ in range(LOOKS):
            found: list[Any] = []
            thread = threading.Thread(target=lambda found=found: found.extend(session.run(None, feed())))
            thread.start()
            time.sleep(0.03)
            asyncio.run(cancelled(session.arun(None, feed()), 0.02))
            is_in_time = not found
            thread.join()
            np.testing.assert_array_equal(found[0], session.run(None, feed())[0])
            if is_in_time:
                break
        assert is_in_time


def test_a_loop_that_ends_before_the_run(artifact: str) -> None:
    with slow(artifact) as session:

        async def leave() -> None:
            task = asyncio.ensure_future(session.arun(None, feed()))
            await asyncio.sleep(0.01)
            task.cancel()
            raise LookupError

        with pytest.raises(LookupError):
            asyncio.run(leave())
        session.run(None, feed())


def test_calls_of_threads_can_be_broken_off_anywhere() -> None:
    """Nothing is raised in the thread after the call, whatever the moment; and what was cancelled never begins."""
    late: list[int] = []
    calls: list[Call] = []

    def work() -> None:
        try:
            for number in range(2000):
                call = Call()
                calls.append(call)
                with contextlib.suppress(Cancelled):
                    call.make(lambda: sum(range(50)))
                late.append(number)
        except Cancelled:
            late.append(-1)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        for call in calls[-3:]:
            call.cancel()
    assert late == list(range(2000))
    call = Call()
    call.cancel()
    with pytest.raises(Cancelled):
        call.make(lambda: pytest.fail("it began"))


PROFILED = """
import cProfile, contextlib, random, threading
from flexnn.asynchronous import Call, Cancelled
for number in range(200):
    call = Call()
    timer = threading.Timer(random.uniform(0, 2e-4), call.cancel)
    timer.start()
    with contextlib.suppress(Cancelled):
        call.make(lambda: sum(range(500)))
    timer.join()
    cProfile.run("sum(n for n in range(9))", "/dev/null")
"""


def test_profilers_work_after_a_call() -> None:
    """Python 3.11 hung in the first function that a profiler saw after any call, cancelled or not: an exception that
    was taken back had left its mark.
    """
    subprocess.run([sys.executable, "-c", PROFILED], timeout=HANG_SECONDS, check=True)


def test_work_that_is_put_while_the_thread_ends_is_done() -> None:
    calls, done = Calls(), threading.Semaphore(0)
    for _ in range(500):
        calls.put(lambda: done.release())
        time.sleep(random.uniform(0, 5e-5))
    for _ in range(500):
        assert done.acquire(timeout=HANG_SECONDS)
