"""The ``.flexnn`` file: format, writer, verified reader (docs/format.md)."""

from .format import ArtifactError
from .model_section import StoredModel, constants_of, source_of, weight_key
from .reader import Artifact, open_artifact

__all__ = [
    "Artifact",
    "ArtifactError",
    "StoredModel",
    "constants_of",
    "open_artifact",
    "source_of",
    "weight_key",
]
