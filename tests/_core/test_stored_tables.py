"""Tables that stay in the file: rows read when a step asks, each chunk checked; wrong programs refused."""

import os
import tempfile

import numpy as np
import pytest

from flexnn import _core

pytestmark = pytest.mark.sanitized

PAGE = 4096
WIDE = 24  # floats of a row
ROWS = 500
CHUNK_ROWS = 50  # 4,800 bytes: no multiple of anything
ROW = 4 * WIDE
CHUNK = CHUNK_ROWS * ROW


class Stored:
    """A table of random rows at page 1 of a file, and a gather of ``count`` of them."""

    def __init__(self, count: int = 40) -> None:
        self.rows = np.random.default_rng(0).standard_normal((ROWS, WIDE), np.float32)
        self.file = tempfile.TemporaryFile()  # lives as long as the sessions
        raw = self.rows.tobytes()
        os.pwrite(self.file.fileno(), raw + bytes(-len(raw) % PAGE), PAGE)
        self.crcs = np.array([_core.crc32c(raw[i : i + CHUNK]) for i in range(0, len(raw), CHUNK)], np.uint32)
        sizes = {"elem_bytes": 4, "index_bytes": 8, "outer": 1, "axis": ROWS, "inner": WIDE, "count": count}
        params = _core.encode_params("gather", sizes)
        self.nodes = np.zeros(1, _core.NODE_DTYPE)
        self.nodes["op"], self.nodes["params"] = _core.OPS.index("gather"), params
        self.nodes[0]["in"] = [(_core.BASE_FILE, 0, 0), (1, 0, 0), (-1, 0, 0), (-1, 0, 0)]
        self.nodes[0]["out"] = (2, 0, 0)
        self.nodes["workspace_bytes"] = _core.table_workspace(CHUNK)
        self.steps = np.array([(0, 0, _core.op_full_window("gather", params), -1)], _core.STEP_DTYPE)
        self.tables = np.zeros(1, _core.LOAD_DTYPE)
        self.tables["file_offset"], self.tables["chunk_bytes"] = PAGE, CHUNK
        self.tables["bytes"] = self.tables["check_bytes"] = len(raw)
        self.count = count

    def open(
        self, threads: int = 1, direct_fd: int = -1, pinned: range = range(0), spare: int = 0, **switches: int
    ) -> _core.EngineSession:
        """``pinned``: chunks that the arena pins, behind the workspace. ``spare``: bytes of it that nothing uses."""
        nothing, pins = np.zeros(0, _core.LOAD_DTYPE), np.zeros(min(len(pinned), 1), _core.LOAD_DTYPE)
        at, begin = threads * int(self.nodes["workspace_bytes"][0]), pinned.start * CHUNK // PAGE * PAGE
        pins["file_offset"], pins["address"], pins["check_lead"] = PAGE + begin, at, pinned.start * CHUNK - begin
        pins["chunk_bytes"], pins["check_bytes"], pins["crc_first"] = CHUNK, len(pinned) * CHUNK, pinned.start
        pins["bytes"] = -(-(pinned.stop * CHUNK - begin) // PAGE) * PAGE
        return _core.EngineSession(
            nodes=self.nodes, steps=self.steps, pinned=pins, loads=nothing, tables=self.tables, crcs=self.crcs,
            arena_bytes=at + int(pins["bytes"].sum()) + spare, zeros_offset=0, zeros_count=0,
            io_bytes=[8 * self.count, ROW * self.count], input_count=1, fd=self.file.fileno(), direct_fd=direct_fd,
            threads=threads, **switches,
        )  # fmt: skip

    def good(self, session: _core.EngineSession, seed: int = 1) -> dict[str, int]:
        picked = np.random.default_rng(seed).integers(-ROWS, ROWS, self.count)
        out = np.full((self.count, WIDE), np.nan, np.float32)
        spent = session.run([picked, out])
        np.testing.assert_array_equal(out, self.rows[picked])
        return spent


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("is_direct", [False, True])
def test_rows_are_read(threads: int, is_direct: bool) -> None:
    stored = Stored()
    fd = os.open(f"/proc/self/fd/{stored.file.fileno()}", os.O_RDONLY | os.O_DIRECT) if is_direct else -1
    session = stored.open(threads, fd, poison=True, jitter_seed=3)
    for seed in range(4):
        assert 0 < stored.good(session, seed)["bytes_read"] <= stored.count * (CHUNK + 2 * PAGE)
    session.close()
    if fd >= 0:
        os.close(fd)


def test_neighbours_are_read_once() -> None:
    stored = Stored()
    session = stored.open()
    out = np.empty((stored.count, WIDE), np.float32)
    spent = session.run([np.arange(stored.count), out])
    assert spent["bytes_read"] == CHUNK
    np.testing.assert_array_equal(out, stored.rows[: stored.count])
    session.run([np.full(stored.count, ROWS - 1), out])  # the last chunk
    np.testing.assert_array_equal(out, np.repeat(stored.rows[-1:], stored.count, 0))
    session.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_that_are_pinned_are_not_read(threads: int) -> None:
    """A product that shares the table pins its bytes: a row there would wait for the device, behind other reads."""
    stored = Stored()
    pinned = range(3, 7)
    session = stored.open(threads, pinned=pinned, poison=True)
    out = np.empty((stored.count, WIDE), np.float32)
    inside = np.random.default_rng(2).integers(pinned.start * CHUNK_ROWS, pinned.stop * CHUNK_ROWS, stored.count)
    for _ in range(2):
        assert session.run([inside, out])["bytes_read"] == 0
        np.testing.assert_array_equal(out, stored.rows[inside])
    for row in (pinned.start * CHUNK_ROWS - 1, pinned.stop * CHUNK_ROWS):  # the chunks beside them
        assert session.run([np.full(stored.count, row), out])["bytes_read"] >= CHUNK
        np.testing.assert_array_equal(out, np.repeat(stored.rows[row : row + 1], stored.count, 0))
    session.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_faults(threads: int) -> None:
    """Each names the node and the place in the file; the session then runs again."""
    stored = Stored()
    fd = os.dup(stored.file.fileno())
    session = stored.open(threads)
    out = np.empty((stored.count, WIDE), np.float32)

    def error(picked: int) -> _core.EngineError:
        with pytest.raises(_core.EngineError) as caught:
            session.run([np.full(stored.count, picked), out])
        assert (caught.value.index, caught.value.is_load) == (0, False)
        return caught.value

    at, last = PAGE + 123 * ROW, PAGE + ROWS // CHUNK_ROWS * CHUNK - CHUNK
    byte = os.pread(fd, 1, at)
    os.pwrite(fd, bytes([byte[0] ^ 1]), at)
    found = error(120)  # another row of the chunk
    assert (found.status, found.file_offset) == ("checksum", PAGE + 2 * CHUNK)
    assert str(PAGE + 2 * CHUNK) in str(found)
    os.pwrite(fd, byte, at)
    stored.good(session)
    os.ftruncate(fd, last + 10)
    assert (error(-1).status, error(-1).file_offset) == ("eof", last + 10)
    os.pwrite(fd, stored.rows.tobytes(), PAGE)
    stored.good(session)
    for index in (ROWS, -ROWS - 1, 1 << 62):
        assert error(index).status == "index"
    null = os.open("/", os.O_RDONLY)  # reading a directory fails
    os.dup2(null, stored.file.fileno())
    assert (error(0).status, error(0).os_error) == ("io", 21)
    os.dup2(fd, stored.file.fileno())
    stored.good(session)
    session.close()
    os.close(null)
    os.close(fd)


def test_the_throttle_holds_for_rows_too() -> None:
    stored = Stored()
    session = stored.open(read_bytes_per_second=200 * CHUNK)
    spread = np.arange(stored.count) % 2 * 250  # another chunk each time
    assert session.run([spread, np.empty((stored.count, WIDE), np.float32)])["run_ns"] >= 0.2e9
    session.close()


def _set(where: str, name: str, value: int):
    def change(stored: Stored) -> None:
        getattr(stored, where)[name] = value

    return change


def _operand(number: int, base: int, offset: int):
    def change(stored: Stored) -> None:
        stored.nodes[0]["in"][number] = (base, 0, offset)

    return change


def _output(stored: Stored) -> None:
    stored.nodes[0]["out"] = (_core.BASE_FILE, 0, 0)


def _outer(stored: Stored) -> None:
    sizes = {"elem_bytes": 4, "index_bytes": 8, "outer": 2, "axis": 10, "inner": WIDE, "count": stored.count // 2}
    stored.nodes["params"] = _core.encode_params("gather", sizes)


def _other_operator(stored: Stored) -> None:
    sizes = {f"{name}{i}": 1 for name in ("d", "xs", "ys") for i in range(6)} | {"elem_bytes": 4}
    stored.nodes["op"], stored.nodes["params"] = _core.OPS.index("copy"), _core.encode_params("copy", sizes)
    stored.nodes[0]["in"][1] = (-1, 0, 0)


DEFECTS = {
    "no such table": (_operand(0, _core.BASE_FILE, 1), "bounds"),
    "table before the first": (_operand(0, _core.BASE_FILE, -1), "bounds"),
    "far table": (_operand(0, _core.BASE_FILE, 1 << 40), "bounds"),
    "another base below zero": (_operand(0, -3, 0), "bounds"),
    "indices in the file": (_operand(1, _core.BASE_FILE, 0), "bounds"),
    "output in the file": (_output, "bounds"),
    "not rows": (_outer, "bounds"),
    "not a gather": (_other_operator, "bounds"),
    "rows cut": (_set("tables", "chunk_bytes", CHUNK + 4), "bounds"),
    "chunks of nothing": (_set("tables", "chunk_bytes", 0), "params"),
    "chunks that overflow": (_set("tables", "chunk_bytes", ROW << 56), "bounds"),
    "bytes that overflow": (_set("tables", "bytes", (1 << 63) - 1), "params"),
    "not all checked": (_set("tables", "check_bytes", CHUNK), "params"),
    "a lead": (_set("tables", "check_lead", 4), "params"),
    "no such checksums": (_set("tables", "crc_first", 1), "bounds"),
    "before the file": (_set("tables", "file_offset", -1), "params"),
    "offset that overflows": (_set("tables", "file_offset", (1 << 63) - 1), "params"),
    "no room for a chunk": (_set("nodes", "workspace_bytes", 4096), "bounds"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_wrong_programs(name: str) -> None:
    change, status = DEFECTS[name]
    stored = Stored()
    change(stored)
    with pytest.raises(_core.EngineError) as caught:
        stored.open()
    assert caught.value.status == status


def test_fewer_rows_than_it_may_pick() -> None:
    stored = Stored()
    stored.tables["bytes"] = stored.tables["check_bytes"] = ROW * (ROWS - 1)
    with pytest.raises(_core.EngineError) as caught:
        stored.open()
    assert caught.value.status == "bounds"
