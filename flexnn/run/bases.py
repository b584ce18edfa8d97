"""Plans of segments that others are refitted from (planning/refit.py), and the weights that they pin."""

from __future__ import annotations

from flexnn.graph.ir import Graph
from flexnn.graph.likeness import Likeness, likeness
from flexnn.planning import Plan
from flexnn.planning.refit import Refit, Sizes
from flexnn.quick_dataclass import quick_dataclass
from flexnn.regions import Segment
from flexnn.regions.templates import SegmentTemplate


@quick_dataclass(slots=True, eq=False)
class Pins:
    """Pinned weights and zeros at one place of the arena; programs share them."""

    nbytes: int


@quick_dataclass(slots=True, eq=False)
class Base:
    """A plan, for the sizes of one segment or for larger ones, and what refits it. Sizes in bytes."""

    graph: Graph
    plan: Plan
    planned_for: int | None
    """Budget of ``plan`` (None: no limit)."""
    io_bytes: int
    """Bytes of inputs and outputs that the plan's smallest budget counts."""
    pins: Pins
    refit: Refit | None
    """None: it has no other sizes."""
    template: SegmentTemplate | None
    """The template of ``graph``."""
    alike: dict[SegmentTemplate, Likeness | None]
    """Other templates that were compared with it, and how sizes of theirs are its own; None: they are not."""

    def at(self, segment: Segment, sizes: Sizes) -> Plan | None:
        """Return the plan for a segment that has a template, whose graph has these sizes; None where it needs another
        plan.
        """
        template = segment.template
        assert template is not None
        if self.refit is None:
            return None
        if template is self.template:
            return self.refit.at(sizes)
        if template not in self.alike:
            self.alike[template] = likeness(segment.graph, self.graph)
        found = self.alike[template]
        own = _in_order(sizes, found) if found is not None else None
        return self.refit.at(own) if own is not None else None


def _in_order(sizes: Sizes, found: Likeness) -> Sizes | None:
    """Return sizes of a graph as those of its base; None where tensors that the base has in one are not the same."""
    (one, other), order = found.also, found.order
    if (sizes.nbytes[one] != sizes.nbytes[other]).any() or (sizes.offsets[one] != sizes.offsets[other]).any():
        return None
    return Sizes(sizes.params, sizes.nbytes[order], sizes.offsets[order])
