"""The engine against a sequential evaluation: many runs, random pauses, poisoned memory."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from flexnn import _core
from tests.support.hangs import HANG_SECONDS
from tests.support.programs import Chain, run, up

LOOKS = 10
"""Measurements that other programs may spoil, all but one."""

RUNS = int(os.environ.get("FLEXNN_ENGINE_RUNS", "300"))


def random_chain(seed: int) -> Chain:
    rng = np.random.default_rng(seed)
    return Chain(
        layers=int(rng.integers(1, 7)),
        side=int(rng.integers(1, 7)),
        channels=int(rng.integers(1, 70)),
        slots=int(rng.integers(1, 5)),
        kernel=int(rng.choice([1, 3])),
        pinned_every=int(rng.integers(0, 5)),
        row_windows=int(rng.integers(1, 4)),
        seed=seed,
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_random_programs_with_jitter_and_poison(threads, seed):
    chain = random_chain(seed)
    rng = np.random.default_rng(1000 + seed)
    inputs = [rng.standard_normal(chain.shape, np.float32) for _ in range(10)]
    expected = [chain.reference(x) for x in inputs]
    session = chain.open(threads=threads, poison=True, jitter_seed=seed * 4 + threads)
    for i in range(RUNS):
        y, stats = run(session, inputs[i % 10])
        np.testing.assert_array_equal(y, expected[i % 10], err_msg=f"run {i}")
        assert stats["bytes_read"] == chain.streamed_bytes
        assert 0 <= stats["stall_ns"] <= stats["run_ns"]
    session.close()


@pytest.mark.parametrize("seed", range(10, 40))
def test_many_random_programs(seed):
    chain = random_chain(seed)
    x = np.random.default_rng(seed).standard_normal(chain.shape, np.float32)
    for threads in (1, 2, 4):
        session = chain.open(threads=threads, poison=True, jitter_seed=seed)
        for _ in range(5):
            y, _ = run(session, x)
            np.testing.assert_array_equal(y, chain.reference(x))
        session.close()


@pytest.mark.parametrize("isa", _core.isa_levels())
def test_levels(isa):
    chain = Chain(layers=3, side=5, channels=48, slots=2, kernel=3)
    x = np.random.default_rng(0).standard_normal(chain.shape, np.float32)
    y, _ = run(chain.open(isa=isa, threads=2), x)
    np.testing.assert_array_equal(y, chain.reference(x, isa))


def test_poison_shows_what_is_read_too_early():
    """Weights that no load brings: legal for the engine, and NaN."""
    chain = Chain(layers=2, side=4, channels=32, slots=4)
    chain.program["loads"] = chain.program["loads"][:3]
    chain.program["steps"]["wait_loads"] = np.minimum(chain.program["steps"]["wait_loads"], 3)
    session = chain.open(poison=True)
    y, _ = run(session, np.ones(chain.shape, np.float32))
    assert np.isnan(y[..., 16:]).all()


def test_direct_io_reads_the_same(tmp_path):
    chain = Chain(layers=4, side=4, channels=48, slots=2, pinned_every=3)
    path = tmp_path / "weights"
    path.write_bytes(os.pread(chain.file.fileno(), os.fstat(chain.file.fileno()).st_size, 0))
    try:
        direct_fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        pytest.skip("no O_DIRECT on this file system")
    bad_fd = os.open("/dev/null", os.O_RDONLY)  # whatever is read buffered ends at once
    try:
        session = chain.open(fd=bad_fd, direct_fd=direct_fd)
        x = np.random.default_rng(0).standard_normal(chain.shape, np.float32)
        for _ in range(3):
            np.testing.assert_array_equal(run(session, x)[0], chain.reference(x))
        session.close()
    finally:
        os.close(direct_fd)
        os.close(bad_fd)


@pytest.mark.alone
def test_loader_runs_ahead_into_the_next_run():
    chain = Chain(layers=6, side=4, channels=64, slots=24)  # every slice has a slot of its own
    session = chain.open(read_bytes_per_second=chain.streamed_bytes * 20, trace=True)  # 50 ms for all
    x = np.random.default_rng(0).standard_normal(chain.shape, np.float32)
    run(session, x)
    stalls = []
    while len(stalls) < LOOKS and (not stalls or stalls[-1] >= 10e6):
        time.sleep(0.15 * (1 + len(stalls)))
        y, stats = run(session, x)
        np.testing.assert_array_equal(y, chain.reference(x))
        assert stats["bytes_read"] == chain.streamed_bytes
        stalls.append(stats["stall_ns"])
    assert stalls[-1] < 10e6, stalls
    steps, loads = session.trace
    assert all(start <= end for start, end in steps + loads)
    assert loads[0][0] < 0 < steps[0][0]
    session.close()


@pytest.mark.parametrize("seed", [0, 1])
def test_loads_of_many_pieces_and_loads_into_one_place(seed):
    """Chunks that straddle pieces; and loads that no step uses, so that only the loader keeps them apart."""
    chain = Chain(layers=2, side=2, channels=32, slots=1)
    sizes = [1 << 20, 7_340_101, 1 << 20, 3_000_064, 1 << 20, 64]
    end = os.fstat(chain.file.fileno()).st_size
    data = np.random.default_rng(0).bytes(sum(sizes))
    os.pwrite(chain.file.fileno(), data, end)
    loads, crcs = np.zeros(len(sizes), _core.LOAD_DTYPE), chain.program["crcs"].tolist()
    chunk = 500_009
    for load, size, at in zip(loads, sizes, np.cumsum(sizes) - sizes, strict=True):
        load["file_offset"], load["bytes"], load["address"] = end + at, size, chain.program["arena_bytes"]
        load["chunk_bytes"], load["check_bytes"], load["crc_first"] = chunk, size, len(crcs)
        crcs += [_core.crc32c(data[at + i : at + min(i + chunk, size)]) for i in range(0, size, chunk)]
    chain.program["loads"] = np.concatenate((loads, chain.program["loads"]))
    chain.program["steps"]["wait_loads"] += len(sizes)
    chain.program |= {
        "arena_bytes": chain.program["arena_bytes"] + up(max(sizes), 4096),
        "crcs": np.array(crcs, np.uint32),
    }
    session = chain.open(jitter_seed=seed, trace=True)
    x = np.random.default_rng(0).standard_normal(chain.shape, np.float32)
    for _ in range(5):
        y, stats = run(session, x)
        np.testing.assert_array_equal(y, chain.reference(x))
        assert stats["bytes_read"] == chain.streamed_bytes
        spans = np.array(session.trace[1])
        assert (spans[:, 0] <= spans[:, 1]).all()
        assert (spans[1:, 0] >= spans[:-1, 1]).all()  # one lane
    os.pwrite(chain.file.fileno(), b"\0\0\0\0", end + (1 << 20) + 7_000_000)
    with pytest.raises(_core.EngineError, match="load 1 ") as caught:
        for _ in range(2):
            run(session, x)
    assert caught.value.status == "checksum"
    session.close()


def test_throttle_sets_the_pace():
    chain = Chain(layers=8, side=2, channels=64, slots=1)
    session = chain.open(read_bytes_per_second=chain.streamed_bytes * 10)
    x = np.zeros(chain.shape, np.float32)
    run(session, x)
    for _ in range(LOOKS):
        stats = run(session, x)[1]
        assert stats["run_ns"] > 0.06e9
        if stats["run_ns"] < 0.5e9 and stats["stall_ns"] > 0.5 * stats["run_ns"]:
            break
    else:
        raise AssertionError(stats)
    session.close()


def test_bytes_count_arena_program_and_stacks():
    chain = Chain(layers=2, side=4, channels=32, slots=1)
    one, four = chain.open(threads=1), chain.open(threads=4)
    assert one.bytes > chain.program["arena_bytes"]
    stack = (four.bytes - one.bytes) / 3
    assert 64 << 10 <= stack <= 512 << 10
    assert one.threads == 1
    assert four.threads == 4


def test_fewer_threads_where_the_system_gives_fewer():
    code = """
import os, resource, sys
sys.path.append(sys.argv[1])
import numpy as np
from flexnn import _core
from tests.support.programs import Chain, run
streaming = Chain(layers=2, side=4, channels=32, slots=1)
resident = Chain(layers=2, side=4, channels=32, slots=1, pinned_every=1)
if os.getuid() == 0:
    os.setuid(65534)  # the limit does not bind root
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
session = resident.open(threads=4)
x = np.ones(resident.shape, np.float32)
assert (run(session, x)[0] == resident.reference(x)).all()
print(session.threads)
try:
    streaming.open(threads=4)  # needs its loader
except _core.EngineError as error:
    print(error.status, "again" in str(error) or "unavailable" in str(error))
"""
    here = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, "-c", code, here], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.stdout == "1\nthread True\n", done.stderr


def test_buffers_are_checked():
    chain = Chain(layers=1, side=2, channels=16, slots=1)
    session = chain.open()
    x, y = np.zeros(chain.shape, np.float32), np.zeros(chain.shape, np.float32)
    with pytest.raises(ValueError, match="2"):
        session.run([x])
    with pytest.raises(ValueError, match="bytes"):
        session.run([x, y[1:]])
    with pytest.raises((ValueError, BufferError)):
        session.run([x.transpose(2, 0, 1), y])
    frozen = y.copy()
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        session.run([x, frozen])
    session.run([frozen, y])
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    with pytest.raises(ValueError, match="aligned"):
        session.run([odd, y])


def test_use_after_close():
    chain = Chain(layers=1, side=2, channels=16, slots=1)
    session = chain.open()
    session.close()
    session.close()
    with pytest.raises(ValueError, match="closed"):
        run(session, np.zeros(chain.shape, np.float32))
    with pytest.raises(ValueError, match="closed"):
        session.bytes  # noqa: B018


def refusals_during_a_run() -> list[str]:
    """Use a session that runs in another thread; return how that was refused: nothing where the run was over before."""
    chain = Chain(layers=4, side=2, channels=64, slots=1)
    session = chain.open(read_bytes_per_second=chain.streamed_bytes * 4, trace=True)
    x, refused = np.zeros(chain.shape, np.float32), []
    run(session, x)
    thread = threading.Thread(target=run, args=(session, x))
    thread.start()
    while session.trace is not None and thread.is_alive():
        time.sleep(0.001)
    for use in (lambda: run(session, x), session.close):
        try:
            use()
        except RuntimeError as error:
            refused.append(str(error))
    thread.join()
    session.close()
    return refused


@pytest.mark.alone
def test_busy_session_refuses():
    for _ in range(LOOKS):
        refused = refusals_during_a_run()
        assert all("running" in text for text in refused)
        if len(refused) == 2:
            break
    assert len(refused) == 2


def test_run_allocates_nothing():
    """The process's memory stays where it was over thousands of runs."""
    chain = Chain(layers=3, side=4, channels=48, slots=2)
    session = chain.open(threads=2)
    x, y = np.zeros(chain.shape, np.float32), np.zeros(chain.shape, np.float32)

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    for _ in range(100):
        session.run([x, y])
    before = resident()
    for _ in range(3000):
        session.run([x, y])
    assert resident() - before < 256 << 10


def test_a_reader_sleeps_while_workers_read_the_page_cache():
    cpus = len(os.sched_getaffinity(0))
    if _core.usable_cpus() != cpus or cpus < 2:
        pytest.skip("workers read only where steps take all of several CPUs")
    others = {task.name for task in Path("/proc/self/task").iterdir()}
    chain = Chain(layers=6, side=3, channels=64, slots=2, kernel=3, seed=1)
    x = np.random.default_rng(0).standard_normal(chain.shape, np.float32)
    session = chain.open(threads=cpus)
    try:
        run(session, x)
        [reader] = [
            task
            for task in Path("/proc/self/task").iterdir()
            if task.name not in others and (task / "comm").read_text().strip() == "flexnn-loader"
        ]

        def waits() -> int:
            [line] = [line for line in (reader / "status").read_text().splitlines() if line.startswith("voluntary")]
            return int(line.split()[1])

        before, runs = waits(), 50
        for _ in range(runs):
            run(session, x)
        assert waits() - before < runs  # six loads a run, and each had woken it
    finally:
        session.close()
