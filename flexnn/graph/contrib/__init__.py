"""Operators of other domains, and those of sequences, as standard ones on tensors, while a model is imported.

Those of onnxruntime (com.microsoft), which models that its tools have optimised or quantised hold:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md; and classic machine learning (ai.onnx.ml).
Of the default domain, those whose output has as many elements as the data say (selection.py).
"""

from . import classic, fused, grouped_query, quantised, selection, sequences, trees  # noqa: F401 (each registers its operators)
from .expansion import EXPANSIONS, Expansion, Shared

__all__ = ["EXPANSIONS", "Expansion", "Shared"]
