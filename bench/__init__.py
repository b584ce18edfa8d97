"""Models, benches and their peers: run from the repository's root as ``python -m bench.<name>``."""

from pathlib import Path

CACHE = Path(__file__).resolve().parent / ".cache"
MODELS = CACHE / "models"
"""Where built and fetched models lie (git-ignored)."""
PICTURES = CACHE / "pictures"
