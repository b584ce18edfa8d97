"""The ``.flexnn`` file: format, writer, verified reader (docs/format.md).

Models whose shapes are open (``model_section``) and the writer are imported lazily: most sessions never use them.
"""

from .format import ArtifactError
from .reader import Artifact, open_artifact

__all__ = ["Artifact", "ArtifactError", "open_artifact"]
