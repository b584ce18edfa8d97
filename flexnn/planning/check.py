"""Independent validator of programs: it shares no code with the planner (docs/architecture.md, D6 and D7).

From the graph and the program's arrays alone it derives, for every byte range of the arena, the span of steps in which
it may hold something that is still needed, under any interleaving that the two counters allow:

- an activation: from the first step that writes a view of it to the last that reads one;
- a workspace: its node's steps; steps of a group may share one, thread by thread;
- a loaded weight: from the earliest step that may run while the load may already write (its threshold, or a later one
  of a load before it) to the last step that reads it; on the circle of runs, so a span may begin in the run before;
- pinned weights and zeros: always; what another program has brought for the turns of a loop, too (``check_held``).

The steps of a group run at the same time: a span reaches to the bounds of its first and last group, and no node of a
group reads what another one writes.

Two ranges that overlap in memory and in time are a conflict, whatever the speeds of loader and threads. Every run looks
alike, so spans modulo one run cover all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from flexnn import _core
from flexnn.graph.ir import DTYPES, Graph
from flexnn.graph.operators import OPERATORS
from flexnn.quick_dataclass import quick_dataclass

from .errors import PlanError
from .types import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray


@quick_dataclass(slots=True)
class _Spans:
    """Byte ranges with the steps in which they are in use, both included, of run 0; ``first`` may be negative."""

    low: list[int]
    high: list[int]
    first: list[int]
    last: list[int]
    name: list[str]

    def add(self, low: int, high: int, first: int, last: int, name: str) -> None:
        self.low.append(low)
        self.high.append(high)
        self.first.append(first)
        self.last.append(last)
        self.name.append(name)


def check_plan(graph: Graph, program: Program) -> None:
    """Raise PlanError unless the program computes ``graph`` with every operand in place at any reachable interleaving,
    and each thread has a workspace of its own. ``PlanError.kind`` names the failure.
    """
    _check_order(graph, program)
    _check_progress(program)
    _check_groups(graph, program)
    _check_spills(graph, program)
    spans = _Spans([], [], [], [], [])
    _activations(graph, program, spans)
    _workspaces(graph, program, spans)
    _weights(graph, program, spans)
    everything = (-len(program.steps), len(program.steps) - 1)
    needed = max((_core.op_zeros(n.op, p) for n, p in _params(graph, program)), default=0)
    if needed > program.zeros_count:
        raise PlanError("zeros", f"{program.zeros_count} zeros, a node reads {needed}")
    if program.zeros_count:
        spans.add(program.zeros_offset, program.zeros_offset + 4 * program.zeros_count, *everything, "zeros")
    for i in range(len(spans.low)):
        if spans.low[i] < 0 or spans.high[i] > program.arena_bytes:
            raise PlanError("bounds", f"{spans.name[i]} lies outside the arena")
    _reach_to_groups(program, spans)
    _check_overlaps(spans, len(program.steps))


def _reach_to_groups(program: Program, spans: _Spans) -> None:
    steps, begin, end = len(program.steps), *_group_bounds(program)
    for i in range(len(spans.low)):
        turn, step = divmod(spans.first[i], max(steps, 1))
        spans.first[i] = turn * steps + begin[step] if steps else 0
        turn, step = divmod(spans.last[i], max(steps, 1))
        spans.last[i] = turn * steps + end[step] if steps else 0


def _group_bounds(program: Program) -> tuple[list[int], list[int]]:
    """Return the first and the last step of the group of each step."""
    sizes = program.groups if len(program.groups) else np.ones(len(program.steps), np.int64)
    ends = np.cumsum(sizes, dtype=np.int64)
    if len(ends) and (ends[-1] != len(program.steps) or not sizes.all()):
        raise PlanError("group", "groups are not the steps, each once")
    return np.repeat(ends - sizes, sizes).tolist(), np.repeat(ends - 1, sizes).tolist()


def _check_groups(graph: Graph, program: Program) -> None:
    """Refuse groups in which a node reads memory that another node of the group writes."""
    begin, _ = _group_bounds(program)
    group_of = dict(zip(program.steps["node"].tolist(), begin, strict=True))
    written: dict[tuple[int, int], list[tuple[int, int, int]]] = {}  # by group and root: node and extent

    def place(node: int, operand: int, tensor: int) -> tuple[tuple[int, int], tuple[int, int, int]]:
        view = graph.tensors[tensor]
        params = np.ascontiguousarray(program.nodes["params"][node])
        low, high = _core.op_extent(graph.nodes[node].op, params, operand)
        at = view.offset * DTYPES[view.dtype].itemsize
        return (group_of[node], graph.root(tensor)), (node, at + low, at + high)

    for index, item in enumerate(graph.nodes):
        key, entry = place(index, _core.MAX_INPUTS, item.outputs[0])
        written.setdefault(key, []).append(entry)
    for index, item in enumerate(graph.nodes):
        for operand, tensor in enumerate(item.inputs):
            key, (_, low, high) = place(index, operand, tensor)
            for writer, start, end in written.get(key, ()):
                if writer != index and start < high and low < end:
                    raise PlanError("group", f"node {index} reads what node {writer} of its group writes")


def _params(graph: Graph, program: Program) -> list[tuple[Any, NDArray[np.int32]]]:
    return [(node, np.ascontiguousarray(program.nodes["params"][i])) for i, node in enumerate(graph.nodes)]


# ---- steps ----


def _check_order(graph: Graph, program: Program) -> None:
    """Refuse nodes out of the graph's order, not computed whole and once, or reading what is not computed yet."""
    node = program.steps["node"].tolist()
    if len(program.nodes) != len(graph.nodes) or [*dict.fromkeys(node)] != [*range(len(graph.nodes))]:
        raise PlanError("order", "steps do not walk the nodes one by one, all of them")
    produced = set(graph.inputs) | {i for i, t in enumerate(graph.tensors) if t.weight >= 0}
    touched = {graph.root(i) for i in produced}
    at = 0
    for index, (item, params) in enumerate(_params(graph, program)):
        if _core.OPS[program.nodes["op"][index]] != item.op:
            raise PlanError("operator", f"node {index} is not a {item.op}")
        kernel = OPERATORS[item.op].kernel(program.nodes["kernel"][index])
        try:
            _core.op_check(item.op, kernel, params)
        except ValueError as error:
            raise PlanError("kernel", f"node {index}: {error}") from None
        for tensor in item.inputs:
            if tensor not in produced and graph.root(tensor) not in touched:
                raise PlanError("order", f"node {index} reads {graph.tensors[tensor].name!r} before it is computed")
        produced.add(item.outputs[0])
        touched.add(graph.root(item.outputs[0]))
        y0, y1, c0, c1 = _core.op_full_window(item.op, params)
        reached = c0
        while at < len(node) and node[at] == index:
            window = program.steps["window"][at]
            expected = (window["y0"], window["y1"], window["c0"]) == (y0, y1, reached) and window["c1"] > reached
            if not expected and y1 > y0 and c1 > c0:
                raise PlanError("window", f"step {at} leaves a hole in node {index} or computes some of it twice")
            reached = int(window["c1"])
            if reached != c1 and reached % _core.NR:
                raise PlanError("window", f"step {at} ends inside a panel")
            at += 1
        if reached != c1:
            raise PlanError("window", f"node {index} is computed up to channel {reached} of {c1}")


def _check_progress(program: Program) -> None:
    """Walk both counters over two runs and refuse steps and loads that wait for each other."""
    steps, loads = len(program.steps), len(program.loads)
    wait_loads, wait_steps = program.steps["wait_loads"].tolist(), program.loads["wait_steps"].tolist()
    if any(not 0 <= w <= loads for w in wait_loads) or any(not -steps <= w < steps for w in wait_steps):
        raise PlanError("threshold", "a threshold is out of its range")
    step = load = 0
    while step < 2 * steps:
        before = step, load
        while load < 2 * loads and step >= load // loads * steps + wait_steps[load % loads]:
            load += 1
        while step < 2 * steps and load >= step // steps * loads + wait_loads[step % steps]:
            step += 1
            if loads and load < 2 * loads and step >= load // loads * steps + wait_steps[load % loads]:
                break
        if (step, load) == before:
            raise PlanError("deadlock", f"step {step % steps} and load {load % max(loads, 1)} wait for each other")


# ---- what lies where, and when ----


def _step_range(program: Program, count: int) -> tuple[list[int], list[int]]:
    """Return the first and the last step of each node."""
    first, last = [-1] * count, [-1] * count
    for step, node in enumerate(program.steps["node"].tolist()):
        if first[node] < 0:
            first[node] = step
        last[node] = step
    return first, last


def _activations(graph: Graph, program: Program, spans: _Spans) -> None:
    begin, end = _step_range(program, len(graph.nodes))
    buffers, spilled = [*graph.inputs, *graph.outputs], {spill.root: spill for spill in graph.spills}
    sizes = [graph.tensors[t].nbytes for t in buffers]
    if program.io_bytes.tolist() != sizes:
        raise PlanError("io", "sizes of the caller's buffers are not those of inputs and outputs")
    place: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, (item, params) in enumerate(_params(graph, program)):
        for operand, tensor in enumerate([*item.inputs, item.outputs[0]]):
            is_output = operand == len(item.inputs)
            where = program.nodes["out"][index] if is_output else program.nodes["in"][index][operand]
            root = graph.root(tensor)
            view = graph.tensors[tensor]
            offset = int(where["offset"]) - view.offset * DTYPES[view.dtype].itemsize
            low, high = _core.op_extent(item.op, params, _core.MAX_INPUTS if is_output else operand)
            size = graph.tensors[root].nbytes
            if graph.tensors[root].weight < 0:
                inside = int(where["offset"]) - offset
                if inside + low < 0 or inside + high > size:
                    raise PlanError("bounds", f"node {index} reaches outside {graph.tensors[root].name!r}")
            if root in spilled:
                if is_output and (int(where["base"]), offset) != (_core.BASE_SPILL, spilled[root].offset):
                    raise PlanError("spill", f"node {index} does not store {view.name!r} in its place")
                continue
            if root in buffers:
                if int(where["base"]) != 1 + buffers.index(root) or offset:
                    raise PlanError("io", f"node {index} does not use the caller's buffer of {view.name!r}")
                continue
            if int(where["base"]) == _core.BASE_FILE and not is_output:
                _check_table(graph, program, index, operand)
                continue
            if int(where["base"]) != 0:
                raise PlanError("base", f"node {index} looks for {view.name!r} outside the arena")
            if graph.tensors[root].weight >= 0:
                continue
            if place.setdefault(root, offset) != offset:
                raise PlanError("address", f"{view.name!r} has two addresses")
            first.setdefault(root, begin[index])
            last[root] = end[index]
    for root, at in place.items():
        name = f"activation {graph.tensors[root].name!r}"
        spans.add(at, at + graph.tensors[root].nbytes, first[root], last[root], name)


def _check_spills(graph: Graph, program: Program) -> None:
    """Refuse rows of the spill file that are stored twice, or that a load may read before they are stored."""
    spilled = {spill.root: spill for spill in graph.spills}
    end = _step_range(program, len(graph.nodes))[1]
    stored: list[tuple[int, int, int]] = []
    for index, node in enumerate(graph.nodes):
        spill, view = spilled.get(graph.root(node.outputs[0])), graph.tensors[node.outputs[0]]
        if spill is not None:
            low = spill.offset + view.offset * DTYPES[view.dtype].itemsize
            stored.append((low, low + view.nbytes, end[index]))
    stored.sort()
    if any(a[1] > b[0] for a, b in pairwise(stored)):
        raise PlanError("spill", "two nodes store the same rows")
    for i, load in enumerate(program.loads):
        at = int(load["file_offset"]) + int(load["check_lead"]) - _core.SPILL_FROM
        if at < 0:
            continue
        last = at + int(load["check_bytes"])
        for low, high, step in stored:
            if low <= at < min(high, last):
                if int(load["wait_steps"]) <= step:
                    raise PlanError("spill", f"load {i} may begin before step {step} has stored its rows")
                at = high
        if at < last:
            raise PlanError("spill", f"load {i} reads rows of the spill file that no step stores")


def _workspaces(graph: Graph, program: Program, spans: _Spans) -> None:
    begin, end = _step_range(program, len(graph.nodes))
    for index, (item, params) in enumerate(_params(graph, program)):
        kernel = OPERATORS[item.op].kernel(program.nodes["kernel"][index])
        given, at = int(program.nodes["workspace_bytes"][index]), int(program.nodes["workspace_offset"][index])
        if given < _core.op_workspace(item.op, kernel, params):
            raise PlanError("workspace", f"node {index} has {given} bytes of workspace for each thread")
        if given:
            spans.add(at, at + given * program.threads, begin[index], end[index], f"workspace of node {index}")


def _weights(graph: Graph, program: Program, spans: _Spans) -> None:
    """Refuse steps whose panels or constants are not loaded before them or are overwritten before they have run."""
    steps, count = len(program.steps), len(program.loads)
    stays = [*program.pinned, *program.held]
    pinned = [(int(p["file_offset"]), int(p["bytes"]), int(p["address"])) for p in stays]
    loads = [(int(p["file_offset"]), int(p["bytes"]), int(p["address"])) for p in program.loads]
    # A load starts no earlier than any load before it, in this run or the one before.
    waits = program.loads["wait_steps"].astype(np.int64)
    earliest = np.maximum.accumulate(np.concatenate((waits - steps, waits)))[count:] if count else waits
    done = np.maximum.accumulate(program.steps["wait_loads"].astype(np.int64))
    last_use = [-1] * count
    for step, (start, size, address) in _reads(graph, program):
        at = start
        while at < start + size:
            source = next((p for p in pinned if _holds(p, at, address + at - start)), None)
            if source is None:
                found = [i for i in range(int(done[step])) if _holds(loads[i], at, address + at - start)]
                if not found:
                    raise PlanError("weight", f"step {step} reads bytes at {at} of the file that no load has put there")
                source = loads[found[-1]]
                last_use[found[-1]] = step
            at = min(source[0] + source[1], start + size)
    for i, (offset, size, address) in enumerate(pinned):
        _check_load(stays[i], graph)
        spans.add(address, address + size, -steps, steps - 1, f"pinned bytes at {offset}")
    for i, (_, size, address) in enumerate(loads):
        _check_load(program.loads[i], graph)
        # Not used: still written while any step up to the first that waits for it runs.
        waiting = int(np.searchsorted(done, i + 1))
        last = max(last_use[i], min(waiting, steps - 1))
        spans.add(address, address + size, int(earliest[i]), last, f"load {i}")


def check_held(programs: Sequence[Program], holder: Program) -> None:
    """Raise PlanError unless ``holder`` brings all that the programs of a loop hold, and none of them writes over it.
    Each is checked by itself (``check_plan``), but for what another one writes.
    """
    brought = {_fields(load) for load in holder.loads}
    places = [(int(load["address"]), int(load["address"]) + int(load["bytes"])) for load in holder.loads]
    for number, program in enumerate(programs):
        if not brought.issuperset(map(_fields, program.held)):
            raise PlanError("held", f"program {number} reads what nothing brings before the loop")
        for low, high in _writes(program):
            if any(low < end and begin < high for begin, end in places):
                raise PlanError("held", f"program {number} writes over what stays for the loop")


def _fields(load: Any) -> tuple[int, ...]:
    """Return all that a load says but what it waits for, and where its program's checksums begin."""
    return tuple(int(load[name]) for name in load.dtype.names if name not in ("wait_steps", "crc_first"))


def _writes(program: Program) -> list[tuple[int, int]]:
    """Return the ranges of the arena that steps and loads of a program write: outputs and workspaces of its nodes."""
    ranges = [(int(load["address"]), int(load["address"]) + int(load["bytes"])) for load in program.loads]
    for node in program.nodes:
        at, size = int(node["workspace_offset"]), int(node["workspace_bytes"]) * program.threads
        ranges.append((at, at + size))
        if int(node["out"]["base"]) == 0:
            params = np.ascontiguousarray(node["params"])
            low, high = _core.op_extent(_core.OPS[int(node["op"])], params, _core.MAX_INPUTS)
            ranges.append((int(node["out"]["offset"]) + low, int(node["out"]["offset"]) + high))
    return [(low, high) for low, high in ranges if low < high]


def _holds(load: tuple[int, int, int], file_at: int, address: int) -> bool:
    offset, size, where = load
    return offset <= file_at < offset + size and address - where == file_at - offset


def _reads(graph: Graph, program: Program) -> list[tuple[int, tuple[int, int, int]]]:
    """Return (step, (file offset, bytes, arena address)) of all stored bytes that steps read."""
    reads = []
    panel_bytes = [_core.op_panel_bytes(node.op, params) for node, params in _params(graph, program)]
    for step, (node, weight) in enumerate(zip(program.steps["node"], program.steps["panel_offset"], strict=True)):
        item = graph.nodes[node]
        if item.weight >= 0:
            window, size = program.steps["window"][step], panel_bytes[node]
            p0, p1 = int(window["c0"]) // _core.NR, -(-int(window["c1"]) // _core.NR)
            offset = graph.weights[item.weight].offset + p0 * size
            reads.append((step, (offset, (p1 - p0) * size, int(weight))))
        for operand, tensor in enumerate(item.inputs):
            root = graph.root(tensor)
            stored = graph.tensors[root].weight
            if stored >= 0 and int(program.nodes["in"][node][operand]["base"]) == 0:
                view = graph.tensors[tensor]
                at = int(program.nodes["in"][node][operand]["offset"]) - view.offset * DTYPES[view.dtype].itemsize
                reads.append((step, (graph.weights[stored].offset, graph.weights[stored].nbytes, at)))
    return reads


def _check_table(graph: Graph, program: Program, index: int, operand: int) -> None:
    """Refuse a gather that does not read whole rows of its own table, with a workspace for a chunk."""
    node, tensor = graph.nodes[index], graph.tensors[graph.nodes[index].inputs[operand]]
    number = int(program.nodes["in"][index][operand]["offset"])
    is_gather = node.op == "gather_panels" or (node.op == "gather" and node.attrs["axis"] == 0)
    if not is_gather or operand or tensor.weight < 0 or tensor.root >= 0:
        raise PlanError("table", f"node {index} cannot read rows from the file")
    if not 0 <= number < len(program.tables):
        raise PlanError("table", f"node {index} reads table {number} of {len(program.tables)}")
    table, weight = program.tables[number], graph.weights[tensor.weight]
    found = tuple(int(table[name]) for name in ("file_offset", "bytes", "chunk_bytes", "crc_first", "check_bytes"))
    if found != (weight.offset, weight.nbytes, weight.chunk_bytes, weight.crc_first, weight.nbytes):
        raise PlanError("table", f"table {number} is not the weight {weight.name!r}")
    row = tensor.nbytes // tensor.shape[0]
    if weight.chunk_bytes % row or int(program.nodes["workspace_bytes"][index]) < _core.table_workspace(
        weight.chunk_bytes
    ):
        raise PlanError("table", f"node {index} has no room for a chunk of {weight.chunk_bytes} bytes")


def _check_load(load: Any, graph: Graph) -> None:
    """Refuse a load whose checked part is not whole chunks of one weight, with that weight's checksums."""
    start = int(load["file_offset"]) + int(load["check_lead"])
    size, chunk = int(load["check_bytes"]), int(load["chunk_bytes"])
    for weight in graph.weights:
        is_other = start >= _core.SPILL_FROM and (weight.offset, weight.nbytes) != (
            start,
            size,
        )  # rows may be read twice
        if weight.offset <= start < weight.offset + weight.nbytes and not is_other:
            inside = start - weight.offset
            whole = inside % chunk == 0 and (size % chunk == 0 or inside + size == weight.nbytes)
            first = weight.crc_first + inside // chunk
            if chunk != weight.chunk_bytes or not whole or first != int(load["crc_first"]):
                raise PlanError("checksum", f"load at {start} is not whole chunks of {weight.name!r}")
            if inside + size > weight.nbytes or int(load["check_lead"]) + size > int(load["bytes"]):
                raise PlanError("checksum", f"load at {start} is checked beyond its end")
            return
    raise PlanError("weight", f"load at {start} reads no weight")


# ---- conflicts ----


def _check_overlaps(spans: _Spans, steps: int) -> None:
    """Refuse two ranges that overlap in memory and in time; spans repeat with each run."""
    low, high = np.array(spans.low), np.array(spans.high)
    first, last = np.array(spans.first), np.array(spans.last)
    for i in range(len(low) - 1):
        rest = slice(i + 1, None)
        meets = (low[rest] < high[i]) & (high[rest] > low[i])
        if not meets.any():
            continue
        together = np.zeros(len(low) - i - 1, bool)
        for turn in (-2 * steps, -steps, 0, steps, 2 * steps):
            together |= (first[rest] <= last[i] + turn) & (last[rest] >= first[i] + turn)
        same = (low[rest] == low[i]) & (high[rest] == high[i])
        if spans.name[i].startswith("workspace"):
            together &= ~(same & np.array([name.startswith("workspace") for name in spans.name[i + 1 :]]))
        clash = np.flatnonzero(meets & together)
        if len(clash):
            raise PlanError("overlap", f"{spans.name[i]} and {spans.name[i + 1 + int(clash[0])]} share memory")
    late = np.flatnonzero(last - first >= steps)
    for i in late.tolist():
        if spans.name[i].startswith("load"):
            raise PlanError("overlap", f"{spans.name[i]} of the next run may start before its bytes were used")
