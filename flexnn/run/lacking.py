"""Recording by what an artifact holds: its weights, and its templates."""

from __future__ import annotations

from flexnn.regions import Recorder, Segment
from flexnn.regions.templates import Stored, Templates

from .segments import BoundSegments


class LackingRecorder(Recorder):
    """Recorder that leaves to numpy what the artifact has no weights for."""

    def __init__(self, segments: BoundSegments) -> None:
        super().__init__(segments.stored.model)
        self._segments = segments

    def keep_templates(self, *, wanted: bool) -> None:
        """Keep templates of segments from now on, or none."""
        self.templates = (self.templates or Templates(self.model.opset, self._stored)) if wanted else None
        if self.templates is not None:
            self.templates.keeps_best = self._segments.memory is not None
        self._segments.templates = self.templates

    def renew_templates(self) -> None:
        """Forget the templates that are kept, if they are; those of the artifact are checked as they are read again."""
        if self.templates is not None and not self.templates.is_closed:
            self.templates = None
            self.keep_templates(wanted=True)

    def _stored(self) -> Stored:
        """Read the templates that the artifact holds. Raises ArtifactError, GraphError."""
        from flexnn.regions.template_reader import load_templates  # models without templates do not need it

        stored = self._segments.stored
        if stored.template_source is None:
            return {}
        raw = stored.template_source.load().tobytes()
        return load_templates(raw, self.region, stored.constants, self.model.opset)

    def lacking(self, segment: Segment) -> set[str]:
        """Return the names of the segment's nodes whose weights the artifact does not hold."""
        return self._segments.lacking(segment)
