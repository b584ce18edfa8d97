"""Trace events of a run, which Chrome and Perfetto show: lanes for the loader, stalls and each compute thread, and
memory over time.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format); times in
microseconds from the start of the run. Loads that began while the run before computed have negative times.
"""

from __future__ import annotations

from typing import Any

from flexnn.graph.ir import Graph
from flexnn.measure import Trace
from flexnn.planning import Plan

from .engine import BoundProgram, SessionError

Event = dict[str, Any]

_LOADER, _STALLS, _COMPUTE = 1, 2, 3
"""Numbers of lanes; that of the first compute thread, which the others follow."""


def traced(plan: Plan, program: BoundProgram | None) -> dict[str, Any]:
    """Return the trace events of the last run of a plan's program. Raises SessionError if it was not traced."""
    if program is not None:
        trace, lanes, stalls = program.trace, program.lanes, program.stalls
        if trace is not None and lanes is not None and stalls is not None:
            return trace_events(plan, trace, lanes, stalls)
    raise SessionError("there is no trace: open the session with trace=True, and run it")


def trace_events(
    plan: Plan, trace: Trace, lanes: list[list[tuple[int, int]]], stalls: list[tuple[int, int]]
) -> dict[str, Any]:
    """Return the trace events of a run of ``plan``, as an object to write as JSON. ``trace``, ``lanes`` and ``stalls``
    are those of its BoundProgram.

    Each stall names the load that it waited for, when that could have begun, and why it did not begin earlier. Together
    the stalls are the run's ``stall_ns``.
    """
    graph = plan.graph
    steps, loads = trace
    weights = [_weight_name(graph, load) for load in plan.loads]
    names = [f"{graph.nodes[step['node']].name} [{step['window']['c0']}:{step['window']['c1']}]" for step in plan.steps]
    events = [_named("process_name", 0, "flexnn")]
    threads = len(lanes[0]) if lanes else 0
    rows = ["loader", "stalls", *(f"compute {thread + 1}" for thread in range(threads))]
    events += [_named("thread_name", lane, name) for lane, name in enumerate(rows, _LOADER)]
    for i, (start, end) in enumerate(loads):
        size = int(plan.loads[i]["bytes"])
        rate = size / max(end - start, 1)
        facts: dict[str, Any] = {
            "load": i,
            "bytes": size,
            "GB/s": round(rate, 3),
            "after step": int(plan.loads[i]["wait_steps"]) - 1,
        }
        events.append(_span(_LOADER, weights[i], start, end, facts))
    together = _together(plan)
    for j in range(len(steps)):
        node = int(plan.steps[j]["node"])
        facts = {"step": j, "op": graph.nodes[node].op, "waits for loads": int(plan.steps[j]["wait_loads"])}
        name = names[j] if together[j] <= 1 else f"{names[j]} and {together[j] - 1} at the same time"
        parts = [(thread, *part) for thread, part in enumerate(lanes[j]) if part[1]]
        events += [_span(_COMPUTE + thread, name, first, last, facts) for thread, first, last in parts]
    awaited = [max(plan.steps[j : j + max(count, 1)]["wait_loads"]) for j, count in enumerate(together)]
    for j, ((start, end), count) in enumerate(zip(stalls, [*awaited, len(loads)], strict=True)):
        if end > start:
            events += _stalls(plan, trace, weights, names, j, int(count), (start, end))
    events += _memory(graph, plan, trace)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _together(plan: Plan) -> list[int]:
    """Return the number of steps in the group that begins with each step: 0 inside a group, 1 outside."""
    groups = plan.program.groups
    if not len(groups):
        return [1] * len(plan.steps)
    sizes = [0] * len(plan.steps)
    first = 0
    for size in groups.tolist():
        sizes[first] = size
        first += size
    return sizes


def _stalls(
    plan: Plan, trace: Trace, weights: list[str], names: list[str], step: int, count: int, wait: tuple[int, int]
) -> list[Event]:
    """Return spans of the loads that step ``step``, or the run's end, waited for during ``wait``; it needed the first
    ``count`` loads. Each load in progress meanwhile has a span. The last span ends when the step began, which on a busy
    machine is later than the end of its load.
    """
    steps, loads = trace
    at, until = wait
    events = []
    for i in range(count):
        start, end = loads[i]
        is_last = i == count - 1
        if end <= at and not is_last:
            continue
        before = int(plan.loads[i]["wait_steps"])
        freed = steps[before - 1][1] if before > 0 else None  # its place: by a step of this run
        busy = loads[i - 1][1] if i else None  # the loader: with the load before
        if freed is not None and (busy is None or freed >= busy):
            why = f"its place was in use until step {before - 1}, {names[before - 1]}, was done"
            since = freed
        elif busy is not None:
            why, since = f"the loader was busy with load {i - 1}, {weights[i - 1]}", busy
        else:
            why, since = "it had begun in the run before", start
        facts = {"step": step, "load": i, "weight": weights[i], "could start at us": since / 1e3, "not sooner": why}
        end = until if is_last else min(end, until)
        events.append(_span(_STALLS, f"waiting for {weights[i]}", at, end, facts))
        at = end
    return events


def _memory(graph: Graph, plan: Plan, trace: Trace) -> list[Event]:
    """Return counters of the bytes in use over time. Streamed weights count from the start of their load to the end of
    the last step that waited for them, activations from their first node to their last.
    """
    steps, loads = trace
    begin: dict[int, int] = {}
    until: dict[int, int] = {}
    for j, step in enumerate(plan.steps):
        begin.setdefault(int(step["node"]), steps[j][0])
        until[int(step["node"])] = steps[j][1]
    changes: list[tuple[int, str, int]] = []
    spans: dict[int, tuple[int, int]] = {}
    for index, node in enumerate(graph.nodes):
        for tensor in (*node.inputs, *node.outputs):
            root = graph.root(tensor)
            if graph.tensors[root].weight < 0 and root not in (*graph.inputs, *graph.outputs):
                spans[root] = spans.get(root, (begin[index], 0))[0], until[index]
    for root, (first, last) in spans.items():
        changes += [
            (first, "activations", graph.tensors[root].nbytes),
            (last, "activations", -graph.tensors[root].nbytes),
        ]
    wanted = iter(range(len(plan.steps)))
    user = next(wanted, 0)
    for i, (start, _) in enumerate(loads):
        while plan.steps[user]["wait_loads"] <= i:
            user = next(wanted)
        size = int(plan.loads[i]["bytes"])
        changes += [(start, "streamed", size), (steps[user][1], "streamed", -size)]
    now = {"pinned": plan.pinned_bytes, "streamed": 0, "activations": 0}
    events = [_counter(0 if not changes else min(0, min(changes)[0]), now)]
    for at, kind, size in sorted(changes):
        now[kind] += size
        events.append(_counter(at, now))
    return events


def _weight_name(graph: Graph, load: Any) -> str:
    first = int(load["file_offset"] + load["check_lead"])
    return next((w.name for w in graph.weights if w.offset <= first < w.offset + w.nbytes), "?")


def _span(lane: int, name: str, start: int, end: int, facts: dict[str, Any]) -> Event:
    return {
        "ph": "X",
        "pid": 0,
        "tid": lane,
        "name": name,
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
        "args": facts,
    }


def _counter(at: int, values: dict[str, int]) -> Event:
    return {"ph": "C", "pid": 0, "name": "memory in bytes", "ts": at / 1e3, "args": dict(values)}


def _named(kind: str, lane: int, name: str) -> Event:
    return {"ph": "M", "pid": 0, "tid": lane, "name": kind, "args": {"name": name}}
