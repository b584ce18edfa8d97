"""The worth of each part of the design: plans without that part, at the same budget (FlexNN §5.5, figure 13).

- "without preloading": a weight is loaded when its step's turn has come ("w.o.preload").
- "without static memory": the memory of a streamed weight is given back after use and taken anew, page by page, for
  each load, as an allocator does with blocks of this size ("w.o.mem"). Activations keep their places.
- "direct kernels only": no Winograd, no im2col.
- "layer by layer": nothing pinned, each layer's weights loaded whole when its turn has come.
- "fixed slices": nothing pinned, slices of one size through two buffers in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.planning import MachineProfile, Plan
from flexnn.planning.program import load_rows
from flexnn.planning.types import align_up

from . import ABLATIONS
from .timing import Subject, Timing

SLICE_BYTES = 1 << 20
"""Size of a slice of "fixed slices"."""
SLOWER = 1e3
"""Predicted time of a kernel that is not to be chosen."""


def ablate(subject: Subject, memory: int, names: list[str]) -> list[Timing]:
    """Time the whole design at a budget of ``memory`` bytes, then each of ``names``, all if there are none."""
    timings = [subject.time("all parts", subject.plan(memory))]
    return timings + [_FUNCTIONS[name](subject, memory, name) for name in names or ABLATIONS]


def on_demand(plan: Plan) -> Plan:
    """Return the plan with no load begun before its step's turn."""
    loads = plan.program.loads.copy()
    loads["wait_steps"] = np.searchsorted(plan.steps["wait_loads"], np.arange(len(loads)), side="right")
    return replace(plan, program=replace(plan.program, loads=loads))


def streamed(graph: Graph, plan: Plan, slice_bytes: int | None, buffers: int, align: int) -> tuple[Plan, int]:
    """Return a plan that streams every panel weight through ``buffers`` places in turn, and the session's bytes.

    ``plan`` pins everything. A slice has about ``slice_bytes`` (None: a layer is one slice). A load starts when its
    place is free; with one place, when its step's turn has come.
    """
    program = plan.program
    steps: list[np.void] = []
    loads: list[np.ndarray[tuple[int], np.dtype[np.void]]] = []
    free_from = [0] * buffers
    for step in program.steps:
        number = graph.nodes[step["node"]].weight
        if number < 0:
            steps.append(step.copy())
            steps[-1]["wait_loads"] = len(loads)
            continue
        weight = graph.weights[number]
        panel, count = weight.chunk_bytes, weight.nbytes // weight.chunk_bytes
        width = count if slice_bytes is None else max(slice_bytes // panel, 1)
        for first in range(0, count, width):
            last, place = min(first + width, count), len(loads) % buffers
            offset, size, part = weight.offset + first * panel, (last - first) * panel, step.copy()
            load = np.array([*load_rows(graph, [number], [offset], [size], [place], align)], _core.LOAD_DTYPE)
            load["wait_steps"] = len(steps) if buffers == 1 else free_from[place]
            window = part["window"]
            window["c0"], window["c1"] = first * _core.NR, min(last * _core.NR, int(window["c1"]))
            part["wait_loads"], part["panel_offset"] = len(loads) + 1, len(loads)
            loads.append(load)
            steps.append(part)
            free_from[place] = len(steps)
    every = np.concatenate([np.zeros(0, _core.LOAD_DTYPE), *loads])
    page = _core.DIRECT_ALIGN
    size, base = align_up(int(every["bytes"].max(initial=0)), page), align_up(program.arena_bytes, page)
    every["address"] = base + every["address"] * size
    rows = np.array(steps, _core.STEP_DTYPE)
    panels = np.array([graph.nodes[node].weight >= 0 for node in rows["node"]], bool)
    users = rows["panel_offset"][panels]
    rows["panel_offset"][panels] = (every["address"] + every["check_lead"])[users]
    spans = [(w.offset, w.offset + w.nbytes) for w in graph.weights if w.kind == "panels"]
    first = program.pinned["file_offset"] + program.pinned["check_lead"]
    raw = np.array([not any(low <= at < high for low, high in spans) for at in first.tolist()], bool)
    unused = int(program.pinned["bytes"][~raw].sum())
    arena = base + buffers * size
    changed = replace(program, steps=rows, loads=every, pinned=program.pinned[raw], arena_bytes=arena)
    return replace(plan, program=changed), plan.session_bytes - unused + buffers * size


def _direct_only(machine: MachineProfile) -> MachineProfile:
    slow = {kernel: SLOWER for kernel in _core.ENUMS["conv_kernel"] if kernel != "direct"}
    times = {key: time for key, time in machine.times.items() if key.split(".")[1] not in slow}
    return replace(machine, times=times, scales={**machine.scales, **slow})


def _changed(timing: Timing) -> Timing:
    return replace(timing, predicted=None)


def _without_preloading(subject: Subject, memory: int, name: str) -> Timing:
    return _changed(subject.time(name, on_demand(subject.plan(memory))))


def _without_static_memory(subject: Subject, memory: int, name: str) -> Timing:
    return _changed(subject.time(name, subject.plan(memory), fresh=True))


def _without_both(subject: Subject, memory: int, name: str) -> Timing:
    return _changed(subject.time(name, on_demand(subject.plan(memory)), fresh=True))


def _direct_kernels_only(subject: Subject, memory: int, name: str) -> Timing:
    return subject.time(name, subject.plan(memory, _direct_only(subject.machine)))


def _layer_by_layer(subject: Subject, memory: int, name: str) -> Timing:
    plan, taken = streamed(subject.artifact.graph, subject.plan(None), None, 1, subject.align)
    return replace(_changed(subject.time(name, plan)), memory=taken)


def _fixed_slices(subject: Subject, memory: int, name: str) -> Timing:
    plan, taken = streamed(subject.artifact.graph, subject.plan(None), SLICE_BYTES, 2, subject.align)
    return replace(_changed(subject.time(name, plan)), memory=taken)


_FUNCTIONS: dict[str, Callable[[Subject, int, str], Timing]] = dict(
    zip(
        ABLATIONS,
        (
            _without_preloading,
            _without_static_memory,
            _without_both,
            _direct_kernels_only,
            _layer_by_layer,
            _fixed_slices,
        ),
        strict=True,
    )
)
"""Functions by ablation. The last two do not keep the budget: they need as much memory as their way of loading does."""
