"""The ``.flexnn`` file: format, writer, verified reader (docs/format.md).

What few sessions need is imported where it is: models whose shapes are open (``model_section``), the writer.
"""

from .format import ArtifactError
from .reader import Artifact, open_artifact

__all__ = ["Artifact", "ArtifactError", "open_artifact"]
