"""onnxruntime's own operators (domain com.microsoft) as standard ones, while a model is imported.

Models that onnxruntime's tools have optimised or quantised hold them:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from . import fused, quantised  # noqa: F401 (each registers its operators)
from .expansion import DOMAIN, EXPANSIONS, Expansion

__all__ = ["DOMAIN", "EXPANSIONS", "Expansion"]
