"""Texts of a model about itself: apps read them (an alphabet, a sample rate, names of classes), nothing computes with
them.
"""

from __future__ import annotations

from typing import NamedTuple

from .labels import Labels


class About(NamedTuple):
    """Texts of a model, with onnxruntime's names for them."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    weights: str = ""
    """How the weights were narrowed (flexnn/narrowing); onnxruntime has no such name."""
    custom_metadata_map: dict[str, str] = {}  # noqa: RUF012 (a tuple's default; nobody changes it)
    labels: dict[str, Labels] = {}  # noqa: RUF012
    """Labels that numbers of outputs stand for, by the output."""
