"""Layout: every ONNX dimension order becomes an order in memory, and transposes vanish where they can (DESIGN D2).

One walk in execution order. Each value is known as a stored tensor and a permutation: axis i of the value is axis
perm[i] of the store. A transpose only changes the permutation. Operators that do not care about the order of their axes
compute on the store and pass the permutation on; the others get the order they need, by a copy made at most once for
each order. So channels-last operators, which stand between two transposes when they come here, read each other's
results directly, through whatever elementwise, concat, split, pad or reduction stands between.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..attributes import int_attr, ints_attr
from ..build import REDUCTION, add_constant, add_node, copy_attrs
from ..ir import Attr, Graph, Node, Tensor
from ..sources import MappedSource

Perm = tuple[int, ...]
Shape = tuple[int, ...]
Stored = tuple[int, Perm]

_CHANNELS_LAST = ("conv", "dwconv", "pool", "resize", "lrn", "instance_norm", "matmul")


def layout(graph: Graph) -> Graph:
    """A graph that computes the same, its tensors in the order of memory; outputs in the model's own."""
    return _Layout(graph).run()


def _identity(rank: int) -> Perm:
    return tuple(range(rank))


class _Layout:
    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.new = Graph(weights=list(graph.weights))
        self.stored: dict[int, Stored] = {}
        self.moved: dict[tuple[int, Shape, Perm], int] = {}
        self.handlers: dict[str, Callable[[Node], Stored]] = {
            "copy": self._copy,
            "unary": self._same,
            "cast": self._same,
            "binary": self._binary,
            "softmax": self._softmax,
            REDUCTION: self._reduction,
            "concat": self._concat,
            "slice": self._per_axis,
            "pad": self._per_axis,
            "gather": self._gather,
            "reshape": self._reshape,
            **dict.fromkeys(_CHANNELS_LAST, self._channels_last),
        }

    def run(self) -> Graph:
        for i, tensor in enumerate(self.old.tensors):
            if tensor.weight >= 0 or i in self.old.inputs:
                self.new.tensors.append(Tensor(tensor.name, tensor.shape, tensor.dtype, weight=tensor.weight))
                self.stored[i] = (len(self.new.tensors) - 1, _identity(len(tensor.shape)))
        self.new.inputs = [self.stored[i][0] for i in self.old.inputs]
        for node in self.old.nodes:
            self.stored[node.outputs[0]] = self.handlers[node.op](node)
        for i in self.old.outputs:
            self._output(i)
        return self.new

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
        if tuple(move) == _identity(len(move)) and shape == source.shape:
            return tensor
        key = (tensor, shape, tuple(move))
        if key not in self.moved:
            self.moved[key] = self._moved(tensor, shape, move)
        return self.moved[key]

    def _moved(self, tensor: int, shape: Shape, move: list[int]) -> int:
        source = self.new.tensors[tensor]
        target = tuple(shape[m] for m in move)
        if source.weight >= 0:
            base = self.new.weights[source.weight].source
            assert base is not None
            moved = MappedSource(base, lambda v: v.reshape(shape).transpose(move))
            return add_constant(self.new, source.name, moved, target, source.dtype)
        kept = [m for m in move if shape[m] != 1]
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

    def _channels_last(self, node: Node) -> Stored:
        inputs = [self._in_order(i, _identity(len(self.old.tensors[i].shape))) for i in node.inputs]
        out = self._emit(node, inputs, node.attrs)
        return out, _identity(len(self.new.tensors[out].shape))

    def _same(self, node: Node) -> Stored:
        tensor, perm = self.stored[node.inputs[0]]
        return self._emit(node, [tensor], node.attrs), perm

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

    def _binary(self, node: Node) -> Stored:
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

    def _softmax(self, node: Node) -> Stored:
        tensor, perm = self.stored[node.inputs[0]]
        return self._emit(node, [tensor], node.attrs | {"axis": perm[int_attr(node, "axis")]}), perm

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
            # sum_square, log_sum: squares are taken by the first run only, the logarithm by the last.
            part = kind
            if (kind == "sum_square" and k > 0) or (kind == "log_sum" and k < len(runs) - 1):
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
        inputs = [self._in_order(i, want) for i in node.inputs]
        return self._emit(node, inputs, {"axis": want[int_attr(node, "axis")]}), want

    def _per_axis(self, node: Node) -> Stored:
        """Slice and pad: lists with a number for each axis."""
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

    def _reshape(self, node: Node) -> Stored:
        tensor, perm = self.stored[node.inputs[0]]
        shape, target = self.old.tensors[node.inputs[0]].shape, tuple(ints_attr(node, "shape"))
        regrouped = regroup(shape, target, perm)
        if regrouped is None:
            tensor = self._in_order(node.inputs[0], _identity(len(shape)))
            return self._emit(node, [tensor], {"shape": list(target)}), _identity(len(target))
        order = regrouped
        stored = [target[i] for i in order]
        return self._emit(node, [tensor], {"shape": stored}), tuple(order.index(i) for i in range(len(target)))


def regroup(shape: Shape, target: Shape, perm: Perm) -> list[int] | None:
    """How a value of ``shape``, stored by ``perm``, reshapes to ``target`` without moving: the target's axes in the
    order of memory. None where that needs a copy.

    Both shapes fall into runs of axes of the same size; a run that lies together in memory may be cut differently.
    """
    runs: list[tuple[int, list[int]]] = []
    i = j = 0
    position = {axis: at for at, axis in enumerate(sorted(p for p in perm if shape[perm.index(p)] != 1))}
    while True:
        while i < len(shape) and shape[i] == 1:
            i += 1
        while j < len(target) and target[j] == 1:
            j += 1
        if i == len(shape) or j == len(target):
            break
        source, cut = [i], [j]
        left, right = shape[i], target[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left *= shape[i]
                source += [i] if shape[i] != 1 else []
                i += 1
            else:
                right *= target[j]
                cut.append(j)
                j += 1
        places = [position[perm[s]] for s in source]
        if places != list(range(places[0], places[0] + len(places))):
            return None
        runs.append((places[0], cut))
    # Axes of size 1 stay before the next longer axis, those at the front in front.
    order: list[int] = []
    lone: dict[int, list[int]] = {}
    following = -1
    for axis in range(len(target) - 1, -1, -1):
        if target[axis] != 1:
            following = axis
        elif not any(cut[0] <= axis <= cut[-1] for _, cut in runs):
            lone.setdefault(following, []).insert(0, axis)
    longer = [axis for axis, size in enumerate(target) if size != 1]
    front = lone.pop(longer[0], []) if longer else []
    order += front
    for _, cut in sorted(runs):
        order += lone.get(cut[0], []) + list(range(cut[0], cut[-1] + 1))
    order += lone.get(-1, [])
    return order if prod(shape) == prod(target) and len(order) == len(target) else None
