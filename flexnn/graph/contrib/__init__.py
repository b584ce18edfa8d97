"""Operators of other domains, and those of sequences, as standard ones on tensors, while a model is imported.

Those of onnxruntime (com.microsoft), which models that its tools have optimised or quantised hold:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md; and classic machine learning (ai.onnx.ml).
Of the default domain, those whose output has as many elements as the data say (selection.py), and products of integers
(integers.py).
"""

from . import (  # noqa: F401 (each registers its operators)
    classic,
    encoders,
    fused,
    grouped_query,
    integers,
    plain,
    quantised,
    selection,
    sequences,
    support_vectors,
    trees,
)
from .expansion import EXPANSIONS, Expansion, Shared

__all__ = ["EXPANSIONS", "Expansion", "Shared"]
