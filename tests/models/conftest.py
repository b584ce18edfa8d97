"""The fixture of this folder's tests; the module beside it makes it."""

from tests.support.models import compiled

__all__ = ["compiled"]
