"""A graph as text: one line for each node, to look at what a pass did."""

from __future__ import annotations

from .ir import Graph


def dump(graph: Graph) -> str:
    """Nodes in execution order: output, operator, inputs, and the attributes that are not at rest.

    ``%7[1,8,8,16]`` is tensor 7 and its shape; ``%9@4+128`` lies in the storage of tensor 4, 128 elements from its
    start; ``#2`` is a constant's raw weight.
    """
    lines = [f"inputs {' '.join(_tensor(graph, i) for i in graph.inputs)}"]
    for node in graph.nodes:
        attrs = " ".join(f"{k}={_short(v)}" for k, v in node.attrs.items() if v not in ("none", 0, 0.0))
        inputs = " ".join(_tensor(graph, i) for i in node.inputs)
        panels = f" panels={graph.weights[node.weight].nbytes}" if node.weight >= 0 else ""
        outputs = " ".join(_tensor(graph, i) for i in node.outputs)
        lines.append(f"{outputs} = {node.op} {inputs} {attrs}{panels}  # {node.name}")
    lines.append(f"outputs {' '.join(_tensor(graph, i) for i in graph.outputs)}")
    return "\n".join(lines) + "\n"


def _tensor(graph: Graph, i: int) -> str:
    tensor = graph.tensors[i]
    shape = f"[{','.join(map(str, tensor.shape))}]"
    if tensor.weight >= 0:
        return f"%{i}#{tensor.weight}{shape}"
    if tensor.root >= 0:
        return f"%{i}@{tensor.root}+{tensor.offset}{shape}"
    return f"%{i}{shape}"


def _short(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
