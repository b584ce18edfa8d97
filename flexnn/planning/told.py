"""Plans as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flexnn.units import format_bytes

if TYPE_CHECKING:
    from .report import Plan


MINUTES_PER_DAY = 24 * 60
MS_PER_DAY = MINUTES_PER_DAY * 60 * 1000


def table(plan: Plan) -> str:
    """Return a short table of a plan, which computes nothing."""
    known = vars(plan).get("_minimum_memory") or plan.minimum_memory
    budget = "no limit" if plan.memory is None else format_bytes(plan.memory)
    smallest = "" if callable(known) else f", smallest {format_bytes(known)}"
    beside = format_bytes(plan.session_bytes - plan.arena_bytes)
    rows = {
        "memory": f"{format_bytes(plan.session_bytes)} of a budget of {budget}{smallest}",
        "arena": f"{format_bytes(plan.arena_bytes)}, and {beside} beside it",
        "weights": f"{format_bytes(plan.pinned_bytes)} pinned, {format_bytes(plan.bytes_read_per_run)} read per run",
        "program": f"{len(plan.steps)} steps of {len(plan.program.nodes)} nodes, {len(plan.loads)} loads",
        "time": f"{plan.predicted_ms:.2f} ms predicted, {plan.stall_ms:.2f} ms of it waiting for loads",
    }
    return "\n".join([f"{type(plan).__name__}", *(f"  {name:<8} {text}" for name, text in rows.items())])


def named(groups: int | None) -> str:
    """Return the number of groups as the command line names it."""
    return "off" if groups is None else str(groups)


def spilled(plan: Plan) -> str:
    """Return a line about the spill file: what a run writes, and a day of runs one after the other."""
    day = plan.bytes_written_per_day(MS_PER_DAY / plan.predicted_ms)
    return (
        f"spills   {len(plan.program.spills)} activations: each run writes {format_bytes(plan.bytes_written_per_run)}"
        f" and reads back {format_bytes(plan.bytes_fetched_per_run)}; one run a minute writes"
        f" {format_bytes(plan.bytes_written_per_day(MINUTES_PER_DAY))} a day, runs without a pause {format_bytes(day)}"
    )


def summary(plan: Plan) -> str:
    """Return lines about memory by purpose, and time."""
    budget = "no limit" if plan.memory is None else format_bytes(plan.memory)
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in plan.overhead.items())
    kernels = ", ".join(f"{name} {count}" for name, count in plan.kernels.items())
    beside = format_bytes(plan.working_bytes - plan.activation_bytes)
    grouped = "steps one by one"
    if plan.groups is not None:
        grouped = f"each layer in {plan.groups} at most" if plan.groups > 1 else "each layer in one"
    told = ", ".join(f"{named(k)} {ms:.2f}" for k, ms in plan.forecasts_ms.items())
    lines = "\n".join(
        (
            f"memory   {format_bytes(plan.session_bytes)} (budget {budget},"
            f" smallest {format_bytes(plan.minimum_memory)})",
            f"arena    {format_bytes(plan.arena_bytes)}: activations at their peak"
            f" {format_bytes(plan.activation_bytes)}, beside them for workspaces and streams {beside},"
            f" pinned weights {format_bytes(plan.pinned_bytes)}",
            f"beside   {parts}",
            f"steps    {len(plan.program.steps)} of {len(plan.program.nodes)} nodes; {kernels}",
            f"groups   {grouped}: {plan.barriers} barriers" + (f"; predicted ms: {told}" if told else ""),
            f"loads    {len(plan.program.loads)}, {format_bytes(plan.bytes_read_per_run)} per run",
            *([spilled(plan)] if len(plan.program.spills) else []),
            f"time     {plan.predicted_ms:.2f} ms predicted ({plan.stall_ms:.2f} waiting for loads),"
            f" no plan below {plan.bound_ms:.2f} ms: {plan.gap:.1%} above it",
            f"planned  in {plan.plan_ms:.0f} ms",
        )
    )
    return f"{lines}\n{plan.explanation.summary(plan)}" if plan.explanation else lines
