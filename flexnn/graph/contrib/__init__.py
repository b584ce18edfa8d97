"""Operators of other domains, and those of sequences, as standard ones on tensors, while a model is imported.

Those of onnxruntime (com.microsoft), which models that its tools have optimised or quantised hold:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md; and classic machine learning (ai.onnx.ml).
Of the default domain, those whose output has as many elements as the data say (selection.py), and products of integers
(integers.py).
"""

from functools import cache
from importlib import import_module

from .expansion import DOMAIN, EXPANSIONS, Expansion, Shared

__all__ = ["Expansion", "Shared", "expanded"]

MODULES = {
    "": ("integers", "selection", "sequences"),
    DOMAIN: ("fused", "grouped_query", "plain", "quantised"),
    "ai.onnx.ml": ("classic", "encoders", "support_vectors", "trees"),
}
"""Modules that register the expansions of a domain."""


@cache
def expanded(domain: str) -> frozenset[str]:
    """Return the operators of a domain that have expansions, whose modules are imported now: most models have operators
    of one domain only.
    """
    for module in MODULES.get(domain, ()):
        import_module(f"{__name__}.{module}")
    return frozenset(name for owner, name in EXPANSIONS if owner == domain)
