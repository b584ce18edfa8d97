"""Drafts: what kernels, slices and pins make of a graph (FlexNN §3.2, §3.3). The work is in C (planner/); here are its
records, and a draft as the other stages see it.

Each node's panels are pinned from the first to some panel and streamed in even slices after it. A slice is whole
panels, contiguous in the file, and read by one step; a load is a streamed slice. Input slicing (the paper's bounded
im2col workspace) happens inside the kernels, which gather tile by tile and need a variant's ``workspace_bytes``.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.quick_dataclass import quick_dataclass

from .machine import MachineProfile
from .types import I64, Costs, Placement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .phases import Kept
    from .pins import Pins

Records: TypeAlias = "NDArray[Any]"


SLICES_IN_ROOM = (2, 4, 8)
"""Numbers of slices that are tried to fit the room of a node at once."""


class Filled(NamedTuple):
    """Limits and order of ``Drafting.fill``."""

    rank: tuple[float, ...]
    """Rank of each node: the lowest are pinned first."""
    bytes_max: int
    """Most bytes of the draft."""
    next_bytes_max: int
    """Most bytes of the rung above."""
    looks: int
    """Slices that are tried."""


@quick_dataclass(slots=True, eq=False)
class Draft:
    """Steps and slices with addresses: all of a plan but its encoding. Times in seconds, sizes in bytes."""

    placement: Placement
    """Addresses of the activations."""
    working_bytes: int
    """Bytes of the arena's working part, where activations, workspaces and loads lie."""
    choices: Records
    """Choice for each node (CHOICE_DTYPE)."""
    steps: Records
    """Steps (DRAFT_STEP_DTYPE)."""
    slices: Records
    """Slices, pinned and streamed (DRAFT_SLICE_DTYPE)."""
    address: I64
    """Address of each slice from the start of the working part; -1: pinned."""
    node_address: I64
    """Addresses of each node's workspace and streamed constants, -1: none. [nodes, 1 + CONSTANTS_MAX]."""
    nbytes: int
    """Bytes of the working part, of pinned slices, and of the records of steps."""
    seconds: float
    """Predicted time of a run."""
    stall_s: float
    """Part of ``seconds`` in which computing waits for loads."""
    from_top: bool = False
    """Whether loads lie at the highest addresses that are free."""
    filled: Filled | None = None
    """Way in which more slices were pinned after that; None: none were."""
    kept: Mapping[int, Kept] = field(default_factory=dict)
    """Steps whose panels an earlier load has left in memory (planning/phases.py)."""
    kept_bytes: int = 0
    """Bytes before the working part, in which they lie, and loads at negative addresses."""

    def homes(self) -> array[int]:
        """Return for each slice the index of the slice in whose place it lies: where nodes share weights, the first
        pinned one with the same bytes of the file; else its own.
        """
        first: dict[tuple[int, int], int] = {}
        rows = zip(*(self.slices[name].data for name in ("is_pinned", "file_offset", "bytes")), strict=True)
        return array("q", (first.setdefault(row[1:], i) if row[0] else i for i, row in enumerate(rows)))

    @property
    def pinned_bytes(self) -> int:
        """Arena bytes of pinned slices, shared ones counted once."""
        rows = zip(self.homes(), self.slices["is_pinned"].data, self.slices["arena_bytes"].data, strict=True)
        return sum(size for i, (home, is_pinned, size) in enumerate(rows) if is_pinned and home == i)

    @property
    def rows(self) -> int:
        """Number of steps or of slices, whichever is larger: what the overhead counts."""
        return max(len(self.steps), len(self.slices))


class Drafting:
    """Drafts of one graph on one machine."""

    def __init__(
        self, graph: Graph, costs: Costs, placement: Placement, machine: MachineProfile, step_bytes: int
    ) -> None:
        self.node_count = len(costs.nodes)
        self.placement = placement
        self.items, self.item_bytes = _items(graph, costs)
        self.shares = self.items["twin"].tolist() != [*range(len(self.items))]
        """Whether nodes share weights."""
        nodes, variants, constants = _node_records(graph, costs, placement)
        self._nodes, self._constant_rows = nodes, constants
        lifetimes = np.zeros(len(placement.address), _core.LIFETIME_DTYPE)
        lifetimes["start"] = placement.address
        lifetimes["end"] = [*map(add, placement.address, costs.root_bytes)]
        lifetimes["first_node"], lifetimes["last_node"] = costs.first_node, costs.last_node
        self._core = _core.Drafts(
            nodes=nodes,
            variants=variants,
            constants=constants,
            gaps=placement.gaps,
            items=self.items,
            lifetimes=lifetimes,
            io_align=costs.io_align,
            step_bytes=step_bytes,
            storage_bytes_per_second=machine.storage_bytes_per_second,
            request_s=machine.request_s,
            latency_s=machine.latency_s,
            compute_speed=machine.compute_speed,
            load_speed=machine.load_speed,
        )

    def release(self) -> None:
        """Free the memory that drafts are made in (megabytes for graphs of many panels) until the next one is made."""
        self._core.release()

    def bound_terms(self, arena_bytes: int | None) -> list[memoryview]:
        """Return what the bound takes of each node in an arena (None: no limit): seconds, bytes, seconds of reading,
        seconds of a byte, and free bytes (fx_bound_terms_of).
        """
        return self._core.bound_terms(-1 if arena_bytes is None else max(arena_bytes, 0))

    def choose(
        self,
        order: NDArray[np.int32],
        working_bytes: int,
        bytes_max: int,
        slices_in_room: int,
        *,
        smallest: bool = False,
    ) -> tuple[Records, float, int]:
        """Return choices with items pinned in ``order`` while ``bytes_max`` lasts (fx_choose), their predicted seconds
        if memory were never fragmented, and their bytes: more than ``bytes_max`` where no choice has fewer.
        """
        choices = np.empty(self.node_count, _core.CHOICE_DTYPE)
        seconds, _, nbytes = self._core.choose(choices, order, working_bytes, bytes_max, slices_in_room, smallest)
        return choices, seconds, nbytes

    def are_pinned(self, choices: Records, items: Sequence[int]) -> bool:
        """Return whether choices pin these items, all of which are constants."""
        node, constant = (self.items[name][list(items)] for name in ("node", "constant"))
        return bool((choices["pinned_constants"][node] >> constant.astype(np.uint32) & 1).all())

    def tightest(self, slices_in_room: int = SLICES_IN_ROOM[0]) -> tuple[int, Records]:
        """Return the working part's bytes and the choices of the smallest arena: nothing pinned, each node with its
        smallest workspace, slices as its room allows, of which so many fit at once. So the smallest budget does not
        depend on the machine's rates, which differ from one measurement to the next.
        """
        working_bytes = self.placement.working_bytes_min
        any_order = np.arange(len(self.items), dtype=np.int32)
        return working_bytes, self.choose(any_order, working_bytes, working_bytes, slices_in_room, smallest=True)[0]

    def improve(self, choices: Records, working_bytes: int, bytes_max: int, tries: int) -> float:
        """Change single nodes of ``choices`` while that shortens the run (fx_improve); return seconds as ``choose``."""
        return self._core.improve(choices, working_bytes, bytes_max, tries)[0]

    def anneal(self, draft: Draft, bytes_max: int, tries: int) -> Draft:
        """Return ``draft`` after ``tries`` random changes, of which those stay that keep its run short (fx_anneal)."""
        for choices in (self.as_pinned(draft), draft.choices.copy()):
            found = self._core.anneal(choices, draft.working_bytes, bytes_max, tries)
            if found:
                return self.place_faster(choices, found[0], draft.seconds, from_top=found[1]) or draft
        return draft

    def as_pinned(self, draft: Draft) -> Records:
        """Return choices that pin as much of each node as ``draft`` does: after filling, more than its choices say."""
        first: list[int] = self._nodes["constant_first"].tolist()
        panels: list[int] = self._nodes["panel_count"].tolist()
        node, p0, p1 = (draft.steps[name].data for name in ("node", "p0", "p1"))
        pinned, constants = [0] * len(panels), [0] * len(panels)
        rows = zip(*(draft.slices[name].data for name in ("step", "constant", "is_pinned")), strict=True)
        for step, constant, is_pinned in rows:
            if is_pinned and constant < 0:
                pinned[node[step]] += p1[step] - p0[step]
            elif is_pinned:
                constants[node[step]] |= 1 << constant - first[node[step]]
        made = [
            (variant, min(in_slice, count - pins), pins, bits)
            for (variant, in_slice, _, _), count, pins, bits in zip(
                draft.choices.tolist(), panels, pinned, constants, strict=True
            )
        ]
        return np.array(made, _core.CHOICE_DTYPE)

    def _panels(self) -> NDArray[np.int32]:
        return self._nodes["panel_count"].astype(np.int32)

    def pinning(self, choices: Records, pins: Pins) -> Records:
        """Return ``choices`` with these bytes of the file pinned, each node's from its first panel on."""
        made, nodes, rows = choices.copy(), self._nodes, self._constant_rows
        size = nodes["panel_bytes"]
        held = pins.bytes_within(nodes["weight_offset"], nodes["panel_count"] * size)
        made["pinned_panels"] = held // np.maximum(size, 1)
        np.minimum(made["slice_panels"], self._panels() - made["pinned_panels"], out=made["slice_panels"])
        whole = pins.bytes_within(rows["file_offset"], rows["bytes"]) == rows["bytes"]
        bits = np.left_shift(1, np.arange(len(rows)) - np.repeat(nodes["constant_first"], nodes["constant_count"]))
        made["pinned_constants"] = 0
        owner = np.repeat(np.arange(len(nodes)), nodes["constant_count"])
        np.bitwise_or.at(made["pinned_constants"], owner[whole], bits[whole].astype(np.uint32))
        return made

    def place(self, choices: Records, working_bytes: int, *, from_top: bool = False) -> Draft:
        """Return the draft of ``choices`` with addresses (fx_draft_place), the highest ones if ``from_top``."""
        draft = self.place_faster(choices, working_bytes, math.inf, from_top=from_top)
        assert draft is not None
        return draft

    def place_faster(
        self, choices: Records, working_bytes: int, below: float, *, from_top: bool = False
    ) -> Draft | None:
        """Return what ``place`` does if its run takes less than ``below`` seconds and all has a place, else None."""
        placed = self._core.place(choices, working_bytes, from_top, below)
        if placed is None:
            return None
        outcome, steps, slices, address, node_address = placed
        return Draft(
            placement=self.placement,
            working_bytes=working_bytes,
            choices=choices,
            steps=np.frombuffer(steps, _core.DRAFT_STEP_DTYPE),
            slices=np.frombuffer(slices, _core.DRAFT_SLICE_DTYPE),
            address=np.frombuffer(address, np.int64),
            node_address=np.frombuffer(node_address, np.int64).reshape(self.node_count, 1 + _core.CONSTANTS_MAX),
            nbytes=outcome[2],
            seconds=outcome[0],
            stall_s=outcome[1],
            from_top=from_top,
        )

    def fill(self, draft: Draft, filled: Filled) -> Draft:
        """Return the draft with more slices pinned in ``bytes_max``, those that save the most time first, or those of
        nodes with the lowest ``rank`` (fx_fill). Nothing else moves, and more bytes up to ``next_bytes_max`` are never
        slower.
        """
        node, price = draft.steps["node"].data, filled.rank
        step, is_pinned, offset = (draft.slices[name].data for name in ("step", "is_pinned", "file_offset"))
        rows = enumerate(zip(is_pinned, offset, strict=True))
        loads = array("i", (i for i, (pinned, at) in rows if not pinned and at < _core.SPILL_FROM))
        order = np.array(sorted(loads, key=lambda i: price[node[step[i]]]), np.int32)
        outcome, steps, slices = self._core.fill(draft.steps, draft.slices, order, draft.working_bytes, *filled[1:])
        return replace(_filled(draft, outcome, steps, slices), nbytes=outcome[2], filled=filled)

    def timed(self, draft: Draft) -> Draft:
        """Return a draft whose slices were changed with its time; its bytes stay."""
        nothing = np.zeros(0, np.int32)
        outcome, steps, slices = self._core.fill(draft.steps, draft.slices, nothing, draft.working_bytes, 0, 0, 0)
        return _filled(draft, outcome, steps, slices)


def _filled(draft: Draft, outcome: Sequence[Any], steps: bytes, slices: bytes) -> Draft:
    """Return a draft with the records and the times that the core found."""
    return replace(
        draft,
        steps=np.frombuffer(steps, _core.DRAFT_STEP_DTYPE),
        slices=np.frombuffer(slices, _core.DRAFT_SLICE_DTYPE),
        seconds=outcome[0],
        stall_s=outcome[1],
    )


def _items(graph: Graph, costs: Costs) -> tuple[Records, list[int]]:
    """Return what may be pinned or streamed by itself, node by node: its panels, then its constants. And the arena
    bytes that each takes where it is pinned.
    """
    weights = graph.weights
    nodes: list[int] = []
    constants: list[int] = []
    offsets: list[int] = []
    sizes: list[int] = []
    for index, node in enumerate(costs.nodes):
        if node.panels:
            nodes.append(index)
            constants.append(-1)
            offsets.append(weights[node.weight].offset)
            sizes.append(node.weight_bytes)
        for i, (_, weight, _) in enumerate(node.constants):
            nodes.append(index)
            constants.append(i)
            offsets.append(weights[weight].offset)
            sizes.append(weights[weight].nbytes)
    twins = _twins([*zip((constant < 0 for constant in constants), offsets, sizes, strict=True)])
    items = np.zeros(len(nodes), _core.ITEM_DTYPE)
    items["node"], items["constant"], items["twin"] = nodes, constants, twins
    return items, [costs.occupied_bytes(offset, size) for offset, size in zip(offsets, sizes, strict=True)]


def _twins(contents: Sequence[tuple[bool, int, int]]) -> list[int]:
    """Return the next of each item in the ring of those that have the same bytes of the file: ``contents`` says whether
    an item is panels, and its offset (negative: it is alone) and bytes.
    """
    twins = list(range(len(contents)))
    ends: dict[tuple[bool, int, int], tuple[int, int]] = {}
    for item, content in enumerate(contents):
        if content[1] >= 0:
            first, last = ends.get(content, (item, item))
            twins[last], twins[item] = item, first
            ends[content] = first, item
    return twins


def _node_records(graph: Graph, costs: Costs, placement: Placement) -> tuple[Records, Records, Records]:
    """Return records of nodes, of their variants and of their constants. Equal nodes share their variants' records.
    They are filled a field at a time: Ctrl-C would wait for an array of all rows.
    """
    variants: list[tuple[float, ...]] = []
    constants: list[tuple[int, ...]] = []
    after: dict[int, int] = {}
    if graph.spills:
        from .spilling import stored_after  # few graphs have spills

        after = stored_after(graph)
    known: dict[int, int] = {}
    variant_first: list[int] = []
    constant_first: list[int] = []
    for node in costs.nodes:
        first = known.setdefault(id(node.variants), len(variants))
        if first == len(variants):
            variants += [(v.workspace_bytes * costs.threads, v.fixed_s, v.channels_s) for v in node.variants]
        variant_first.append(first)
        constant_first.append(len(constants))
        for operand, w, room in node.constants:
            weight = graph.weights[w]
            constants.append((weight.offset, weight.nbytes, room, operand, after.get(w, -1)))
    nodes = np.zeros(len(costs.nodes), _core.DRAFT_NODE_DTYPE)
    nodes["panel_count"] = [node.panels for node in costs.nodes]
    nodes["panel_bytes"] = [node.panel_bytes if node.panels else 0 for node in costs.nodes]
    nodes["weight_offset"] = [graph.weights[node.weight].offset if node.panels else 0 for node in costs.nodes]
    nodes["variant_first"], nodes["variant_count"] = variant_first, [len(node.variants) for node in costs.nodes]
    nodes["constant_first"], nodes["constant_count"] = constant_first, [len(node.constants) for node in costs.nodes]
    gap_first = placement.gap_first.tolist()
    nodes["gap_first"] = gap_first[:-1]
    nodes["gap_count"] = [behind - first for first, behind in pairwise(gap_first)]
    nodes["top_offset"], nodes["live_bytes"] = placement.top, placement.live
    nodes["tight_bytes"] = placement.tight_bytes
    return nodes, np.array(variants, _core.VARIANT_DTYPE), np.array(constants, _core.CONSTANT_DTYPE)
