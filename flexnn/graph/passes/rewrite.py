"""Tools of the passes: finding the producer and the readers of a value, replacing values, looking through reshapes."""

from __future__ import annotations

from ..build import add_node, constant_value
from ..ir import Attr, Graph, Node
from ..sources import depends

WIDE = 64
"""Inputs beyond which a node's are looked up by their places."""


class Rewriter:
    """Producers and consumers of a graph's values, kept right while nodes change through this. ``flush`` at the end."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer: dict[int, Node] = {}
        self.consumers: dict[int, list[Node]] = {}
        self._gone: set[int] = set()
        self._places: dict[int, tuple[list[int], dict[int, list[int]]]] = {}
        """Inputs of wide nodes, by their ids, and where each tensor stands in them."""
        self._new: dict[int, list[Node]] = {}
        """Nodes to stand before a node, by its id."""
        for node in graph.nodes:
            for i in node.outputs:
                self.producer[i] = node
            for i in node.inputs:
                self.consumers.setdefault(i, []).append(node)

    def only_consumer(self, tensor: int) -> Node | None:
        """The one node that reads ``tensor``, once; None if there are several, or it is a graph output."""
        nodes = self.consumers.get(tensor, [])
        return nodes[0] if len(nodes) == 1 and tensor not in self.graph.outputs else None

    def replace(self, old: int, new: int) -> None:
        """Make everything read ``new`` in place of ``old``; as a graph output it takes the name too."""
        for node in self.consumers.pop(old, []):
            if len(node.inputs) > WIDE:
                self._replace_in_wide(node, old, new)
            elif old in node.inputs:
                self.consumers.setdefault(new, []).extend([node] * node.inputs.count(old))
                node.inputs = [new if i == old else i for i in node.inputs]
        if old in self.graph.outputs:
            self.graph.outputs = [new if i == old else i for i in self.graph.outputs]
            self.graph.tensors[new].name = self.graph.tensors[old].name

    def _replace_in_wide(self, node: Node, old: int, new: int) -> None:
        """Make a node with many inputs, each of which may be replaced, read ``new`` in place of ``old``."""
        inputs, places = self._places.get(id(node), ([], {}))
        if inputs is not node.inputs:
            inputs, places = list(node.inputs), {}
            for place, i in enumerate(inputs):
                places.setdefault(i, []).append(place)
            node.inputs = inputs
            self._places[id(node)] = inputs, places
        moved = [place for place in places.pop(old, []) if inputs[place] == old]
        for place in moved:
            inputs[place] = new
        if moved:
            places.setdefault(new, []).extend(moved)
            self.consumers.setdefault(new, []).extend([node] * len(moved))

    def feed(self, node: Node, inputs: list[int]) -> None:
        """Give ``node`` other inputs; what nothing reads any more goes."""
        before, node.inputs = node.inputs, inputs
        for i in inputs:
            self.consumers.setdefault(i, []).append(node)
        self._release(node, before)

    def remove(self, node: Node) -> None:
        """Take a node out whose outputs nothing reads; what nothing reads any more goes too."""
        self._drop(node)
        self._release(node, node.inputs)

    def _drop(self, node: Node) -> None:
        self._gone.add(id(node))
        for i in node.outputs:
            self.producer.pop(i, None)

    def _release(self, node: Node, inputs: list[int]) -> None:
        """``node`` no longer reads ``inputs``. No recursion: any number of dead nodes may follow each other."""
        waiting = [(node, inputs)]
        while waiting:
            reader, read = waiting.pop()
            for i in read:
                readers = self.consumers.get(i, [])
                for at, other in enumerate(readers):
                    if other is reader:
                        del readers[at]
                        break
                maker = self.producer.get(i)
                if not readers and maker is not None and i not in self.graph.outputs and id(maker) not in self._gone:
                    self._drop(maker)
                    waiting.append((maker, maker.inputs))

    def emit(self, before: Node, op: str, inputs: list[int], attrs: dict[str, Attr], weight: int = -1) -> int:
        """Add a node that will stand before ``before`` and has its name, and return its output. Raises GraphError."""
        name = self.graph.tensors[before.outputs[0]].name
        out = add_node(self.graph, before.name, op, inputs, attrs, weight, output=name)
        node = self.graph.nodes.pop()
        self._new.setdefault(id(before), []).append(node)
        self.producer[out] = node
        for i in inputs:
            self.consumers.setdefault(i, []).append(node)
        return out

    def flush(self) -> None:
        """Put the new nodes into the graph and drop the removed ones."""
        whole = [new for node in self.graph.nodes for new in (*self._new.get(id(node), []), node)]
        self.graph.nodes = [node for node in whole if id(node) not in self._gone]
        self._gone.clear()
        self._new.clear()

    def after_reshapes(self, tensor: int) -> tuple[int, Node] | None:
        """The one node, not a reshape, that reads ``tensor``, perhaps through reshapes, and what it reads."""
        while (node := self.only_consumer(tensor)) is not None:
            if node.op != "reshape":
                return tensor, node
            tensor = node.outputs[0]
        return None

    def summed(self, conv: Node) -> list[Node]:
        """The convolutions that one node of the model became and that add up to ``conv``'s result: it, and those before
        it, each of which only the next one reads (lower/volumes.py).
        """
        parts = [conv]
        while len(conv.inputs) > 1:
            before = self.producer.get(conv.inputs[1])
            if before is None or before.op != conv.op or before.name != conv.name or before.attrs["act"] != "none":
                break
            if self.only_consumer(conv.inputs[1]) is not conv:
                break
            parts.append(before)
            conv = before
        return parts

    def is_sized(self, tensor: int) -> bool:
        """Whether it is a constant whose numbers depend on sizes."""
        weight = self.graph.tensors[tensor].weight
        return weight >= 0 and depends(self.graph.weights[weight].source)

    def scalar(self, tensor: int, *, sized: bool = False) -> float | None:
        """The value of a constant with one element; only with ``sized`` of one that depends on sizes, which are then
        conditions: a picture's height would make a template serve that height alone.
        """
        found = self.graph.tensors[tensor]
        if found.weight < 0 or (not sized and self.is_sized(tensor)) or found.size != 1:
            return None
        value = constant_value(self.graph, tensor)
        return None if value is None else float(value.reshape(-1)[0])

    def shape(self, tensor: int) -> tuple[int, ...]:
        """Shape of a value."""
        return self.graph.tensors[tensor].shape


def operands(node: Node) -> list[tuple[int, int]]:
    """A binary node's two operands, in both orders."""
    a, b = node.inputs
    return [(a, b), (b, a)]


def scaled(uses: Rewriter, tensor: int) -> tuple[int, float]:
    """(x, factor) where ``tensor`` is x times a constant factor."""
    node = uses.producer.get(tensor)
    if node is None or node.op != "binary" or node.attrs["act"] != "none" or node.attrs["kind"] not in ("mul", "div"):
        return tensor, 1.0
    for x, other in operands(node):
        value = uses.scalar(other, sized=True)
        if value is None or uses.shape(x) != uses.shape(tensor):
            continue
        if node.attrs["kind"] == "mul":
            return x, value
        if value and x == node.inputs[0]:
            return x, 1 / value
    return tensor, 1.0


def only(uses: Rewriter, tensor: int, reader: Node) -> bool:
    """Whether nothing else reads ``tensor``."""
    return uses.only_consumer(tensor) is reader


def is_nan(uses: Rewriter, condition: int, tensor: int) -> bool:
    """Whether ``condition`` says where ``tensor`` is not a number."""
    test = uses.producer.get(condition)
    return test is not None and test.op == "pointwise" and test.attrs["kind"] == "is_nan" and test.inputs == [tensor]
