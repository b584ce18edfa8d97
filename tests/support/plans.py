"""Machines and checks for the tests of the planner."""

from __future__ import annotations

from flexnn.graph.ir import Graph
from flexnn.planning import BudgetError, MachineProfile, Plan, Setting, make_plan
from flexnn.planning.check import check_plan

FAST_DISK = MachineProfile(flops_per_second=2e11, bytes_per_second=4e10, storage_bytes_per_second=3e9)
PI = MachineProfile(
    flops_per_second=8e9, bytes_per_second=4e9, storage_bytes_per_second=9e7, request_s=3e-4, step_s=1e-5
)
ALIGNS = (64, 4096)


def minimum_of(graph: Graph, *, threads: int = 2, io_align: int = 64, machine: MachineProfile = FAST_DISK) -> int:
    """The smallest budget, as the refusal of one byte names it."""
    try:
        make_plan(graph, Setting(machine, threads, io_align), memory=1)
    except BudgetError as error:
        return error.minimum
    raise AssertionError("one byte was enough")


def checked(
    graph: Graph, memory: int | None, *, threads: int = 2, io_align: int = 64, machine: MachineProfile = FAST_DISK
) -> Plan:
    """A plan that the independent checker accepts, and that keeps its budget and its own bound."""
    plan = make_plan(graph, Setting(machine, threads, io_align), memory)
    check_plan(plan.graph, plan.program)
    assert memory is None or plan.session_bytes <= memory
    assert plan.predicted_ms >= plan.bound_ms * (1 - 1e-9)
    for loads in (plan.program.loads, plan.program.pinned):
        if io_align > 64:
            assert not (loads["file_offset"] % io_align).any()
            assert not (loads["bytes"] % io_align).any()
            assert not (loads["address"] % io_align).any()
    return plan
