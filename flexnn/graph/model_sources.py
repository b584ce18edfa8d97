"""The sources of a model's constants, and which of them count as used: the artifact holds those."""

from __future__ import annotations

from collections.abc import Iterator

from .model import Constant, Model
from .sources import ModelSource


def model_sources(model: Model) -> Iterator[ModelSource]:
    """Iterate over the sources of all constants of a model, those of attributes, too."""
    for graph in model.graph.walk():
        attributes = [v for node in graph.nodes for v in node.attrs.values() if isinstance(v, Constant)]
        for constant in (*graph.constants.values(), *attributes):
            if isinstance(constant.source, ModelSource):
                yield constant.source


def unused_sources(model: Model) -> list[ModelSource]:
    """Return the sources of the constants that do not count as used."""
    return [source for source in model_sources(model) if not source.used]
