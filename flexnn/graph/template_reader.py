"""Reading the graph of a stored template (regions/template_reader.py): every value is checked, and each graph again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from flexnn import _core
from flexnn.quick_dataclass import quick_dataclass

from . import operators
from .attributes import INT_MAX, int_in, ints_in, name_of, row_of
from .ir import DTYPES, RANK_MAX, TENSOR_BYTES_MAX, Array, Graph, GraphError, Node, Weight
from .late import Late, LateConstant, LateFold, LateMap, LateShape, LateSizes, Row, Transposed
from .model import Constant, ModelNode
from .replay import Numbers, Replay
from .sources import ArraySource, HeldSource, ModelSource
from .template import Template

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
    fields = [(op, _core.FIELDS[op]) for op in sorted(set(ops))]
    return _core.crc32c(repr((fields, sorted(_core.ENUMS.items()))).encode())


class CheckedTemplate(Template):
    """A template that a file holds: sizes that no graph has are refused."""

    __slots__ = ()

    def check(self) -> None:
        """Check shapes, and which tensors share storage. Raises ValueError."""
        shapes, strides = [self.lists[t[1]] for t in self.tensors], [self.lists[t[5]] for t in self.tensors]
        if any(len(own) != len(steps) or len(own) > RANK_MAX for own, steps in zip(shapes, strides, strict=True)):
            raise ValueError("a shape has other strides, or too many dimensions")
        if not set(self.replay.floats.tolist()).isdisjoint(chain(*self.lists, (t[4] for t in self.tensors))):
            raise ValueError("a float is a dimension")
        roots = [t[3] for t in self.tensors]
        for i, root in enumerate(roots):
            if root >= 0 and (root == i or roots[root] >= 0 or self.tensors[root][2] != self.tensors[i][2]):
                raise ValueError("a view has no root of its type")

    def numbers(self, given: Sequence[int]) -> Numbers | None:
        """Return all numbers of the trail. Raises GraphError where they are no sizes of tensors."""
        found = self.replay.at(given)
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
    lists = [tuple(ints_in(indices, 0, count - 1, LIST_MAX)) for indices in _list(row["lists"])]
    known = [_weight(weight, count, parts) for weight in _list(row["weights"])]
    rows, weights = _list(row["tensors"]), [weight for weight, *_ in known]
    tensors = [_tensor(tensor, (len(lists), count, len(rows)), weights) for tensor in rows]
    nodes = [_node(node, len(tensors), len(known), (len(lists), count)) for node in _list(row["graph"])]
    inputs = ints_in(row["inputs"], 0, len(tensors) - 1, LIST_MAX)
    outputs = ints_in(row["outputs"], 0, len(tensors) - 1, LIST_MAX)
    packed, whole, floats = map(parts.array, row_of(row["params"], ("packed", "whole", "floats")))
    if packed.shape != (len(nodes), _core.PARAM_WORDS) or packed.dtype != np.int32:
        raise ValueError("parameters have another shape")
    for words in (whole, floats):
        _check_words(words, packed.shape, count)
    template = CheckedTemplate(replay, lists, tensors, nodes, known, inputs, outputs, packed, whole, floats)
    _check_order(template)
    template.check()
    return template


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > LIST_MAX:
        raise ValueError("not a list, or too long")
    return value


def _check_words(words: Array, shape: tuple[int, ...], count: int) -> None:
    if words.ndim != 2 or len(words) != 3 or words.dtype != np.int32:
        raise ValueError("places of parameters are malformed")
    for indices, end in zip(words, (*shape, count), strict=True):
        if len(indices) and not 0 <= indices.min() <= indices.max() < end:
            raise ValueError("a place of a parameter is out of range")


def _tensor(row: Any, counts: tuple[int, int, int], weights: list[Weight]) -> tuple[str, int, str, int, int, int, int]:
    name, shape, dtype, root, offset, strides, weight = row_of(
        row, ("name", "shape", "dtype", "root", "offset", "", "")
    )
    lists, numbers, tensors = counts
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError("unknown dtype")
    if int_in(weight, -1, len(weights) - 1) >= 0 and (weights[weight].kind != "raw" or root != -1):
        raise ValueError("a constant is no raw weight, or a view")
    return (
        name_of(name),
        int_in(shape, 0, lists - 1),
        dtype,
        int_in(root, -1, tensors - 1),
        int_in(offset, 0, numbers - 1),
        int_in(strides, 0, lists - 1),
        weight,
    )


def _node(row: Any, tensors: int, weights: int, counts: tuple[int, int]) -> tuple[Node, dict[str, int | tuple[int]]]:
    name, op, inputs, outputs, attrs, weight, sizes = row_of(row, NODE)
    if not isinstance(op, str) or not isinstance(attrs, dict) or not isinstance(sizes, dict):
        raise ValueError("operator or attributes are malformed")
    found: dict[str, int | tuple[int]] = {}
    for key, place in sizes.items():
        if isinstance(place, list):
            found[key] = (int_in(row_of(place, ("index",))[0], 0, counts[1] - 1),)
        else:
            found[key] = int_in(place, 0, counts[0] - 1)
    most = _core.MAX_INPUTS
    reads, makes = (ints_in(places, 0, tensors - 1, most) for places in (inputs, outputs))
    return Node(name_of(name), op[:64], reads, makes, attrs, int_in(weight, -1, weights - 1)), found


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
    ready = constants.union(inputs)
    written = set(ready)
    if len(set(inputs)) != len(inputs) or len(set(outputs)) != len(outputs):
        raise ValueError("an input or output is listed twice")
    if any(tensors[i][3] >= 0 for i in chain(inputs, outputs)) or constants.intersection(inputs):
        raise ValueError("an input or output does not own its storage")
    for node, _ in template.nodes:
        if any(i not in ready and root[i] not in written for i in node.inputs):
            raise ValueError(f"node {node.name!r} reads what is not computed yet")
        made = {root[i] for i in node.outputs}
        if made & constants or made.intersection(inputs) or ready.intersection(node.outputs):
            raise ValueError(f"node {node.name!r} writes an input, a constant or a value that is there")
        ready.update(node.outputs)
        written |= made
    if any(i not in written or i in constants or i in inputs for i in outputs):
        raise ValueError("no node computes an output")
