"""Layout: every ONNX dimension order becomes an order in memory, and transposes vanish where they can
(docs/architecture.md, D2).

One walk in execution order. Each value is known as a stored tensor and a permutation: axis i of the value is axis
perm[i] of the store. A transpose only changes the permutation. Operators that do not care about the order of their axes
compute on the store and pass the permutation on; the others get the order they need, by a copy made at most once for
each order. So channels-last operators, which stand between two transposes when they come here, read each other's
results directly, through whatever elementwise, concat, split, pad or reduction stands between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..attributes import int_attr, ints_attr
from ..build import REDUCTION, add_constant, add_node, copy_attrs
from ..ir import Attr, Graph, Node, Shape, Tensor
from ..late import Transposed
from ..operators import OPERATORS, Operator
from ..operators.record import Order
from ..sources import MappedSource, ShapedSource, depends
from ..strided import alike, same_shape

Perm = tuple[int, ...]
Stored = tuple[int, Perm]


def layout(graph: Graph) -> Graph:
    """A graph that computes the same, its tensors in the order of memory; outputs in the model's own."""
    return _Layout(graph).run()


def _identity(rank: int) -> Perm:
    return tuple(range(rank))


def _wishes(graph: Graph) -> dict[int, Perm]:
    """The transposition in which every reader of a value takes it, through elementwise operators, pads and other
    transpositions; () is none.
    """
    wanted: dict[int, set[Perm]] = {i: {()} for i in graph.outputs}
    for node in reversed(graph.nodes):
        if node.op == "byte_steps":
            continue  # takes any
        wish: set[Perm] = {()}
        if node.op == "copy" and not any(ints_attr(node, "expand")):
            order = ints_attr(node, "perm")
            whole = {tuple(order[a] for a in w) if w else tuple(order) for w in wanted.get(node.outputs[0], {()})}
            wish = {() if w == _identity(len(w)) else w for w in whole}
        elif node.op in ("unary", "cast", "pad", "binary", "quantize"):
            wish = wanted.get(node.outputs[0], wish)
        computed = {i for i in node.inputs if graph.tensors[i].weight < 0}
        for i in node.inputs:
            tensor = graph.tensors[i]
            same = node.op == "copy" or len(tensor.shape) == len(graph.tensors[node.outputs[0]].shape)
            alone = computed <= {i}
            wanted.setdefault(i, set()).update(wish if same and alone else {()})
    return {i: next(iter(w)) for i, w in wanted.items() if len(w) == 1 and w != {()}}


class _Layout:
    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.new = Graph(weights=list(graph.weights))
        self.stored: dict[int, Stored] = {}
        self.moved: dict[tuple[int, Perm], int] = {}
        self.wishes = _wishes(graph)
        self.sliced = {node.outputs[0] for node in graph.nodes if node.op == "slice"}

    def run(self) -> Graph:
        for i, tensor in enumerate(self.old.tensors):
            if tensor.weight >= 0 or i in self.old.inputs:
                self.new.tensors.append(Tensor(tensor.name, tensor.shape, tensor.dtype, weight=tensor.weight))
                self.stored[i] = (len(self.new.tensors) - 1, _identity(len(tensor.shape)))
        self.new.inputs = [self.stored[i][0] for i in self.old.inputs]
        for i in self.old.inputs:
            # Where all that becomes of an input is read in one order, it gets that order at once: what stands between,
            # a product or a pad, is then beside the operator that can take it in.
            if perm := self._wished(i):
                self.stored[i] = (self._in_order(i, perm), perm)
        for node in self.old.nodes:
            self.stored[node.outputs[0]] = _HANDLERS[node.op](self, node)
        for i in self.old.outputs:
            self._output(i)
        return self.new

    def _wished(self, i: int) -> Perm:
        """Return the permutation in which all that becomes of a value is read, where it is one other than its own."""
        wish = self.wishes.get(i, ())
        return tuple(wish.index(a) for a in range(len(wish)))

    def _output(self, i: int) -> None:
        rank = len(self.old.tensors[i].shape)
        tensor = self._in_order(i, _identity(rank))
        taken = tensor in self.new.outputs or tensor in self.new.inputs or self.new.tensors[tensor].weight >= 0
        if taken:
            tensor = add_node(self.new, self.old.tensors[i].name, "copy", [tensor], copy_attrs(rank))
        self.new.tensors[tensor].name = self.old.tensors[i].name
        self.new.outputs.append(tensor)

    # ---- bringing a value into an order ----

    def _in_order(self, i: int, want: Perm) -> int:
        """A stored tensor of value ``i`` with permutation ``want``, copied if there is none yet."""
        tensor, perm = self.stored[i]
        return self._move(tensor, self.new.tensors[tensor].shape, perm, want)

    def _move(self, tensor: int, shape: Shape, perm: Perm, want: Perm) -> int:
        """``tensor``, seen with ``shape`` (leading ones may be added), from permutation ``perm`` to ``want``."""
        move = [0] * len(perm)
        for i, axis in enumerate(want):
            move[axis] = perm[i]
        source = self.new.tensors[tensor]
        if tuple(move) == _identity(len(move)) and same_shape(shape, source.shape):
            return tensor
        key = tensor, tuple(move)
        if key not in self.moved:
            self.moved[key] = self._moved(tensor, shape, move)
        return self.moved[key]

    def _moved(self, tensor: int, shape: Shape, move: list[int]) -> int:
        source = self.new.tensors[tensor]
        target = tuple(shape[m] for m in move)
        if source.weight >= 0:
            base = self.new.weights[source.weight].source
            assert base is not None
            if depends(base):
                moved = MappedSource(ShapedSource(base, shape), Transposed(move), "")
            else:
                moved = MappedSource(base, lambda v: v.reshape(shape).transpose(move), f"{shape}moved{move}")
            return add_constant(self.new, source.name, moved, target, source.dtype)
        kept = [m for m in move if not alike(shape[m], 1)]
        if kept == sorted(kept):  # only dimensions of size 1 move
            return add_node(self.new, source.name, "reshape", [tensor], {"shape": list(target)}, output=source.name)
        if shape != source.shape:
            tensor = add_node(self.new, source.name, "reshape", [tensor], {"shape": list(shape)}, output=source.name)
        return add_node(
            self.new, f"{source.name}.transpose", "copy", [tensor], copy_attrs(len(move), perm=move), output=source.name
        )

    def _emit(self, node: Node, inputs: list[int], attrs: dict[str, Attr], op: str = "") -> int:
        name = self.old.tensors[node.outputs[0]].name
        return add_node(self.new, node.name, op or node.op, inputs, attrs, node.weight, output=name)

    # ---- operators ----

    def _fixed(self, node: Node) -> Stored:
        inputs = [self._in_order(i, _identity(len(self.old.tensors[i].shape))) for i in node.inputs]
        out = self._emit(node, inputs, node.attrs)
        return out, _identity(len(self.new.tensors[out].shape))

    def _copy(self, node: Node) -> Stored:
        tensor, perm = self.stored[node.inputs[0]]
        order, expand = ints_attr(node, "perm"), ints_attr(node, "expand")
        rank = len(order)
        moved = tuple(perm[o] for o in order)
        if not any(expand):
            if order != list(range(rank)):
                return tensor, moved
            return self._emit(node, [tensor], node.attrs), perm
        grow = [0] * rank
        for i, size in enumerate(expand):
            grow[moved[i]] = size
        return self._emit(node, [tensor], copy_attrs(rank, expand=grow)), moved

    def _any_order(self, node: Node) -> Stored:
        tensors = [self.old.tensors[i] for i in node.inputs]
        rank = max(len(t.shape) for t in tensors)
        computed = [(t.size, k) for k, t in enumerate(tensors) if t.weight < 0 and len(t.shape) == rank]
        want = self.stored[node.inputs[max(computed)[1]]][1] if computed else _identity(rank)
        inputs = []
        for i, t in zip(node.inputs, tensors, strict=True):
            tensor, perm = self.stored[i]
            extra = rank - len(t.shape)
            shape = (1,) * extra + self.new.tensors[tensor].shape
            wide = (*range(extra), *(extra + p for p in perm))
            inputs.append(self._move(tensor, shape, wide, want))
        return self._emit(node, inputs, node.attrs), want

    def _axis(self, node: Node) -> Stored:
        tensor, perm = self.stored[node.inputs[0]]
        others = [self.stored[i][0] for i in node.inputs[1:]]
        axis = int_attr(node, "axis")
        moved = perm[axis] if perm else axis
        return self._emit(node, [tensor, *others], node.attrs | {"axis": moved}), perm

    def _whole(self, node: Node) -> Stored:
        """The same in any order."""
        out = self._emit(node, [self.stored[node.inputs[0]][0]], node.attrs)
        return out, _identity(len(self.new.tensors[out].shape))

    def _reduction(self, node: Node) -> Stored:
        tensor, perm = self.stored[node.inputs[0]]
        axes = sorted(perm[a] for a in ints_attr(node, "axes"))
        kind = str(node.attrs["kind"])
        shape = self.new.tensors[tensor].shape
        runs: list[list[int]] = []
        for axis in axes:
            joins = bool(runs) and all(shape[i] == 1 for i in range(runs[-1][-1] + 1, axis))
            if joins:
                runs[-1] = list(range(runs[-1][0], axis + 1))
            else:
                runs.append([axis])
        for k, run in enumerate(runs):
            # l1, sum_square, log_sum: sizes and squares are taken by the first run only, the logarithm by the last.
            part = kind
            if (kind in ("l1", "sum_square") and k > 0) or (kind == "log_sum" and k < len(runs) - 1):
                part = "sum"
            tensor = self._emit(node, [tensor], {"kind": part, "axes": list(run), "keepdims": 1}, "reduce")
        if int_attr(node, "keepdims"):
            return tensor, perm
        kept = [a for a in range(len(shape)) if a not in axes]
        target = [shape[a] for a in kept]
        rest = tuple(kept.index(p) for p in perm if p not in axes)
        return self._emit(node, [tensor], {"shape": list(target)}, "reshape"), rest

    def _concat(self, node: Node) -> Stored:
        weights: dict[Perm, int] = {}
        for i in node.inputs:
            tensor = self.old.tensors[i]
            perm = self.stored[i][1]
            weights[perm] = weights.get(perm, 0) + (tensor.size if tensor.weight < 0 else 0)
        want = max(weights, key=lambda perm: weights[perm])
        if want == _identity(len(want)) and self.sliced.issuperset(node.inputs):
            # Slices are copied to their places in any case: on the way they get the order in which the whole is read.
            want = self._wished(node.outputs[0]) or want
        inputs = [self._in_order(i, want) for i in node.inputs]
        return self._emit(node, inputs, {"axis": want[int_attr(node, "axis")]}), want

    def _axes(self, node: Node) -> Stored:
        """Slices and operators whose attributes that are lists have a number for each axis."""
        tensor, perm = self.stored[node.inputs[0]]
        attrs = dict(node.attrs)
        for name, value in node.attrs.items():
            if isinstance(value, list):
                moved = [0] * len(perm)
                for i, number in enumerate(value):
                    moved[perm[i]] = number
                attrs[name] = moved
        return self._emit(node, [tensor], attrs), perm

    def _gather(self, node: Node) -> Stored:
        indices = self.old.tensors[node.inputs[1]]
        picks = self._in_order(node.inputs[1], _identity(len(indices.shape)))
        tensor, perm = self.stored[node.inputs[0]]
        if len(indices.shape) != 1:
            perm = _identity(len(perm))
            tensor = self._in_order(node.inputs[0], perm)
        out = self._emit(node, [tensor, picks], {"axis": perm[int_attr(node, "axis")]})
        return out, perm if len(indices.shape) == 1 else _identity(len(self.new.tensors[out].shape))

    def _table(self, node: Node) -> Stored:
        tensor, perm = self.stored[node.inputs[0]]
        return self._emit(node, [tensor, self._in_order(node.inputs[1], _identity(1))], node.attrs), perm

    def _reshape(self, node: Node) -> Stored:
        tensor, perm = self.stored[node.inputs[0]]
        shape, target = self.old.tensors[node.inputs[0]].shape, tuple(ints_attr(node, "shape"))
        order = regroup(shape, target, perm)
        if order is None:  # the axes that melt together must lie together first; the rest stays where it is
            # What ends innermost stays there: long runs are copied, not single elements.
            runs = [source for source, _ in runs_of(shape, target)]
            innermost = max(perm[a] for a in _longer(shape))
            runs.sort(key=lambda run: (perm[run[-1]] == innermost, min(perm[a] for a in run)))
            moved = [a for run in runs for a in run]
            lone = [a for a in range(len(shape)) if a not in moved]
            perm = tuple((lone + moved).index(a) for a in range(len(shape)))
            tensor = self._in_order(node.inputs[0], perm)
            order = regroup(shape, target, perm)
            assert order is not None
        stored = [target[i] for i in order]
        return self._emit(node, [tensor], {"shape": stored}), tuple(order.index(i) for i in range(len(target)))


Handler = Callable[[_Layout, Node], Stored]
_BY_ORDER: dict[Order, Handler] = {
    "any": _Layout._any_order,
    "fixed": _Layout._fixed,
    "axis": _Layout._axis,
    "axes": _Layout._axes,
}
_OWN: dict[str, Handler] = {
    "copy": _Layout._copy,
    "gather": _Layout._gather,
    "table_u8": _Layout._table,
    "byte_steps": _Layout._whole,
    "concat": _Layout._concat,
    "slice": _Layout._axes,
    "reshape": _Layout._reshape,
    REDUCTION: _Layout._reduction,
}
"""Handlers of single operators and of views. They are functions of the class: methods bound to an object would keep it,
and both graphs, until Python collects cycles."""


def handlers(records: Iterable[Operator]) -> dict[str, Handler]:
    """The handler of each operator that the layout pass may meet. Raises TypeError where one has none."""
    found = dict(_OWN)
    for record in records:
        if record.order == "own" and record.name not in _OWN:
            raise TypeError(f"operator {record.name}: no handler in flexnn/graph/passes/layout.py")
        if record.order in _BY_ORDER:
            found[record.name] = _BY_ORDER[record.order]
    return found


_HANDLERS = handlers(OPERATORS.values())


def _longer(shape: Shape) -> list[int]:
    """Return the axes of more than one element; others count among them where that is right, too."""
    return [axis for axis, size in enumerate(shape) if not alike(size, 1)]


def runs_of(shape: Shape, target: Shape) -> list[tuple[list[int], list[int]]]:
    """Both shapes, of the same size, cut into runs of axes that have the same size; without axes of size 1."""
    runs: list[tuple[list[int], list[int]]] = []
    left, right = _longer(shape), _longer(target)
    while left and right:
        source, cut = [left.pop(0)], [right.pop(0)]
        a, b = shape[source[0]], target[cut[0]]
        while a != b:
            if a < b:
                source.append(left.pop(0))
                a *= shape[source[-1]]
            else:
                cut.append(right.pop(0))
                b *= target[cut[-1]]
        runs.append((source, cut))
    return runs


def regroup(shape: Shape, target: Shape, perm: Perm) -> list[int] | None:
    """Return the axes of ``target`` in the order of memory, to which a value of ``shape`` stored by ``perm`` reshapes
    without moving; None where that needs a copy.

    A run of axes that lies together in memory may be cut differently.
    """
    if perm == _identity(len(shape)):
        return list(range(len(target)))
    stored = sorted([perm[a] for a in _longer(shape)])
    position = {axis: at for at, axis in enumerate(stored)}
    runs: list[tuple[int, list[int]]] = []
    for source, cut in runs_of(shape, target):
        places = [position[perm[a]] for a in source]
        if places != list(range(places[0], places[0] + len(places))):
            return None
        runs.append((places[0], cut))
    # Axes of size 1 stay before the next longer axis; those at the front in front, those at the end at the end.
    longer = _longer(target)
    before: dict[int, list[int]] = {}
    for axis in range(len(target)):
        if axis not in longer:
            before.setdefault(next((a for a in longer if a > axis), len(target)), []).append(axis)
    order = before.pop(longer[0], []) if longer else []
    for _, cut in sorted(runs):
        for axis in cut:
            order += [*before.get(axis, []), axis]
    return order + before.get(len(target), [])
