"""Slices: whole panels that cover each weight once, the fewest that the room allows, kernels that leave room."""

from __future__ import annotations

import numpy as np
import pytest
from plan_graphs import random_graph, resnet
from plan_support import ALIGNS, FAST_DISK

from flexnn.graph.ir import Graph
from flexnn.plan.layout import place_activations
from flexnn.plan.profile import profile_graph
from flexnn.plan.slices import panels_per_slice, slice_weights
from flexnn.plan.types import Placement, Profile


def _stages(graph: Graph, io_align: int = 64) -> tuple[Profile, Placement]:
    profile = profile_graph(graph, threads=2, io_align=io_align, machine=FAST_DISK)
    return profile, place_activations(profile)


@pytest.mark.parametrize("io_align", ALIGNS)
@pytest.mark.parametrize("seed", range(15))
def test_slices_cover_each_weight_once(seed: int, io_align: int) -> None:
    graph = random_graph(seed)
    profile, placement = _stages(graph, io_align)
    for extra in (0, 10_000, 1_000_000):
        for share in (2, 4, 8):
            slices = slice_weights(graph, profile, placement, placement.arena_bytes_min + extra, share)
            reached = [0] * len(profile.nodes)
            for node, (p0, p1) in zip(slices.step_node, slices.step_panels, strict=True):
                assert p0 == reached[node]
                assert p1 > p0 or not profile.nodes[node].panels
                reached[node] = p1
            assert reached == [node.panels for node in profile.nodes]
            assert slices.step_node == sorted(slices.step_node)
            streamed = sum(node.weight_bytes for node in profile.nodes)
            panels = np.array(slices.piece_operand) < 0
            assert np.array(slices.piece_bytes)[panels].sum() >= streamed
            if io_align == 64:
                assert np.array(slices.piece_bytes)[panels].sum() == streamed


def test_more_room_makes_fewer_slices() -> None:
    graph = resnet()
    profile, placement = _stages(graph)
    least = placement.arena_bytes_min
    counts = [
        len(slice_weights(graph, profile, placement, least + extra, 2).step_node) for extra in (0, 1 << 20, 1 << 24)
    ]
    assert counts[0] > counts[1] > counts[2] >= len(profile.nodes)
    assert len(slice_weights(graph, profile, placement, least + (1 << 26), 2).step_node) == len(profile.nodes)


def test_shares_fit_the_room_together() -> None:
    profile, _ = _stages(resnet((1, 1, 1, 1), 64))
    for panels, panel_bytes, room in ((32, 100_000, 2_000_000), (7, 600_000, 9_000_000), (100, 64, 3000)):
        for share in (2, 4, 8):
            count = panels_per_slice(profile, panels, panel_bytes, room, share)
            assert 1 <= count <= panels
            assert count == 1 or 2 * count * panel_bytes <= room


def test_workspace_gives_way_to_weights() -> None:
    """With little room a kernel with a small workspace; with much, the fastest."""
    graph = resnet()
    profile, placement = _stages(graph)
    tight = slice_weights(graph, profile, placement, placement.arena_bytes_min, 2, slices_max=[0] * len(graph.nodes))
    loose = slice_weights(graph, profile, placement, 1 << 30, 2)
    assert tight.variant == [len(node.variants) - 1 for node in profile.nodes]
    assert loose.variant == [0] * len(profile.nodes)
    assert any(len(node.variants) > 1 for node in profile.nodes)
