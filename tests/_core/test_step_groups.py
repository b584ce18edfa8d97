"""Steps that run at the same time: right results, and refused wherever one could touch what another writes."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest

from flexnn import _core
from tests.support.programs import Chain, conv_params, run, up

SIDE, WIDTH = 5, 16


class Branches:
    """``count`` convolutions of the input; each writes 16 channels of the one output, pixel by pixel between the
    others. The weights are pinned; all use one workspace."""

    def __init__(self, count: int, threads_max: int = 4):
        rng = np.random.default_rng(count)
        self.params = conv_params(SIDE, WIDTH)
        fields = [name for name, _ in _core.FIELDS["conv"]]
        wide = count * WIDTH
        for name, value in (("y_sw", wide), ("y_sh", SIDE * wide), ("y_sn", SIDE * SIDE * wide)):
            self.params[fields.index(name)] = value
        panel_bytes = _core.op_panel_bytes("conv", self.params)
        place = up(panel_bytes)
        self.weights = (rng.standard_normal((count, panel_bytes // 4)) / 4).astype(np.float32)
        self.file = tempfile.TemporaryFile()
        for weight in self.weights:
            self.file.write(weight.tobytes().ljust(place, b"\xee"))
        self.file.flush()
        zeros_count = _core.op_zeros("conv", self.params)
        workspace_bytes = up(max(_core.op_workspace("conv", "direct", self.params, isa) for isa in _core.isa_levels()))
        workspace = count * place
        pinned = np.zeros(count, _core.LOAD_DTYPE)
        pinned["file_offset"] = pinned["address"] = np.arange(count) * place
        pinned["bytes"], pinned["chunk_bytes"], pinned["check_bytes"] = place, panel_bytes, panel_bytes
        pinned["crc_first"] = np.arange(count)
        nodes = np.zeros(count, _core.NODE_DTYPE)
        nodes["op"], nodes["params"] = _core.OPS.index("conv"), self.params
        nodes["in"]["base"] = -1
        nodes["workspace_offset"], nodes["workspace_bytes"] = workspace, workspace_bytes
        for i in range(count):
            nodes[i]["in"][0], nodes[i]["out"] = (1, 0, 0), (2, 0, 4 * WIDTH * i)
        zeros = workspace + workspace_bytes * threads_max
        window = _core.op_full_window("conv", self.params)
        self.program = {
            "nodes": nodes,
            "steps": np.array([(i, 0, window, i * place) for i in range(count)], _core.STEP_DTYPE),
            "pinned": pinned,
            "loads": np.zeros(0, _core.LOAD_DTYPE),
            "crcs": np.array([_core.crc32c(w.tobytes()) for w in self.weights], np.uint32),
            "arena_bytes": zeros + 4 * zeros_count + 4096,
            "zeros_offset": zeros,
            "zeros_count": zeros_count,
            "io_bytes": [4 * SIDE * SIDE * WIDTH, 4 * SIDE * SIDE * wide],
            "input_count": 1,
            "groups": np.array([count], np.uint32),
        }

    def open(self, **options) -> _core.EngineSession:
        return _core.EngineSession(**{**self.program, "fd": self.file.fileno(), **options})

    def run(self, session: _core.EngineSession, x: np.ndarray) -> np.ndarray:
        y = np.full((SIDE, SIDE, len(self.weights) * WIDTH), np.nan, np.float32)
        session.run([x, y])
        return y


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [2, 3, 9])
def test_a_group_computes_what_its_steps_do(count, threads):
    branches = Branches(count)
    rng = np.random.default_rng(threads)
    one_by_one = branches.open(groups=None)
    session = branches.open(threads=threads, poison=True, jitter_seed=1 + count)
    for _ in range(50):
        x = rng.standard_normal((SIDE, SIDE, WIDTH), np.float32)
        np.testing.assert_array_equal(branches.run(session, x), branches.run(one_by_one, x))
    for groups in ([1] * count, [count - 1, 1], [1, count - 1]):
        other = branches.open(threads=threads, groups=np.array(groups, np.uint32))
        np.testing.assert_array_equal(branches.run(other, x), branches.run(one_by_one, x))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_windows_of_one_node_may_form_a_group(threads):
    chain = Chain(layers=4, side=6, channels=40, slots=4, kernel=3, row_windows=3)
    chain.program["groups"] = np.full(len(chain.program["steps"]) // 3, 3, np.uint32)
    session = chain.open(threads=threads, poison=True, jitter_seed=threads, trace=2)
    for seed in range(30):
        x = np.random.default_rng(seed).standard_normal(chain.shape, np.float32)
        y, stats = run(session, x)
        np.testing.assert_array_equal(y, chain.reference(x))
        assert stats["bytes_read"] == chain.streamed_bytes
    steps, _ = session.trace
    assert all(steps[i] == steps[i // 3 * 3] for i in range(len(steps)))
    assert all(steps[i][0] >= steps[i - 1][1] for i in range(3, len(steps), 3))
    for i, row in enumerate(session.lanes):
        parts = [part for part in row if part != (0, 0)]
        assert len(row) == threads
        assert bool(parts) == (i % 3 == 0)
        assert all(steps[i][0] <= start <= end <= steps[i][1] for start, end in parts)


def _shift(row: int, offset: int):
    def change(program):
        program["nodes"]["out"]["offset"][row] += offset

    return change


def _set(table: str, row: int, field: str, value):
    def change(program):
        program[table][field][row] = value(program)

    return change


def _reads_what_another_writes(program):
    """The second reads where the first writes: the output buffer."""
    program["nodes"][1]["in"][0] = (2, 0, 0)


def _writes_into_the_arena(program):
    program["nodes"][0]["out"] = (0, 0, program["zeros_offset"] + 4 * program["zeros_count"])
    program["arena_bytes"] += program["io_bytes"][1]


def _writes_over_workspace(program):
    """Let the second step write over its workspace; the first has a workspace of its own."""
    _writes_into_the_arena(program)
    program["nodes"]["workspace_offset"][1] = up(int(program["nodes"]["out"]["offset"][0]))
    program["arena_bytes"] += 4 * int(program["nodes"]["workspace_bytes"][1])


def _same_windows(program):
    program["steps"]["node"][1] = 0


CLASHES = {
    "the same channels": _shift(1, -4 * WIDTH),
    "one channel of the neighbour": _shift(1, -4),
    "one channel of the other neighbour": _shift(0, 4),
    "rows of another pitch": lambda p: p["nodes"]["params"].__setitem__(
        (1, [n for n, _ in _core.FIELDS["conv"]].index("y_sw")), 2 * WIDTH
    ),
    "what the other reads": _reads_what_another_writes,
    "workspace of another size": _set("nodes", 1, "workspace_bytes", lambda p: p["nodes"]["workspace_bytes"][0] + 64),
    "workspace shifted": _set("nodes", 1, "workspace_offset", lambda p: p["nodes"]["workspace_offset"][0] + 64),
    "the other's workspace": _writes_over_workspace,
    "the same windows of one node": _same_windows,
}


@pytest.mark.parametrize("clash", CLASHES)
def test_steps_that_could_meet_are_refused(clash):
    branches = Branches(3)
    if clash == "the other's workspace":
        branches.program["arena_bytes"] += 1 << 16
    CLASHES[clash](branches.program)
    branches.open(groups=None, threads=2).close()  # one after the other they are legal
    with pytest.raises(_core.EngineError) as caught:
        branches.open(threads=2)
    assert caught.value.status == "overlap"
    branches.open(threads=2, groups=np.ones(3, np.uint32)).close()


@pytest.mark.parametrize("groups", [[0, 3], [2], [4], [3, 1], [1, 1, 1, 0], [2**32 - 1, 4]])
def test_groups_that_are_not_the_steps_are_refused(groups):
    with pytest.raises(_core.EngineError) as caught:
        Branches(3).open(groups=np.array(groups, np.uint32))
    assert caught.value.status == "params"
    with pytest.raises(ValueError, match="groups have 8 bytes"):
        Branches(3).open(groups=np.array([3], np.int64))
