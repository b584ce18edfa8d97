"""Kernel selection and weight slicing under the room that the activations leave (FlexNN §3.2).

Each node gets the fastest kernel whose workspace leaves its weights enough room; where none does, the one with the
smallest workspace. Its weights are then cut into the fewest slices, whole panels each, of which ``share`` fit the room
at once: one computes while the next is loaded (share 2), or more are on their way (share 4 and 8).

Input slicing (the paper's bounded im2col workspace) happens inside the kernels, which gather tile by tile: what it
leaves is each variant's ``scratch_bytes``.
"""

from __future__ import annotations

from flexnn.graph.ir import Graph

from .layout import arena_for, fit, node_needs
from .types import Placement, Profile, Slices

SLICE_BYTES_MIN = 256 << 10
"""Smaller slices are made only where the room is: requests below this do not reach a device's rate."""
SLICE_BYTES_MAX = 16 << 20
"""Larger ones only delay their step."""


def slice_weights(
    graph: Graph,
    profile: Profile,
    placement: Placement,
    arena: int,
    share: int,
    *,
    stay: bool = False,
    slices_max: list[int] | None = None,
) -> Slices:
    """Variants, workspaces and slices in an arena of ``arena`` bytes (at least ``placement.arena_bytes_min``; pinned
    weights not counted). ``stay``: all weights are pinned elsewhere, one step for each node will do. ``slices_max``: of
    each node, slices that any but the smallest workspace may lead to.
    """
    slices = Slices([], [], [], [], [], [], [], [], [])
    for index, node in enumerate(profile.nodes):
        constants = [] if stay else node.constants
        at_most = slices_max[index] if slices_max else None
        variant, addresses, room = _select(profile, placement, index, arena, share, stay, at_most)
        slices.variant.append(variant)
        scratch = node.variants[variant].scratch_bytes
        slices.scratch.append(addresses.pop(0) if scratch else -1)
        slices.constant += addresses
        panels = node.panels
        if panels and not stay:
            panels = panels_per_slice(profile, node.panels, node.panel_bytes, room, share)
        for p0 in range(0, max(node.panels, 1), max(panels, 1)):
            step = len(slices.step_node)
            slices.step_node.append(index)
            slices.step_panels.append((p0, min(p0 + panels, node.panels)))
            if panels:
                offset = graph.weights[node.weight].offset + p0 * node.panel_bytes
                size = (min(p0 + panels, node.panels) - p0) * node.panel_bytes
                _add_piece(slices, step, -1, offset, profile.occupied(offset, size))
            for operand, weight, _ in node.constants if not p0 else ():
                offset = graph.weights[weight].offset
                _add_piece(slices, step, operand, offset, profile.occupied(offset, graph.weights[weight].nbytes))
        if stay:
            slices.constant += [-1] * (len(node.constants) - len(constants))
    return slices


def panels_per_slice(profile: Profile, panels: int, panel_bytes: int, room: int, share: int) -> int:
    """Panels of each slice but the last: as many as ``share`` slices in ``room`` allow, evenly spread."""
    whole = profile.room(panels * panel_bytes)
    target = min(max(room // share, min(room // 2, SLICE_BYTES_MIN)), SLICE_BYTES_MAX)
    if whole <= target:
        return panels
    at_most = max((target - (profile.room(1) - 1 if profile.io_align > 64 else 0)) // panel_bytes, 1)
    count = -(-panels // at_most)
    even = -(-panels // count)
    return even + 1 if even % 2 and even > 1 and even < at_most else even  # AVX-512 computes two panels at once


def _select(
    profile: Profile, placement: Placement, index: int, arena: int, share: int, stay: bool, slices_max: int | None
) -> tuple[int, list[int], int]:
    """Variant, addresses of workspace and constants, and the largest gap that is left for slices."""
    node, gaps = profile.nodes[index], placement.gaps[index]
    constants = [] if stay else [size for _, _, size in node.constants]
    panel = 0 if stay else profile.room(node.panel_bytes) if node.panels else 0
    weight = 0 if stay or not node.panels else profile.room(node.weight_bytes)
    last = len(node.variants) - 1
    for variant, way in enumerate(node.variants):
        scratch = way.scratch_bytes * profile.threads
        found = fit(gaps, arena, [size for size in (scratch, *constants) if size])
        if found is None:
            continue
        room = max(end - start for start, end in found[1])
        if room < panel or (variant != last and room < min(weight, max(panel, scratch))):
            continue
        if variant != last and slices_max is not None:
            per_slice = panels_per_slice(profile, node.panels, node.panel_bytes, room, share)
            if -(-node.panels // per_slice) > slices_max:
                continue
        return variant, found[0], room
    # Largest first, one panel among them: this is what the smallest arena was made for.
    sizes = node_needs(profile, index, last, int(panel > 0))
    found = fit(gaps, arena_for(gaps, sizes), sizes)
    assert found is not None
    left = list(zip(sizes, found[0], strict=True))
    addresses = []
    for wanted in (node.variants[last].scratch_bytes * profile.threads, *constants):
        if wanted:
            place = next(i for i, (size, _) in enumerate(left) if size == wanted)
            addresses.append(left.pop(place)[1])
    return last, addresses, panel


def _add_piece(slices: Slices, step: int, operand: int, offset: int, size: int) -> None:
    slices.piece_step.append(step)
    slices.piece_operand.append(operand)
    slices.piece_offset.append(offset)
    slices.piece_bytes.append(size)
