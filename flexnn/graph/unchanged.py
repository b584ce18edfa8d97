"""Values that a Loop or Scan carries and its body never changes: the body reads them from the graph around it.

Exporters carry a layer's weights through its loop. Read from outside they are constants again: packed, planned and
streamed like any other weight, and each turn copies none of them.
"""

from __future__ import annotations

from .model import Model, ModelGraph, ModelNode, reads

SCAN_WITHOUT_BATCH = 9
"""Opset from which a Scan has no batch."""
LOOP_OWN = 2
"""Inputs of a Loop, and of its body, before the carried ones: turns or iteration, and condition."""


def read_from_outside(model: Model) -> None:
    """Take unchanged values out of what loops carry, inner ones first: an inner loop may leave its outer one's value
    unchanged.
    """
    for graph in reversed(list(model.graph.walk())):
        if any("body" in node.attrs for node in graph.nodes):
            _visit(graph, model.opset)


def _visit(graph: ModelGraph, opset: int) -> None:
    nodes = []
    for node in graph.nodes:
        nodes.append(node)
        body = node.attrs.get("body")
        if isinstance(body, ModelGraph) and not node.domain:
            nodes += _taken_out(node, body, opset)
    graph.nodes = nodes


def _taken_out(node: ModelNode, body: ModelGraph, opset: int) -> list[ModelNode]:
    """Take unchanged values out of a node; return nodes that give its former outputs."""
    slices = node.attrs.get("num_scan_inputs")
    if node.op_type == "Loop":
        before, results, count = LOOP_OWN, 1, len(node.input) - LOOP_OWN
    elif node.op_type == "Scan" and opset >= SCAN_WITHOUT_BATCH and isinstance(slices, int):
        before, results, count = 0, 0, len(node.input) - slices
    else:
        return []
    if len(body.inputs) != len(node.input) or len(body.outputs) != results + len(node.output) or count < 0:
        return []  # binding says what is wrong
    given: list[ModelNode] = []
    carried = len(node.input)
    for k in reversed(range(count)):
        outside, result = node.input[before + k], node.output[k]
        if len(node.output) == 1 or not _is_unchanged(body, before + k, results + k, outside):
            continue
        _rename(body, body.inputs[before + k].name, outside)
        del node.input[before + k], body.inputs[before + k], body.outputs[results + k], node.output[k]
        if result:
            given.append(ModelNode("Identity", f"{node.name}:{k}", [outside], [result]))
    if len(node.input) < carried:
        _drop_unread(body)
    return given


def _is_unchanged(body: ModelGraph, i: int, k: int, outside: str) -> bool:
    """Return whether output ``k`` of a body is its input ``i``, and the body can read ``outside`` in its place."""
    own = body.inputs[i].name
    sources = {node.output[0]: node.input[0] for node in body.nodes if node.op_type == "Identity" and not node.domain}
    name = body.outputs[k].name
    while name != own and name in sources:
        name = sources[name]
    if name != own or not outside:
        return False
    others = [port.name for j, port in enumerate(body.outputs) if j != k]
    return own not in others and not any(outside in _defined(graph) for graph in body.walk())


def _defined(graph: ModelGraph) -> set[str]:
    """Return the names that a graph gives values, without those of graphs inside it."""
    return (
        {port.name for port in graph.inputs} | set(graph.constants) | {o for node in graph.nodes for o in node.output}
    )


def _rename(graph: ModelGraph, old: str, new: str) -> None:
    """Have nodes read ``new`` in place of ``old``, in a graph and in those inside it that see it."""
    for node in graph.nodes:
        node.input = [new if name == old else name for name in node.input]
        for inner in node.graphs:
            if old not in _defined(inner):
                inner.outputs = [port._replace(name=new) if port.name == old else port for port in inner.outputs]
                _rename(inner, old, new)


def _drop_unread(body: ModelGraph) -> None:
    """Drop Identity nodes whose output nobody reads any more."""
    read = {port.name for port in body.outputs}
    kept = []
    for node in reversed(body.nodes):
        if node.op_type != "Identity" or node.domain or not read.isdisjoint(node.output):
            kept.append(node)
            read |= reads(node)
    body.nodes = kept[::-1]
