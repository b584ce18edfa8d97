"""Tally of a session's open and kept parts, so that one that joins them adds its own bytes only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flexnn.quick_dataclass import quick_dataclass

from .bound_segment import BoundSegment
from .recording import ReadyStretch


@quick_dataclass(slots=True, eq=False)
class Tally:
    """Objects that several parts may have in common and that were counted, by their identities: the parts keep them
    alive, and all is counted anew when one goes.
    """

    arrays: set[int]
    """Constants of stretches."""
    templates: set[int]
    """Templates of segments."""
    decided: int
    """Bytes of decisions."""

    @classmethod
    def of(cls, stretches: Iterable[ReadyStretch], segments: Iterable[BoundSegment], decided: int) -> Tally:
        """Return the tally of all stretches and segments that are kept."""
        arrays = {id(array) for found in stretches for array in found.constants}
        return cls(arrays, {id(segment.segment.template) for segment in segments}, decided)

    def kept_bytes(self, found: ReadyStretch) -> int:
        """Return the bytes that a further stretch takes outside the arena."""
        new = {id(array): array.nbytes for array in found.constants if id(array) not in self.arrays}
        return found.nbytes + sum(new.values())

    def has_templates(self, segments: Sequence[BoundSegment]) -> bool:
        """Return whether segments come from templates that were counted, or from none."""
        templates = [segment.segment.template for segment in segments]
        return all(template is None or id(template) in self.templates for template in templates)

    def add(self, found: ReadyStretch, decided: int) -> None:
        """Count a further stretch, and so many bytes of decisions."""
        self.decided = decided
        self.arrays.update(map(id, found.constants))
