"""Layers that numpy computes, many times slower than a kernel would: compiling and planning say which, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from math import prod
from typing import NamedTuple

from flexnn.graph.model import ModelNode
from flexnn.quick_dataclass import quick_dataclass

from .region import HEAVY, SLOW, Nodes, Region, members

ELEMENTS_MIN = 1 << 12
"""Elements of the largest operand from which a layer is told: numpy computes smaller ones soon enough."""
TOLD = 3
"""Most layers of one reason that are named."""
NAME_MAX = 60
"""Most characters of a name; of long ones the last are told."""
TEXT_MAX = 1000
"""Most characters of the text."""
UNREACHED = (
    "no shape that compiling tried reaches them with the others of the model: compile with --shape (shapes= in Python)"
    " for the shapes that you run"
)
NO_KERNEL = "FlexNN has no kernel for these operators"


class Left(NamedTuple):
    """A layer that is left to numpy."""

    node: ModelNode
    why: str

    @property
    def name(self) -> str:
        """Its operator and its name, of which long ones are cut."""
        name = self.node.name or "".join(self.node.output[:1])
        return f"{self.node.op_type} {'…' + name[1 - NAME_MAX :] if len(name) > NAME_MAX else name!r}"


@quick_dataclass(slots=True)
class Walked:
    """Findings of walks through a model about its nodes."""

    lowered: dict[str, Nodes] = field(default_factory=dict)
    """Nodes that were in segments, by the path of their region."""
    elements: dict[int, int] = field(default_factory=dict)
    """Elements of the largest operand of each slow node that numpy computed, by its identity."""
    why: dict[int, str] = field(default_factory=dict)
    """Why it did."""

    def lower(self, region: Region, nodes: Nodes) -> None:
        """Note nodes that are in a segment."""
        self.lowered[region.path] = self.lowered.get(region.path, 0) | nodes

    def compute(self, node: ModelNode, shapes: Iterable[tuple[int, ...]]) -> None:
        """Note a node that numpy computed, with the shapes of its operands."""
        if node.op_type in SLOW:
            elements = max(map(prod, shapes), default=0)
            self.elements[id(node)] = max(elements, self.elements.get(id(node), 0))

    def add(self, other: Walked) -> None:
        """Add what another walk found."""
        for path, nodes in other.lowered.items():
            self.lowered[path] = self.lowered.get(path, 0) | nodes
        for number, elements in other.elements.items():
            self.elements[number] = max(elements, self.elements.get(number, 0))
        self.why |= other.why

    def explain(self, region: Region) -> None:
        """Note why binding left nodes of a region, and of those inside it, to numpy."""
        for inner in region.walk():
            self.why |= {id(inner.nodes[i]): text for i, text in inner.why.items()}

    def all_lowered(self, region: Region) -> bool:
        """Return whether every layer with weights was in a segment."""
        return not any(node.op_type in HEAVY for node, _ in self.others(region))

    def left(self, region: Region) -> list[Left]:
        """Return the layers of a region, and of those inside it, that were in no segment, but small ones."""
        found = []
        for node, inner in self.others(region):
            elements = self.elements.get(id(node))
            if elements is None:  # no walk came to it
                known = [prod(inner.constants[name].shape) for name in node.input if name in inner.constants]
                elements = max(known, default=ELEMENTS_MIN)
            if node.op_type in SLOW and elements >= ELEMENTS_MIN:
                reached = NO_KERNEL if id(node) in self.elements else UNREACHED
                found.append(Left(node, self.why.get(id(node), reached)))
        return found

    def others(self, region: Region) -> Iterable[tuple[ModelNode, Region]]:
        """Iterate over the nodes that were in no segment, with their regions."""
        for inner in region.walk():
            for i in members(inner.all & ~self.lowered.get(inner.path, 0)):
                yield inner.nodes[i], inner


def told(found: Sequence[Left]) -> str:
    """Return a line that says which layers are left to numpy, how many, why, and what would help; "" for none."""
    if not found:
        return ""
    reasons: dict[str, list[Left]] = {}
    for one in found:
        # of a refusal, the part behind the node's name
        reasons.setdefault(one.why.removeprefix(f"{one.node.where}: "), []).append(one)
    parts = []
    for why, layers in reasons.items():
        names = ", ".join(layer.name for layer in layers[:TOLD])
        more = f" and {len(layers) - TOLD} more" if len(layers) > TOLD else ""
        parts.append(f"{names}{more} ({why})")
    count = f"{len(found)} layer{'s' if len(found) > 1 else ''}"
    text = f"numpy computes {count}, many times slower than a kernel would: {'; '.join(parts)}"
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
