"""Plans of segments that others are refitted from (planning/refit.py), and the weights that they pin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import NamedTuple

from flexnn.artifact.model_section import StoredModel
from flexnn.graph.ir import Graph
from flexnn.graph.like_template import LikeTemplate
from flexnn.graph.likeness import Likeness, Skeleton, likeness
from flexnn.planning import Plan
from flexnn.planning.decisions import Decisions
from flexnn.planning.refit import Refit, Refitted, Sizes
from flexnn.quick_dataclass import quick_dataclass
from flexnn.regions.templates import SegmentTemplate

from .constants import Packing


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
    held: Pins | None = None
    """Pinned weights that a loop's holder brings (run/holding.py), which ``pins`` do not have; None: there are none."""
    own_bytes: int = 0
    """Offset in the plan's arena from which on it holds them."""
    holds: int | None = None
    """Bytes of pinned weights that were to stay its own; None: all."""
    alike: dict[SegmentTemplate, Likeness | None] = field(default_factory=dict)
    """Other templates that were compared with it, and how sizes of theirs are its own; None: they are not."""

    def at(self, template: SegmentTemplate, sizes: Sizes, likeness_to: LikenessTo) -> Refitted | None:
        """Return what the plan is at sizes of a template's graph; None where they need another plan."""
        if self.refit is None:
            return None
        if template is self.template:
            return self.refit.at(sizes)
        found = likeness_to(template, self)
        return self.refit.at(sizes, found) if found is not None else None


class Decided(NamedTuple):
    """Outcome of the last search for a plan of a kind of segment, which plans of other sizes follow."""

    decisions: Decisions | None
    """None: it pins everything, which needs no search."""
    planned_for: int
    """Budget of that plan."""
    holds: int | None
    """Bytes of its pinned weights that stay where others are held in a loop; None: all stay."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, about."""
        return self.decisions.nbytes if self.decisions is not None else 0


LikenessTo = Callable[[SegmentTemplate, Base], Likeness | None]
"""Function that says how sizes of a template's graphs are those of a plan."""


def likeness_to(
    template: SegmentTemplate, base: Base, packings: Mapping[SegmentTemplate, Packing], stored: StoredModel
) -> Likeness | None:
    """Return how sizes of a template's graphs are those of a plan for another one, with weights of the artifact; None:
    they are not.
    """
    if template not in base.alike:
        other = base.template
        assert other is not None
        own = template.template
        if isinstance(own, LikeTemplate) and own.base is other.template:
            base.alike[template] = packings[template].likeness(own)
        elif own.ops != other.template.ops:  # as nearly all of them are
            base.alike[template] = None
        else:
            base.alike[template] = likeness(*(_skeleton(each, stored) for each in (template, other)))
    return base.alike[template]


def _skeleton(template: SegmentTemplate, stored: StoredModel) -> Skeleton:
    """Return the skeleton of a template's graphs as they are planned, made when it is first asked for."""
    if template.skeleton is None:
        whole = template.template.complete
        template.skeleton = Packing.of_template(whole).skeleton(whole, lambda key: stored.weights[stored.keys[key]])
    return template.skeleton
