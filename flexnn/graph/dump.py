"""Models and graphs as text, one line for each node: what each stage of compiling made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .ir import Graph, Weight
from .model import Constant, Model, ModelAttr, ModelGraph
from .ports import Port


def stages() -> list[str]:
    """Return the names of the stages of compiling, in order."""
    from .passes import EARLY_PASSES, IN_PLACE_PASSES, layout

    unique = namer()
    passes = [unique(step.__name__) for step in (*EARLY_PASSES, layout, *IN_PLACE_PASSES)]
    return ["imported", "bound", *passes, "packed"]


def namer() -> Callable[[str], str]:
    """Return a function that gives each stage a name of its own: ``cleanup``, then ``cleanup-2``."""
    seen: dict[str, int] = {}

    def unique(name: str) -> str:
        seen[name] = number = seen.get(name, 0) + 1
        return name if number == 1 else f"{name}-{number}"

    return unique


def dump(graph: Graph) -> str:
    """Return the nodes in execution order: outputs, operator, inputs, and attributes other than 0 and ``none``.

    ``%7[1,8,8,16]`` is tensor 7 and its shape; ``%9@4+128`` lies in the storage of tensor 4, 128 elements from its
    start; ``#2`` is a constant's raw weight.
    """
    lines = [f"inputs {' '.join(_tensor(graph, i) for i in graph.inputs)}"]
    for node in graph.nodes:
        attrs = " ".join(f"{k}={_short(v)}" for k, v in node.attrs.items() if v not in ("none", 0, 0.0))
        inputs = " ".join(_tensor(graph, i) for i in node.inputs)
        panels = f" panels={graph.weights[node.weight].nbytes}" if node.weight >= 0 else ""
        outputs = " ".join(_tensor(graph, i) for i in node.outputs)
        lines.append(f"{outputs} = {node.op} {inputs} {attrs}{panels}{_comment(node.name)}")
    lines.append(f"outputs {' '.join(_tensor(graph, i) for i in graph.outputs)}")
    return "\n".join(lines) + "\n"


def dump_weights(weights: Sequence[Weight]) -> str:
    """Return a line for each weight: index, kind, bytes, bytes under one checksum, name."""
    rows = enumerate(weights)
    return "".join(f"#{i} {w.kind} bytes={w.nbytes} chunk_bytes={w.chunk_bytes}{_comment(w.name)}\n" for i, w in rows)


def dump_model(model: Model) -> str:
    """Return the constants and nodes of the model's graph; those of nested graphs are indented.

    ``x:f32[1,n,?]`` is an input whose dimension n is open and whose last one has not even a name.
    """
    return "\n".join([f"opset {model.opset}", *_model_graph(model.graph, "")]) + "\n"


def _model_graph(graph: ModelGraph, indent: str) -> Iterator[str]:
    yield f"{indent}inputs {' '.join(map(_port, graph.inputs))}"
    for name, constant in graph.constants.items():
        yield f"{indent}constant {name}:{constant.dtype}{_dims(constant.shape)}"
    for node in graph.nodes:
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        attrs = "".join(f" {k}={_attr(v)}" for k, v in node.attrs.items() if not isinstance(v, ModelGraph))
        outputs, inputs = (" ".join(name or "-" for name in names) for names in (node.output, node.input))
        yield f"{indent}{outputs} = {operator} {inputs}{attrs}{_comment(node.name)}"
        for name, value in node.attrs.items():
            if isinstance(value, ModelGraph):
                yield f"{indent}  {name}:"
                yield from _model_graph(value, indent + "    ")
    yield f"{indent}outputs {' '.join(map(_port, graph.outputs))}"


def _port(port: Port) -> str:
    dims = "" if port.dims is None else _dims(port.dims)
    return f"{port.name}:{port.dtype or '?'}{dims}"


def _dims(dims: Sequence[int | str | None]) -> str:
    return f"[{','.join('?' if d is None else str(d) for d in dims)}]"


def _attr(value: ModelAttr) -> str:
    if isinstance(value, Constant):
        return f"{value.dtype}{_dims(value.shape)}"
    return _short(value)


def _comment(name: str) -> str:
    return f"  # {name}" if name else ""


def _tensor(graph: Graph, i: int) -> str:
    tensor = graph.tensors[i]
    shape = _dims(tensor.shape)
    if tensor.weight >= 0:
        return f"%{i}#{tensor.weight}{shape}"
    if tensor.root >= 0:
        return f"%{i}@{tensor.root}+{tensor.offset}{shape}"
    return f"%{i}{shape}"


def _short(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
