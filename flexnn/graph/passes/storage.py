"""Storage: which values share memory. After this pass a graph has no view operators.

Concats first, from the last to the first: a part is computed right inside the whole where its operator can write there.
Then one walk in execution order: reshapes, slices and transposes for a matmul become views, operators that may work in
place take the storage of an operand that dies with them, and a copy stands wherever neither is possible.
"""

from __future__ import annotations

from collections import Counter

from ..attributes import int_attr, ints_attr
from ..build import VIEWS, copy_attrs
from ..ir import Graph, Node, Shape, Tensor, contiguous_strides
from ..operators import OPERATORS, OUTPUT, fits
from ..sizes import preferring
from ..strided import is_contiguous, reshape_strides, same_shape


def assign_storage(graph: Graph) -> None:
    """Give every tensor its root, offset and strides, and replace view operators by copies where they need one."""
    _Storage(graph).run()


class _Storage:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer = {i: node for node in graph.nodes for i in node.outputs}
        self.readers: dict[int, list[tuple[Node, int]]] = {}
        self.last_read: dict[int, int] = {}
        for position, node in enumerate(graph.nodes):
            for operand, i in enumerate(node.inputs):
                self.readers.setdefault(i, []).append((node, operand))
                self.last_read[i] = position
        self.outputs = set(graph.outputs)
        self.fixed = self.outputs | set(graph.inputs) | {i for i, t in enumerate(graph.tensors) if t.weight >= 0}
        """Tensors whose storage is settled: they are roots."""
        self.members: dict[int, list[int]] = {}
        self.held_until: dict[int, int] = {}
        """Position of the last reader of a root or of a member, for roots that have members."""
        self.settled: set[int] = set()
        """Reshapes whose operand was placed where their result is, by id."""
        self.nodes: list[Node] = []

    def run(self) -> None:
        for node in reversed(self.graph.nodes):
            if node.op == "concat":
                self._place_parts(node)
        for position, node in enumerate(self.graph.nodes):
            if node.op == "concat":
                self._concat(node)
            elif node.op in VIEWS:
                if id(node) not in self.settled:
                    self._view(node)
            elif not self._transposed_view(node):
                self._compute(node, position)
        self.graph.nodes = self.nodes

    # ---- places ----

    def _tensor(self, i: int) -> Tensor:
        return self.graph.tensors[i]

    def _put(self, i: int, root: int, offset: int, strides: Shape) -> None:
        """Make tensor ``i`` a view of ``root``, and with it everything that lay in it."""
        tensor = self._tensor(i)
        tensor.root, tensor.offset, tensor.strides = root, offset, strides
        self._join(root, [i])

    def _join(self, root: int, members: list[int]) -> None:
        """Add members to a root."""
        self.members.setdefault(root, []).extend(members)
        self.held_until[root] = max(self._last_use(root), *map(self._last_use, members))

    def _last_use(self, i: int) -> int:
        """Position of the last node that reads a tensor or, where it is a root, one of its members; -1: none."""
        return self.held_until.get(i, self.last_read.get(i, -1))

    def _whole(self, i: int) -> bool:
        """Whether tensor ``i`` is all of its root, in order."""
        tensor, root = self._tensor(i), self._tensor(self.graph.root(i))
        return tensor.offset == 0 and tensor.size == root.size and is_contiguous(tensor.shape, tensor.strides)

    def _new_root(self, i: int, root: int) -> None:
        """Make ``root``, of the same size, the owner of the storage that tensor ``i`` is all of."""
        before = self.graph.root(i)
        owner = self._tensor(before)
        owner.root, owner.offset = root, 0
        moved = [before, *self.members.pop(before, [])]
        for member in moved:
            self._tensor(member).root = root
        self._join(root, moved)

    def _view_of(self, i: int, name: str, shape: Shape, offset: int, strides: Shape) -> int:
        """A new tensor that is a view into the root of tensor ``i``, ``offset`` from where ``i`` starts."""
        root = self.graph.root(i)
        view = Tensor(name, shape, self._tensor(i).dtype, root, self._tensor(i).offset + offset, strides)
        self.graph.tensors.append(view)
        self.members.setdefault(root, []).append(len(self.graph.tensors) - 1)
        return len(self.graph.tensors) - 1

    def _copy(self, node: Node, source: int, target: int) -> None:
        attrs = copy_attrs(len(self._tensor(source).shape))
        self.nodes.append(Node(node.name, "copy", [source], [target], attrs))

    def _accepted(self, i: int, strides: Shape) -> bool:
        """Whether every reader of tensor ``i`` takes it with these strides; views and concats see to themselves."""
        shape = self._tensor(i).shape
        readers = self.readers.get(i, [])
        return i not in self.outputs and all(r.op in VIEWS or fits(r.op, k, shape, strides) for r, k in readers)

    # ---- concat ----

    def _slots(self, node: Node) -> list[tuple[int, int]]:
        """Each part and its offset from the start of the whole."""
        axis, step, at = int_attr(node, "axis"), 0, 0
        step = self._tensor(node.outputs[0]).strides[axis]
        slots = []
        for i in node.inputs:
            slots.append((i, at * step))
            at += self._tensor(i).shape[axis]
        return slots

    def _place_parts(self, node: Node) -> None:
        whole = self._tensor(node.outputs[0])
        root = self.graph.root(node.outputs[0])
        times = Counter(node.inputs)
        for i, offset in self._slots(node):
            if times[i] == 1 and self._placeable(i, whole.strides, node):
                self._place(i, root, whole.offset + offset, whole.strides)

    def _placeable(self, i: int, strides: Shape, by: Node) -> bool:
        """Whether tensor ``i`` can be computed with these strides, and read so by all but ``by``."""
        tensor, node = self._tensor(i), self.producer.get(i)
        if node is None or i in self.fixed or tensor.root >= 0 or self.members.get(i):
            return False
        for reader, operand in self.readers[i]:
            if reader is not by and not self._reads(reader, operand, i, strides):
                return False
        if node.op == "reshape":
            source = node.inputs[0]
            inner = reshape_strides(tensor.shape, strides, self._tensor(source).shape)
            return inner is not None and self._placeable(source, inner, node)
        return node.op == "concat" or (node.op != "slice" and fits(node.op, OUTPUT, tensor.shape, strides))

    def _reads(self, reader: Node, operand: int, i: int, strides: Shape) -> bool:
        """Whether ``reader`` reads tensor ``i`` with these strides and no copy."""
        if reader.op == "concat":
            return True
        if reader.op not in VIEWS:
            return fits(reader.op, operand, self._tensor(i).shape, strides)
        out = reader.outputs[0]
        if reader.op == "reshape":
            inner = reshape_strides(self._tensor(i).shape, strides, self._tensor(out).shape)
        else:
            inner = tuple(s * k for s, k in zip(strides, ints_attr(reader, "steps"), strict=True))
        if inner is None or out in self.outputs:
            return False
        return all(self._reads(r, k, out, inner) for r, k in self.readers.get(out, []))

    def _place(self, i: int, root: int, offset: int, strides: Shape) -> None:
        node = self.producer[i]
        self._put(i, root, offset, strides)
        if node.op == "reshape":
            self.settled.add(id(node))
            source = node.inputs[0]
            inner = reshape_strides(self._tensor(i).shape, strides, self._tensor(source).shape)
            assert inner is not None
            self._place(source, root, offset, inner)

    def _concat(self, node: Node) -> None:
        whole = node.outputs[0]
        root = self.graph.root(whole)
        strides, start = self._tensor(whole).strides, self._tensor(whole).offset
        for i, offset in self._slots(node):
            part = self._tensor(i)
            if (part.root, part.strides, part.offset) != (root, strides, start + offset):
                self._copy(node, i, self._view_of(whole, node.name, part.shape, offset, strides))

    # ---- views ----

    def _view(self, node: Node) -> None:
        source, target = node.inputs[0], node.outputs[0]
        x, y = self._tensor(source), self._tensor(target)
        offset, strides = 0, None
        if node.op == "slice":
            offset = sum(s * k for s, k in zip(ints_attr(node, "starts"), x.strides, strict=True))
            strides = tuple(s * k for s, k in zip(ints_attr(node, "steps"), x.strides, strict=True))
        else:
            strides = reshape_strides(x.shape, x.strides, y.shape)
        if target in self.outputs:
            root = self.graph.root(source)
            if node.op == "reshape" and root not in self.fixed and self._whole(source):
                self._new_root(source, target)
                return
        elif strides is not None and self._accepted(target, strides):
            self._put(target, self.graph.root(source), x.offset + offset, strides)
            return
        if node.op == "slice":
            assert strides is not None
            self._copy(node, self._view_of(source, node.name, y.shape, offset, strides), target)
        else:
            flat = self._view_of(target, node.name, x.shape, 0, contiguous_strides(x.shape))
            self._copy(node, source, flat)

    def _transposed_view(self, node: Node) -> bool:
        """Make a transpose a view where only operators read it that take its strides, and pay nothing for them."""
        if node.op != "copy" or any(ints_attr(node, "expand")):
            return False
        target = node.outputs[0]
        readers = self.readers.get(target, [])
        if target in self.outputs or self._tensor(target).root >= 0 or not readers:
            return False
        x = self._tensor(node.inputs[0])
        strides = tuple(x.strides[p] for p in ints_attr(node, "perm"))
        for reader, operand in readers:
            if reader.op in VIEWS or not OPERATORS[reader.op].reads_transposes:
                return False
            if not fits(reader.op, operand, self._tensor(target).shape, strides):
                return False
        self._put(target, self.graph.root(node.inputs[0]), x.offset, strides)
        return True

    # ---- operators ----

    def _compute(self, node: Node, position: int) -> None:
        operands = [self._tensor(i) for i in (*node.inputs, *node.outputs)]
        # Views that one at a time would do, but not side by side.
        record = OPERATORS[node.op]
        apart = not record.together(operands)
        for operand, i in enumerate(node.inputs):
            tensor = operands[operand]
            is_whole = not apart or is_contiguous(tensor.shape, tensor.strides)
            if not is_whole or not fits(node.op, operand, tensor.shape, tensor.strides):
                self.graph.tensors.append(Tensor(tensor.name, tensor.shape, tensor.dtype))
                packed = len(self.graph.tensors) - 1
                self._copy(node, i, packed)
                node.inputs[operand] = packed
        for operand in record.in_place:
            if operand < len(node.inputs) and self._take(node, operand, position):
                break
        self.nodes.append(node)

    def _take(self, node: Node, operand: int, position: int) -> bool:
        """Give the output the storage of an operand that dies here."""
        source, target = node.inputs[operand], node.outputs[0]
        x, y = self._tensor(source), self._tensor(target)
        root = self.graph.root(source)
        if y.root >= 0 or self.members.get(target) or x.dtype != y.dtype or root in self.fixed:
            return False
        if not same_shape(x.shape, y.shape):
            return False
        if self._last_use(root) > position:
            return False
        for other in node.inputs:
            if other != source and self.graph.root(other) == root:
                return False
        if any(i == source and k not in OPERATORS[node.op].in_place for k, i in enumerate(node.inputs)):
            return False
        if target in self.outputs:
            if not self._whole(source):
                return False
            self._new_root(source, target)
            return True
        whole = self._tensor(root).size
        with preferring((x.size, whole)):
            if 2 * x.size < whole:  # a small view would keep a large storage alive
                return False
        if not self._accepted(target, x.strides):
            return False
        self._put(target, root, x.offset, x.strides)
        return True
