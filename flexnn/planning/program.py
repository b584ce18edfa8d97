"""Encoding of a plan as the engine's program: arrays of its records (engine.h).

The arena holds zeros, small constants, pinned slices, then the working part: activations, workspaces and loads. Graph
inputs and outputs are the caller's buffers and take no arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from flexnn import _core
from flexnn.graph.ir import DTYPES, Graph
from flexnn.graph.operators import OPERATORS

from .costs import params_with, tile_block_of, with_tile_block
from .drafts import Draft, Records
from .types import I64, LINE, Costs, Program, Variant, align_up

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def front_bytes(costs: Costs) -> int:
    """Return the arena bytes that are always pinned: zeros and small constants."""
    return align_up(align_up(costs.zeros_bytes, costs.io_align) + costs.small_bytes, costs.io_align)


def encode_program(graph: Graph, costs: Costs, draft: Draft) -> Program:
    """Return the program of a draft."""
    front = front_bytes(costs)
    constants = _small_constants(graph, costs)
    stored = [graph.weights[weight] for weight in constants]
    offsets, sizes = [weight.offset for weight in stored], [weight.nbytes for weight in stored]
    small = encode_loads(graph, [*constants], offsets, sizes, [*constants.values()], costs.io_align)
    slices = draft.slices
    is_pinned, homes = slices["is_pinned"] != 0, draft.homes()
    owns = is_pinned & (homes == np.arange(len(slices)))
    own_bytes = np.where(owns, slices["arena_bytes"], 0)
    base = front + int(own_bytes.sum())
    addresses = np.where(is_pinned, (front + np.cumsum(own_bytes) - own_bytes)[homes], draft.address + base)
    loads = _slice_loads(graph, costs, draft, addresses)
    return Program(
        nodes=_encode_nodes(graph, costs, draft, constants, addresses, base),
        steps=_encode_steps(costs, graph, draft, loads),
        pinned=np.concatenate((small, loads[owns])),
        loads=loads[~is_pinned],
        arena_bytes=base + draft.working_bytes,
        zeros_offset=0,
        zeros_count=costs.zeros_count,
        io_bytes=np.array(costs.io_bytes, np.int64),
        threads=costs.threads,
        tables=_encode_tables(graph, costs),
    )


def _small_constants(graph: Graph, costs: Costs) -> dict[int, int]:
    """Return the arena address of each small constant, by its weight."""
    address, at = {}, align_up(costs.zeros_bytes, costs.io_align)
    for weight in costs.small_constants:
        address[weight] = at
        at += costs.occupied_bytes(graph.weights[weight].offset, graph.weights[weight].nbytes)
    return address


def _encode_tables(graph: Graph, costs: Costs) -> Records:
    """Return loads that name the weights that stay in the file, each once."""
    weights = [graph.weights[w] for w in _table_weights(costs)]
    tables = np.zeros(len(weights), _core.LOAD_DTYPE)
    for i, weight in enumerate(weights):
        tables["file_offset"][i], tables["chunk_bytes"][i] = weight.offset, weight.chunk_bytes
        tables["bytes"][i] = tables["check_bytes"][i] = weight.nbytes
        tables["crc_first"][i] = weight.crc_first
    return tables


def _table_weights(costs: Costs) -> list[int]:
    """Return the weights that stay in the file, each once."""
    return list(dict.fromkeys(node.table for node in costs.nodes if node.table >= 0))


def _slice_weights(costs: Costs, draft: Draft) -> list[tuple[int, int, int]]:
    """Return (node, operand or -1, weight) of each slice."""
    wanted = []
    constants = [(operand, weight) for node in costs.nodes for operand, weight, _ in node.constants]
    for step, constant in zip(draft.slices["step"].tolist(), draft.slices["constant"].tolist(), strict=True):
        node = int(draft.steps["node"][step])
        wanted.append((node, *(constants[constant] if constant >= 0 else (-1, costs.nodes[node].weight))))
    return wanted


def _slice_loads(graph: Graph, costs: Costs, draft: Draft, addresses: I64) -> Records:
    """Return a load for each slice, pinned ones too."""
    slices = draft.slices
    weights = [weight for _, _, weight in _slice_weights(costs, draft)]
    loads = encode_loads(graph, weights, slices["file_offset"], slices["bytes"], addresses, costs.io_align)
    loads["wait_steps"] = np.where(slices["is_pinned"] != 0, 0, slices["wait_steps"])
    return loads


def encode_loads(
    graph: Graph, weights: Sequence[int], offsets: ArrayLike, sizes: ArrayLike, addresses: ArrayLike, io_align: int
) -> Records:
    """Return loads of ``sizes`` bytes of ``weights`` from file ``offsets`` (each the begin of a chunk) to arena
    ``addresses``, rounded outwards to ``io_align``.
    """
    offset, size = np.asarray(offsets, np.int64), np.asarray(sizes, np.int64)
    begin, end = offset, offset + size
    if io_align > LINE:
        begin, end = offset // io_align * io_align, -(-end // io_align) * io_align
    start, chunk, crc = (
        np.array([getattr(graph.weights[w], name) for w in weights], np.int64)
        for name in ("offset", "chunk_bytes", "crc_first")
    )
    loads = np.zeros(len(weights), _core.LOAD_DTYPE)
    loads["file_offset"], loads["bytes"], loads["address"] = begin, end - begin, addresses
    loads["check_lead"], loads["check_bytes"], loads["chunk_bytes"] = offset - begin, size, chunk
    loads["crc_first"] = crc + (offset - start) // chunk
    return loads


def _encode_nodes(
    graph: Graph,
    costs: Costs,
    draft: Draft,
    constants: dict[int, int],
    addresses: I64,
    base: int,
) -> Records:
    io = {root: 1 + i for i, root in enumerate([*graph.inputs, *graph.outputs])}
    place = {root: base + at for root, at in zip(costs.roots, draft.placement.address, strict=True)}
    operand_of: dict[tuple[int, int], int] = {}
    for (node, operand, _), at in zip(_slice_weights(costs, draft), addresses.tolist(), strict=True):
        if operand >= 0:
            operand_of[node, operand] = at
    nodes = np.zeros(len(graph.nodes), _core.NODE_DTYPE)
    nodes["in"]["base"] = -1
    tables = {weight: i for i, weight in enumerate(_table_weights(costs))}
    variants, workspace = draft.choices["variant"].tolist(), draft.node_address[:, 0].tolist()
    for index, item in enumerate(graph.nodes):
        known = costs.nodes[index]
        variant = known.variants[variants[index]]
        row = nodes[index]
        encode_variant(row, item.op, known.params, variant)
        if variant.workspace_bytes:
            row["workspace_offset"] = base + workspace[index]
            row["workspace_bytes"] = variant.workspace_bytes
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


def encode_variant(row: np.void, op: str, params: NDArray[np.int32], variant: Variant) -> None:
    """Write operator, kernel and parameters into a node's record."""
    row["op"] = _core.OPS.index(op)
    row["kernel"] = OPERATORS[op].kernels.index(variant.kernel) if variant.kernel else 0
    row["params"] = params_with(params, variant)


def decode_variant(row: np.void) -> tuple[str, NDArray[np.int32], Variant]:
    """Return what ``encode_variant`` wrote into a node's record; the variant's workspace and times are 0."""
    op, params = _core.OPS[row["op"]], np.array(row["params"])
    kernel = OPERATORS[op].kernel(int(row["kernel"]))
    if not kernel:
        return op, params, Variant("", 0, 0, 0.0, 0.0)
    return op, with_tile_block(params, 0), Variant(kernel, tile_block_of(params), 0, 0.0, 0.0)


def _encode_steps(costs: Costs, graph: Graph, draft: Draft, loads: Records) -> Records:
    steps = np.zeros(len(draft.steps), _core.STEP_DTYPE)
    steps["node"] = draft.steps["node"]
    steps["panel_offset"] = -1
    steps["wait_loads"] = draft.steps["wait_loads"]
    panels = draft.slices["constant"] < 0
    steps["panel_offset"][draft.slices["step"][panels]] = (loads["address"] + loads["check_lead"])[panels]
    whole = [_core.op_full_window(n.op, p.params) for n, p in zip(graph.nodes, costs.nodes, strict=True)]
    window = steps["window"]
    rows = np.asarray(whole, np.int32).reshape(-1, 4)[steps["node"]]
    for i, name in enumerate(("y0", "y1", "c0", "c1")):
        window[name] = rows[:, i]
    sliced = draft.steps["p1"] > 0
    window["c0"] = np.where(sliced, draft.steps["p0"] * _core.NR, window["c0"])
    window["c1"] = np.where(sliced, np.minimum(draft.steps["p1"] * _core.NR, window["c1"]), window["c1"])
    return steps
