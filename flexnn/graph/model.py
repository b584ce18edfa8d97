"""The model as ONNX states it, without onnx: what the importer makes and what binding lowers, at run time too.

Names are values: unique in their graph; a nested graph also sees those of the graphs around it. Dimensions may be open:
a name, or None where not even that is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from math import prod

from flexnn.quick_dataclass import quick_dataclass

from .about import About
from .ir import DTYPES, WeightSource
from .ports import Port

PRECISIONS = "f32", "f16"
"""Types of maps: f16 where operators know 16 bits (passes/half.py)."""


@quick_dataclass(slots=True)
class Constant:
    """A value that the model states."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    source: WeightSource

    @property
    def nbytes(self) -> int:
        """Bytes of the value."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize


@quick_dataclass(slots=True, eq=False)
class ModelNode:
    """An ONNX node; fields are named as onnx names them."""

    op_type: str
    name: str = ""
    input: list[str] = field(default_factory=list)
    """Names of values; "" for an optional one that is absent."""
    output: list[str] = field(default_factory=list)
    attrs: dict[str, ModelAttr] = field(default_factory=dict)
    domain: str = ""

    @property
    def where(self) -> str:
        """Operator and name of the node, for messages."""
        return f"{self.op_type} node {self.name or ''.join(self.output[:1])!r}"

    @property
    def graphs(self) -> list[ModelGraph]:
        """Its nested graphs, in the order of their attributes' names."""
        return [value for _, value in sorted(self.attrs.items()) if isinstance(value, ModelGraph)]


@quick_dataclass(slots=True)
class ModelGraph:
    """Nodes in an order in which each follows what it reads; ``Constant`` nodes are among the constants."""

    nodes: list[ModelNode] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)

    def captures(self) -> set[str]:
        """Values of the graphs around it that it reads, at any depth."""
        own = set(self.constants) | {port.name for port in self.inputs}
        read = {port.name for port in self.outputs}
        for node in self.nodes:
            read.update(reads(node))
            own.update(node.output)
        return read - own - {""}

    def walk(self) -> Iterator[ModelGraph]:
        """Itself and all nested graphs, outer ones first."""
        yield self
        for node in self.nodes:
            for graph in node.graphs:
                yield from graph.walk()


ModelAttr = int | float | str | list[int] | list[float] | list[str] | Constant | ModelGraph


@quick_dataclass(slots=True)
class Model:
    """A whole model."""

    graph: ModelGraph
    opset: int
    """Version of the default domain."""
    about: About = About()
    """Texts of the model about itself, at compile time."""
    externals: tuple[str, ...] = ()
    """Names of files beside the ONNX file that hold weights, at compile time."""
    precision: str = PRECISIONS[0]
    """One of ``PRECISIONS``."""


def stated_bytes(model: Model) -> int:
    """Return the bytes of all constants of a model."""
    return sum(constant.nbytes for graph in model.graph.walk() for constant in graph.constants.values())


def reads(node: ModelNode) -> set[str]:
    """Names of all values that a node reads, those that its nested graphs capture included."""
    names = {name for name in node.input if name}
    for graph in node.graphs:
        names |= graph.captures()
    return names
