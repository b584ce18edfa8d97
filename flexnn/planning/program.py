"""The plan as the engine's program: arrays of its structs (engine.h).

The arena: zeros, small constants, pinned pieces, then the region where activations, workspaces and streams live. Graph
inputs and outputs are the caller's buffers and take no arena.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexnn import _core
from flexnn.graph.ir import DTYPES, Graph

from .costs import with_tile_block
from .drafts import Draft
from .types import I64, LINE, Costs, Program, Variant, align_up


def front_bytes(profile: Costs) -> int:
    """Arena bytes of what always stays: zeros and small constants."""
    return align_up(align_up(profile.zeros_bytes, profile.io_align) + profile.small_bytes, profile.io_align)


def encode_program(graph: Graph, profile: Costs, draft: Draft) -> Program:
    """The program of a draft."""
    front = front_bytes(profile)
    base = front + draft.pinned_bytes
    at = align_up(profile.zeros_bytes, profile.io_align)
    constants: dict[int, int] = {}
    small = np.zeros(len(profile.small_constants), _core.LOAD_DTYPE)
    for i, weight in enumerate(profile.small_constants):
        stored = graph.weights[weight]
        encode_load(small[i : i + 1], graph, weight, stored.offset, stored.nbytes, at, profile.io_align)
        constants[weight] = at
        at += profile.occupied(stored.offset, stored.nbytes)
    pieces = draft.pieces
    stays = pieces["stays"] != 0
    homes = draft.homes()
    kept = stays & (homes == np.arange(len(pieces)))
    room = np.where(kept, pieces["arena_bytes"], 0)
    addresses = np.where(stays, (front + np.cumsum(room) - room)[homes], draft.address + base)
    loads = _encode_loads(graph, profile, draft, addresses)
    return Program(
        nodes=_encode_nodes(graph, profile, draft, constants, addresses, base),
        steps=_encode_steps(profile, graph, draft, loads),
        pinned=np.concatenate((small, loads[kept])),
        loads=loads[~stays],
        arena_bytes=base + draft.region,
        zeros_offset=0,
        zeros_count=profile.zeros_count,
        io_bytes=np.array(profile.io_bytes, np.int64),
        threads=profile.threads,
        tables=_encode_tables(graph, profile),
    )


def _encode_tables(graph: Graph, profile: Costs) -> np.ndarray[Any, Any]:
    """The weights that stay in the file, each once."""
    weights = [graph.weights[w] for w in _tables(profile)]
    tables = np.zeros(len(weights), _core.LOAD_DTYPE)
    for i, weight in enumerate(weights):
        tables["file_offset"][i], tables["chunk_bytes"][i] = weight.offset, weight.chunk_bytes
        tables["bytes"][i] = tables["check_bytes"][i] = weight.nbytes
        tables["crc_first"][i] = weight.crc_first
    return tables


def _tables(profile: Costs) -> list[int]:
    return list(dict.fromkeys(node.table for node in profile.nodes if node.table >= 0))


def _piece_weights(profile: Costs, draft: Draft) -> list[tuple[int, int, int]]:
    """(node, operand or -1, weight) of each piece."""
    wanted = []
    constants = [(operand, weight) for node in profile.nodes for operand, weight, _ in node.constants]
    for step, constant in zip(draft.pieces["step"].tolist(), draft.pieces["constant"].tolist(), strict=True):
        node = int(draft.steps["node"][step])
        wanted.append((node, *(constants[constant] if constant >= 0 else (-1, profile.nodes[node].weight))))
    return wanted


def _encode_loads(graph: Graph, profile: Costs, draft: Draft, addresses: I64) -> np.ndarray[Any, Any]:
    """A load of each piece, pinned ones too."""
    stored = [graph.weights[weight] for _, _, weight in _piece_weights(profile, draft)]
    offset, size = draft.pieces["file_offset"], draft.pieces["bytes"]
    begin = offset // profile.io_align * profile.io_align if profile.io_align > LINE else offset
    end = offset + size
    loads = np.zeros(len(offset), _core.LOAD_DTYPE)
    loads["file_offset"] = begin
    loads["bytes"] = (-(-end // profile.io_align) * profile.io_align if profile.io_align > LINE else end) - begin
    loads["address"] = addresses
    loads["check_lead"] = offset - begin
    loads["chunk_bytes"] = chunk = np.array([w.chunk_bytes for w in stored], np.int64)
    loads["check_bytes"] = size
    first = np.array([w.crc_first for w in stored], np.int64)
    loads["crc_first"] = first + (offset - np.array([w.offset for w in stored], np.int64)) // chunk
    loads["wait_steps"] = np.where(draft.pieces["stays"] != 0, 0, draft.pieces["wait_steps"])
    return loads


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
    profile: Costs,
    draft: Draft,
    constants: dict[int, int],
    addresses: I64,
    base: int,
) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    io = {root: 1 + i for i, root in enumerate([*graph.inputs, *graph.outputs])}
    place = {root: base + at for root, at in zip(profile.roots, draft.placement.address, strict=True)}
    operand_of: dict[tuple[int, int], int] = {}
    for (node, operand, _), at in zip(_piece_weights(profile, draft), addresses.tolist(), strict=True):
        if operand >= 0:
            operand_of[node, operand] = at
    nodes = np.zeros(len(graph.nodes), _core.NODE_DTYPE)
    nodes["in"]["base"] = -1
    tables = {weight: i for i, weight in enumerate(_tables(profile))}
    variants, workspace = draft.choices["variant"].tolist(), draft.layer_address[:, 0].tolist()
    for index, item in enumerate(graph.nodes):
        known = profile.nodes[index]
        way = known.variants[variants[index]]
        row = nodes[index]
        encode_way(row, item.op, known.params, way)
        if way.workspace_bytes:
            row["workspace_offset"] = base + workspace[index]
            row["workspace_bytes"] = way.workspace_bytes
        for operand, tensor in enumerate([*item.inputs, item.outputs[0]]):
            root = graph.root(tensor)
            weight = graph.tensors[root].weight
            where = row["out"] if operand == len(item.inputs) else row["in"][operand]
            inside = graph.tensors[tensor].offset * DTYPES[graph.tensors[tensor].dtype].itemsize
            if operand == 0 and known.table >= 0:
                where["base"], where["offset"] = _core.BASE_FILE, tables[known.table]
            elif root in io:
                where["base"], where["offset"] = io[root], inside
            elif weight >= 0:
                where["base"] = 0
                where["offset"] = operand_of.get((index, operand), constants.get(weight, -1)) + inside
            else:
                where["base"], where["offset"] = 0, place[root] + inside
    return nodes


def encode_way(row: np.void, op: str, params: NDArray[np.int32], way: Variant) -> None:
    """Operator, kernel and parameters of a node's record."""
    row["op"] = _core.OPS.index(op)
    row["kernel"] = _core.ENUMS["conv_kernel"].index(way.kernel) if way.kernel else 0
    row["params"] = with_tile_block(params, way.tile_block) if way.kernel else params


def _encode_steps(
    profile: Costs, graph: Graph, draft: Draft, loads: np.ndarray[Any, Any]
) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    steps = np.zeros(len(draft.steps), _core.STEP_DTYPE)
    steps["node"] = draft.steps["node"]
    steps["panel_offset"] = -1
    steps["wait_loads"] = draft.steps["loads"]
    panels = draft.pieces["constant"] < 0
    steps["panel_offset"][draft.pieces["step"][panels]] = (loads["address"] + loads["check_lead"])[panels]
    whole = [_core.op_full_window(n.op, p.params) for n, p in zip(graph.nodes, profile.nodes, strict=True)]
    window = steps["window"]
    rows = np.asarray(whole, np.int32).reshape(-1, 4)[steps["node"]]
    for i, name in enumerate(("y0", "y1", "c0", "c1")):
        window[name] = rows[:, i]
    sliced = draft.steps["p1"] > 0
    window["c0"] = np.where(sliced, draft.steps["p0"] * _core.NR, window["c0"])
    window["c1"] = np.where(sliced, np.minimum(draft.steps["p1"] * _core.NR, window["c1"]), window["c1"])
    return steps
