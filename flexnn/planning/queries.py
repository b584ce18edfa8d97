"""Rows that wait for whole maps: an attention needs all keys and values, but of the queries only the rows at hand. Made
just before it, and from rows that are normed once more, queries are never whole, nor is what follows from them, as
bands of rows (planning/bands.py) go from there up to what is added to the map that all began with.

A convolution that makes queries, keys and values at once becomes one for each: panels of a weight are panels of a
shorter one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flexnn.graph.attributes import int_attr
from flexnn.graph.ir import Graph, Node, Tensor
from flexnn.graph.panels import NR, is_narrow

from .band_tables import waits_for_whole, work_of
from .layout import Blocks
from .types import Costs

LARGE = 0.25
"""Bytes of what an attention reads, as a fraction of the most bytes alive at once, from which on it is worth it."""
WORK_MAX = 0.1
"""Work of a node that runs twice, as a fraction of that of the node that needs it."""

Columns = tuple[int, int]


def queries_last(graph: Graph, costs: Costs, wanted: int = 0) -> Graph:
    """Return the graph with queries in storage of their own, made just before they are read; the same graph where there
    are none, or where the most bytes alive at once can not become ``wanted`` fewer.
    """
    waiting = [index for index, node in enumerate(graph.nodes) if waits_for_whole(graph, node)]
    if not waiting:
        return graph
    sizes = dict(zip(costs.roots, costs.root_bytes, strict=True))
    blocks = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node)
    most, live = blocks.bound, blocks.live(len(graph.nodes)).tolist()
    writer = _Writer(graph)
    nodes = writer.nodes_to_read()
    for index in waiting:
        node = graph.nodes[index]
        touched = {graph.root(t) for t in (*node.inputs, *node.outputs)}
        own = sum(sizes.get(root, 0) for root in touched)
        needed = sum(graph.tensors[t].nbytes for t in node.inputs[1:] if graph.root(t) in sizes)
        if live[index] - own + needed > most - wanted:
            return graph
        if own > LARGE * most:
            writer.part(nodes[index])
            writer.put_off(nodes[index])
    return writer.graph() if writer.is_changed else graph


def _columns(view: Tensor, width: int) -> Columns | None:
    """Return the columns of its root that a view touches, and no others; None where its rows are none of the root's."""
    steps = [(d, s) for d, s in zip(view.shape, view.strides, strict=True) if d > 1]
    if any(s < 0 or (s > width and s % width) for _, s in steps):
        return None
    low = view.offset % width
    high = low + sum((d - 1) * s for d, s in steps if s < width) + 1
    return (low, high) if high <= width else None


class _Writer:
    """Writes a graph with queries made last."""

    def __init__(self, graph: Graph) -> None:
        self.is_changed = False
        self._graph = graph
        self._tensors, self._weights = list(graph.tensors), list(graph.weights)
        self._nodes = [replace(node) for node in graph.nodes]
        self._owners = [i if tensor.root < 0 else tensor.root for i, tensor in enumerate(graph.tensors)]
        self._users: dict[int, list[Node]] = {}
        """Nodes that touch each root, in their order."""
        for node in self._nodes:
            self._use(node)

    def nodes_to_read(self) -> list[Node]:
        """Return the nodes, which stay the same objects while they move and read other tensors."""
        return list(self._nodes)

    def graph(self) -> Graph:
        """Return the graph as it is now."""
        added = self._graph.added + len(self._nodes) - len(self._graph.nodes)
        return replace(self._graph, tensors=self._tensors, nodes=self._nodes, weights=self._weights, added=added)

    def _root(self, tensor: int) -> int:
        return self._owners[tensor]

    def _roots(self, tensors: Iterable[int]) -> set[int]:
        return {self._owners[tensor] for tensor in tensors}

    def _use(self, node: Node) -> None:
        for root in dict.fromkeys(self._owners[t] for t in (*node.inputs, *node.outputs)):
            self._users.setdefault(root, []).append(node)

    def _add(self, tensor: Tensor) -> int:
        """Add a tensor; return its number."""
        index = len(self._tensors)
        self._tensors.append(tensor)
        self._owners.append(index if tensor.root < 0 else tensor.root)
        return index

    def _place(self, node: Node) -> int:
        return next(i for i, other in enumerate(self._nodes) if other is node)

    # ---- a convolution in parts ----

    def part(self, reader: Node) -> None:
        """Have the first input of a node made by a convolution of its own, where one made others with it."""
        root = self._root(reader.inputs[0])
        users = self._users[root]
        writers = [node for node in users if root in self._roots(node.outputs)]
        if not writers or not self._is_parted(writers[0], root):
            return
        made, width = writers[0], self._tensors[root].shape[-1]
        views = sorted(
            {
                tensor
                for node in users
                if node is not made
                for tensor in (*node.inputs, *node.outputs)
                if self._root(tensor) == root
            }
        )
        columns = {tensor: _columns(self._tensors[tensor], width) for tensor in views}
        own = columns[reader.inputs[0]]
        if own is None or own == (0, width) or own[0] % NR or own[1] % NR:
            return
        parts = [(low, high) for low, high in ((0, own[0]), own, (own[1], width)) if low < high]
        cells = {t: next((p for p in parts if c and p[0] <= c[0] and c[1] <= p[1]), None) for t, c in columns.items()}
        if None in cells.values() or any(is_narrow(high - low, self._cin(made), 1) for low, high in parts):
            return
        self._write_parts(made, root, parts, {tensor: cell for tensor, cell in cells.items() if cell is not None})

    def _cin(self, node: Node) -> int:
        return self._tensors[node.inputs[0]].shape[-1]

    def _is_parted(self, node: Node, root: int) -> bool:
        """Return whether parts of a node's panels make parts of a root, all of which it makes."""
        if node.weight < 0 or node.attrs.get("group") != 1 or "cout" not in node.attrs or len(node.inputs) != 1:
            return False
        output, whole, weight = self._tensors[node.outputs[0]], self._tensors[root], self._weights[node.weight]
        users = sum(other.weight == node.weight for other in self._nodes)
        return (
            users == 1
            and root not in (*self._graph.inputs, *self._graph.outputs)
            and output.contiguous
            and output.size == whole.size
            and output.shape[-1:] == whole.shape[-1:] == (int_attr(node, "cout"),)
            and weight.nbytes == -(-whole.shape[-1] // NR) * weight.chunk_bytes
            and not is_narrow(whole.shape[-1], self._cin(node), 1)
        )

    def _write_parts(self, made: Node, root: int, parts: list[Columns], cells: dict[int, Columns]) -> None:
        whole, output = self._tensors[root], self._tensors[made.outputs[0]]
        width, weight = whole.shape[-1], self._weights[made.weight]
        nodes, roots = [], dict[Columns, int]()
        for number, (low, high) in enumerate(parts):
            name = f"{made.name}.{number}"
            roots[low, high] = self._add(
                Tensor(f"{output.name}.{number}", (*output.shape[:-1], high - low), output.dtype)
            )
            first, chunk = low // NR, weight.chunk_bytes
            panels = -(-high // NR) - first
            some = replace(
                weight,
                name=f"{weight.name}.{number}",
                nbytes=panels * chunk,
                offset=weight.offset + first * chunk if weight.offset >= 0 else -1,
                crc_first=weight.crc_first + first,
            )
            index = made.weight if not number else len(self._weights)
            self._weights[index : index + 1] = [some]
            attrs = made.attrs | {"cout": high - low}
            nodes.append(Node(name, made.op, list(made.inputs), [roots[low, high]], attrs, index))
        moved: dict[int, int] = {}
        for tensor, (low, high) in cells.items():
            view = self._tensors[tensor]
            strides = tuple(s // width * (high - low) if s >= width else s for s in view.strides)
            offset = view.offset // width * (high - low) + view.offset % width - low
            moved[tensor] = self._add(replace(view, root=roots[low, high], offset=offset, strides=strides))
        place = self._place(made)
        self._nodes[place : place + 1] = nodes
        for source in self._roots(made.inputs):
            at = next(i for i, node in enumerate(self._users[source]) if node is made)
            self._users[source][at : at + 1] = nodes
        for part, node in zip(parts, nodes, strict=True):
            self._users[roots[part]] = [node]
        for node in self._users.pop(root):
            if node is not made:
                self._rename(node, moved)
        self.is_changed = True

    def _rename(self, node: Node, moved: dict[int, int]) -> None:
        """Have a node touch other tensors in place of some."""
        node.inputs, node.outputs, node.params = (
            [moved.get(t, t) for t in node.inputs],
            [moved.get(t, t) for t in node.outputs],
            None,
        )
        for root in dict.fromkeys(self._owners[t] for t in (*node.inputs, *node.outputs) if t in moved.values()):
            self._users.setdefault(root, []).append(node)

    # ---- nodes that wait ----

    def put_off(self, reader: Node) -> None:
        """Move the nodes that make a node's first input, and nothing else, to just before it. What they read is made
        once more there, where others read it before and it takes little to make.
        """
        root = self._root(reader.inputs[0])
        touching = self._users[root]
        chain = [n for n in touching if n is not reader and root in self._roots(n.outputs)]
        is_alone = list(map(id, touching)) == list(map(id, [*chain, reader]))
        if not chain or not is_alone or not self._may_wait(chain, reader):
            return
        again = self._made_again(chain[0], reader)
        if again is None and self._place(chain[0]) == self._place(reader) - len(chain):
            return
        self._nodes = [n for n in self._nodes if not any(n is other for other in chain)]
        place = self._place(reader)
        self._nodes[place:place] = chain if again is None else [again, *chain]
        self.is_changed = True

    def _may_wait(self, chain: list[Node], reader: Node) -> bool:
        """Return whether nothing between some nodes and their reader writes what they touch."""
        between = self._nodes[self._place(chain[0]) : self._place(reader)]
        written = set[int]().union(*(self._roots(n.outputs) for n in between if not any(n is c for c in chain)))
        touched = set[int]().union(*(self._roots((*n.inputs, *n.outputs)) for n in chain))
        return written.isdisjoint(touched)

    def _made_again(self, node: Node, reader: Node) -> Node | None:
        """Return a node that makes the input of another once more, which reads it then; None where that is of no use
        or takes too long.
        """
        source = self._root(node.inputs[0])
        makers = [n for n in self._users[source] if source in self._roots(n.outputs)]
        readers = [n for n in self._users[source] if source in self._roots(n.inputs)]
        if len(makers) != 1 or len(readers) < 2 or source in (*self._graph.inputs, *self._graph.outputs):
            return None
        maker = makers[0]
        graph = replace(self._graph, tensors=self._tensors)
        if maker.weight >= 0 or work_of(graph, maker) > WORK_MAX * work_of(graph, node):
            return None
        read = self._roots(maker.inputs)
        between = self._nodes[self._place(maker) + 1 : self._place(reader)]
        if source in read or any(not read.isdisjoint(self._roots(n.outputs)) for n in between):
            return None
        name = f"{self._tensors[source].name}.again"
        moved = {source: self._add(replace(self._tensors[source], name=name))}
        for tensor in {*maker.outputs, *(t for t in node.inputs if self._root(t) == source)} - {source}:
            moved[tensor] = self._add(replace(self._tensors[tensor], root=moved[source]))
        self._users[source] = [n for n in self._users[source] if n is not node]
        again = replace(maker, name=f"{maker.name}.again", outputs=[moved[t] for t in maker.outputs], params=None)
        node.inputs, node.params = [moved.get(t, t) for t in node.inputs], None
        self._users[moved[source]] = [again, node]
        return again
