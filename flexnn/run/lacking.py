"""Recording by what an artifact holds: its weights, and its templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flexnn.planning.overhead import BASE_BYTES
from flexnn.regions import Recorder, Segment
from flexnn.regions.region import Nodes, Region, members
from flexnn.regions.scope import Scope
from flexnn.regions.stretch import Stretch
from flexnn.regions.templates import Stored, Templates

from .segments import BoundSegments

PARSED_BYTES_LEAST = 64 << 10
"""Bytes that a part of templates may take as Python's objects in any budget."""


class LackingRecorder(Recorder):
    """Recorder that leaves to numpy what the artifact has no weights for."""

    def __init__(self, segments: BoundSegments) -> None:
        super().__init__(segments.stored.model)
        self._segments = segments
        self.has_read = False
        """Whether the templates of the artifact were read for a stretch."""
        self.may_read = True
        """Whether they may be."""
        self.left: Callable[[int], int | None] | None = None
        """Function that says what a budget leaves beside what is open and live values (None: there is no limit), while
        a session is open.
        """

    def record(self, region: Region, scope: Scope, remaining: Nodes) -> Stretch:
        """Return the stretch that begins with the remaining nodes. Where no templates are kept, and the budget leaves
        room to read those of the artifact, they are read for this once: to bind takes several times as long.
        """
        left = None
        if self.left is not None and self.may_read and self.templates is None:
            left = self.left(sum(scope[name].nbytes for name in scope))
        if left is None or not self._segments.may_read_templates(left):
            return super().record(region, scope, remaining)
        self.has_read = True
        self.keep_templates(wanted=True, may_trace=False)
        assert self.templates is not None
        try:
            stretch = super().record(region, scope, remaining)
            for segment in stretch.tape.segments:
                segment.leave_template()
        finally:
            self.templates.close()
            self.keep_templates(wanted=False)
        return stretch

    def read_no_more(self) -> bool:
        """Bind from now on, without templates; return whether stretches may come from templates in a budget."""
        was_read, self.has_read, self.may_read = self.has_read, False, False
        if self.templates is not None and self._segments.memory is not None:
            self.templates.close()
            self.keep_templates(wanted=False)
            was_read = True
        return was_read

    def begin_templates(self, beside_bytes: int, close_all: Callable[[], None]) -> None:
        """Keep templates in a budget, if there is ample room for them when all is closed but ``beside_bytes``."""
        segments, memory = self._segments, self._segments.memory
        room = 0 if memory is None else memory - segments.model_bytes - BASE_BYTES - beside_bytes
        if memory is not None and segments.may_hold_templates(room):
            close_all()
            self.keep_templates(wanted=True, may_trace=segments.may_trace_templates(room))

    def leave_to_numpy(self, region: Region, names: Sequence[str]) -> None:
        """Let numpy compute from now on, where it can, the nodes whose recording needs the numbers of ``names``."""
        wanted = set(names)
        region.apart.update(i for i in region.children if wanted & region.reads[i])
        for i in members(region.all):
            self.host_if_light(region, i, wanted)

    def keep_templates(self, *, wanted: bool, may_trace: bool = True) -> None:
        """Keep templates of segments from now on, or none; ``may_trace``: whether there is memory for new ones."""
        self.templates = (self.templates or Templates(self.model.opset, self._stored)) if wanted else None
        if self.templates is not None:
            self.templates.keeps_best = self._segments.memory is not None
            self.templates.may_trace = may_trace
        self._segments.templates = self.templates

    def renew_templates(self) -> None:
        """Forget the templates that are kept, if they are; those of the artifact are checked as they are read again."""
        if self.templates is not None and not self.templates.is_closed:
            may_trace, self.templates = self.templates.may_trace, None
            self.keep_templates(wanted=True, may_trace=may_trace)

    def _stored(self) -> Stored:
        """Read the templates that the artifact holds. Raises ArtifactError, GraphError."""
        from flexnn.regions.template_reader import PARSED_BYTES_MAX, load_templates  # models without need neither

        segments, stored = self._segments, self._segments.stored
        if stored.template_source is None:
            return {}
        raw = stored.template_source.load().tobytes()
        # a budget counts so much: only hostile ones take more
        most = PARSED_BYTES_MAX if segments.memory is None else max(segments.reading_bytes, PARSED_BYTES_LEAST)
        return load_templates(raw, self.region, stored.constants, self.model.opset, min(most, PARSED_BYTES_MAX))

    def lacking(self, segment: Segment) -> set[str]:
        """Return the names of the segment's nodes whose weights the artifact does not hold."""
        return self._segments.lacking(segment)
