"""Contents of an artifact of a model with open shapes: all weights, in every form that runs read, and templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from flexnn.artifact.format import ABOUT, LABELLED
from flexnn.artifact.model_section import INLINE_BYTES, StoredModel, constants_of, source_of, weight_key
from flexnn.graph.bind import refuse_unknown
from flexnn.graph.ir import RAW_CHUNK_BYTES, GraphError, Weight
from flexnn.graph.ledger import current
from flexnn.graph.model import Model
from flexnn.graph.prefold import fold_constants
from flexnn.graph.sources import ArraySource
from flexnn.regions.left import told
from flexnn.regions.sampling import Sampled, sample

LACKED_BYTES = 1 << 20
LACKED_PART = 4
"""Weights that only templates read may take that many bytes, or that part of the sampled weights' bytes."""


def open_contents(model: Model, reason: GraphError, later: list[Callable[[], None]] | None = None) -> StoredModel:
    """Return the model with all weights, in every form that sampled bindings read, and templates. First runs can do
    without these: if ``later`` is given, it gets the call that adds them.

    Raises GraphError: ``reason``, which says why the model is not one bound graph, if that says more.
    """
    fold_constants(model)
    stored = StoredModel(model, [], {}, {}, constants_of(model))
    try:
        sampled = sample(model)
    except GraphError as error:
        refuse_unknown(model.graph)
        ledger = current()
        if ledger is not None and ledger.refusal:
            raise GraphError(ledger.refusal) from None
        raise (error if any(node.graphs for node in model.graph.nodes) else reason) from None
    for weight in (weight for graph in sampled.graphs for weight in graph.weights):
        key = weight_key(weight)
        if key is None:
            assert weight.source is not None
            weight.source.load()  # marks the constant as used, so the section holds its numbers
        elif key not in stored.keys:
            stored.keys[key] = len(stored.weights)
            stored.weights.append(weight)
    for index, constant in enumerate(stored.constants):
        if source_of(constant).used and constant.nbytes > INLINE_BYTES:
            raw = Weight(constant.name, "raw", constant.nbytes, RAW_CHUNK_BYTES, source=constant.source)
            key = str(weight_key(raw))
            if key not in stored.keys:
                stored.keys[key] = len(stored.weights)
                stored.weights.append(raw)
            stored.values[index] = stored.keys[key]
    stored.sampled, stored.left = sampled.shapes, told(sampled.left)
    if later is None:
        _store_templates(stored, sampled)
    else:
        later.append(partial(_store_templates, stored, sampled))
    return stored


def _store_templates(stored: StoredModel, sampled: Sampled) -> None:
    """Trace templates like those that first runs at the sampled shapes leave, and add them to the artifact, with
    weights that they read and no sampled shape needed: what is folded at some shapes is computed at others.
    """
    from flexnn.regions.template_writer import dump_templates
    from flexnn.regions.tracing import traces

    left = max(LACKED_BYTES, sum(weight.nbytes for weight in stored.weights) // LACKED_PART)
    lacked: dict[str, Weight] = {}

    def key_of(weight: Weight) -> str | None:
        nonlocal left
        key = weight_key(weight)
        if key is None:
            return None
        held = stored.weights[stored.keys[key]] if key in stored.keys else lacked.get(key)
        if held is None and weight.nbytes <= left:
            left -= weight.nbytes
            held = lacked[key] = weight
        if held is None or held.nbytes != weight.nbytes:
            raise KeyError(key)
        return key

    raw = dump_templates(*traces(stored.model, sampled.shapes, sampled.ports, sampled.least), key_of)
    if raw:
        last = stored.weights[-1:]
        end = len(stored.weights) - bool(last and last[0].name in (ABOUT, LABELLED))
        stored.keys.update((key, end + i) for i, key in enumerate(lacked))
        stored.templates = end + len(lacked)
        source = ArraySource(np.frombuffer(raw, np.uint8))
        weight = Weight("templates", "raw", len(raw), RAW_CHUNK_BYTES, source=source)
        stored.weights[end:end] = [*lacked.values(), weight]  # what the model says about itself stays the last
