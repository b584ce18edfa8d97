"""Encoding of a plan as the engine's program: arrays of its records (engine.h).

The arena holds zeros, small constants, pinned slices, then the working part: activations, workspaces and loads. Graph
inputs and outputs are the caller's buffers and take no arena.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import DTYPES, Graph
from flexnn.graph.operators import OPERATORS

from .costs import TILE_BLOCK, bytes_with_tile_block, params_with, with_tile_block
from .drafts import Draft, Records
from .types import LINE, Costs, Program, Variant, align_up

if TYPE_CHECKING:
    from numpy.typing import NDArray


NOWHERE = -1, 0
"""Base and offset of no tensor."""


ROWS_AT_ONCE = 4096
"""Rows of an array that are filled at once: Ctrl-C waits for them."""


def front_bytes(costs: Costs) -> int:
    """Return the arena bytes that are always pinned: zeros and small constants."""
    return align_up(align_up(costs.zeros_bytes, costs.io_align) + costs.small_bytes, costs.io_align)


def encode_program(graph: Graph, costs: Costs, draft: Draft) -> Program:
    """Return the program of a draft. It is made of plain numbers: each of numpy's operations maps 64 KiB of its code,
    which small budgets would count.
    """
    constants = _small_constants(graph, costs)
    stored = [graph.weights[weight] for weight in constants]
    offsets, sizes = [weight.offset for weight in stored], [weight.nbytes for weight in stored]
    small = load_rows(graph, [*constants], offsets, sizes, [*constants.values()], costs.io_align)
    slices = _slices(graph, costs, draft)

    def rows(some: Sequence[int]) -> Iterator[tuple[int, ...]]:
        fields = slices.weight, slices.offset, slices.nbytes, slices.address, slices.wait
        weights, offsets, sizes, addresses, waits = (array("q", (field[i] for i in some)) for field in fields)
        return load_rows(graph, weights, offsets, sizes, addresses, costs.io_align, waits)

    alike = _alike(graph, costs)
    streamed = array("q", (i for i, pinned in enumerate(slices.is_pinned) if not pinned))
    return Program(
        nodes=_encode_nodes(graph, costs, draft, alike, _places(graph, costs, draft, constants, slices.base), slices),
        steps=_encode_steps(alike, draft, slices, costs.io_align),
        pinned=np.fromiter(chain(small, rows(slices.owns)), _core.LOAD_DTYPE, len(constants) + len(slices.owns)),
        loads=np.fromiter(rows(streamed), _core.LOAD_DTYPE, len(streamed)),
        arena_bytes=slices.base + draft.working_bytes,
        zeros_offset=0,
        zeros_count=costs.zeros_count,
        io_bytes=np.array(costs.io_bytes, np.int64),
        threads=costs.threads,
        tables=_encode_tables(graph, costs),
        spills=_encode_spills(graph),
        spill_bytes=_spill_bytes(graph),
        input_count=len(graph.inputs),
        front_bytes=front_bytes(costs),
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
    """Contents and addresses of the slices of a draft, pinned ones too: an entry of each sequence for each slice."""

    weight: Sequence[int]
    """Index of its weight."""
    node: Sequence[int]
    operand: Sequence[int]
    """Number of the constant among the node's inputs; -1: panels."""
    step: Sequence[int]
    is_pinned: Sequence[int]
    offset: Sequence[int]
    """Bytes from the start of the file."""
    nbytes: Sequence[int]
    address: Sequence[int]
    """Bytes from the start of the arena."""
    wait: Sequence[int]
    """Steps that its load waits for."""
    owns: Sequence[int]
    """Pinned slices that have a place of their own, by their offset: plans that pin the same share its place."""
    base: int
    """Bytes before the working part."""


def _spill_bytes(graph: Graph) -> int:
    """Return the size of the spill file."""
    last = graph.spills[-1] if graph.spills else None
    return align_up(last.offset + last.nbytes, _core.DIRECT_ALIGN) if last else 0


def _slices(graph: Graph, costs: Costs, draft: Draft) -> _Slices:
    names = "step", "constant", "is_pinned", "file_offset", "bytes", "arena_bytes", "wait_steps"
    # Views and arrays, as lists of Python's integers would take more than all else that planning leaves.
    step, constant, is_pinned, offset, nbytes, room, wait = (draft.slices[name].data for name in names)
    homes, base = draft.homes(), front_bytes(costs)
    owns = [i for i, home in enumerate(homes) if is_pinned[i] and home == i]
    owns.sort(key=offset.__getitem__)
    place = {}
    for i in owns:
        place[i] = base
        base += room[i]
    base += draft.kept_bytes
    step_node = draft.steps["node"].data
    node = array("q", (step_node[at] for at in step))
    constants = [row[:2] for known in costs.nodes for row in known.constants]
    held = [constants[c] if c >= 0 else None for c in constant]
    streamed = enumerate(draft.address.data)
    return _Slices(
        weight=array("q", (row[1] if row else costs.nodes[n].weight for row, n in zip(held, node, strict=True))),
        node=node,
        operand=array("q", (row[0] if row else -1 for row in held)),
        step=step,
        is_pinned=is_pinned,
        offset=offset,
        nbytes=nbytes,
        address=array("q", (place[homes[i]] if is_pinned[i] else at + base for i, at in streamed)),
        wait=array("q", (0 if pinned else steps for pinned, steps in zip(is_pinned, wait, strict=True))),
        owns=owns,
        base=base,
    )


def load_rows(
    graph: Graph,
    weights: Sequence[int],
    offsets: Sequence[int],
    sizes: Sequence[int],
    addresses: Sequence[int],
    io_align: int,
    waits: Sequence[int] | None = None,
) -> Iterator[tuple[int, ...]]:
    """Yield the fields of loads (LOAD_DTYPE) of ``sizes`` bytes of ``weights`` from file ``offsets`` (each the begin
    of a chunk) to arena ``addresses``, rounded outwards to ``io_align``; ``waits``: steps that each waits for.
    """
    align = _read_align(io_align)
    for w, offset, size, at, wait in zip(weights, offsets, sizes, addresses, waits or [0] * len(weights), strict=True):
        weight = graph.weights[w]
        begin = offset // align * align
        end = -(-(offset + size) // align) * align
        crc = weight.crc_first + (offset - weight.offset) // weight.chunk_bytes
        yield begin, end - begin, at, offset - begin, weight.chunk_bytes, size, crc, wait


def _read_align(io_align: int) -> int:
    """Return the bytes that ends of reads are multiples of."""
    return io_align if io_align > LINE else 1


class _Alike(NamedTuple):
    """Operators and parameters that differ, and which of them each node has."""

    op: list[int]
    params: list[bytes]
    of_node: list[int]


def _alike(graph: Graph, costs: Costs) -> _Alike:
    number = {name: i for i, name in enumerate(_core.OPS)}
    found: dict[int, int] = {}
    alike = _Alike([], [], [])
    for node, known in zip(graph.nodes, costs.nodes, strict=True):
        at = found.setdefault(id(known.params), len(alike.op))
        if at == len(alike.op):
            alike.op.append(number[node.op])
            alike.params.append(known.params.tobytes())
        alike.of_node.append(at)
    return alike


def _matrix(params: list[bytes]) -> NDArray[np.int32]:
    return np.frombuffer(b"".join(params), np.int32).reshape(-1, _core.PARAM_WORDS)


def _encode_nodes(
    graph: Graph, costs: Costs, draft: Draft, alike: _Alike, places: list[tuple[int, int]], slices: _Slices
) -> Records:
    nodes = np.zeros(len(graph.nodes), _core.NODE_DTYPE)
    chosen = [known.variants[v] for known, v in zip(costs.nodes, draft.choices["variant"].tolist(), strict=True)]
    workspace = [variant.workspace_bytes for variant in chosen]
    starts = zip(workspace, draft.node_address[:, 0].tolist(), strict=True)
    params = [alike.params[i] for i in alike.of_node]
    blocks: dict[tuple[int, int], bytes] = {}
    for i, variant in enumerate(chosen):
        if variant.tile_block:
            own = alike.of_node[i], variant.tile_block
            if own not in blocks:
                blocks[own] = bytes_with_tile_block(params[i], variant.tile_block)
            params[i] = blocks[own]
    number = {kernel: i for i, kernel in enumerate(OPERATORS["conv"].kernels)} | {"": 0}
    nodes["op"] = [alike.op[i] for i in alike.of_node]
    for i in range(0, len(params), ROWS_AT_ONCE):
        nodes["params"][i : i + ROWS_AT_ONCE] = _matrix(params[i : i + ROWS_AT_ONCE])
    nodes["kernel"] = [number[variant.kernel] for variant in chosen]
    nodes["workspace_bytes"] = workspace
    nodes["workspace_offset"] = [slices.base + start if size else 0 for size, start in starts]
    read, most = _read(graph, costs, places, slices), nodes["in"]["base"].shape[1]
    made = [places[node.outputs[0]] for node in graph.nodes]
    for i, name in enumerate(("base", "offset")):
        for operand in range(most):
            nodes["in"][name][:, operand] = [place[i] for place in read[operand::most]]
        nodes["out"][name] = [place[i] for place in made]
    return nodes


def _read(graph: Graph, costs: Costs, places: list[tuple[int, int]], slices: _Slices) -> list[tuple[int, int]]:
    """Return base and offset of what each node reads, node by node, as many as a record has room for. A big constant
    has a place for each node that reads it; a table is its number.
    """
    most = _core.NODE_DTYPE["in"].shape[0]
    tables = {weight: i for i, weight in enumerate(_table_weights(costs))}
    own = {}
    for reader, operand, at in zip(slices.node, slices.operand, slices.address, strict=True):
        if operand >= 0:
            tensor = graph.tensors[graph.nodes[reader].inputs[operand]]
            own[reader, operand] = 0, at + tensor.offset * DTYPES[tensor.dtype].itemsize
    own |= {(i, 0): (_core.BASE_FILE, tables[node.table]) for i, node in enumerate(costs.nodes) if node.table >= 0}
    read = []
    for index, node in enumerate(graph.nodes):
        inputs = node.inputs[:most]
        read += [own.get((index, i)) or places[tensor] for i, tensor in enumerate(inputs)]
        read += [NOWHERE] * (most - len(inputs))
    return read


def _places(graph: Graph, costs: Costs, draft: Draft, constants: dict[int, int], base: int) -> list[tuple[int, int]]:
    """Return base and offset of each tensor as an operand. Big constants, which have a place for each node that reads
    them, have -1.
    """
    io = {root: 1 + i for i, root in enumerate([*graph.inputs, *graph.outputs])}
    place = {root: base + at for root, at in zip(costs.roots, draft.placement.address, strict=True)}
    for spill in graph.spills:
        io[spill.root], place[spill.root] = _core.BASE_SPILL, spill.offset
    size = {name: dtype.itemsize for name, dtype in DTYPES.items()}
    places = []
    for index, tensor in enumerate(graph.tensors):
        root = index if tensor.root < 0 else tensor.root
        at = place.get(root)
        if at is None:
            at = 0 if root in io else constants.get(graph.tensors[root].weight, -1)
        places.append((io.get(root, 0), at + tensor.offset * size[tensor.dtype]))
    return places


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


def _encode_steps(alike: _Alike, draft: Draft, slices: _Slices, io_align: int) -> Records:
    records = np.zeros(len(alike.op), _core.NODE_DTYPE)
    records["op"], records["params"] = alike.op, _matrix(alike.params)
    windows = np.zeros((len(records), 4), np.int32)
    _core.node_needs(records, np.zeros((len(records), 4), np.int64), windows)
    whole = windows.tolist()
    names = "node", "p0", "p1", "wait_loads"
    steps = zip(*(draft.steps[name].data for name in names), strict=True)
    align, panels = _read_align(io_align), array("q", (-1,)) * len(draft.steps)
    for step, operand, address, offset in zip(slices.step, slices.operand, slices.address, slices.offset, strict=True):
        if operand < 0:
            panels[step] = address + offset % align
    for step, kept in draft.kept.items():
        panels[step] = slices.base + kept.address + kept.offset % align

    def rows() -> Iterator[tuple[int, int, tuple[int, int, int, int], int]]:
        for (node, p0, p1, wait), panel in zip(steps, panels, strict=True):
            y0, y1, c0, c1 = whole[alike.of_node[node]]
            if p1 > 0:
                c0, c1 = p0 * _core.NR, min(p1 * _core.NR, c1)
            yield node, wait, (y0, y1, c0, c1), panel

    return np.fromiter(rows(), _core.STEP_DTYPE, len(draft.steps))
