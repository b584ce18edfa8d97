"""The expansion of one operator: its inputs and attributes, and the standard nodes that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..ir import DTYPES, GraphError, WeightSource
from ..labels import Labels
from ..model import Constant, ModelAttr, ModelGraph, ModelNode
from ..ports import Dim
from ..sources import ArraySource, ModelSource

DOMAIN = "com.microsoft"

Counted = Callable[[str, tuple[int, ...], str, WeightSource], Constant]
"""Makes one of the model's constants: name, shape, dtype, source."""


@quick_dataclass(frozen=True, slots=True)
class Items:
    """A sequence of these values."""

    names: tuple[str, ...]


@quick_dataclass(frozen=True, slots=True)
class Parts:
    """A sequence of the parts of value ``x`` along an axis, each of ``size`` but the last."""

    x: str
    axis: int
    size: int
    keeps: bool
    """Whether the parts have the axis."""


@quick_dataclass(frozen=True, slots=True)
class Nothing:
    """An optional value without an element."""


Held = Items | Parts | Nothing


@quick_dataclass(slots=True)
class Shared:
    """Facts that all expansions of one model share."""

    opset: int
    lengths: set[str] = field(default_factory=set)
    """Values that are lengths of sequences, where a mask may stand as well."""
    sequences: dict[str, Held] = field(default_factory=dict)
    """Sequences and optional values that the model builds, by name: no node makes them."""
    labels: dict[str, Labels] = field(default_factory=dict)
    """Values whose numbers stand for labels, by name."""
    readers: set[str] = field(default_factory=set)
    """First outputs of the nodes that may read such values; for all others only callers may."""


class Expansion:
    """One node, and ``nodes``: those that stand for it. Raises GraphError for what is not supported of it."""

    def __init__(
        self,
        node: ModelNode,
        graph: ModelGraph,
        outer: Mapping[str, Constant],
        counted: Counted,
        shared: Shared,
    ) -> None:
        self.node = node
        self.shared = shared
        self.nodes: list[ModelNode] = []
        self._graph = graph
        self._outer = outer
        self._counted = counted
        self.reads_labels = False
        """Whether its nodes read numbers that stand for labels as what they are: places of names."""
        self._read: set[str] = set()
        self._stem = next((name for name in node.output if name), node.name)
        """Beginning of new names: the name of a value that no other node makes. Names of nodes need not differ."""

    def run(self) -> list[ModelNode]:
        """The nodes that stand for it."""
        EXPANSIONS[self.node.domain, self.node.op_type](self)
        if self.reads_labels:
            self.shared.readers.update(node.output[0] for node in self.nodes)
        made = {name for node in self.nodes for name in node.output} | self.shared.sequences.keys()
        missing = [name for name in self.node.output if name and name not in made]
        unread = [name for name in self.node.attrs if name not in self._read]
        if missing:
            raise self.error(f"its output {missing[0]!r} is not supported")
        if unread:
            raise self.error(f"attribute {unread[0]} is not supported")
        return self.nodes

    def error(self, message: str) -> GraphError:
        """The error that says ``message`` of this node, in one line."""
        return GraphError(f"{self.node.where}: {message}")

    # ---- the node ----

    def optional(self, index: int) -> str:
        """The name of an input; "" where it is absent."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def input(self, index: int) -> str:
        """The name of a required input."""
        name = self.optional(index)
        if not name:
            raise self.error(f"input {index} is missing")
        return name

    def output(self, index: int) -> str:
        """The name of an output; "" where nobody wants it."""
        return self.node.output[index] if index < len(self.node.output) else ""

    def without(self, first: int, last: int, what: str) -> None:
        """Refuse inputs from ``first`` to ``last``."""
        if any(self.optional(i) for i in range(first, last + 1)):
            raise self.error(f"{what} is not supported")

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attr(name, default)
        if not isinstance(value, int):
            raise self.error(f"attribute {name} has the wrong type")
        return value

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        value = self.attr(name, default)
        if not isinstance(value, float):
            raise self.error(f"attribute {name} has the wrong type")
        return value

    def attr(self, name: str, default: ModelAttr) -> ModelAttr:
        """An attribute, or the default."""
        self._read.add(name)
        return self.node.attrs.get(name, default)

    def numbers(self, name: str) -> np.ndarray:
        """A tensor attribute of one dimension."""
        value = self.attr(name, "")
        if not isinstance(value, Constant) or len(value.shape) != 1:
            raise self.error(f"attribute {name} is missing or has the wrong type")
        return numbers_of(value)

    def attrs(self, names: Sequence[str]) -> dict[str, ModelAttr]:
        """Return the attributes among ``names`` that the node has, unchanged."""
        self._read.update(names)
        return {name: self.node.attrs[name] for name in names if name in self.node.attrs}

    def known(self, name: str) -> Constant | None:
        """The constant of this name."""
        return self._graph.constants.get(name) or self._outer.get(name)

    def dims(self, index: int) -> tuple[Dim, ...] | None:
        """Shape of an input that is constant, or that the model's caller hands in; None where it is not known."""
        found = self.known(self.input(index))
        if found:
            return found.shape
        return next((port.dims for port in self._graph.inputs if port.name == self.input(index)), None)

    def dtype(self, index: int) -> str:
        """Type of an input that the model's caller hands in, else ""."""
        found = (port.dtype for port in self._graph.inputs if port.name == self.input(index))
        return next(found, None) or ""

    def constant(self, index: int, what: str) -> Constant:
        """The constant that an input must be."""
        name = self.input(index)
        found = self.known(name)
        if found is None:
            raise self.error(f"{what} (input {name!r}) is computed at run time, but must be constant")
        return found

    # ---- what it becomes ----

    def add(self, op: str, *inputs: str, output: str = "", **attrs: ModelAttr) -> str:
        """Add a standard node, and return the name of its output, by default a new one."""
        (name,) = self.split(op, inputs, [output], attrs)
        return name

    def split(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, ModelAttr] | None = None
    ) -> list[str]:
        """Add a standard node of several outputs; "": a new name."""
        stem = f"{self._stem}.{len(self.nodes)}"
        names = [name or f"{stem}.{i}" for i, name in enumerate(outputs)]
        used = list(inputs)
        while used and not used[-1]:
            used.pop()
        self.nodes.append(ModelNode(op, f"{stem}.{op}", used, names, dict(attrs or {})))
        return names

    def unsqueezed(self, value: str, axis: int) -> str:
        """Add a dimension of size 1."""
        if self.shared.opset < 13:
            return self.add("Unsqueeze", value, axes=[axis])
        return self.add("Unsqueeze", value, self.array(np.array([axis], np.int64)))

    def clipped(self, value: str, low: float, high: float, output: str = "") -> str:
        """Add a Clip, whose bounds are attributes before opset 11."""
        if self.shared.opset < 11:
            return self.split("Clip", [value], [output], {"min": float(low), "max": float(high)})[0]
        bounds = [self.array(np.array(bound, np.float32)) for bound in (low, high)]
        return self.add("Clip", value, *bounds, output=output)

    def cut(self, value: str, end: int, axis: int) -> str:
        """Keep the first ``end`` elements of an axis."""
        if self.shared.opset < 10:
            return self.add("Slice", value, starts=[0], ends=[end], axes=[axis])
        return self.add("Slice", value, *(self.array(np.array([v], np.int64)) for v in (0, end, axis)))

    def array(self, values: np.ndarray) -> str:
        """The name of a new constant."""
        kinds = {dtype.str[1:]: name for name, dtype in DTYPES.items()}
        return self.stored(values.shape, kinds[values.dtype.str[1:]], ArraySource(values))

    def stored(self, shape: tuple[int, ...], dtype: str, source: WeightSource) -> str:
        """The name of a new constant of a source."""
        name = f"{self._stem}.constant{len(self._graph.constants)}"
        self._graph.constants[name] = self._counted(name, shape, dtype, source)
        return name


def source_of(constant: Constant) -> WeightSource:
    """Source of a constant of the model, without counting the constant as read."""
    assert isinstance(constant.source, ModelSource)
    return constant.source.base


def numbers_of(constant: Constant) -> np.ndarray:
    """The values of a model's constant."""
    return np.asarray(source_of(constant).load())


def integers(e: Expansion, name: str) -> np.ndarray:
    """A list of integers; empty where it is absent."""
    value = e.attr(name, [])
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:  # forests have millions
        raise e.error(f"attribute {name} is not a list of integers")
    return np.array(value, np.int64)


def floats(e: Expansion, name: str) -> np.ndarray:
    """A list of numbers; empty where it is absent."""
    value = e.attr(name, [])
    if not isinstance(value, list) or not set(map(type, value)) <= {float}:
        raise e.error(f"attribute {name} is not a list of numbers")
    return np.array(value, np.float32)


Expand = Callable[[Expansion], None]
EXPANSIONS: dict[tuple[str, str], Expand] = {}
"""Expansions by domain and operator; the modules of this package fill the table."""


def expands(*operators: str, domain: str = DOMAIN) -> Callable[[Expand], Expand]:
    """Register the expansion of these operators."""

    def register(function: Expand) -> Expand:
        for operator in operators:
            EXPANSIONS[domain, operator] = function
        return function

    return register
