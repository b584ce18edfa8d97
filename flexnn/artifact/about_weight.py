"""Texts of a model about itself, as the artifact's last weight: no node reads it, so plans do not know it
(docs/format.md).
"""

from __future__ import annotations

import numpy as np

from flexnn.graph.about import About
from flexnn.graph.ir import RAW_CHUNK_BYTES, GraphError, Weight
from flexnn.graph.labels import TYPES, Labels
from flexnn.graph.sources import ArraySource

from .format import ABOUT, LABELLED, ArtifactError
from .section import load_json

ABOUT_BYTES_MAX = 8 << 20
"""Most bytes of it: JSON in ASCII takes up to six times what the compiler takes of a model."""


def about_weight(about: About) -> Weight | None:
    """Return the weight that holds ``about``; None: a model that says nothing. Raises GraphError where it says
    more than a reader takes.
    """
    if about == About():
        return None
    import json

    parts = about._asdict()
    if not about.labels:
        del parts["labels"]
    raw = json.dumps(parts, separators=(",", ":")).encode("ascii")
    if len(raw) > ABOUT_BYTES_MAX:
        raise GraphError(f"texts that the model knows and says of itself take {len(raw)} bytes of {ABOUT_BYTES_MAX}")
    source = ArraySource(np.frombuffer(raw, np.uint8))
    return Weight(LABELLED if about.labels else ABOUT, "raw", len(raw), RAW_CHUNK_BYTES, source=source)


def load_about(raw: bytes, *, has_labels: bool = False) -> About:
    """Read what a model says about itself. Raises ArtifactError."""
    about = About(**load_json(raw, set(About._fields) - ({"labels"} if not has_labels else set()), "about"))
    texts = [getattr(about, name) for name, default in About._field_defaults.items() if default == ""]
    entries = about.custom_metadata_map
    if not isinstance(entries, dict) or not all(isinstance(v, str) for v in (*texts, *entries.values())):
        raise ArtifactError("what the model says about itself is not text")
    if type(about.version) is not int:
        raise ArtifactError("the version of the model is not a number")
    if not isinstance(about.labels, dict):
        raise ArtifactError("labels of values are no object")
    return about._replace(labels={name: _labels(row) for name, row in about.labels.items()})


def _labels(row: object) -> Labels:
    kind, names = row if isinstance(row, list) and len(row) == 2 else ("", None)
    if kind not in TYPES or not isinstance(names, list) or len({type(name) for name in names}) != 1:
        raise ArtifactError("labels of a value are not a kind and names of one type")
    if type(names[0]) is not str and (type(names[0]) is not int or kind != "mappings"):
        raise ArtifactError("labels of a value are neither texts nor integers")
    return Labels(kind, names)
