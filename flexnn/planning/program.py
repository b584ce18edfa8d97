"""Encoding of a plan as the engine's program: arrays of its records (engine.h).

The arena holds zeros, small constants, pinned slices, then the working part: activations, workspaces and loads. Graph
inputs and outputs are the caller's buffers and take no arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import DTYPES, Graph
from flexnn.graph.operators import OPERATORS

from .costs import TILE_BLOCK, params_with, with_tile_block
from .drafts import Draft, Records
from .spilling import spill_bytes
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
    owns = np.flatnonzero(is_pinned & (homes == np.arange(len(slices))))
    owns = owns[np.argsort(slices["file_offset"][owns], kind="stable")]  # plans that pin the same share its place
    own_bytes = slices["arena_bytes"][owns]
    base = front + int(own_bytes.sum())
    pinned_at = np.zeros(len(slices), np.int64)
    pinned_at[owns] = front + np.cumsum(own_bytes) - own_bytes
    addresses = np.where(is_pinned, pinned_at[homes], draft.address + base)
    held = _slices(costs, draft)
    loads = _slice_loads(graph, costs, draft, held.weight, addresses)
    alike = _alike(graph, costs)
    nodes = _encode_nodes(graph, costs, draft, alike, _places(graph, costs, draft, constants, base), base)
    _place_big_constants(nodes, graph, held, addresses)
    return Program(
        nodes=nodes,
        steps=_encode_steps(alike, draft, loads),
        pinned=np.concatenate((small, loads[owns])),
        loads=loads[~is_pinned],
        arena_bytes=base + draft.working_bytes,
        zeros_offset=0,
        zeros_count=costs.zeros_count,
        io_bytes=np.array(costs.io_bytes, np.int64),
        threads=costs.threads,
        tables=_encode_tables(graph, costs),
        spills=_encode_spills(graph),
        spill_bytes=spill_bytes(graph),
    )


def _small_constants(graph: Graph, costs: Costs) -> dict[int, int]:
    """Return the arena address of each small constant, by its weight."""
    address, at = {}, align_up(costs.zeros_bytes, costs.io_align)
    for weight in sorted(costs.small_constants, key=lambda weight: graph.weights[weight].offset):
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


def _encode_spills(graph: Graph) -> Records:
    """Return loads that name the activations in the spill file."""
    spills = np.zeros(len(graph.spills), _core.LOAD_DTYPE)
    for i, spill in enumerate(graph.spills):
        spills["file_offset"][i], spills["bytes"][i] = spill.offset, spill.nbytes
        spills["chunk_bytes"][i], spills["crc_first"][i] = spill.row_bytes, spill.crc_first
    return spills


def _table_weights(costs: Costs) -> list[int]:
    """Return the weights that stay in the file, each once."""
    return list(dict.fromkeys(node.table for node in costs.nodes if node.table >= 0))


class _Slices(NamedTuple):
    """Contents of each slice of a draft, pinned ones too."""

    weight: I64
    """Index of its weight."""
    node: I64
    operand: I64
    """Number of the constant among the node's inputs; -1: panels."""


def _slices(costs: Costs, draft: Draft) -> _Slices:
    node = draft.steps["node"][draft.slices["step"]].astype(np.int64)
    weight = np.array([known.weight for known in costs.nodes], np.int64)[node]
    constants = [row[:2] for known in costs.nodes for row in known.constants]
    which = draft.slices["constant"].astype(np.int64)
    operands, weights = np.array([*constants, (-1, -1)], np.int64).T  # the last one is that of panels
    return _Slices(np.where(which < 0, weight, weights[which]), node, operands[np.maximum(which, -1)])


def _slice_loads(graph: Graph, costs: Costs, draft: Draft, weights: I64, addresses: I64) -> Records:
    """Return a load for each slice, pinned ones too."""
    slices = draft.slices
    loads = encode_loads(graph, weights.tolist(), slices["file_offset"], slices["bytes"], addresses, costs.io_align)
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


class _Alike(NamedTuple):
    """Operators and parameters that differ, and which of them each node has."""

    op: NDArray[np.int32]
    params: NDArray[np.int32]
    of_node: I64


def _alike(graph: Graph, costs: Costs) -> _Alike:
    number = {name: i for i, name in enumerate(_core.OPS)}
    found: dict[int, int] = {}
    ops: list[int] = []
    params: list[NDArray[np.int32]] = []
    of_node = []
    for node, known in zip(graph.nodes, costs.nodes, strict=True):
        at = found.setdefault(id(known.params), len(ops))
        if at == len(ops):
            ops.append(number[node.op])
            params.append(known.params)
        of_node.append(at)
    matrix = np.array(params, np.int32).reshape(-1, _core.PARAM_WORDS)
    return _Alike(np.array(ops, np.int32), matrix, np.array(of_node, np.int64))


def _encode_nodes(
    graph: Graph, costs: Costs, draft: Draft, alike: _Alike, places: tuple[I64, I64], base: int
) -> Records:
    nodes = np.zeros(len(graph.nodes), _core.NODE_DTYPE)
    chosen = [known.variants[v] for known, v in zip(costs.nodes, draft.choices["variant"].tolist(), strict=True)]
    nodes["op"], nodes["params"] = alike.op[alike.of_node], alike.params[alike.of_node]
    nodes["workspace_bytes"] = workspace = np.array([variant.workspace_bytes for variant in chosen], np.int64)
    nodes["workspace_offset"] = np.where(workspace > 0, base + draft.node_address[:, 0], 0)
    with_kernel = [i for i, variant in enumerate(chosen) if variant.kernel]
    if with_kernel:
        kernels = OPERATORS["conv"].kernels
        nodes["kernel"][with_kernel] = [kernels.index(chosen[i].kernel) for i in with_kernel]
        nodes["params"][with_kernel, TILE_BLOCK] = [chosen[i].tile_block for i in with_kernel]
    places_base, places_offset = places
    read = _read(graph, nodes["in"]["base"].shape[1])
    made = np.array([node.outputs[0] for node in graph.nodes], np.int64)
    nodes["in"]["base"], nodes["in"]["offset"] = places_base[read], places_offset[read]
    nodes["out"]["base"], nodes["out"]["offset"] = places_base[made], places_offset[made]
    tables = {weight: i for i, weight in enumerate(_table_weights(costs))}
    for index, known in enumerate(costs.nodes) if tables else ():
        if known.table >= 0:
            where = nodes["in"][index, 0]
            where["base"], where["offset"] = _core.BASE_FILE, tables[known.table]
    return nodes


def _read(graph: Graph, most: int) -> I64:
    """Return the tensors that each node reads, the first ``most`` of them, followed by the place of no tensor."""
    count = np.array([min(len(node.inputs), most) for node in graph.nodes], np.int64)
    tensors = [tensor for node in graph.nodes for tensor in node.inputs[:most]]
    first = np.cumsum(count) - count
    read = np.full((len(count), most), len(graph.tensors), np.int64)
    read[np.repeat(np.arange(len(count)), count), np.arange(len(tensors)) - np.repeat(first, count)] = tensors
    return read


def _places(graph: Graph, costs: Costs, draft: Draft, constants: dict[int, int], base: int) -> tuple[I64, I64]:
    """Return base and offset of each tensor as an operand, and then those of no tensor. Big constants, which have a
    place for each node that reads them, have -1.
    """
    io = {root: 1 + i for i, root in enumerate([*graph.inputs, *graph.outputs])}
    place = {root: base + at for root, at in zip(costs.roots, draft.placement.address, strict=True)}
    for spill in graph.spills:
        io[spill.root], place[spill.root] = _core.BASE_SPILL, spill.offset
    size = {name: dtype.itemsize for name, dtype in DTYPES.items()}
    bases, offsets = [], []
    for index, tensor in enumerate(graph.tensors):
        root = index if tensor.root < 0 else tensor.root
        at = place.get(root)
        if at is None:
            at = 0 if root in io else constants.get(graph.tensors[root].weight, -1)
        bases.append(io.get(root, 0))
        offsets.append(at + tensor.offset * size[tensor.dtype])
    return np.array([*bases, -1], np.int64), np.array([*offsets, 0], np.int64)


def _place_big_constants(nodes: Records, graph: Graph, slices: _Slices, addresses: I64) -> None:
    """Write the addresses of streamed and pinned constants into the nodes that read them."""
    for i in np.flatnonzero(slices.operand >= 0).tolist():
        node, operand = int(slices.node[i]), int(slices.operand[i])
        tensor = graph.tensors[graph.nodes[node].inputs[operand]]
        nodes["in"]["offset"][node, operand] = addresses[i] + tensor.offset * DTYPES[tensor.dtype].itemsize


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
    return op, with_tile_block(params, 0), Variant(kernel, int(params[TILE_BLOCK]), 0, 0.0, 0.0)


def _encode_steps(alike: _Alike, draft: Draft, loads: Records) -> Records:
    steps = np.zeros(len(draft.steps), _core.STEP_DTYPE)
    steps["node"] = draft.steps["node"]
    steps["panel_offset"] = -1
    steps["wait_loads"] = draft.steps["wait_loads"]
    panels = draft.slices["constant"] < 0
    steps["panel_offset"][draft.slices["step"][panels]] = (loads["address"] + loads["check_lead"])[panels]
    records = np.zeros(len(alike.op), _core.NODE_DTYPE)
    records["op"], records["params"] = alike.op, alike.params
    whole = np.zeros((len(records), 4), np.int32)
    _core.node_needs(records, np.zeros((len(records), 4), np.int64), whole)
    window = steps["window"]
    rows = whole[alike.of_node[steps["node"]]]
    for i, name in enumerate(("y0", "y1", "c0", "c1")):
        window[name] = rows[:, i]
    sliced = draft.steps["p1"] > 0
    window["c0"] = np.where(sliced, draft.steps["p0"] * _core.NR, window["c0"])
    window["c1"] = np.where(sliced, np.minimum(draft.steps["p1"] * _core.NR, window["c1"]), window["c1"])
    return steps
