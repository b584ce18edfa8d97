"""The engine trusts nothing in a program: each kind of lie is refused, and mutated programs never crash."""

import tempfile

import numpy as np
import pytest

from flexnn import _core
from tests.support.programs import Chain, run

pytestmark = pytest.mark.sanitized


def chain(**options) -> Chain:
    return Chain(**{"layers": 3, "side": 3, "channels": 40, "slots": 2, "pinned_every": 3, **options})


def set_field(table, row, *path, value):
    def change(program):
        target = program[table]
        for name in path[:-1]:
            target = target[name]
        target[path[-1]][row] = value(program) if callable(value) else value

    return change


def set_operand(row, operand, base, offset):
    def change(program):
        program["nodes"][row]["in" if operand < 3 else "out"][... if operand == 3 else operand] = (base, 0, offset)

    return change


def set_value(name, value):
    def change(program):
        program[name] = value(program) if callable(value) else value

    return change


def set_out(row, base, offset):
    def change(program):
        program["nodes"][row : row + 1]["out"] = (base, 0, offset)

    return change


def own_output(program):
    return program["nodes"]["out"]["offset"][0] & ~63


def wait_less(program):
    """The last step that uses load 1 starts before it ends."""
    program["steps"]["wait_loads"] = np.minimum(program["steps"]["wait_loads"], 1)


def load_early(program):
    """The third load does not wait for the last step that reads the first one's slot."""
    program["loads"]["wait_steps"][2] -= 1


def load_early_in_the_next_run(program):
    program["loads"]["wait_steps"][0] -= 1


BIG = 1 << 62
LIES = {
    "operator": (set_field("nodes", 0, "op", value=len(_core.OPS)), "params"),
    "kernel": (set_field("nodes", 0, "kernel", value=99), "params"),
    "input base": (set_operand(0, 0, 3, 0), "bounds"),
    "input base negative": (set_operand(0, 0, -2, 0), "bounds"),
    "input absent": (set_operand(0, 0, -1, 0), "bounds"),
    "input that the operator has not": (set_operand(0, 2, 0, 1 << 40), "bounds"),
    "input offset negative": (set_operand(1, 0, 0, -4), "bounds"),
    "input offset near the end": (set_operand(1, 0, 0, BIG), "bounds"),
    "input not aligned": (set_operand(1, 0, 0, 2), "bounds"),
    "input beyond its buffer": (set_operand(0, 0, 1, 4), "bounds"),
    "output in an input buffer": (set_out(0, 1, 0), "bounds"),
    "output absent": (set_out(0, -1, 0), "bounds"),
    "output beyond its buffer": (set_out(2, 2, 4), "bounds"),
    "output overflowing": (set_out(1, 0, (1 << 63) - 64), "bounds"),
    "workspace outside": (set_field("nodes", 0, "workspace_offset", value=lambda p: p["arena_bytes"]), "bounds"),
    "workspace negative": (set_field("nodes", 0, "workspace_offset", value=-64), "bounds"),
    "workspace not aligned": (set_field("nodes", 0, "workspace_offset", value=32), "bounds"),
    "workspace too small": (set_field("nodes", 0, "workspace_bytes", value=0), "bounds"),
    "workspace bytes negative": (set_field("nodes", 0, "workspace_bytes", value=-64), "bounds"),
    "workspace overflowing": (set_field("nodes", 0, "workspace_bytes", value=BIG), "bounds"),
    "step of no node": (set_field("steps", 0, "node", value=3), "params"),
    "step waits for too many": (set_field("steps", 0, "wait_loads", value=100), "params"),
    "window below": (set_field("steps", 0, "window", "y0", value=-1), "params"),
    "window above": (set_field("steps", 0, "window", "y1", value=4), "params"),
    "window upside down": (set_field("steps", 0, "window", "y0", value=3 + 1), "params"),
    "window's channels": (set_field("steps", 0, "window", "c1", value=41), "params"),
    "window within a panel": (set_field("steps", 0, "window", "c0", value=8), "params"),
    "window ends in a panel": (set_field("steps", 0, "window", "c1", value=8), "params"),
    "weight outside": (set_field("steps", 0, "panel_offset", value=lambda p: p["arena_bytes"] - 64), "bounds"),
    "weight absent": (set_field("steps", 0, "panel_offset", value=-1), "bounds"),
    "weight negative": (set_field("steps", 0, "panel_offset", value=-4096), "bounds"),
    "weight not aligned": (set_field("steps", 0, "panel_offset", value=1), "bounds"),
    "load outside": (set_field("loads", 0, "address", value=lambda p: p["arena_bytes"] - 8), "bounds"),
    "load negative": (set_field("loads", 0, "address", value=-8), "bounds"),
    "load of nothing": (set_field("loads", 0, "bytes", value=0), "params"),
    "load of negative size": (set_field("loads", 0, "bytes", value=-1), "params"),
    "load overflowing": (set_field("loads", 0, "bytes", value=BIG), "params"),
    "load's offset": (set_field("loads", 0, "file_offset", value=-1), "params"),
    "load's offset overflowing": (set_field("loads", 0, "file_offset", value=BIG), "params"),
    "chunk of nothing": (set_field("loads", 0, "chunk_bytes", value=0), "params"),
    "chunks negative": (set_field("loads", 0, "chunk_bytes", value=-1), "params"),
    "check before": (set_field("loads", 0, "check_lead", value=-1), "params"),
    "check beyond": (set_field("loads", 0, "check_bytes", value=1 << 20), "params"),
    "checksums beyond": (set_field("loads", 0, "crc_first", value=10**6), "bounds"),
    "more chunks than checksums": (set_field("loads", 0, "chunk_bytes", value=1), "bounds"),
    "pinned outside": (set_field("pinned", 0, "address", value=BIG), "bounds"),
    "threshold too high": (set_field("loads", 0, "wait_steps", value=10**6), "params"),
    "threshold too low": (set_field("loads", 0, "wait_steps", value=-(10**6)), "params"),
    "deadlock": (set_field("loads", 0, "wait_steps", value=3), "params"),
    "workspace over the output": (set_field("nodes", 0, "workspace_offset", value=own_output), "overlap"),
    "workspace over the input": (set_field("nodes", 1, "workspace_offset", value=own_output), "overlap"),
    "workspace over a pinned weight": (
        set_field("nodes", 0, "workspace_offset", value=lambda p: p["pinned"]["address"][0]),
        "overlap",
    ),
    "workspace over a load": (
        set_field("nodes", 0, "workspace_offset", value=lambda p: p["loads"]["address"][1]),
        "overlap",
    ),
    "output over a pinned weight": (lambda p: set_out(0, 0, p["pinned"]["address"][0])(p), "overlap"),
    "output over the zeros": (lambda p: set_out(0, 0, p["zeros_offset"])(p), "overlap"),
    "zeros over a load": (set_value("zeros_offset", lambda p: p["loads"]["address"][0]), "overlap"),
    "zeros over a pinned weight": (set_value("zeros_offset", lambda p: p["pinned"]["address"][0]), "overlap"),
    "load over a pinned weight": (
        set_field("loads", 0, "address", value=lambda p: p["pinned"]["address"][0]),
        "overlap",
    ),
    "load over a map in use": (set_field("loads", 4, "address", value=0), "overlap"),
    "steps that do not wait": (wait_less, "overlap"),
    "load that does not wait": (load_early, "overlap"),
    "load that does not wait for the run before": (load_early_in_the_next_run, "overlap"),
    "arena negative": (set_value("arena_bytes", -1), "bounds"),
    "arena too small": (set_value("arena_bytes", 4096), "bounds"),
    "zeros outside": (set_value("zeros_offset", lambda p: p["arena_bytes"]), "bounds"),
    "zeros overflowing": (set_value("zeros_count", BIG), "bounds"),
    "zeros too few": (set_value("zeros_count", 0), "bounds"),
    "buffer negative": (set_value("io_bytes", [-1, 1440]), "bounds"),
    "buffer too small": (set_value("io_bytes", [1440, 1436]), "bounds"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(lie):
    change, status = LIES[lie]
    c = chain(kernel=3)
    c.open().close()
    change(c.program)
    with pytest.raises(_core.EngineError) as caught:
        c.open(threads=4)
    assert caught.value.status == status


def one_node(op: str, offsets: list[int], **values: int) -> dict:
    """A program of one node whose operands lie in the arena, the output last, at these offsets."""
    fields = {name: values.get(name, 1 if name[0] == "d" and name[1:].isdigit() else 0) for name, _ in _core.FIELDS[op]}
    nodes = np.zeros(1, _core.NODE_DTYPE)
    nodes["op"], nodes["params"] = _core.OPS.index(op), _core.encode_params(op, fields)
    nodes["in"]["base"] = -1
    for i, offset in enumerate(offsets[:-1]):
        nodes[0]["in"][i] = (0, 0, offset)
    nodes[0:1]["out"] = (0, 0, offsets[-1])
    loads = np.zeros(0, _core.LOAD_DTYPE)
    return {
        "nodes": nodes,
        "steps": np.zeros(0, _core.STEP_DTYPE),
        "pinned": loads,
        "loads": loads,
        "crcs": np.zeros(0, np.uint32),
        "arena_bytes": 4096,
        "zeros_offset": 0,
        "zeros_count": 0,
        "io_bytes": [],
        "input_count": 0,
    }


DTYPE, POINTWISE = _core.ENUMS["dtype"].index, _core.ENUMS["pointwise_kind"].index
OPERANDS = {
    "sum of i64": ("pointwise", [8, 8, 8], {"kind": POINTWISE("add"), "dtype": DTYPE("i64")}),
    "comparison of i16": ("pointwise", [2, 2, 1], {"kind": POINTWISE("less"), "dtype": DTYPE("i16")}),
    "choice of f64": ("pointwise", [8, 8, 1, 8], {"kind": POINTWISE("where"), "dtype": DTYPE("f64")}),
    "position in u8": ("argmax", [1, 8], {"dtype": DTYPE("u8"), "outer": 1, "n": 1, "inner": 1}),
    "sum of f64": ("reduce", [8, 8], {"dtype": DTYPE("f64"), "outer": 1, "n": 1, "inner": 1}),
    "sum of f32": ("reduce", [4, 4], {"dtype": DTYPE("f32"), "outer": 1, "n": 1, "inner": 1}),
    "cast": ("cast", [4, 8], {"from": DTYPE("f32"), "to": DTYPE("i64"), "count": 1}),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_are_aligned_to_their_elements(name):
    op, sizes, values = OPERANDS[name]
    places = [64 * (i + 1) for i in range(len(sizes))]

    def opens(offsets: list[int]) -> bool:
        with tempfile.TemporaryFile() as file:
            try:
                _core.EngineSession(**one_node(op, offsets, **values), fd=file.fileno()).close()
            except _core.EngineError as error:
                assert error.status == "bounds"
                return False
        return True

    for i, size in enumerate(sizes):
        moved = [place + size * (k == i) for k, place in enumerate(places)]
        assert opens(moved)
        if size > 1:
            assert not opens([place + size // 2 * (k == i) for k, place in enumerate(places)])


def test_workspace_counts_for_every_thread():
    c = chain(threads_max=2)
    assert c.program["nodes"]["workspace_bytes"][0] > 0
    c.program["nodes"]["workspace_offset"] = c.program["arena_bytes"]
    c.program["arena_bytes"] += 2 * int(c.program["nodes"]["workspace_bytes"][0])
    c.open(threads=2).close()
    with pytest.raises(_core.EngineError):
        c.open(threads=3)


@pytest.mark.parametrize("threads", [0, -1, 65, 10**6])
def test_thread_counts(threads):
    with pytest.raises(_core.EngineError):
        chain().open(threads=threads)


def test_tables_of_other_structs_are_refused():
    c = chain()
    c.program["steps"] = np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="steps"):
        c.open()


def test_unknown_level():
    with pytest.raises(ValueError, match="sse1"):
        chain().open(isa="sse1")


def test_the_dtypes_are_the_structs():
    """A field in the wrong place would be refused or give a wrong result; here every field has its own value."""
    c = chain(kernel=3, row_windows=2)
    x = np.random.default_rng(0).standard_normal(c.shape, np.float32)
    np.testing.assert_array_equal(run(c.open(), x)[0], c.reference(x))


def test_mutated_programs_never_crash():
    """Random bytes of the tables changed: refused, failing or running, but alive. (Under the sanitizers this says
    that no access leaves the arena.)"""
    rng = np.random.default_rng(0)
    base = chain(kernel=3, row_windows=2)
    refused = ran = 0
    x = np.zeros(base.shape, np.float32)
    interesting = np.array([0, 1, 2, 7, 8, 15, 16, 63, 64, 127, 128, 255], np.uint8)
    for _ in range(3000):
        program = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in base.program.items()}
        for _ in range(int(rng.integers(1, 4))):
            table = program[str(rng.choice(["nodes", "steps", "loads", "pinned"]))]
            raw = table.view(np.uint8).reshape(-1)
            raw[rng.integers(raw.size)] = rng.choice(interesting)
        try:
            session = _core.EngineSession(**{**program, "fd": base.file.fileno(), "threads": 2})
        except _core.EngineError:
            refused += 1
            continue
        try:
            run(session, x)
            ran += 1
        except _core.EngineError:
            pass
        session.close()
    assert refused > 300
    assert ran > 300
