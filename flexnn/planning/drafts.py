"""Drafts: what kernels, slices and pins make of a graph (FlexNN §3.2, §3.3). The work is in C (planner/); here are its
records, and a draft as the other stages see it.

Each node's panels are pinned from the first to some panel and streamed in even slices after it. A slice is whole
panels, contiguous in the file, and read by one step; a load is a streamed slice. Input slicing (the paper's bounded
im2col workspace) happens inside the kernels, which gather tile by tile and need a variant's ``workspace_bytes``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.quick_dataclass import quick_dataclass

from .machine import MachineProfile
from .types import I64, Costs, Placement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .pins import Pins

Records: TypeAlias = "NDArray[Any]"


SLICES_IN_ROOM = (2, 4, 8)
"""Numbers of slices that are tried to fit the room of a node at once."""


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

    def homes(self) -> I64:
        """Return for each slice the index of the slice in whose place it lies: where nodes share weights, the first
        pinned one with the same bytes of the file; else its own.
        """
        homes = np.arange(len(self.slices))
        pinned = np.flatnonzero(self.slices["is_pinned"])
        offsets, sizes = self.slices["file_offset"][pinned].tolist(), self.slices["bytes"][pinned].tolist()
        first: dict[tuple[int, int], int] = {}
        homes[pinned] = [first.setdefault(key, i) for key, i in zip(zip(offsets, sizes), pinned.tolist())]  # noqa: B905
        return homes

    @property
    def pinned_bytes(self) -> int:
        """Arena bytes of pinned slices, shared ones counted once."""
        owners = (self.slices["is_pinned"] != 0) & (self.homes() == np.arange(len(self.slices)))
        return int(self.slices["arena_bytes"][owners].sum())

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
        nodes, variants, constants = _node_records(graph, costs, placement)
        self._nodes, self._constant_rows = nodes, constants
        self._panels, self._constants = nodes["panel_count"].astype(np.int32), nodes["constant_first"]
        lifetimes = np.zeros(len(costs.roots), _core.LIFETIME_DTYPE)
        lifetimes["start"] = placement.address
        lifetimes["end"] = lifetimes["start"] + np.asarray(costs.root_bytes, np.int64)
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
            compute_speed=machine.compute_speed,
            load_speed=machine.load_speed,
        )

    def release(self) -> None:
        """Free the memory that drafts are made in (megabytes for graphs of many panels) until the next one is made."""
        self._core.release()

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

    def tightest(self) -> tuple[int, Records]:
        """Return the working part's bytes and the choices of the smallest arena: nothing pinned, each node with its
        smallest workspace, slices as its room allows. So the smallest budget does not depend on the machine's rates,
        which differ from one measurement to the next.
        """
        working_bytes = self.placement.working_bytes_min
        any_order = np.arange(len(self.items), dtype=np.int32)
        return working_bytes, self.choose(any_order, working_bytes, working_bytes, 2, smallest=True)[0]

    def improve(self, choices: Records, working_bytes: int, bytes_max: int, tries: int) -> float:
        """Change single nodes of ``choices`` while that shortens the run (fx_improve); return seconds as ``choose``."""
        return self._core.improve(choices, working_bytes, bytes_max, tries)[0]

    def anneal(self, draft: Draft, bytes_max: int, tries: int) -> Draft:
        """Return ``draft`` after ``tries`` random changes, of which those stay that keep its run short (fx_anneal)."""
        for choices in (self._as_pinned(draft), draft.choices.copy()):
            found = self._core.anneal(choices, draft.working_bytes, bytes_max, tries)
            if found:
                return self.place_faster(choices, found[0], draft.seconds, from_top=found[1]) or draft
        return draft

    def _as_pinned(self, draft: Draft) -> Records:
        """Return choices that pin as much of each node as ``draft`` does: after filling, more than its choices say."""
        choices = draft.choices.copy()
        steps, slices = draft.steps, draft.slices[draft.slices["is_pinned"] != 0]
        node = steps["node"][slices["step"]]
        panels = slices["constant"] < 0
        own = slices["step"][panels]
        choices["pinned_panels"] = 0
        np.add.at(choices["pinned_panels"], node[panels], steps["p1"][own] - steps["p0"][own])
        np.minimum(choices["slice_panels"], self._panels - choices["pinned_panels"], out=choices["slice_panels"])
        bits = np.left_shift(1, slices["constant"][~panels] - self._constants[node[~panels]]).astype(np.uint32)
        np.bitwise_or.at(choices["pinned_constants"], node[~panels], bits)
        return choices

    def pinning(self, choices: Records, pins: Pins) -> Records:
        """Return ``choices`` with these bytes of the file pinned, each node's from its first panel on."""
        made, nodes, rows = choices.copy(), self._nodes, self._constant_rows
        size = nodes["panel_bytes"]
        held = pins.bytes_within(nodes["weight_offset"], nodes["panel_count"] * size)
        made["pinned_panels"] = held // np.maximum(size, 1)
        np.minimum(made["slice_panels"], self._panels - made["pinned_panels"], out=made["slice_panels"])
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
        """Return what ``place`` does if its run takes less than ``below`` seconds, else None."""
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
        )

    def fill(self, draft: Draft, rank: NDArray[Any], bytes_max: int, next_bytes_max: int, looks: int) -> Draft:
        """Return the draft with more slices pinned in ``bytes_max``, those that save the most time first, or those of
        nodes with the lowest ``rank`` (fx_fill). Nothing else moves, and more bytes up to ``next_bytes_max`` are never
        slower.
        """
        streamed = np.flatnonzero((draft.slices["is_pinned"] == 0) & (draft.slices["file_offset"] < _core.SPILL_FROM))
        node = draft.steps["node"][draft.slices["step"][streamed]]
        order = streamed[np.argsort(rank[node], kind="stable")].astype(np.int32)
        outcome, steps, slices = self._core.fill(
            draft.steps, draft.slices, order, draft.working_bytes, bytes_max, next_bytes_max, looks
        )
        return replace(
            draft,
            steps=np.frombuffer(steps, _core.DRAFT_STEP_DTYPE),
            slices=np.frombuffer(slices, _core.DRAFT_SLICE_DTYPE),
            nbytes=outcome[2],
            seconds=outcome[0],
            stall_s=outcome[1],
        )


def _items(graph: Graph, costs: Costs) -> tuple[Records, I64]:
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
    items = np.zeros(len(nodes), _core.ITEM_DTYPE)
    items["node"], items["constant"] = nodes, constants
    offset, nbytes = np.array(offsets, np.int64), np.array(sizes, np.int64)
    items["twin"] = _twins(items["constant"] < 0, offset, nbytes)
    align = costs.io_align
    return items, np.asarray(-(-(offset + nbytes) // align) * align - offset // align * align, np.int64)


def _twins(panels: NDArray[np.bool_], offset: I64, nbytes: I64) -> NDArray[np.int64]:
    """Return the next of each item in the ring of those that have the same bytes of the file."""
    alone = np.arange(len(offset))
    order = np.lexsort((nbytes, offset, panels))
    keys = np.stack((panels[order], offset[order], nbytes[order]))
    same = (keys[:, 1:] == keys[:, :-1]).all(axis=0) & (offset[order[1:]] >= 0)
    if not same.any():
        return alone
    starts = np.concatenate(([True], ~same))
    twin = np.empty_like(alone)
    twin[order[:-1]] = order[1:]
    twin[order[np.concatenate((~same, [True]))]] = order[starts]
    return twin


def _node_records(graph: Graph, costs: Costs, placement: Placement) -> tuple[Records, Records, Records]:
    """Return records of nodes, of their variants and of their constants. Equal nodes share their variants' records."""
    nodes = np.zeros(len(costs.nodes), _core.DRAFT_NODE_DTYPE)
    variants: list[tuple[float, ...]] = []
    constants: list[tuple[int, ...]] = []
    after: dict[int, int] = {}
    if graph.spills:
        from .spilling import stored_after  # few graphs have spills

        after = stored_after(graph)
    known: dict[int, int] = {}
    rows: list[tuple[int, ...]] = []
    for node in costs.nodes:
        first = known.setdefault(id(node.variants), len(variants))
        if first == len(variants):
            variants += [(v.workspace_bytes * costs.threads, v.fixed_s, v.channels_s) for v in node.variants]
        panels_at = graph.weights[node.weight].offset if node.panels else 0
        rows.append(
            (
                *(node.panels, node.panel_bytes if node.panels else 0, panels_at),
                *(first, len(node.variants), len(constants), len(node.constants)),
            )
        )
        for operand, w, room in node.constants:
            weight = graph.weights[w]
            constants.append((weight.offset, weight.nbytes, room, operand, after.get(w, -1)))
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    for name, column in zip(_core.DRAFT_NODE_DTYPE.names or (), columns, strict=False):
        nodes[name] = column
    nodes["gap_first"], nodes["gap_count"] = placement.gap_first[:-1], np.diff(placement.gap_first)
    nodes["top_offset"], nodes["live_bytes"] = placement.top, placement.live
    nodes["tight_bytes"] = placement.tight_bytes
    return nodes, np.array(variants, _core.VARIANT_DTYPE), np.array(constants, _core.CONSTANT_DTYPE)
