"""The fixture of this folder's tests; the module beside it makes it."""

from models_support import compiled

__all__ = ["compiled"]
