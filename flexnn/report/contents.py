"""Contents of a page: where everything lies in memory and when, over a whole run. A model that branches or decides
shapes as it runs has several parts, each with a program; here they run one after the other, as they do in the longest
way through the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from flexnn import _core
from flexnn.graph.ir import DTYPES, Graph
from flexnn.graph.operators import OPERATORS
from flexnn.planning import MachineProfile, Plan
from flexnn.planning.explain import live_bytes
from flexnn.planning.types import F64, I64
from flexnn.quick_dataclass import quick_dataclass

from .timeline import Timeline, costs_of, timeline

KINDS = ("activations", "workspace", "streamed weights", "pinned weights")
"""Kinds of contents of the arena."""


@quick_dataclass(slots=True)
class Blocks:
    """Contents of the arena: where, when and what. Times in seconds, addresses in bytes."""

    names: list[str] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    places: list[tuple[float, float, int, int]] = field(default_factory=list)
    """Begin and end, address and bytes."""

    def add(self, name: str, kind: int, span: tuple[float, float], place: tuple[int, int]) -> None:
        """Note a block."""
        self.names.append(name)
        self.kinds.append(kind)
        self.places.append((*span, *place))


@quick_dataclass(slots=True)
class Work:
    """Steps or loads in order."""

    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)


@quick_dataclass(slots=True, frozen=True)
class Thing:
    """A tensor or a weight that takes much."""

    name: str
    nbytes: int
    about: str


@quick_dataclass(slots=True)
class Contents:
    """A run of the whole model as it is predicted."""

    seconds: float = 0.0
    arena_bytes: int = 0
    blocks: Blocks = field(default_factory=Blocks)
    steps: Work = field(default_factory=Work)
    loads: Work = field(default_factory=Work)
    moments: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of each step."""
    memory: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Bytes of each kind at each step."""
    tensors: list[Thing] = field(default_factory=list)
    weights: list[Thing] = field(default_factory=list)
    parts: list[tuple[float, str]] = field(default_factory=list)
    """Begin and name of each part."""


def contents(parts: Sequence[tuple[str, Plan]], machine: MachineProfile) -> Contents:
    """Return the contents of a run of these parts, by name, one after the other in one arena."""
    made = Contents()
    kept = [plan.arena_bytes - plan.working_bytes for _, plan in parts]
    total = sum(kept)
    made.arena_bytes = total + max((plan.working_bytes for _, plan in parts), default=0)
    below = 0
    for (name, plan), own in zip(parts, kept, strict=True):
        made.parts.append((made.seconds, name))
        _Part(made, plan, machine, (below, own, total)).add()
        below += own
    whole = (0.0, made.seconds)
    for name, address, size in made_pins(parts, kept):
        made.blocks.add(name, 3, whole, (address, size))
    made.tensors.sort(key=lambda thing: -thing.nbytes)
    made.weights.sort(key=lambda thing: -thing.nbytes)
    return made


def made_pins(parts: Sequence[tuple[str, Plan]], kept: list[int]) -> list[tuple[str, int, int]]:
    """Return name, address and bytes of what is pinned; slices of a weight that lie side by side are one."""
    found: list[tuple[str, int, int]] = []
    below = 0
    for (_, plan), own in zip(parts, kept, strict=True):
        names = _weight_names(plan.graph, plan.program.pinned)
        rows = sorted(zip(plan.program.pinned["address"].tolist(), plan.program.pinned["bytes"].tolist(), names))  # noqa: B905
        for address, size, name in rows:
            last = found[-1] if found else ("", -1, 0)
            if last[0] == name and last[1] + last[2] == below + address:
                found[-1] = name, last[1], last[2] + size
            else:
                found.append((name, below + address, size))
        below += own
    return found


class _Part:
    """One part, added to the contents of the whole run."""

    def __init__(self, made: Contents, plan: Plan, machine: MachineProfile, place: tuple[int, int, int]) -> None:
        self._made, self._plan = made, plan
        self._costs = costs_of(plan, machine)
        self._times: Timeline = timeline(plan, machine, self._costs)
        self._below, self._own, self._pinned = place
        self._start = made.seconds
        node = plan.steps["node"].astype(np.int64)
        self._begin, self._end = _by_node(node, self._times.steps, len(plan.graph.nodes))

    def add(self) -> None:
        """Add everything, and let the run's time be longer."""
        if len(self._plan.steps):
            self._add_work()
            self._add_streams()
            self._add_activations()
            self._add_memory()
        self._add_weights()
        self._made.seconds += self._times.seconds

    def _at(self, address: int) -> int:
        """Return where the address of the part lies in the shared arena."""
        if address >= self._own:
            return self._pinned + address - self._own
        return self._below + address

    def _span(self, begin: float, end: float) -> tuple[float, float]:
        return self._start + begin, self._start + end

    def _add_work(self) -> None:
        plan, graph = self._plan, self._plan.graph
        rows = plan.program.nodes
        kinds = [
            OPERATORS[_core.OPS[op]].kernel(kernel) or _core.OPS[op]
            for op, kernel in zip(rows["op"].tolist(), rows["kernel"].tolist(), strict=True)
        ]
        for node, (begin, end) in zip(plan.steps["node"].tolist(), self._times.steps.tolist(), strict=True):
            self._made.steps.names.append(graph.nodes[node].name)
            self._made.steps.kinds.append(kinds[node])
            self._made.steps.spans.append(self._span(begin, end))

    def _add_streams(self) -> None:
        plan, times = self._plan, self._times
        names = _weight_names(plan.graph, plan.loads)
        users = np.searchsorted(plan.steps["wait_loads"].astype(np.int64), np.arange(len(plan.loads)), side="right")
        rows = zip(names, times.loads.tolist(), plan.loads["address"].tolist(), plan.loads["bytes"].tolist(), users)  # noqa: B905
        for name, (begin, end), address, size, user in rows:
            last = float(times.steps[min(int(user), len(times.steps) - 1), 1])
            self._made.loads.names.append(name)
            self._made.loads.kinds.append("load")
            self._made.loads.spans.append(self._span(max(begin, 0.0), max(end, 0.0)))
            place = self._at(address), size
            self._made.blocks.add(name, 2, self._span(max(begin, 0.0), last), place)
            if begin < 0:  # it begins before the end of the run before
                earlier = self._span(times.seconds + begin, times.seconds)
                self._made.blocks.add(name, 2, earlier, place)
                self._made.loads.names.append(f"{name}, for the next run")
                self._made.loads.kinds.append("load")
                self._made.loads.spans.append((earlier[0], self._start + times.seconds + min(end, 0.0)))

    def _add_activations(self) -> None:
        plan, graph, costs = self._plan, self._plan.graph, self._costs
        rows = plan.program.nodes
        address: dict[int, int] = {}
        for index, node in enumerate(graph.nodes):
            tensor = graph.tensors[node.outputs[0]]
            root = node.outputs[0] if tensor.root < 0 else tensor.root
            where = rows["out"][index]
            if int(where["base"]) == 0 and root not in address:
                address[root] = int(where["offset"]) - tensor.offset * DTYPES[tensor.dtype].itemsize
        for root, size, first, last in zip(
            costs.roots, costs.root_bytes, costs.first_node, costs.last_node, strict=True
        ):
            tensor = graph.tensors[root]
            self._made.tensors.append(
                Thing(
                    tensor.name,
                    size,
                    f"{_dims(tensor.shape)}, from {graph.nodes[first].name} to {graph.nodes[last].name}",
                )
            )
            if root in address:
                span = self._span(float(self._begin[first]), float(self._end[last]))
                self._made.blocks.add(tensor.name, 0, span, (self._at(address[root]), size))
        for index, node in enumerate(graph.nodes):
            size = int(rows["workspace_bytes"][index]) * costs.threads
            if size:
                span = self._span(float(self._begin[index]), float(self._end[index]))
                self._made.blocks.add(
                    f"workspace of {node.name}", 1, span, (self._at(int(rows["workspace_offset"][index])), size)
                )

    def _add_memory(self) -> None:
        plan = self._plan
        node = plan.steps["node"].astype(np.int64)
        live = live_bytes(self._costs)[node]
        workspace = plan.program.nodes["workspace_bytes"].astype(np.int64)[node] * self._costs.threads
        streamed = _streamed(plan, self._times)
        for j, (begin, end) in enumerate(self._times.steps.tolist()):
            self._made.moments.append(self._span(begin, end))
            self._made.memory.append((int(live[j]), int(workspace[j]), int(streamed[j]), self._pinned))

    def _add_weights(self) -> None:
        """Add each weight once: parts may share some."""
        plan = self._plan
        pinned: dict[str, int] = {}
        for name, size in zip(
            _weight_names(plan.graph, plan.program.pinned), plan.program.pinned["check_bytes"].tolist(), strict=True
        ):
            pinned[name] = pinned.get(name, 0) + size
        known = {thing.name for thing in self._made.weights}
        for weight in plan.graph.weights:
            if weight.name in known:
                continue
            known.add(weight.name)
            part = min(pinned.get(weight.name, 0) / max(weight.nbytes, 1), 1.0)
            how = "stays in memory" if part == 1 else "read in each run" if part == 0 else f"{part:.0%} stays in memory"
            self._made.weights.append(Thing(weight.name, weight.nbytes, how))


def _by_node(node: I64, steps: F64, count: int) -> tuple[F64, F64]:
    """Return begin and end of each node. A node without steps has those of the one before."""
    begin, end = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(begin, node, steps[:, 0])
    np.maximum.at(end, node, steps[:, 1])
    for index in np.flatnonzero(~np.isfinite(begin)).tolist():
        begin[index] = end[index] = end[index - 1] if index else 0.0
    return begin, end


def _streamed(plan: Plan, times: Timeline) -> I64:
    """Return the bytes of streamed weights in memory at each step: from the begin of their load to the end of the last
    step that uses them; those of the next run, too.
    """
    steps = len(plan.steps)
    change = np.zeros(steps + 1, np.int64)
    use = np.searchsorted(plan.steps["wait_loads"].astype(np.int64), np.arange(len(plan.loads)), side="right")
    begin, sizes = times.loads[:, 0], plan.loads["bytes"].astype(np.int64)
    first = np.minimum(np.searchsorted(times.steps[:, 1], np.maximum(begin, 0.0), side="right"), use)
    np.add.at(change, np.minimum(first, steps), sizes)
    np.subtract.at(change, np.minimum(use + 1, steps), sizes)
    early = begin < 0
    tail = np.searchsorted(times.steps[:, 1], begin[early] + times.seconds, side="right")
    np.add.at(change, np.minimum(tail, steps), sizes[early])
    change[steps] = 0
    return np.cumsum(change)[:steps]


def _weight_names(graph: Graph, loads: np.ndarray[Any, Any]) -> list[str]:
    """Return the name of the weight that each load reads."""
    if not graph.weights:
        return ["?"] * len(loads)
    order = sorted(graph.weights, key=lambda weight: weight.offset)
    offsets = np.array([weight.offset for weight in order], np.int64)
    first = loads["file_offset"].astype(np.int64) + loads["check_lead"].astype(np.int64)
    at = np.maximum(np.searchsorted(offsets, first, side="right") - 1, 0)
    return [order[i].name for i in at.tolist()]


def _dims(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "a number"
