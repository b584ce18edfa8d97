"""Random loops whose bodies pick elements by numbers of the turn: slices, ranges and rows at computed places."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.random import Generator
from onnx import helper

from tests.support.regions import BOOL, F32, I64, graph_of, model_of, value

ROWS, COLUMNS = 9, 6
TURNS = 5
COMPARISONS = {"Less": 1, "LessOrEqual": 1, "Greater": -1, "GreaterOrEqual": -1}
"""Comparisons, by the sign of what is compared with a limit."""


@dataclass
class Graph:
    """A graph that is being made."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)


class TurnMaker:
    """Maker of a model of one loop, or of one in another. Its input is ``x``, of which it picks elements and sums."""

    def __init__(self, rng: Generator) -> None:
        self.rng = rng
        self.names = 0

    def model(self) -> onnx.ModelProto:
        """Return the model."""
        graph = Graph()
        numbers = [self.constant(graph, np.array([self.integer(0, 3)], np.int64))]
        outputs = self.loop(graph, numbers, int(self.rng.random() < 0.3))
        made = [value(self.node(graph, "Identity", [name], "out"), F32, shape) for name, shape in outputs]
        inputs = [value("x", F32, ["rows", COLUMNS]), value("n", I64, [1])]
        graph.constants["n_used"] = np.array(0, np.int64)
        return model_of(graph_of(graph.nodes, inputs, made, graph.constants))

    def feed(self, rng: Generator) -> dict[str, np.ndarray]:
        """Return inputs."""
        rows = ROWS + int(rng.integers(0, 3))
        x = rng.standard_normal((rows, COLUMNS)).astype(np.float32)
        return {"x": x, "n": np.array([rng.integers(0, TURNS)], np.int64)}

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def choice(self, items: list) -> str:
        return items[int(self.rng.integers(len(items)))]

    def name(self, stem: str = "t") -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def constant(self, graph: Graph, array: np.ndarray) -> str:
        name = self.name("k")
        graph.constants[name] = array
        return name

    def whole(self, graph: Graph, *numbers: int) -> str:
        return self.constant(graph, np.array(numbers, np.int64))

    def node(self, graph: Graph, kind: str, inputs: list[str], stem: str = "t", **attributes) -> str:
        out = self.name(stem)
        graph.nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    # ---- numbers of the turn ----

    def plus(self, graph: Graph, number: str, step: int) -> str:
        """Add to a number, in one of the ways in which models do."""
        way = self.integer(0, 4)
        if way == 0:
            wide = self.node(graph, "Cast", [number], to=F32)
            added = self.node(graph, "Add", [wide, self.constant(graph, np.array([step], np.float32))])
            return self.node(graph, "Cast", [added], to=I64)
        if way == 1:
            return self.node(graph, "Sub", [number, self.whole(graph, -step)])
        if way == 2:
            zero = self.whole(graph, 0)
            spread = self.node(graph, "Unsqueeze", [self.plus_plain(graph, number, step), zero])
            same = self.node(graph, "Add", [spread, zero])
            return self.node(graph, "Squeeze", [same, zero])
        if way == 3:
            narrow = self.node(graph, "Cast", [number], to=onnx.TensorProto.INT32)
            added = self.node(graph, "Add", [narrow, self.constant(graph, np.array([step], np.int32))])
            return self.node(graph, "Cast", [added], to=I64)
        return self.plus_plain(graph, number, step)

    def plus_plain(self, graph: Graph, number: str, step: int) -> str:
        return self.node(graph, "Add", [number, self.whole(graph, step)])

    def number(self, graph: Graph, numbers: list[str], source: str) -> str:
        """A number that says where elements are."""
        way, number = self.integer(0, 9), self.choice(numbers)
        if way == 0:
            return self.node(graph, "Mod", [number, self.whole(graph, self.integer(1, ROWS))])
        if way == 1:
            return self.node(graph, "Div", [number, self.whole(graph, 2)])
        if way == 2:
            least = self.constant(graph, np.array(0, np.int64))
            most = self.constant(graph, np.array(self.integer(0, ROWS - 1), np.int64))
            return self.node(graph, "Clip", [self.plus(graph, number, self.integer(-3, 3)), least, most])
        if way == 3:
            total = self.node(graph, "ReduceSum", [source, self.whole(graph, 1)], keepdims=0)
            return self.node(graph, "ArgMax", [total], axis=0, keepdims=1)
        if way == 4:
            return self.node(graph, "Neg", [self.plus(graph, number, self.integer(1, 3))])
        if way == 5:
            least = self.node(graph, "Max", [number, self.whole(graph, self.integer(0, 3))])
            return self.node(graph, "Min", [least, self.whole(graph, self.integer(3, ROWS))])
        if way == 6:
            return self.node(graph, "Mul", [number, self.whole(graph, self.integer(0, 2))])
        if way == 7:
            return self.node(graph, "Sub", [self.choice(numbers), self.choice(numbers)])
        return self.plus(graph, number, self.integer(-2, 2)) if way == 8 else number

    # ---- what a turn does with them ----

    def picked(self, graph: Graph, numbers: list[str], source: str) -> str:
        """The sum of some elements."""
        axis = self.integer(0, 1)
        begin = self.number(graph, numbers, source)
        end = self.plus(graph, begin, self.integer(0, 3))
        if self.rng.random() < 0.4:
            size = self.node(graph, "Gather", [self.node(graph, "Shape", [source]), self.whole(graph, axis)])
            end = self.node(graph, "Min", [size, end])
        way = self.integer(0, 5)
        if way < 3:
            steps = [self.whole(graph, self.integer(1, 2))] if self.rng.random() < 0.3 else []
            found = self.node(graph, "Slice", [source, begin, end, self.whole(graph, axis), *steps])
        elif way == 3:
            axes = self.whole(graph, 0, 1)
            other = self.number(graph, numbers, source)
            starts = self.node(graph, "Concat", [begin, other], axis=0)
            ends = self.node(graph, "Concat", [end, self.plus(graph, other, 2)], axis=0)
            found = self.node(graph, "Slice", [source, starts, ends, axes])
        elif way == 4:
            row = self.node(graph, "Mod", [begin, self.whole(graph, COLUMNS)])
            found = self.node(graph, "Gather", [source, row], axis=axis)
        else:
            zero = self.whole(graph, 0)
            bounds = [self.node(graph, "Squeeze", [name, zero]) for name in (begin, end)]
            step = self.constant(graph, np.array(self.integer(1, 2), np.int64))
            places = self.node(graph, "Range", [*bounds, step])
            found = self.node(graph, "Cast", [places], to=F32)
            return self.node(graph, "ReduceSum", [found], keepdims=0)
        return self.node(graph, "ReduceSum", [found], keepdims=0)

    def written(self, graph: Graph, numbers: list[str], source: str, total: str) -> str:
        """The source with a row, or an element, that is new."""
        row = self.node(graph, "Mod", [self.number(graph, numbers, source), self.whole(graph, ROWS)])
        if self.integer(0, 1):
            place = self.node(graph, "Unsqueeze", [row, self.whole(graph, 0)])
            wide = self.node(graph, "Expand", [total, self.whole(graph, 1, COLUMNS)])
            return self.node(graph, "ScatterND", [source, place, wide])
        place = self.node(graph, "Reshape", [row, self.whole(graph, 1, -1)])
        update = self.node(graph, "Reshape", [total, self.whole(graph, 1, 1)])
        return self.node(graph, "ScatterElements", [source, place, update], axis=0)

    # ---- loops ----

    def loop(self, graph: Graph, numbers: list[str], depth: int) -> list[tuple[str, list]]:
        """Add a loop; return its outputs and their shapes."""
        inner, turn, going = Graph(), self.name("turn"), self.name("going")
        steps = [self.choice([1, 1, 2, -1, 0]) for _ in range(self.integer(1, 2))]
        counters = [self.name("c") for _ in steps]
        starts = [
            self.choice(numbers) if self.rng.random() < 0.5 else self.whole(graph, self.integer(0, 4) if s >= 0 else 8)
            for s in steps
        ]
        own = [*numbers, *counters, self.node(inner, "Reshape", [turn, self.whole(inner, 1)])]
        sum_, table = self.name("p"), self.name("p")
        total = self.picked(inner, own, table)
        if depth:
            (again, _), (table_, _) = self.loop(inner, own, 0)
            total = self.node(inner, "Add", [total, again])
            total = self.node(inner, "Add", [total, self.node(inner, "ReduceMax", [table_], keepdims=0)])
        for _ in range(self.integer(0, 2)):
            total = self.node(inner, "Add", [total, self.picked(inner, own, self.choice([table, "x"]))])
        total = self.node(inner, "Tanh", [self.node(inner, "Add", [sum_, total])])
        new = self.written(inner, own, table, total) if self.rng.random() < 0.6 else table
        after = [self.plus(inner, c, s) for c, s in zip(counters, steps, strict=True)]
        on = self.condition(inner, counters[0], after[0], steps[0], total)
        results = [self.node(inner, "Identity", [name], "r") for name in (*after, total, new)]
        ports = [value(turn, I64, []), value(going, BOOL, []), *(value(c, I64, [1]) for c in counters)]
        ports += [value(sum_, F32, []), value(table, F32, ["rows", COLUMNS])]
        made = [value(on, BOOL, []), *(value(name, I64, [1]) for name in results[: len(after)])]
        made += [value(results[-2], F32, []), value(results[-1], F32, ["rows", COLUMNS])]
        body = graph_of(inner.nodes, ports, made, inner.constants, name=self.name("g"))
        trips = self.constant(graph, np.array(self.integer(1, TURNS), np.int64))
        if self.rng.random() < 0.3:
            trips = self.node(graph, "Squeeze", ["n", self.whole(graph, 0)])
        zero = self.constant(graph, np.array(0, np.float32))
        names = [self.name("l") for _ in results]
        graph.nodes.append(helper.make_node("Loop", [trips, "", *starts, zero, "x"], names, body=body))
        return [(names[-2], []), (names[-1], ["rows", COLUMNS])]

    def condition(self, graph: Graph, before: str, after: str, step: int, total: str) -> str:
        """Whether there is another turn."""
        way = self.integer(0, 3)
        always = self.constant(graph, np.array(True))
        if way == 0:
            return self.node(graph, "Identity", [always])
        kind = self.choice([k for k, sign in COMPARISONS.items() if sign * step >= 0])
        limit = self.whole(graph, self.integer(2, 6))
        compared = self.node(graph, kind, [self.choice([before, after]), limit])
        if way == 1:
            number = self.node(graph, "Add", [self.node(graph, "Cast", [compared], to=I64), self.whole(graph, 0)])
            compared = self.node(graph, "Cast", [number], to=BOOL)
        on = self.node(graph, "Squeeze", [compared, self.whole(graph, 0)])
        if way == 2:
            small = self.node(graph, "Less", [total, self.constant(graph, np.array(0.9, np.float32))])
            on = self.node(graph, "And", [on, small])
        return on
