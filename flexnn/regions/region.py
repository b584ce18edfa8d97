"""A region: one graph of the model (the whole, a branch, a loop's body) and the facts that hold before any run."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import cached_property

from flexnn.graph.ir import GraphError
from flexnn.graph.model import Constant, ModelGraph, reads

Nodes = int
"""Set of nodes of a region: bit i is node i."""
HEAVY = {"Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger", "LSTM", "GRU", "RNN"}
"""Operators that numpy never computes only because their inputs are empty or vary."""
SLOW = HEAVY | {
    "Attention",
    "CausalConvWithState",
    "DeformConv",
    "Einsum",
    "LinearAttention",
    "QLinearConv",
    "QLinearMatMul",
}
"""Operators that take most of a model's time, so that people have to know when numpy computes them (left.py)."""


class Region:
    """One graph of the model; ``children[i]`` are the regions of the graphs inside node i, by attribute. Raises
    GraphError if a node reads a value that no earlier node computes.
    """

    def __init__(
        self,
        graph: ModelGraph,
        path: str = "",
        outer: ChainMap[str, Constant] | None = None,
        visible: set[str] | None = None,
        precision: str = "f32",
        *,
        only_weighs: bool = False,
    ) -> None:
        """Take a graph. ``outer``, ``visible``: constants and all values that it sees of the graphs around it."""
        self.only_weighs = only_weighs
        """Whether the graphs of its segments only say which weights they read, and are never run."""
        self.precision = precision
        """Precision of its maps, as the model has it."""
        self.path = path
        """Node and attribute that the region belongs to, after those around it; "" for the whole model."""
        self.graph = graph
        self.nodes = graph.nodes
        self.outputs = [port.name for port in graph.outputs]
        self.constants = outer.new_child(graph.constants) if outer is not None else ChainMap(graph.constants)
        self.reads = [reads(node) for node in graph.nodes]
        self.makers = {name: i for i, node in enumerate(graph.nodes) for name in node.output if name}
        """Node that makes each value, by its name."""
        self.awaits = [tuple(name for name in node.input if name in self.makers) for node in graph.nodes]
        """Inputs of each node that other nodes of the region make; the others are there from the start."""
        self.all: Nodes = (1 << len(graph.nodes)) - 1
        self.hosted: set[int] = set()
        """Nodes that numpy computes because no lowering takes them."""
        self.hosted_empty: set[int] = set()
        """Nodes that numpy computes where an input has no elements."""
        self.forced: set[str] = set()
        """Values of which some lowering needs the numbers, not only the shapes."""
        self.varied: set[str] = set()
        """Values that no input reaches, but whose numbers differ between shapes: inputs of segments, not constants."""
        self.apart: set[int] = set()
        """Branches that cannot be lowered into the segment around them."""
        self.walked: set[int] = set()
        """Nodes with bodies that Python must walk."""
        self.children: dict[int, dict[str, Region]] = {}
        self.why: dict[int, str] = {}
        """Why numpy computes the slow ones of them."""
        self._nest(set() if visible is None else visible)

    def _nest(self, visible: set[str]) -> None:
        """Make the regions inside, and check that each value is computed before it is read. ``visible`` is as before
        where this returns: a copy for each body would take the square of the graph's bytes.
        """
        names = (*self.graph.constants, *(port.name for port in self.graph.inputs))
        own = [name for name in dict.fromkeys(names) if name not in visible]
        visible.update(own)
        for i, node in enumerate(self.nodes):
            missing = sorted(name for name in self.reads[i] if name not in visible)
            if missing:
                raise GraphError(f"{node.where}: no earlier node computes input {missing[0]!r}")
            for name, value in node.attrs.items():
                if isinstance(value, ModelGraph):
                    key = f"{node.name or ''.join(node.output[:1])}.{name}"
                    where = f"{self.path} > {key}" if self.path else key
                    inner = Region(value, where, self.constants, visible, self.precision, only_weighs=self.only_weighs)
                    self.children.setdefault(i, {})[name] = inner
            made = [name for name in node.output if name and name not in visible]
            visible.update(made)
            own += made
        missing = [name for name in self.outputs if name not in visible]
        if missing:
            raise GraphError(f"no node computes output {missing[0]!r}")
        visible.difference_update(own)

    @cached_property
    def readers(self) -> Mapping[str, list[int]]:
        """Nodes that read each value, in order, by its name."""
        found: dict[str, list[int]] = {}
        for i, names in enumerate(self.reads):
            for name in names:
                found.setdefault(name, []).append(i)
        return found

    @cached_property
    def inside(self) -> list[Region]:
        """All regions inside it, outer ones first."""
        return list(self.walk())[1:]  # with this one it would be a cycle, which only the collector of garbage ends

    @cached_property
    def sources(self) -> Nodes:
        """Nodes that read nothing that another node of the region makes."""
        return sum(1 << i for i, names in enumerate(self.reads) if self.makers.keys().isdisjoint(names))

    @cached_property
    def parents(self) -> Nodes:
        """Nodes with regions inside them."""
        return sum(1 << i for i in self.children)

    @cached_property
    def _ends(self) -> frozenset[str]:
        return frozenset(self.outputs)

    @cached_property
    def _read(self) -> frozenset[str]:
        return self._ends.union(*self.reads)

    def needed(self, remaining: Nodes) -> Set[str]:
        """Return the values that the remaining nodes read, and the region's outputs."""
        return self._read if remaining == self.all else Needed(self, remaining)

    def constant_bytes(self, remaining: Nodes) -> int:
        """Return the bytes of the constants that the remaining nodes read, and all those inside them."""
        names = self.needed(remaining)
        own = sum(self.constants[name].nbytes for name in names if name in self.constants)
        inside = [body for i, bodies in self.children.items() if remaining >> i & 1 for body in bodies.values()]
        return own + sum(body.constant_bytes(body.all) for body in inside)

    def unmark(self) -> None:
        """Take back what is marked in the region and in those inside it."""
        for region in self.walk():
            region.why.clear()
            for values in (region.forced, region.varied):
                values.clear()
            for nodes in (region.hosted, region.hosted_empty, region.apart, region.walked):
                nodes.clear()

    @contextmanager
    def without_marks(self) -> Iterator[None]:
        """Take back, at the end, what is marked in the region and in those inside it: it was for certain sizes. Nodes
        that numpy computes where an input has no elements stay marked: templates made meanwhile leave them out.
        """
        regions = list(self.walk())
        marks = [(r.hosted, r.forced, r.apart, r.walked) for r in regions]
        for region in regions:
            region.hosted = set(region.hosted)
            region.forced, region.apart, region.walked = set(region.forced), set(region.apart), set(region.walked)
        try:
            yield
        finally:
            for region, own in zip(regions, marks, strict=True):
                region.hosted, region.forced, region.apart, region.walked = own

    def walk(self) -> Iterator[Region]:
        """Iterate over the region and all regions inside it, outer ones first."""
        yield self
        for inner in self.children.values():
            for region in inner.values():
                yield from region.walk()


class Needed(Set[str]):
    """Values that some nodes of a region read, and its outputs. To look for one takes no longer where the region has
    more nodes: a run looks for a few after each of its parts.
    """

    def __init__(self, region: Region, nodes: Nodes) -> None:
        self._region, self._nodes = region, nodes

    def __contains__(self, name: object) -> bool:
        readers = self._region.readers.get(name, ())  # type: ignore[call-overload]
        return any(self._nodes >> i & 1 for i in reversed(readers)) or name in self._region._ends

    def __iter__(self) -> Iterator[str]:
        return iter(self._region._ends.union(*(self._region.reads[i] for i in members(self._nodes))))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @classmethod
    def _from_iterable(cls, names: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(names)


def members(nodes: Nodes) -> Iterator[int]:
    """Iterate over the nodes of a set, in order."""
    while nodes:
        low = nodes & -nodes
        yield low.bit_length() - 1
        nodes ^= low
