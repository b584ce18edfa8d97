"""Faults from outside: damaged files, bad descriptors, Ctrl-C, fork. After each the session runs again."""

import os
import signal

import numpy as np
import pytest

from flexnn import _core
from tests.support.late import Moment, interrupt_after
from tests.support.programs import Chain, run

LOOKS = 3
"""Times that Ctrl-C is sent, as a machine that stands still may make it late: one under emulation, beside others, did
once. All but one may be late.
"""


@pytest.fixture
def chain() -> Chain:
    return Chain(layers=5, side=3, channels=48, slots=2, pinned_every=5, seed=3)


@pytest.fixture
def x(chain: Chain) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(chain.shape, np.float32)


def fails(session, x) -> _core.EngineError:
    """The error of this run or, as the loader may have read ahead before the damage, of the next."""
    with pytest.raises(_core.EngineError) as caught:
        for _ in range(2):
            run(session, x)
    return caught.value


def good(session, chain, x) -> None:
    for _ in range(3):
        np.testing.assert_array_equal(run(session, x)[0], chain.reference(x))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("index", [0, 4, -1])
def test_corrupted_bytes(chain, x, threads, index):
    session = chain.open(threads=threads)
    good(session, chain, x)
    loads = chain.program["loads"]
    index %= len(loads)
    at = int(loads[index]["file_offset"] + loads[index]["check_bytes"]) - 1  # the last byte that is checked
    byte = os.pread(chain.file.fileno(), 1, at)
    os.pwrite(chain.file.fileno(), bytes([byte[0] ^ 1]), at)
    error = fails(session, x)
    assert (error.status, error.is_load, error.is_pinned, error.index) == ("checksum", True, False, index)
    assert f"load {index}" in str(error)
    assert fails(session, x).status == "checksum"
    chain.restore()
    good(session, chain, x)
    session.close()


@pytest.mark.alone
def test_truncated_file(chain, x):
    session = chain.open()
    good(session, chain, x)
    end = int(chain.program["loads"][6]["file_offset"]) + 10
    os.ftruncate(chain.file.fileno(), end)
    start = Moment()
    error = fails(session, x)
    assert start.since() < 0.1
    assert (error.status, error.index, error.file_offset) == ("eof", 6, end)
    chain.restore()
    good(session, chain, x)
    session.close()


def test_bad_descriptor(chain, x):
    fd = os.dup(chain.file.fileno())
    session = chain.open(fd=fd)
    good(session, chain, x)
    null = os.open("/", os.O_RDONLY)  # reading a directory fails
    os.dup2(null, fd)
    error = fails(session, x)
    assert (error.status, error.os_error) == ("io", 21)
    assert os.strerror(21) in str(error)
    os.dup2(chain.file.fileno(), fd)
    good(session, chain, x)
    session.close()
    os.close(null)
    os.close(fd)


def test_pinned_faults_are_found_at_open(chain):
    at = int(chain.program["pinned"][1]["file_offset"])
    os.pwrite(chain.file.fileno(), b"damaged", at)
    with pytest.raises(_core.EngineError) as caught:
        chain.open()
    assert (caught.value.status, caught.value.is_pinned, caught.value.index) == ("checksum", True, 1)
    chain.restore()
    chain.open().close()
    with pytest.raises(_core.EngineError) as caught:
        chain.open(fd=10**6)
    assert (caught.value.status, caught.value.os_error) == ("io", 9)


def test_arena_that_does_not_fit(chain):
    chain.program["arena_bytes"] = 1 << 46
    with pytest.raises(_core.EngineError) as caught:
        chain.open()
    assert caught.value.status == "memory"


@pytest.mark.alone
@pytest.mark.parametrize("bytes_per_second", [20_000, 200_000])
def test_ctrl_c_while_waiting_for_loads(chain, x, bytes_per_second):
    session = chain.open(read_bytes_per_second=bytes_per_second)
    with pytest.raises(KeyboardInterrupt):
        sent = interrupt_after(0.1)
        for _ in range(100):
            run(session, x)
    assert sent[0].since() < 0.1
    start = Moment()
    session.close()
    assert start.since() < 0.1


def test_ctrl_c_then_run_again(chain, x):
    session = chain.open(read_bytes_per_second=chain.streamed_bytes * 5)
    with pytest.raises(KeyboardInterrupt):
        interrupt_after(0.1)
        for _ in range(100):
            run(session, x)
    good(session, chain, x)
    session.close()


@pytest.mark.alone
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_while_computing(threads):
    chain = Chain(layers=40, side=28, channels=128, slots=1, kernel=3, pinned_every=1)
    session = chain.open(threads=threads, isa="scalar")
    x = np.zeros(chain.shape, np.float32)
    late = []
    while len(late) < LOOKS and (not late or late[-1] >= 0.1):
        with pytest.raises(KeyboardInterrupt):
            sent = interrupt_after(0.1)
            for _ in range(100):
                run(session, x)
        late.append(sent[0].since())
    assert late[-1] < 0.1, late
    session.close()


def test_exception_of_another_signal_handler_comes_through(chain, x):
    class AlarmError(Exception):
        pass

    def handler(*_):
        raise AlarmError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        session = chain.open(read_bytes_per_second=20_000)
        with pytest.raises(AlarmError):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            run(session, x)
    finally:
        signal.signal(signal.SIGALRM, before)
    session.close()


def test_fork(chain, x):
    session = chain.open(threads=2)
    good(session, chain, x)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run(session, x)
        except _core.EngineError as error:
            code = 0 if error.status == "fork" and "fork" in str(error) else 2
        try:
            session.close()
            other = chain.open(threads=2)
            good(other, chain, x)
            other.close()
        except BaseException:
            code = 3
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    good(session, chain, x)
    session.close()


def test_error_in_a_node_leaves_the_session_usable():
    """An index out of range fails the run; with a good one it runs again."""
    params = _core.encode_params(
        "gather", {"elem_bytes": 4, "index_bytes": 8, "outer": 1, "axis": 5, "inner": 3, "count": 2}
    )
    nodes = np.zeros(1, _core.NODE_DTYPE)
    nodes["op"], nodes["params"] = _core.OPS.index("gather"), params
    nodes[0]["in"] = [(1, 0, 0), (2, 0, 0), (-1, 0, 0), (-1, 0, 0)]
    nodes[0]["out"] = (3, 0, 0)
    steps = np.array([(0, 0, _core.op_full_window("gather", params), -1)], _core.STEP_DTYPE)
    nothing = np.zeros(0, _core.LOAD_DTYPE)
    session = _core.EngineSession(
        nodes=nodes, steps=steps, pinned=nothing, loads=nothing, crcs=np.zeros(0, np.uint32), arena_bytes=0,
        zeros_offset=0, zeros_count=0, io_bytes=[60, 16, 24], input_count=2, fd=-1, threads=2,
    )  # fmt: skip
    data, out = np.arange(15, dtype=np.float32).reshape(5, 3), np.zeros((2, 3), np.float32)
    for bad in ([0, 5], [-6, 1]):
        with pytest.raises(_core.EngineError) as caught:
            session.run([data, np.array(bad), out])
        assert (caught.value.status, caught.value.index, caught.value.is_load) == ("index", 0, False)
        session.run([data, np.array([4, -5]), out])
        np.testing.assert_array_equal(out, data[[4, 0]])
    session.close()
