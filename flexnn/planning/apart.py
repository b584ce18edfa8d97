"""Maps that wait for a concatenation, kept by themselves: a part that is computed long before its neighbours would hold
the storage of the whole for as long as it waits. Kept by itself, it is copied into its place just before the whole is
read, which bands of rows do row by row (planning/bands.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flexnn.graph.ir import Attr, Graph, Node, Tensor, contiguous_strides
from flexnn.graph.operators import OPERATORS

from .band_tables import part_of
from .layout import Blocks
from .types import Costs, Lives

WAITS = 4
"""Fewest nodes between a part and the reader of the whole, for which it is kept apart."""
BESIDE = 0.1
"""Smallest map beside which a sum is kept apart, as a fraction of the most bytes alive at once."""
LARGE = 0.02
"""Smallest storage of a concatenation, as a fraction of the most bytes alive at once."""


def apart(graph: Graph, costs: Costs | Lives, *, over: bool = False) -> Graph:
    """Return the graph with waiting parts of large concatenations in storage of their own; the same graph where there
    are none. ``over``: a part is written over a map that ends with it, where its node may do so.
    """
    most = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node).bound
    makers = Counter(root for node in graph.nodes for root in {graph.root(tensor) for tensor in node.outputs})
    roots = [
        root
        for root, size in zip(costs.roots, costs.root_bytes, strict=True)
        if size > LARGE * most and makers[root] > 1
    ]
    uses = _all_uses(graph, roots)
    for root in roots:
        parted = _without(graph, root, uses[root], over=over)
        uses = uses if parted is graph else _all_uses(parted, roots)
        graph = parted
    return graph


_Use = tuple[int, int, bool]
"""Node, tensor, and whether it is an output."""


def _all_uses(graph: Graph, roots: list[int]) -> dict[int, list[_Use]]:
    """Return the uses of roots, in the order of nodes."""
    found: dict[int, list[_Use]] = {root: [] for root in roots}
    owners = [i if tensor.root < 0 else tensor.root for i, tensor in enumerate(graph.tensors)] if roots else []
    for index, node in enumerate(graph.nodes) if roots else ():
        for tensors, is_output in ((node.outputs, True), (node.inputs, False)):
            for tensor in tensors:
                if owners[tensor] in found:
                    found[owners[tensor]].append((index, tensor, is_output))
    return found


def _without(graph: Graph, root: int, uses: list[_Use], *, over: bool) -> Graph:
    """Return the graph with the waiting parts of a root apart from it."""
    whole = graph.tensors[root]
    width = whole.shape[-1] if whole.shape else 0
    parts = {part_of(graph.tensors[tensor], whole) for _, tensor, is_output in uses if is_output}
    if (
        len(parts) < 2
        or (0, width) in parts
        or any(a != b and a[0] < b[1] and b[0] < a[1] for a in parts for b in parts)
    ):
        return graph
    readers = [index for index, tensor, _ in uses if part_of(graph.tensors[tensor], whole) not in parts]
    for part in parts:
        own = [(i, t) for i, t, _ in uses if part_of(graph.tensors[t], whole) == part]
        first_reader = min(readers, default=-1)
        if max(i for i, _ in own) < first_reader and first_reader - own[0][0] > WAITS:
            moved = _moved(graph, root, part, {t for _, t in own}, first_reader, over=over)
            readers = [index + 1 for index in readers] if moved is not graph else readers
            uses = [(i + (i >= first_reader and moved is not graph), t, o) for i, t, o in uses]
            graph = moved
    return graph


def _moved(graph: Graph, root: int, part: tuple[int, int], tensors: set[int], before: int, *, over: bool) -> Graph:
    """Return the graph with the part of a root in storage of its own, and a copy of it in node ``before``."""
    whole, width = graph.tensors[root], part[1] - part[0]
    views = [graph.tensors[tensor] for tensor in tensors]
    full = max(views, key=lambda view: view.size)
    pitch = whole.shape[-1]
    if full.size * pitch != whole.size * width or full.shape[-1] != width:
        return graph
    added = list(graph.tensors)
    own = _dying(graph, tensors, full) if over else -1
    if own < 0:
        own = len(added)
        added.append(Tensor(f"{full.name}.apart", full.shape, full.dtype))
    renamed: dict[int, int] = {}
    for tensor in tensors:
        view = graph.tensors[tensor]
        if any(d > 1 and s % pitch for d, s in zip(view.shape[:-1], view.strides[:-1], strict=True)):
            return graph
        strides = (*(s // pitch * width for s in view.strides[:-1]), view.strides[-1])
        offset = view.offset // pitch * width + view.offset % pitch - part[0]
        renamed[tensor] = len(added)
        added.append(replace(view, root=own, offset=offset, strides=strides))
    target = next(t for t in tensors if graph.tensors[t] is full)
    rank = len(full.shape)
    attrs: dict[str, Attr] = {"perm": list(range(rank)), "expand": [0] * rank}
    copied = Node(f"{full.name}.copy", "copy", [renamed[target]], [target], attrs)
    nodes = [
        replace(
            node,
            inputs=[renamed.get(t, t) for t in node.inputs],
            outputs=[renamed.get(t, t) for t in node.outputs],
            params=None,
        )
        if not renamed.keys().isdisjoint((*node.inputs, *node.outputs))
        else node
        for node in graph.nodes
    ]
    nodes.insert(before, copied)
    return replace(graph, tensors=added, nodes=nodes, added=graph.added + 1)


def _dying(graph: Graph, tensors: set[int], full: Tensor) -> int:
    """Return the root of a map of the shape of ``full`` that the node which makes ``tensors`` is the last to read, and
    may write over: of several the oldest, as bands of rows make those just before it. -1: there is none.
    """
    makers = [i for i, node in enumerate(graph.nodes) if not tensors.isdisjoint(node.outputs)]
    if len(makers) != 1 or graph.tensors[graph.nodes[makers[0]].outputs[0]].shape != full.shape:
        return -1
    node = graph.nodes[makers[0]]
    fixed = {graph.root(tensor) for tensor in (*graph.inputs, *graph.outputs)}
    dying: dict[int, int] = {}
    for operand in OPERATORS[node.op].in_place:
        if operand >= len(node.inputs):
            continue
        tensor, root = graph.tensors[node.inputs[operand]], graph.root(node.inputs[operand])
        whole = graph.tensors[root]
        is_whole = (tensor.shape, tensor.dtype, tensor.size) == (full.shape, full.dtype, whole.size)
        if not is_whole or whole.weight >= 0 or root in fixed or tensor.strides != contiguous_strides(full.shape):
            continue
        uses = [
            i for i, other in enumerate(graph.nodes) for t in (*other.inputs, *other.outputs) if graph.root(t) == root
        ]
        if uses.count(makers[0]) == 1 and uses[-1] == makers[0]:
            dying[root] = uses[0]
    return min(dying, key=lambda root: dying[root], default=-1)


def sums_apart(graph: Graph, costs: Costs | Lives, *, waiting: bool = False) -> Graph:
    """Return the graph with storage of their own for sums that are written over a map which other nodes read by then: a
    band of rows would write over rows that the next band reads. The same graph where there are none beside large maps.
    ``waiting``: for sums over large maps that waited for them instead, which can leave memory meanwhile.
    """
    most = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node).bound
    sizes = dict(zip(costs.roots, costs.root_bytes, strict=True))
    tensors, nodes = list(graph.tensors), list(graph.nodes)
    roots = [{graph.root(t) for t in node.inputs} for node in nodes]
    outputs = [graph.root(node.outputs[0]) for node in nodes]
    written: dict[int, int] = {}
    now: dict[int, int] = {}
    """Storage that has taken the place of a root, by then."""
    moved: dict[tuple[int, int], int] = {}

    def placed(tensor: int, root: int) -> int:
        """Return the tensor in the storage that its root has by then."""
        if root not in now:
            return tensor
        if tensor == root:
            return now[root]
        if (tensor, now[root]) not in moved:
            moved[tensor, now[root]] = len(tensors)
            tensors.append(replace(graph.tensors[tensor], root=now[root]))
        return moved[tensor, now[root]]

    for index, node in enumerate(graph.nodes):
        root = outputs[index]
        inputs = [placed(tensor, graph.root(tensor)) for tensor in node.inputs]
        between = range(written.get(root, index) + 1, index)
        others = [i for i in between if root in roots[i] and outputs[i] != root]
        if (
            root in roots[index]
            and others
            and graph.tensors[node.outputs[0]].size == graph.tensors[root].size
            and (
                len(between) >= WAITS and sizes.get(root, 0) > LARGE * most
                if waiting
                else max(sizes.get(outputs[i], 0) for i in between) > max(BESIDE * most, sizes.get(root, most))
            )
        ):
            now[root] = len(tensors)
            tensors.append(replace(graph.tensors[root], name=f"{graph.tensors[root].name}.sum"))
        taken = [placed(tensor, graph.root(tensor)) for tensor in node.outputs]
        if inputs != node.inputs or taken != node.outputs:
            nodes[index] = replace(node, inputs=inputs, outputs=taken, params=None)
        written[root] = index
    return replace(graph, tensors=tensors, nodes=nodes) if now else graph
