"""Texts of a model about itself, as the artifact's last weight: no node reads it, so plans do not know it
(docs/format.md).
"""

from __future__ import annotations

import numpy as np

from flexnn.graph.about import About
from flexnn.graph.ir import RAW_CHUNK_BYTES, Weight
from flexnn.graph.sources import ArraySource

from .format import ABOUT, ArtifactError
from .section import load_json

ABOUT_BYTES_MAX = 8 << 20
"""Most bytes of it: JSON in ASCII takes up to six times what the compiler takes of a model."""


def about_weight(about: About) -> Weight | None:
    """Return the weight that holds ``about``; None: a model that says nothing."""
    if about == About():
        return None
    import json

    raw = json.dumps(about._asdict(), separators=(",", ":")).encode("ascii")
    source = ArraySource(np.frombuffer(raw, np.uint8))
    return Weight(ABOUT, "raw", len(raw), RAW_CHUNK_BYTES, source=source)


def load_about(raw: bytes) -> About:
    """Read what a model says about itself. Raises ArtifactError."""
    about = About(**load_json(raw, set(About._fields), "about"))
    texts = [getattr(about, name) for name, default in About._field_defaults.items() if default == ""]
    entries = about.custom_metadata_map
    if not isinstance(entries, dict) or not all(isinstance(v, str) for v in (*texts, *entries.values())):
        raise ArtifactError("what the model says about itself is not text")
    if type(about.version) is not int:
        raise ArtifactError("the version of the model is not a number")
    return about
