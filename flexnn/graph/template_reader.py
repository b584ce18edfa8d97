"""Reading the graph of a stored template (regions/template_reader.py): every value is checked, and each graph again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from flexnn import _core
from flexnn.quick_dataclass import quick_dataclass

from . import operators
from .attributes import INT_MAX, check_ints, check_lists, check_names, columns_of, int_in, ints_in, name_of, row_of
from .ir import DTYPES, RANK_MAX, TENSOR_BYTES_MAX, Array, Graph, GraphError, Node, Weight
from .late import Late, LateConstant, LateFold, LateMap, LateShape, LateSizes, Row, Transposed
from .model import Constant, ModelNode
from .replay import Numbers, Replay
from .sources import ArraySource, HeldSource, ModelSource
from .template import NodeRow, Template, TensorRow

LIST_MAX = 1 << 16
LATE_DEPTH_MAX = 32
TENSOR = ("name", "shape", "dtype", "root", "offset", "strides", "weight")
NODE = ("name", "op", "inputs", "outputs", "attrs", "weight", "sizes")
WEIGHT = ("name", "kind", "nbytes", "chunk_bytes", "size", "source")
"""Fields of rows, in order."""
KINDS = ("raw", "panels")


@quick_dataclass(frozen=True, slots=True)
class Parts:
    """Arrays, nodes and constants that a stored template refers to."""

    array: Callable[[Any], Array]
    """Function that returns an array by its number. Raises ValueError."""
    node: Callable[[Any, Any], ModelNode]
    """Function that returns a node of the model by numbers of region and node. Raises ValueError."""
    constants: Sequence[Constant]
    opset: int
    folds: dict[Hashable, LateFold]
    sizes: dict[Hashable, LateSizes]
    """Makers of constants of one template that were read: equal ones are one."""

    def fresh(self) -> Parts:
        """Return the same for another template."""
        return Parts(self.array, self.node, self.constants, self.opset, {}, {})


def layout(ops: Iterable[str]) -> int:
    """Return a checksum of how parameters of these operators lie in memory: releases may differ. Raises KeyError."""
    return _layout(frozenset(ops))


@lru_cache(4)
def _layout(ops: frozenset[str]) -> int:
    fields = [(op, _core.FIELDS[op]) for op in sorted(ops)]
    return _core.crc32c(repr((fields, sorted(_core.ENUMS.items()))).encode())


class CheckedTemplate(Template):
    """A template that a file holds: sizes that no graph has are refused."""

    __slots__ = ()

    def taken(self, found: Numbers | None) -> Numbers | None:
        """Return numbers that the trail gave. Raises GraphError where they are no sizes of tensors."""
        if found is not None and not self._extents(found)[2]:
            raise GraphError("a stored template has sizes of no tensor, or tensors that reach outside their roots")
        return found

    def at(self, values: Numbers) -> Graph:
        """Return the graph. Raises GraphError where nodes, weights and tensors do not fit together."""
        try:
            graph = super().at(values)
            for node in graph.nodes:
                operators.check(node)
                _check_panels(node, graph.weights)
            for tensor in graph.tensors:
                if tensor.weight >= 0 and graph.weights[tensor.weight].nbytes != tensor.nbytes:
                    raise ValueError(f"constant {tensor.name!r} has {tensor.nbytes} bytes")
            for weight in graph.weights:
                if isinstance(weight.source, ArraySource) and weight.source.values.nbytes != weight.nbytes:
                    raise ValueError(f"weight {weight.name!r} has {weight.nbytes} bytes")
        except GraphError:
            raise
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise GraphError(f"a stored template: {error}") from None
        return graph


def _check_panels(node: Node, weights: list[Weight]) -> None:
    """Check that a node has the panels that its parameters read. Raises ValueError."""
    panel_bytes = _core.op_panel_bytes(node.op, node.params)  # type: ignore[arg-type]
    if (node.weight >= 0) != bool(panel_bytes):
        raise ValueError(f"node {node.name!r} lacks its panels, or has panels that it does not read")
    if node.weight >= 0:
        weight, count = weights[node.weight], _core.op_panels(node.op, node.params)  # type: ignore[arg-type]
        if weight.kind != "panels" or weight.nbytes != panel_bytes * count or weight.chunk_bytes != panel_bytes:
            raise ValueError(f"node {node.name!r} reads {panel_bytes * count} bytes of panels")


def read_template(row: dict[str, Any], replay: Replay, parts: Parts) -> Template:
    """Return the template in ``row``, a part of the file's JSON. Raises ValueError, TypeError, KeyError."""
    count = len(replay.words)
    flat = check_lists(rows := _list(row["lists"]), 0, count - 1, LIST_MAX)
    lists = list(map(tuple, rows))
    known = [_weight(weight, count, parts) for weight in _list(row["weights"])]
    tensors = _tensors(row["tensors"], lists, count, [weight for weight, *_ in known])
    nodes = _nodes(row["graph"], len(tensors), len(known), (len(lists), count))
    if not set(replay.floats.tolist()).isdisjoint(chain(flat, [tensor[4] for tensor in tensors])):
        raise ValueError("a float is a dimension")
    inputs = ints_in(row["inputs"], 0, len(tensors) - 1, LIST_MAX)
    outputs = ints_in(row["outputs"], 0, len(tensors) - 1, LIST_MAX)
    packed, whole, floats = map(parts.array, row_of(row["params"], ("packed", "whole", "floats")))
    if packed.shape != (len(nodes), _core.PARAM_WORDS) or packed.dtype != np.int32:
        raise ValueError("parameters have another shape")
    for words in (whole, floats):
        check_words(words, packed.shape, count)
    template = CheckedTemplate(replay, lists, tensors, nodes, known, inputs, outputs, packed, whole, floats)
    _check_order(template)
    return template


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > LIST_MAX:
        raise ValueError("not a list, or too long")
    return value


def check_words(words: Array, shape: tuple[int, ...], count: int) -> None:
    """Check places of sizes among parameters of this shape: rows, columns, indices of numbers. Raises ValueError."""
    if words.ndim != 2 or len(words) != 3 or words.dtype != np.int32:
        raise ValueError("places of parameters are malformed")
    _core.trail_params(words, np.zeros(count, np.int64), shape[0])


def _tensors(rows: Any, lists: list[tuple[int, ...]], count: int, weights: list[Weight]) -> list[TensorRow]:
    """Return tensors of a file: their shapes fit their strides, and views have roots of their type. Raises ValueError,
    TypeError.
    """
    names, shapes, dtypes, roots, offsets, strides, held = columns_of(rows, TENSOR, LIST_MAX)
    check_names(names)
    for column, low, high in (
        (shapes, 0, len(lists) - 1),
        (roots, -1, len(names) - 1),
        (offsets, 0, count - 1),
        (strides, 0, len(lists) - 1),
        (held, -1, len(weights) - 1),
    ):
        check_ints(column, low, high)
    if not {*dtypes} <= DTYPES.keys():
        raise ValueError("unknown dtype")
    ranks = list(map(len, lists))
    pairs = {*zip(shapes, strides, strict=True)}
    if any(ranks[shape] != ranks[steps] or ranks[shape] > RANK_MAX for shape, steps in pairs):
        raise ValueError("a shape has other strides, or too many dimensions")
    for i, root in enumerate(roots):
        if root >= 0 and (root == i or roots[root] >= 0 or dtypes[root] != dtypes[i]):
            raise ValueError("a view has no root of its type")
        if held[i] >= 0 and (root >= 0 or weights[held[i]].kind != "raw"):
            raise ValueError("a constant is no raw weight, or a view")
    return list(zip(names, shapes, dtypes, roots, offsets, strides, held, strict=True))


def _nodes(rows: Any, tensors: int, weights: int, counts: tuple[int, int]) -> list[NodeRow]:
    """Return nodes of a file. Raises ValueError, TypeError."""
    names, ops, inputs, outputs, attrs, panels, sizes = columns_of(rows, NODE, LIST_MAX)
    check_names(names)
    check_names(ops)
    for column in (inputs, outputs):
        check_lists(column, 0, tensors - 1, _core.MAX_INPUTS)
    check_ints(panels, -1, weights - 1)
    if not {*map(type, chain(attrs, sizes))} <= {dict}:
        raise ValueError("attributes are malformed")
    for place in chain.from_iterable([own.values() for own in sizes if own]):
        if isinstance(place, list):
            int_in(row_of(place, ("index",))[0], 0, counts[1] - 1)
        else:
            int_in(place, 0, counts[0] - 1)
    return list(map(NodeRow._make, rows))


def _weight(row: Any, count: int, parts: Parts) -> tuple[Weight, int, Late | None]:
    name, kind, nbytes, chunk_bytes, size, source = row_of(row, WEIGHT)
    what, value = row_of(source, ("what", "value"))
    if kind not in KINDS or (what != "held" and kind != "raw"):
        raise ValueError("unknown kind of weight")
    least = 0 if what == "late" else 1
    weight = Weight(name_of(name), kind, int_in(nbytes, least, TENSOR_BYTES_MAX), int_in(chunk_bytes, 1, INT_MAX))
    if what == "late":
        return weight, int_in(size, 0, count - 1), read_late(value, count, parts)
    if what == "held":
        weight.source = HeldSource(name_of(value))
    elif what == "constant":
        constant = parts.constants[int_in(value, 0, len(parts.constants) - 1)]
        if constant.nbytes != weight.nbytes:
            raise ValueError(f"constant {constant.name!r} has {constant.nbytes} bytes")
        weight.source = constant.source
    elif what == "array":
        weight.source = ArraySource(parts.array(value))
    else:
        raise ValueError("unknown source of a weight")
    return weight, 0, None


def read_late(row: Any, count: int, parts: Parts, depth: int = 0) -> Late:
    """Return the maker of a constant that depends on sizes. Raises ValueError, TypeError."""
    if not isinstance(row, list) or not row or depth > LATE_DEPTH_MAX:
        raise ValueError("a constant is malformed, or nested too deeply")
    what, *rest = row
    if what == "sizes":
        indices, shape, dtype = row_of(rest, ("indices", "shape", "dtype"))
        own = {known.str: known for known in DTYPES.values()}
        if not isinstance(dtype, str) or dtype not in own:
            raise ValueError("unknown dtype")
        flat, dims = ints_in(indices, 0, count - 1, LIST_MAX), ints_in(shape, 0, LIST_MAX, RANK_MAX)
        sizes = LateSizes(np.array(flat, np.int64).reshape(dims), own[dtype])
        return parts.sizes.setdefault((tuple(flat), tuple(dims), dtype), sizes)
    if what == "fold":
        region, node, output, inputs = row_of(rest, ("region", "node", "output", "inputs"))
        made = parts.node(region, node)
        values = [_late_or_known(value, count, parts, depth) for value in _list(inputs)]
        fold = LateFold(made, values, parts.opset, int_in(output, 0, max(len(made.output) - 1, 0)))
        return parts.folds.setdefault((id(made), fold.output, *map(id, values)), fold)
    if what == "constant":
        index, dims = row_of(rest, ("index", "shape"))
        constant = parts.constants[int_in(index, 0, len(parts.constants) - 1)]
        shape = tuple(ints_in(dims, 0, INT_MAX, RANK_MAX))
        if prod(shape) != prod(constant.shape) or not isinstance(constant.source, ModelSource):
            raise ValueError(f"constant {constant.name!r} has another size")
        return LateConstant(constant.source, shape)
    base, value = row_of(rest, ("base", "value"))
    inner = read_late(base, count, parts, depth + 1)
    if what == "shape":
        return LateShape(inner, ints_in(value, 0, count - 1, RANK_MAX))
    if what == "transpose":
        return LateMap(inner, Transposed(ints_in(value, 0, RANK_MAX - 1, RANK_MAX)))
    if what == "row":
        index, keeps = row_of(value, ("index", "keeps"))
        return LateMap(inner, Row(int_in(index, 0, INT_MAX), bool(int_in(keeps, 0, 1))))
    raise ValueError("unknown maker of a constant")


def _late_or_known(row: Any, count: int, parts: Parts, depth: int) -> Late | Array | None:
    if row is None:
        return None
    if isinstance(row, list) and row[:1] == ["array"]:
        return parts.array(row_of(row, ("what", "array"))[1])
    return read_late(row, count, parts, depth + 1)


def _check_order(template: Template) -> None:
    """Check that nodes read what is there, and compute each tensor once. Raises ValueError."""
    tensors = template.tensors
    root = [i if tensor[3] < 0 else tensor[3] for i, tensor in enumerate(tensors)]
    inputs, outputs = template.inputs, template.outputs_at
    constants = {i for i, tensor in enumerate(tensors) if tensor[6] >= 0}
    fixed = constants.union(inputs)
    ready, written = set(fixed), set(fixed)
    if len(set(inputs)) != len(inputs) or len(set(outputs)) != len(outputs):
        raise ValueError("an input or output is listed twice")
    if any(tensors[i][3] >= 0 for i in chain(inputs, outputs)) or constants.intersection(inputs):
        raise ValueError("an input or output does not own its storage")
    for node in template.nodes:
        for i in node.inputs:
            if i not in ready and root[i] not in written:
                raise ValueError(f"node {node.name!r} reads what is not computed yet")
        for i in node.outputs:
            if i in ready or root[i] in fixed:
                raise ValueError(f"node {node.name!r} writes an input, a constant or a value that is there")
            ready.add(i)
            written.add(root[i])
    if any(i not in written or i in fixed for i in outputs):
        raise ValueError("no node computes an output")
