"""The plan as the engine's program: arrays of its structs (flexnn/_core/engine.h).

The arena: zeros, small constants, pinned pieces, then the region where activations, workspaces and streams live. Graph
inputs and outputs are the caller's buffers and take no arena.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flexnn import _core
from flexnn.graph.ir import DTYPES, Graph

from .profile import with_tile_block
from .types import I64, LINE, Final, Placement, Profile, Program, Slices, Streams, Variant, align_up


def stay_bytes(profile: Profile, final: Final) -> int:
    """Arena bytes in front of the streaming region."""
    return _front(profile) + sum(size for size, stays in zip(final.piece_bytes, final.stays, strict=True) if stays)


def _front(profile: Profile) -> int:
    return align_up(align_up(profile.zeros_bytes, profile.io_align) + profile.small_bytes, profile.io_align)


def encode_program(
    graph: Graph,
    profile: Profile,
    placement: Placement,
    slices: Slices,
    final: Final,
    streams: Streams,
    region_bytes: int,
) -> Program:
    """The program of a plan whose streaming region has ``region_bytes``."""
    base = stay_bytes(profile, final)
    at = align_up(profile.zeros_bytes, profile.io_align)
    constants: dict[int, int] = {}
    small = np.zeros(len(profile.small_constants), _core.LOAD_DTYPE)
    for i, weight in enumerate(profile.small_constants):
        stored = graph.weights[weight]
        encode_load(small[i : i + 1], graph, weight, stored.offset, stored.nbytes, at, profile.io_align)
        constants[weight] = at
        at += profile.occupied(stored.offset, stored.nbytes)
    at = _front(profile)
    loads = np.zeros(len(final.piece_step), _core.LOAD_DTYPE)
    addresses = np.zeros(len(final.piece_step), np.int64)
    stays = np.asarray(final.stays, bool)
    streamed = iter(zip((streams.address + base).tolist(), streams.wait_steps.tolist(), strict=True))
    for i, step in enumerate(final.piece_step):
        node = profile.nodes[final.step_node[step]]
        wait = 0
        if final.stays[i]:
            addresses[i], at = at, at + final.piece_bytes[i]
        else:
            addresses[i], wait = next(streamed)
        if final.piece_operand[i] < 0:
            weight, (p0, p1) = node.weight, final.step_panels[step]
            size = (p1 - p0) * node.panel_bytes
        else:
            weight = next(w for operand, w, _ in node.constants if operand == final.piece_operand[i])
            size = graph.weights[weight].nbytes
        encode_load(loads[i : i + 1], graph, weight, final.piece_offset[i], size, int(addresses[i]), profile.io_align)
        loads["wait_steps"][i] = wait
    return Program(
        nodes=_encode_nodes(graph, profile, placement, slices, final, constants, addresses, base),
        steps=_encode_steps(profile, graph, final, loads, ~stays),
        pinned=np.concatenate((small, loads[stays])),
        loads=loads[~stays],
        arena_bytes=base + region_bytes,
        zeros=0,
        zeros_count=profile.zeros_count,
        io_bytes=np.array(profile.io_bytes, np.int64),
        threads=profile.threads,
    )


def encode_load(
    load: np.ndarray[tuple[int], np.dtype[np.void]],
    graph: Graph,
    weight: int,
    offset: int,
    size: int,
    address: int,
    align: int,
) -> None:
    """Makes ``load`` read ``size`` bytes of a weight from file offset ``offset`` (the begin of a chunk) to ``address``,
    rounded outwards to ``align``.
    """
    stored = graph.weights[weight]
    begin, end = offset, offset + size
    if align > LINE:
        begin, end = offset // align * align, align_up(end, align)
    load["file_offset"] = begin
    load["bytes"] = end - begin
    load["address"] = address
    load["check_lead"] = offset - begin
    load["chunk_bytes"] = stored.chunk_bytes
    load["check_bytes"] = size
    load["crc_first"] = stored.crc_first + (offset - stored.offset) // stored.chunk_bytes


def _encode_nodes(
    graph: Graph,
    profile: Profile,
    placement: Placement,
    slices: Slices,
    final: Final,
    constants: dict[int, int],
    addresses: I64,
    base: int,
) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    io = {root: 1 + i for i, root in enumerate([*graph.inputs, *graph.outputs])}
    place = {root: base + at for root, at in zip(profile.roots, placement.address, strict=True)}
    operand_of: dict[tuple[int, int], int] = {}
    for i, operand in enumerate(final.piece_operand):
        if operand >= 0:
            operand_of[final.step_node[final.piece_step[i]], operand] = int(addresses[i])
    nodes = np.zeros(len(graph.nodes), _core.NODE_DTYPE)
    nodes["in"]["base"] = -1
    for index, node in enumerate(graph.nodes):
        known = profile.nodes[index]
        way = known.variants[slices.variant[index]]
        row = nodes[index]
        encode_way(row, node.op, known.params, way)
        if way.scratch_bytes:
            row["scratch"] = base + slices.scratch[index]
            row["scratch_bytes"] = way.scratch_bytes
        for operand, tensor in enumerate([*node.inputs, node.outputs[0]]):
            root = graph.root(tensor)
            weight = graph.tensors[root].weight
            where = row["out"] if operand == len(node.inputs) else row["in"][operand]
            inside = graph.tensors[tensor].offset * DTYPES[graph.tensors[tensor].dtype].itemsize
            if root in io:
                where["base"], where["offset"] = io[root], inside
            elif weight >= 0:
                at = operand_of.get((index, operand), constants.get(weight, -1))
                where["base"], where["offset"] = 0, at + inside
            else:
                where["base"], where["offset"] = 0, place[root] + inside
    return nodes


def encode_way(row: np.void, op: str, params: NDArray[np.int32], way: Variant) -> None:
    """Operator, kernel and parameters of a node's record."""
    row["op"] = _core.OPS.index(op)
    row["kernel"] = _core.ENUMS["conv_kernel"].index(way.kernel) if way.kernel else 0
    row["params"] = with_tile_block(params, way.tile_block) if way.kernel else params


def _encode_steps(
    profile: Profile,
    graph: Graph,
    final: Final,
    loads: np.ndarray[tuple[int], np.dtype[np.void]],
    streamed: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    steps = np.zeros(len(final.step_node), _core.STEP_DTYPE)
    steps["node"] = final.step_node
    steps["weight"] = -1
    piece_step = np.asarray(final.piece_step, np.int64)
    steps["wait_loads"] = np.searchsorted(piece_step[streamed], np.arange(len(steps)), side="right")
    panels = np.asarray([operand < 0 for operand in final.piece_operand], bool)
    steps["weight"][piece_step[panels]] = (loads["address"] + loads["check_lead"])[panels]
    whole = [_core.op_full_window(n.op, p.params) for n, p in zip(graph.nodes, profile.nodes, strict=True)]
    window = steps["window"]
    rows = np.asarray(whole, np.int32).reshape(-1, 4)[steps["node"]]
    for i, name in enumerate(("y0", "y1", "c0", "c1")):
        window[name] = rows[:, i]
    cuts = np.asarray(final.step_panels, np.int32).reshape(-1, 2) * _core.NR
    sliced = cuts[:, 1] > 0
    window["c0"] = np.where(sliced, cuts[:, 0], window["c0"])
    window["c1"] = np.where(sliced, np.minimum(cuts[:, 1], window["c1"]), window["c1"])
    return steps
