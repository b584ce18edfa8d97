"""Drafts: what kernels, slices and pins make of a graph (FlexNN §3.2, §3.3). The work is in C (flexnn/_core/draft.h);
here are its tables, and a draft as the other stages see it.

Each layer's panels are pinned from the first to some panel and streamed in even slices after it; a slice is whole
panels, one piece of the file, read by one step. Input slicing (the paper's bounded im2col workspace) happens inside
the kernels, which gather tile by tile: what it leaves is each variant's ``workspace_bytes``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexnn import _core
from flexnn.graph.ir import Graph

from .layout import Blocks
from .machine import MachineProfile
from .types import I64, Costs, Placement

Records = NDArray[Any]


@dataclass(slots=True)
class Draft:
    """Steps and pieces with addresses: all of a plan but its encoding. Times in seconds, sizes in bytes."""

    placement: Placement
    """Of the activations."""
    region: int
    """Bytes of the streaming region, where activations, workspaces and streamed pieces live."""
    choices: Records
    """Of each layer (CHOICE_DTYPE)."""
    steps: Records
    """DRAFT_STEP_DTYPE."""
    pieces: Records
    """DRAFT_PIECE_DTYPE."""
    address: I64
    """Of each piece, from the region's start; -1: pinned."""
    layer_address: I64
    """[layers, 1 + CONSTANTS_MAX]: of the workspace and the streamed constants of each layer, -1: none."""
    nbytes: int
    """Region, pinned pieces, and what steps take."""
    seconds: float
    stall_s: float
    """Computing that waits for loads, in ``seconds``."""

    def homes(self) -> I64:
        """Of each piece the one in whose place it lies: where layers share weights, the first piece that stays with the
        same bytes of the file; else itself.
        """
        homes = np.arange(len(self.pieces))
        stays = np.flatnonzero(self.pieces["stays"])
        ranges = np.stack((self.pieces["file_offset"][stays], self.pieces["bytes"][stays]), axis=1)
        _, first, alike = np.unique(ranges, axis=0, return_index=True, return_inverse=True)
        homes[stays] = stays[first[alike.reshape(-1)]]
        return homes

    @property
    def pinned_bytes(self) -> int:
        """Of the arena."""
        kept = (self.pieces["stays"] != 0) & (self.homes() == np.arange(len(self.pieces)))
        return int(self.pieces["arena_bytes"][kept].sum())

    @property
    def rows(self) -> int:
        """Steps or pieces, whichever are more: what the overhead counts."""
        return max(len(self.steps), len(self.pieces))


class Drafting:
    """Drafts of one graph on one machine."""

    def __init__(
        self, graph: Graph, profile: Costs, placement: Placement, machine: MachineProfile, step_bytes: int
    ) -> None:
        self.layers = len(profile.nodes)
        self.placement = placement
        self.items = _items(profile)
        self.item_room = _item_room(graph, profile, self.items)
        layers, variants, constants, gaps = _tables(graph, profile, placement)
        self._panels, self._constants = layers["panels"].astype(np.int32), layers["constant"]
        held = np.zeros(len(profile.roots), _core.HELD_DTYPE)
        held["low"] = placement.address
        held["high"] = held["low"] + np.asarray(profile.root_bytes, np.int64)
        held["first"], held["last"] = profile.first, profile.last
        self._core = _core.Drafts(
            layers=layers,
            variants=variants,
            constants=constants,
            gaps=gaps,
            items=self.items,
            held=held,
            io_align=profile.io_align,
            step_bytes=step_bytes,
            storage_bytes_per_second=machine.storage_bytes_per_second,
            request_s=machine.request_s,
            compute_share=machine.compute_share,
            load_share=machine.load_share,
        )

    def release(self) -> None:
        """Gives back what drafts are made in, megabytes for graphs of many panels, until the next one is made."""
        self._core.release()

    def choose(
        self, order: NDArray[np.int32], region: int, memory: int, share: int, *, smallest: bool = False
    ) -> tuple[Records, float, int]:
        """Choices with items pinned in ``order`` while ``memory`` lasts, ``share`` slices in a room (fx_choose);
        predicted seconds were memory never fragmented; bytes, more than ``memory`` where nothing could be done.
        """
        choices = np.empty(self.layers, _core.CHOICE_DTYPE)
        seconds, _, nbytes = self._core.choose(choices, order, region, memory, share, smallest)
        return choices, seconds, nbytes

    def improve(self, choices: Records, region: int, memory: int, tries: int) -> float:
        """Changes single layers of ``choices`` while that makes the run shorter (fx_improve); seconds as ``choose``."""
        return self._core.improve(choices, region, memory, tries)[0]

    def anneal(self, draft: Draft, memory: int, tries: int) -> Draft:
        """``draft`` after ``tries`` random changes, those kept that let its run be short (fx_anneal)."""
        for choices in (self._as_pinned(draft), draft.choices.copy()):
            found = self._core.anneal(choices, draft.region, memory, tries)
            if found:
                return self.place_faster(choices, found[0], draft.seconds, from_top=found[1]) or draft
        return draft

    def _as_pinned(self, draft: Draft) -> Records:
        """Choices with as much of each layer pinned as ``draft`` has: after filling, more than its choices say."""
        choices = draft.choices.copy()
        steps, pieces = draft.steps, draft.pieces[draft.pieces["stays"] != 0]
        layer = steps["node"][pieces["step"]]
        panels = pieces["constant"] < 0
        own = pieces["step"][panels]
        choices["pinned_panels"] = 0
        np.add.at(choices["pinned_panels"], layer[panels], steps["p1"][own] - steps["p0"][own])
        np.minimum(choices["slice_panels"], self._panels - choices["pinned_panels"], out=choices["slice_panels"])
        bits = np.left_shift(1, pieces["constant"][~panels] - self._constants[layer[~panels]]).astype(np.uint32)
        np.bitwise_or.at(choices["pinned_constants"], layer[~panels], bits)
        return choices

    def place(self, choices: Records, region: int, *, from_top: bool = False) -> Draft:
        """The draft of ``choices`` with addresses (fx_draft_place); ``from_top``: among equals the highest."""
        draft = self.place_faster(choices, region, math.inf, from_top=from_top)
        assert draft is not None
        return draft

    def place_faster(self, choices: Records, region: int, below: float, *, from_top: bool = False) -> Draft | None:
        """As ``place``, if its run takes less than ``below`` seconds."""
        placed = self._core.place(choices, region, from_top, below)
        if placed is None:
            return None
        outcome, steps, pieces, address, layer_address = placed
        return Draft(
            placement=self.placement,
            region=region,
            choices=choices,
            steps=np.frombuffer(steps, _core.DRAFT_STEP_DTYPE),
            pieces=np.frombuffer(pieces, _core.DRAFT_PIECE_DTYPE),
            address=np.frombuffer(address, np.int64),
            layer_address=np.frombuffer(layer_address, np.int64).reshape(self.layers, 1 + _core.CONSTANTS_MAX),
            nbytes=outcome[2],
            seconds=outcome[0],
            stall_s=outcome[1],
        )

    def fill(self, draft: Draft, rank: NDArray[Any], memory: int, most: int, looks: int) -> Draft:
        """The draft with more pieces pinned in what ``memory`` leaves, those that save the most time first, or those of
        layers with the lowest ``rank`` (fx_fill). Nothing else moves, and more memory up to ``most`` is never slower.
        """
        streamed = np.flatnonzero(draft.pieces["stays"] == 0)
        layer = draft.steps["node"][draft.pieces["step"][streamed]]
        order = streamed[np.argsort(rank[layer], kind="stable")].astype(np.int32)
        left = memory - draft.nbytes
        outcome, steps, pieces = self._core.fill(
            draft.steps, draft.pieces, order, draft.region, left, most - draft.nbytes, looks
        )
        return replace(
            draft,
            steps=np.frombuffer(steps, _core.DRAFT_STEP_DTYPE),
            pieces=np.frombuffer(pieces, _core.DRAFT_PIECE_DTYPE),
            nbytes=outcome[2],
            seconds=outcome[0],
            stall_s=outcome[1],
        )


def _items(profile: Costs) -> Records:
    rows = []
    for index, node in enumerate(profile.nodes):
        if node.panels:
            rows.append((index, -1))
        rows += [(index, i) for i in range(len(node.constants))]
    return np.array(rows, _core.ITEM_DTYPE)


def _item_room(graph: Graph, profile: Costs, items: Records) -> I64:
    """Arena bytes that each item takes where it is pinned."""
    sizes = []
    for layer, constant in items.tolist():
        node = profile.nodes[layer]
        weight = graph.weights[node.weight if constant < 0 else node.constants[constant][1]]
        sizes.append(profile.occupied(weight.offset, node.weight_bytes if constant < 0 else weight.nbytes))
    return np.array(sizes, np.int64)


def _tables(graph: Graph, profile: Costs, placement: Placement) -> tuple[Records, Records, Records, Records]:
    layers: list[tuple[int, ...]] = []
    variants: list[tuple[float, ...]] = []
    constants: list[tuple[int, ...]] = []
    gaps: list[tuple[int, int]] = []
    live = Blocks.of(profile.root_bytes, profile.first, profile.last).live(len(profile.nodes)).tolist()
    for index, node in enumerate(profile.nodes):
        around = placement.gaps[index]
        weight = graph.weights[node.weight].offset if node.panels else 0
        layers.append(
            (
                *(node.panels, node.panel_bytes if node.panels else 0, weight),
                *(len(variants), len(node.variants), len(constants), len(node.constants)),
                *(len(gaps), len(around) - 1, around[-1][0], live[index]),
                placement.tight_bytes[index],
            )
        )
        variants += [(v.workspace_bytes * profile.threads, v.fixed_s, v.channels_s) for v in node.variants]
        for operand, w, room in node.constants:
            constants.append((graph.weights[w].offset, graph.weights[w].nbytes, room, operand))
        gaps += around[:-1]
    return (
        np.array(layers, _core.LAYER_DTYPE),
        np.array(variants, _core.VARIANT_DTYPE),
        np.array(constants, _core.CONSTANT_DTYPE),
        np.array(gaps, _core.GAP_DTYPE),
    )


def order_of(rank: Sequence[float] | NDArray[Any]) -> NDArray[np.int32]:
    """Items by their rank, lowest first."""
    return np.argsort(np.asarray(rank), kind="stable").astype(np.int32)
