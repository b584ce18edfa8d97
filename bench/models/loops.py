"""Models with loops: bodies of a chosen number of nodes, alone, nested, in a branch, around branches; one like a
recurrent decoder's. The number of turns is an input, ``turns``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
WIDTH = 64
"""Numbers of a carried value: 256 bytes."""
OUTER = 10
"""Turns of the outer loop where two are nested."""
OPERATORS = ("MatMul", "Add", "Tanh", "Mul", "Sub", "Sigmoid", "Add", "Neg", "Mul", "Tanh")
"""Operators of a body, over and over; the last of them is the last node."""
LAYERS = 8
"""Layers of the decoder."""


def port(name: str, kind: int = FLOAT, shape: list[int | str] | None = None) -> onnx.ValueInfoProto:
    """Return a declared value; of floats, as wide as a carried one."""
    return helper.make_tensor_value_info(name, kind, [1, WIDTH] if shape is None and kind == FLOAT else shape or [])


class Graph:
    """Nodes and constants of one graph under way; its names begin with ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def __call__(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node; return its output."""
        made = f"{self.name}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [made], made, **attributes))
        return made

    def several(self, op: str, count: int, *inputs: str, **attributes: object) -> list[str]:
        """Add a node with ``count`` outputs; return them."""
        stem = f"{self.name}.{len(self.nodes)}"
        made = [f"{stem}.{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), made, stem, **attributes))
        return made

    def constant(self, values: object, dtype: type = np.float32) -> str:
        """Add a constant; return its name."""
        made = f"{self.name}.constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), made))
        return made

    def weight(self, *shape: int) -> str:
        """Add seeded noise of the scale that a product keeps; return its name."""
        noise = np.random.default_rng(len(self.constants)).standard_normal(shape)
        return self.constant(noise / shape[0] ** 0.5)

    def chain(self, x: str, count: int) -> str:
        """Add ``count`` nodes behind each other; return the last one's output."""
        for i in range(count):
            op = OPERATORS[(i - count) % len(OPERATORS)]
            second = {"MatMul": (WIDTH, WIDTH), "Add": (1, WIDTH), "Mul": (1, WIDTH), "Sub": (1, WIDTH)}.get(op)
            x = self(op, x, *([self.weight(*second)] if second else []))
        return x

    def ended(
        self, inputs: list[onnx.ValueInfoProto], outputs: list[tuple[str, onnx.ValueInfoProto]]
    ) -> onnx.GraphProto:
        """Return it, with values as outputs under the names of their declarations."""
        for made, declared in outputs:
            self.nodes.append(helper.make_node("Identity", [made], [declared.name]))
        return helper.make_graph(self.nodes, self.name, inputs, [d for _, d in outputs], self.constants)


def model(graph: onnx.GraphProto) -> bytes:
    """Return a graph as a file's bytes."""
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content = made.SerializeToString()
    assert isinstance(content, bytes)
    return content


Fill = Callable[[Graph, str, str], str]
"""Function that adds a body's nodes to a graph, for the turn's number and the carried value; returns the new value."""


def loop_body(name: str, fill: Fill, stacks: bool = False) -> onnx.GraphProto:
    """Return the body of a Loop that carries one value; ``stacks``: each turn's is an output, too."""
    graph = Graph(name)
    y = fill(graph, f"{name}.i", f"{name}.x")
    outputs = [(f"{name}.go", port(f"{name}.on", BOOL)), (y, port(f"{name}.y"))]
    if stacks:
        outputs.append((y, port(f"{name}.each")))
    return graph.ended([port(f"{name}.i", INT64), port(f"{name}.go", BOOL), port(f"{name}.x")], outputs)


def body_alone(count: int) -> bytes:
    """Return a body of ``count`` nodes as a closed model."""
    graph = Graph("alone")
    return model(graph.ended([port("x")], [(graph.chain("x", count), port("y"))]))


def looped(kind: str, count: int) -> bytes:
    """Return a model whose loops turn ``turns`` times in all, with bodies of ``count`` nodes.

    ``kind``: "loop"; "stacked", with a scan output; "nested", a loop in a loop; "in a branch", the loop in an If;
    "around branches", an If in each turn.
    """
    main = Graph("main")

    def chain(graph: Graph, i: str, x: str) -> str:
        return graph.chain(x, count)

    def nested(graph: Graph, i: str, x: str) -> str:
        return graph("Loop", "inner", "", x, body=loop_body("within", chain))

    def branched(graph: Graph, i: str, x: str) -> str:
        is_even = graph("Equal", graph("Mod", i, graph.constant(2, np.int64)), graph.constant(0, np.int64))
        ways = [Graph(f"way{number}") for number in range(2)]
        bodies = [way.ended([], [(way.chain(x, count), port(f"{way.name}.y"))]) for way in ways]
        return graph("If", is_even, then_branch=bodies[0], else_branch=bodies[1])

    inputs, outputs = [port("turns", INT64), port("x")], [port("y")]
    if kind == "stacked":
        y, each = main.several("Loop", 2, "turns", "", "x", body=loop_body("turn", chain, stacks=True))
        return model(main.ended(inputs, [(y, port("y")), (each, port("each", FLOAT, ["turns", 1, WIDTH]))]))
    if kind == "nested":
        main.nodes.append(helper.make_node("Div", ["turns", main.constant(OUTER, np.int64)], ["inner"]))
        y = main("Loop", main.constant(OUTER, np.int64), "", "x", body=loop_body("turn", nested))
    elif kind == "in a branch":
        ways = [Graph(f"side{number}") for number in range(2)]
        y = ways[0]("Loop", "turns", "", "x", body=loop_body("turn", chain))
        bodies = [ways[0].ended([], [(y, port("side0.y"))]), ways[1].ended([], [("x", port("side1.y"))])]
        is_some = main("Greater", "turns", main.constant(0, np.int64))
        y = main("If", is_some, then_branch=bodies[0], else_branch=bodies[1])
    else:
        fill = {"loop": chain, "around branches": branched}[kind]
        y = main("Loop", "turns", "", "x", body=loop_body("turn", fill))
    return model(main.ended(inputs, list(zip([y], outputs, strict=True))))


KINDS = ("loop", "stacked", "nested", "in a branch", "around branches")


def _norm(graph: Graph, x: str) -> str:
    """Add a layer norm by its steps."""
    centred = graph("Sub", x, graph("ReduceMean", x, axes=[-1]))
    variance = graph("ReduceMean", graph("Mul", centred, centred), axes=[-1])
    y = graph("Div", centred, graph("Sqrt", graph("Add", variance, graph.constant(1e-5))))
    return graph("Add", graph("Mul", y, graph.weight(1, WIDTH)), graph.weight(1, WIDTH))


def _cell(graph: Graph, x: str, h: str, c: str) -> tuple[str, str]:
    """Add an LSTM's cell by its steps."""
    gates = graph("Add", graph("MatMul", x, graph.weight(WIDTH, 4 * WIDTH)), graph.weight(1, 4 * WIDTH))
    gates = graph("Add", gates, graph("MatMul", h, graph.weight(WIDTH, 4 * WIDTH)))
    parts = []
    for number in range(4):
        ends = (graph.constant([WIDTH * (number + more)], np.int64) for more in range(2))
        parts.append(graph("Slice", gates, *ends, graph.constant([1], np.int64)))
    i, o, f = (graph("Sigmoid", part) for part in parts[:3])
    c = graph("Add", graph("Mul", f, c), graph("Mul", i, graph("Tanh", parts[3])))
    return graph("Mul", o, graph("Tanh", c)), c


def decoder() -> bytes:
    """Return a recurrent decoder over the rows of ``frames``: 8 layers by their steps, 226 nodes in a turn; 17 carried
    values; each turn's result is an output.
    """
    names = [f"{kind}{layer}" for layer in range(LAYERS) for kind in "hc"]
    graph = Graph("turn")
    frame = graph("Gather", "frames", "turn.i", axis=0)
    x = graph("Unsqueeze", frame, graph.constant([0], np.int64))
    made = []
    for layer in range(LAYERS):
        h, c = _cell(graph, x, f"turn.h{layer}", f"turn.c{layer}")
        made += [(h, port(f"turn.h{layer}.out")), (c, port(f"turn.c{layer}.out"))]
        x = _norm(graph, graph("Add", x, h))
    seen = graph("Add", "turn.seen", graph.constant(1, np.int64))
    late = graph("Cast", graph("Greater", seen, graph.constant(100, np.int64)), to=FLOAT)
    weighted = graph("Mul", x, graph("Add", late, graph.constant(0.5)))
    y = graph("Softmax", graph("Add", graph("MatMul", weighted, graph.weight(WIDTH, WIDTH)), weighted), axis=-1)
    made = [("turn.go", port("turn.on", BOOL)), *made, (seen, port("turn.seen.out", INT64)), (y, port("turn.y"))]
    carried = [*(port(f"turn.{name}") for name in names), port("turn.seen", INT64)]
    body = graph.ended([port("turn.i", INT64), port("turn.go", BOOL), *carried], made)
    main = Graph("main")
    zeros = main.constant(np.zeros((1, WIDTH)))
    start = [*(zeros for _ in names), main.constant(0, np.int64)]
    results = main.several("Loop", len(start) + 1, "turns", "", *start, body=body)
    inputs = [port("turns", INT64), port("frames", FLOAT, ["frames", WIDTH])]
    outputs = [(results[-1], port("y", FLOAT, ["turns", 1, WIDTH])), (results[-3], port("last"))]
    return model(main.ended(inputs, outputs))
