"""Activations in the spill file: written when they are computed, read back before their use.

A spill is two nodes that copy. A *store* copies an activation into the file, a *fetch* copies it out of the file into
another activation, which later nodes read. So bands (planning/bands.py) go through both: each band stores the rows that
it computed first, and fetches the rows that it reads. Which rows a fetch copies is known when bands are written out;
then they become a constant of the node, which lies in the spill file and is always streamed. So drafts, addresses,
timeline and engine see a step and a load as any other, but that the load waits for the steps that store its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from flexnn import _core
from flexnn.graph.ir import DTYPES, Attr, Graph, Node, Spill, Tensor, Weight

from .types import Costs, align_up

NEAR = 4
"""Most nodes from one use of an activation to the next, in which it stays in memory."""
LARGE = 0.02
"""Smallest activation that is spilled, as a fraction of the most bytes alive at once."""
ROWS_MAX = 1 << 14
"""Most rows of an activation that is spilled: each has a checksum."""
PIECE_BYTES = 4 << 20
"""Smallest part of an activation that is fetched at once, where no band says how much: a node takes 16 KiB beside the
arena, and smaller parts spare less.
"""
PIECES_MAX = 4
"""Most such parts."""


def is_spilled(weight: Weight) -> bool:
    """Return whether a weight stands for rows in the spill file."""
    return weight.offset >= _core.SPILL_FROM


def stored_after(graph: Graph) -> dict[int, int]:
    """Return, for each weight that stands for rows in the spill file, the last node that stores some of them."""
    by_root = {spill.root: spill for spill in graph.spills}
    stores: list[tuple[int, int, int]] = []
    for index, node in enumerate(graph.nodes) if graph.spills else ():
        spill = by_root.get(graph.root(node.outputs[0]))
        if spill is not None:
            begin = _core.SPILL_FROM + spill.offset + _offset(graph, node.outputs[0])
            stores.append((begin, begin + graph.tensors[node.outputs[0]].nbytes, index))
    return {
        i: max(index for begin, end, index in stores if begin < weight.offset + weight.nbytes and weight.offset < end)
        for i, weight in enumerate(graph.weights)
        if is_spilled(weight)
    }


def waiting(graph: Graph, costs: Costs) -> list[int]:
    """Return the activations that wait for a reader while others need memory, and may be spilled."""
    uses = _all_uses(graph)
    return [root for root in spillable(graph, costs) if _waits(uses[root])]


def spillable(graph: Graph, costs: Costs) -> list[int]:
    """Return the activations that may be spilled, the largest first: those whose rows lie one after the other, which
    are written before nodes read them, and which are not small.
    """
    uses = _all_uses(graph)
    large = LARGE * max(_alive(costs), default=0)
    sizes = dict(zip(costs.roots, costs.root_bytes, strict=True))
    fit = [
        root
        for root, size in sizes.items()
        if size >= large and _rows(graph.tensors[root])[0] <= ROWS_MAX and _far_reads(uses[root], cuts=True)
    ]
    return sorted(fit, key=lambda root: -sizes[root])


def _alive(costs: Costs) -> Iterator[int]:
    change = [0] * (len(costs.nodes) + 1)
    for size, first, last in zip(costs.root_bytes, costs.first_node, costs.last_node, strict=True):
        change[first] += size
        change[last + 1] -= size
    alive = 0
    for by in change:
        alive += by
        yield alive


_Uses = list[tuple[int, bool]]
"""(node, whether it writes) of an activation, in the order of nodes."""


def _all_uses(graph: Graph) -> dict[int, _Uses]:
    uses: dict[int, _Uses] = {}
    for index, node in enumerate(graph.nodes):
        for tensor in node.inputs:
            uses.setdefault(graph.root(tensor), []).append((index, False))
        uses.setdefault(graph.root(node.outputs[0]), []).append((index, True))
    return uses


def _far_reads(uses: _Uses, *, cuts: bool) -> list[int]:
    """Return the nodes that read an activation from the file: those behind the first wait of more than NEAR nodes, or
    with ``cuts`` all that read it when it is complete.
    """
    complete = max((index for index, writes in uses if writes), default=-1)
    reads = sorted({index for index, writes in uses if not writes and index > complete})
    if complete < 0 or cuts:
        return reads if complete >= 0 else []
    before = complete
    for at, index in enumerate(reads):
        if index - before > NEAR:
            return reads[at:]
        before = index
    return []


def _waits(uses: _Uses) -> bool:
    return bool(_far_reads(uses, cuts=False))


def _rows(tensor: Tensor) -> tuple[int, int]:
    """Return the number of rows of an activation, of all images, and their bytes."""
    axes = 2 if len(tensor.shape) > 2 else 1
    return prod(tensor.shape[:axes]), prod(tensor.shape[axes:]) * DTYPES[tensor.dtype].itemsize


def _offset(graph: Graph, tensor: int) -> int:
    view = graph.tensors[tensor]
    return view.offset * DTYPES[view.dtype].itemsize


def _copying(name: str, rank: int, source: int, target: int) -> Node:
    attrs: dict[str, Attr] = {"perm": list(range(rank)), "expand": [0] * rank}
    return Node(name, "copy", [source], [target], attrs)


def _moves_all(graph: Graph, node: Node, root: int) -> bool:
    """Return whether a node only copies all of a root."""
    view = graph.tensors[node.inputs[0]]
    rank = len(view.shape)
    return (
        node.op == "copy"
        and node.attrs["perm"] == list(range(rank))
        and not any(node.attrs["expand"])  # type: ignore[arg-type]
        and view.contiguous
        and view.size == graph.tensors[root].size
        and graph.tensors[node.outputs[0]].dtype == view.dtype
    )


def with_spills(graph: Graph, roots: Sequence[int], cuts: Sequence[int] = ()) -> Graph:
    """Return the graph with activations in the spill file: ``roots`` from where they wait, ``cuts`` from where they
    are complete.
    """
    for root in (*roots, *cuts):
        graph = _with_spill(graph, root, cuts=root in cuts)
    return graph


def _with_spill(graph: Graph, root: int, *, cuts: bool) -> Graph:
    uses = _all_uses(graph)[root]
    far = _far_reads(uses, cuts=cuts)
    if not far:
        return graph
    complete = max(index for index, writes in uses if writes)
    whole, rank = graph.tensors[root], len(graph.tensors[root].shape)
    rows, row_bytes = _rows(whole)
    last = graph.spills[-1] if graph.spills else None
    offset = align_up(last.offset + last.nbytes, _core.DIRECT_ALIGN) if last else 0
    crc_first = last.crc_first + last.nbytes // last.row_bytes if last else 0
    tensors, nodes = list(graph.tensors), list(graph.nodes)
    spilled = len(tensors)
    tensors.append(Tensor(f"{whole.name}.spilled", whole.shape, whole.dtype))
    spill = Spill(spilled, offset, rows * row_bytes, row_bytes, crc_first)
    new: dict[int, list[Node]] = {complete + 1: [_copying(f"{whole.name}.store", rank, root, spilled)]}
    before, fetched = -NEAR - 1, -1
    for index in far:
        node = graph.nodes[index]
        if _moves_all(graph, node, root):
            shape = graph.tensors[node.inputs[0]].shape
            tensors.append(Tensor(f"{whole.name}.view", shape, whole.dtype, spilled))
            nodes[index] = replace(node, inputs=[len(tensors) - 1], params=None)
            continue
        if index - before > NEAR:
            fetched = len(tensors)
            tensors.append(Tensor(f"{whole.name}.fetched", whole.shape, whole.dtype))
            new.setdefault(index, []).append(_copying(f"{whole.name}.fetch", rank, spilled, fetched))
        inputs = []
        for tensor in node.inputs:
            if graph.root(tensor) == root:
                tensors.append(replace(graph.tensors[tensor], root=fetched))
                tensor = len(tensors) - 1
            inputs.append(tensor)
        nodes[index] = replace(node, inputs=inputs, params=None)
        before = index
    every = [
        node for index, old in enumerate([*nodes, None]) for node in (*new.get(index, ()), *((old,) if old else ()))
    ]
    added = graph.added + len(every) - len(nodes)
    return replace(graph, tensors=tensors, nodes=every, added=added, spills=(*graph.spills, spill))


def lowered(graph: Graph) -> Graph | None:
    """Return the graph with what its nodes fetch as constants in the spill file; None where some of it, or of what they
    store, is not whole rows.
    """
    by_root = {spill.root: spill for spill in graph.spills}
    tensors, weights, nodes = list(graph.tensors), list(graph.weights), list[Node]()
    for node in graph.nodes:
        spill = by_root.get(graph.root(node.outputs[0]))
        if spill is not None and not _is_whole_rows(graph, node.outputs[0], spill):
            return None
        source = next((by_root[r] for t in node.inputs if (r := graph.root(t)) in by_root), None)
        if source is None:
            nodes.append(node)
            continue
        if not _is_whole_rows(graph, node.inputs[0], source):
            return None
        for part in _pieces(graph, node, tensors):
            view = tensors[part.inputs[0]]
            at = view.offset * DTYPES[view.dtype].itemsize
            weights.append(
                Weight(
                    part.name,
                    "raw",
                    view.nbytes,
                    source.row_bytes,
                    _core.SPILL_FROM + source.offset + at,
                    source.crc_first + at // source.row_bytes,
                )
            )
            tensors.append(Tensor(view.name, view.shape, view.dtype, weight=len(weights) - 1))
            nodes.append(replace(part, inputs=[len(tensors) - 1], params=None))
    added = graph.added + len(nodes) - len(graph.nodes)
    return replace(graph, tensors=tensors, weights=weights, nodes=nodes, added=added)


def _is_whole_rows(graph: Graph, tensor: int, spill: Spill) -> bool:
    view = graph.tensors[tensor]
    return view.contiguous and not (_offset(graph, tensor) % spill.row_bytes or view.nbytes % spill.row_bytes)


def _pieces(graph: Graph, node: Node, tensors: list[Tensor]) -> Iterator[Node]:
    """Yield a node that fetches, or nodes that fetch some rows each, so that little memory waits to be copied."""
    view, target = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    axis = 1 if len(view.shape) > 2 and view.shape[0] == 1 else 0
    height = view.shape[axis]
    count = min(view.nbytes // PIECE_BYTES, PIECES_MAX, height)
    if count < 2 or node.attrs["perm"] != list(range(len(view.shape))) or view.shape != target.shape:
        yield node
        return
    for i in range(count):
        low, high = height * i // count, height * (i + 1) // count
        for whole, root in ((view, graph.root(node.inputs[0])), (target, graph.root(node.outputs[0]))):
            shape = (*whole.shape[:axis], high - low, *whole.shape[axis + 1 :])
            offset = whole.offset + low * whole.strides[axis]
            tensors.append(Tensor(f"{whole.name}[{low}:{high}]", shape, whole.dtype, root, offset, whole.strides))
        yield replace(node, name=f"{node.name}[{low}:{high}]", inputs=[len(tensors) - 2], outputs=[len(tensors) - 1])
