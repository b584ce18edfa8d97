"""The ``.flexnn`` file: format, writer, verified reader (docs/format.md)."""

from .format import ArtifactError
from .reader import Artifact, open_artifact
from .writer import write_artifact

__all__ = ["Artifact", "ArtifactError", "open_artifact", "write_artifact"]
