"""Decoders of which both forms are in one model, as optimum merges them: an If chooses between one that takes a past
and keys and values of an encoder's output, and one that makes these.

A session with state needs the first one, with the keys and values that the second one makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .ir import GraphError
from .model import Model, ModelGraph, ModelNode, reads

_PAST, _PRESENT = "past_key_values", "present"


def unmerged(model: Model) -> Model:
    """Return the model without such an If; as it is where it has none. Raises GraphError."""
    graph = model.graph
    bools = {port.name for port in graph.inputs if port.dtype == "bool"}
    chosen = [node for node in graph.nodes if node.op_type == "If" and _asked(graph, node.input[0]) in bools]
    if len(chosen) != 1:
        return model
    (node,) = chosen
    flag, then, other = _asked(graph, node.input[0]), node.attrs["then_branch"], node.attrs["else_branch"]
    assert isinstance(then, ModelGraph)
    assert isinstance(other, ModelGraph)
    places = {name: i for i, name in enumerate(node.output)}
    inputs = {port.name for port in graph.inputs}
    made = ModelGraph([], dict(graph.constants), [], list(graph.outputs))
    renamed, once = {name: f"once.{name}" for each in other.nodes for name in each.output}, {}
    renamed |= {name: f"once.{name}" for name in other.constants}
    joined = {n.input[0] for n in then.nodes if n.op_type == "Concat"}
    for name in sorted(inputs & then.captures()):
        place = places.get(name.replace(_PAST, _PRESENT)) if name.startswith(_PAST) else None
        if place is not None and name not in joined and not _has_past(then, name):
            end = other.outputs[place].name
            once[name] = renamed.get(end, end)
    made.constants |= then.constants | {renamed[name]: constant for name, constant in other.constants.items()}
    made.nodes = [each for each in graph.nodes if each is not node]
    made.nodes += _renamed(_needed(other, set(once.values()), renamed), renamed)
    made.nodes += _renamed(then.nodes, once)
    ends = [once.get(port.name, port.name) for port in then.outputs]
    made.nodes += [
        ModelNode("Identity", end, [start], [end]) for start, end in zip(ends, node.output, strict=True) if start != end
    ]
    dropped = {flag, *once}
    made.inputs = [port for port in graph.inputs if port.name not in dropped]
    return replace(model, graph=made)


def _asked(graph: ModelGraph, name: str) -> str:
    """Return the value that a condition only reshapes."""
    makers = {output: node for node in graph.nodes for output in node.output}
    while name in makers and makers[name].op_type in ("Squeeze", "Reshape", "Identity", "Cast", "Gather"):
        name = makers[name].input[0]
    return name


def _has_past(graph: ModelGraph, name: str) -> bool:
    """Return whether fused attention reads a value as its past, and gives it out longer."""
    return any(
        name in node.input[4:] and any(node.output[1:]) for node in graph.nodes if node.op_type.endswith("Attention")
    )


def _needed(graph: ModelGraph, wanted: set[str], renamed: Mapping[str, str]) -> list[ModelNode]:
    found, names = [], {old for old, new in renamed.items() if new in wanted}
    for node in reversed(graph.nodes):
        if names.intersection(node.output):
            if node.graphs:
                raise GraphError(f"{node.where}: control flow in what is made of an encoder's output is not supported")
            found.append(node)
            names |= reads(node)
    return found[::-1]


def _renamed(nodes: list[ModelNode], names: Mapping[str, str]) -> list[ModelNode]:
    return [
        replace(
            node,
            input=[names.get(name, name) for name in node.input],
            output=[names.get(name, name) for name in node.output],
        )
        for node in nodes
    ]
