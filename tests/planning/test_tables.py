"""Tables: in the file while there is no room for everything; plans that read them wrongly are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.graph.tables import table_of
from flexnn.planning import PlanError, Setting, make_plan
from flexnn.planning.check import check_plan
from flexnn.planning.types import Program
from tests.support.plan_graphs import Builder
from tests.support.plans import ALIGNS, FAST_DISK, checked, minimum_of

ROWS, WIDE = 3000, 96
TABLE_BYTES = 4 * ROWS * WIDE


def embedding(picked: int = 20, axis: int = 0, rows: int = ROWS) -> Graph:
    """Rows of a table, and a convolution over them."""
    b = Builder()
    table = b.constant(rows, WIDE)
    ids = b.input(picked)
    b.graph.tensors[ids].dtype = "i64"
    y = b.node("gather", [table, ids], {"axis": axis})
    found = table_of(b.graph, b.graph.nodes[0])
    if found is not None:
        weight = b.graph.weights[found.weight]
        weight.chunk_bytes, weight.crc_first, b.chunks = found.chunk_bytes, 0, -(-weight.nbytes // found.chunk_bytes)
    x = b.node("copy", [y], {"perm": [0, 1], "expand": [0, 0]})
    b.graph.outputs = [x]
    return b.graph


@pytest.mark.parametrize("io_align", ALIGNS)
def test_a_table_is_in_memory_only_with_everything(io_align: int) -> None:
    graph = embedding()
    minimum = minimum_of(graph, io_align=io_align)
    everything = checked(graph, None, io_align=io_align)
    assert everything.minimum_memory == minimum
    assert everything.arena_bytes > TABLE_BYTES
    assert not len(everything.program.tables)
    for memory in (minimum, everything.session_bytes - 1):
        plan = checked(graph, memory, io_align=io_align)
        assert plan.arena_bytes < TABLE_BYTES / 4
        assert len(plan.program.tables) == 1
    assert not len(checked(graph, everything.session_bytes + (1 << 20), io_align=io_align).program.tables)


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (embedding(picked=ROWS), "most of the table"),
        (embedding(rows=100), "small"),
        (embedding(axis=1), "columns"),
    ],
)
def test_what_is_no_table(graph: Graph, why: str) -> None:
    assert table_of(graph, graph.nodes[0]) is None, why
    assert not len(make_plan(graph, Setting(FAST_DISK), minimum_of(graph)).program.tables)


def _field(name: str, add: int) -> Callable[[Program], Program]:
    def change(p: Program) -> Program:
        p.tables[name] += add
        return p

    return change


def _another_table(p: Program) -> Program:
    p.nodes["in"]["offset"][0, 0] = 1
    return p


def _no_room(p: Program) -> Program:
    p.nodes["workspace_bytes"][0] = 4096
    return p


def _indices(p: Program) -> Program:
    p.nodes["in"][0, 1] = (_core.BASE_FILE, 0, 0)
    return p


@pytest.mark.parametrize(
    "defect",
    [
        _another_table, _no_room, _indices, _field("file_offset", 4096), _field("bytes", -4), _field("chunk_bytes", 4),
        _field("crc_first", 1),
    ],
)  # fmt: skip
def test_wrong_tables_are_refused(defect: Callable[[Program], Program]) -> None:
    graph = embedding()
    program = make_plan(graph, Setting(FAST_DISK), minimum_of(graph)).program
    check_plan(graph, program)
    copied = {
        field.name: np.copy(value)
        for field in dataclasses.fields(program)
        if isinstance(value := getattr(program, field.name), np.ndarray)
    }
    with pytest.raises(PlanError) as refused:
        check_plan(graph, defect(dataclasses.replace(program, **copied)))
    assert refused.value.kind in ("table", "io")
