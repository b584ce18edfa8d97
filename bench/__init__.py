"""Models, benches and their peers: run from the repository's root as ``python -m bench.<name>``."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The root goes last: ``-m`` puts it first, where the source tree's flexnn, without its C core, hides the installed one.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT] + [str(ROOT)]

CACHE = ROOT / "bench" / ".cache"
MODELS = CACHE / "models"
"""Folder of built and fetched models, which git ignores."""
ARTIFACTS = Path(os.environ.get("FLEXNN_ARTIFACTS", CACHE / "artifacts"))
"""Folder of compiled and converted models. Checkouts that share a cache of models set a folder of their own."""
PICTURES = CACHE / "pictures"
WIDTH = 120
"""Columns of the tables, in a terminal and in a file alike."""
