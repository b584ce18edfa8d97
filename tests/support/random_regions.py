"""Random models with If, Loop and Scan in each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.random import Generator
from onnx import helper

from tests.support.regions import BOOL, F32, I64, graph_of, model_of, value

SHAPES = {"a": (3, 4), "b": (4,), "c": ()}
LIMIT = np.array(0.137, np.float32)
"""Sums are compared with it: it is no sum of zeros."""


@dataclass
class Body:
    """A graph that is being made. ``pool``: names of its values and of those around it, by the kind of their shape."""

    pool: dict[str, list[str]]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    counter: str = ""
    """The number of the turn."""

    def inner(self) -> Body:
        return Body({kind: list(names) for kind, names in self.pool.items()})


class Maker:
    """Maker of one random model, with values of three shapes.

    A loop whose body Python walks needs a turn to know the shapes of its stacks. So in some models every loop takes one
    or more turns, and in the others loops in loops take a number of turns that is known before, if they stack.
    """

    def __init__(self, rng: Generator) -> None:
        self.rng = rng
        self.names = 0
        self.turns = [1, 7] if self.chance(0.4) else [0, 1, 7]

    def model(self) -> onnx.ModelProto:
        body = Body({"a": ["x"], "b": ["v"], "c": []})
        self.add(body, "Relu", ["v"], "b")
        self.fill(body, 3, 1)
        for kind in ("If", "Loop", "Scan"):
            if self.chance(0.6):
                self.control(body, 3, kind)
        outputs = []
        for kind, names in body.pool.items():
            for name in sorted({names[-1], self.choice(names)}) if names else ():
                outputs.append(self.node(body, "Tanh", [name], "out"))
                outputs[-1] = value(outputs[-1], F32, SHAPES[kind])
        inputs = [value("x", F32, SHAPES["a"]), value("v", F32, SHAPES["b"])]
        inputs += [value("n", I64, []), value("go", BOOL, [])]
        body.constants["n_used"] = np.array(0, np.int64)
        return model_of(graph_of(body.nodes, inputs, outputs, body.constants))

    def feed(self, rng: Generator) -> dict[str, np.ndarray]:
        floats = {name: rng.standard_normal(SHAPES[kind]).astype(np.float32) for name, kind in (("x", "a"), ("v", "b"))}
        return {**floats, "n": np.array(rng.choice([*self.turns, 3])), "go": np.array(bool(rng.integers(2)))}

    # ---- single nodes ----

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def choice(self, items: list) -> str:
        return items[int(self.rng.integers(len(items)))]

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def node(self, body: Body, kind: str, inputs: list[str], stem: str = "t", **attributes) -> str:
        out = self.name(stem)
        body.nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def constant(self, body: Body, array: np.ndarray) -> str:
        name = self.name("k")
        body.constants[name] = array
        return name

    def take(self, body: Body, name: str, kind: str) -> str:
        """Put a value into the pool."""
        body.pool[kind].append(name)
        body.own.add(name)
        return name

    def add(self, body: Body, op: str, inputs: list[str], kind: str, **attributes) -> str:
        return self.take(body, self.node(body, op, inputs, **attributes), kind)

    def floats(self, body: Body, kind: str) -> str:
        return self.constant(body, self.rng.standard_normal(SHAPES[kind]).astype(np.float32))

    def any(self, body: Body, kind: str) -> str:
        """A value of a shape: one that is there, or a constant."""
        names = body.pool[kind]
        if not names or self.chance(0.1):
            return self.floats(body, kind)
        return names[-1 - int(self.rng.integers(min(len(names), 4)))] if self.chance(0.7) else self.choice(names)

    def truth(self, body: Body) -> str:
        """A condition."""
        way = self.rng.integers(6)
        if way == 0:
            return self.constant(body, np.array(bool(self.rng.integers(2))))
        if way == 1:
            return self.node(body, "Identity", ["go"])
        if way == 2 and body.counter:
            return self.node(body, "Less", [body.counter, self.constant(body, np.array(self.rng.integers(4)))])
        total = self.node(body, "ReduceSum", [self.any(body, self.choice(["a", "b"]))], keepdims=0)
        return self.node(body, self.choice(["Greater", "Less"]), [total, self.constant(body, LIMIT)])

    def step(self, body: Body) -> None:
        """Add a node that computes."""
        way, kind = self.rng.integers(8), self.choice(["a", "a", "b", "c"])
        if way < 2:
            self.add(body, self.choice(["Relu", "Tanh", "Neg", "Identity", "Sigmoid"]), [self.any(body, kind)], kind)
        elif way < 4:
            both = [self.any(body, kind), self.any(body, kind)]
            self.add(body, self.choice(["Add", "Sub", "Mul", "Max"]), both, kind)
        elif way == 4:
            weight = self.constant(body, self.rng.standard_normal((4, 4)).astype(np.float32) / 2)
            self.add(body, "MatMul", [self.any(body, "a"), weight], "a")
        elif way == 5:
            self.add(body, "Add", [self.any(body, "a"), self.any(body, "b")], "a")
        elif way == 6:
            self.add(body, "ReduceMean", [self.any(body, "a")], "b", axes=[0], keepdims=0)
        else:
            self.add(body, "ReduceMax", [self.any(body, "b")], "c", keepdims=0)
            if body.counter:
                turn = self.node(body, "Cast", [body.counter], to=F32)
                self.add(body, "Tanh", [turn], "c")

    def fill(self, body: Body, depth: int, least: int = 0) -> None:
        """Add nodes, with bodies up to ``depth`` deep."""
        for _ in range(int(self.rng.integers(least, 4))):
            if depth and self.chance(0.35):
                self.control(body, depth, self.choice(["If", "Loop", "Scan"]))
            else:
                self.step(body)

    # ---- nodes with bodies ----

    def control(self, body: Body, depth: int, kind: str) -> None:
        makers: dict[str, Callable[[Body, int], None]] = {"If": self.branch, "Loop": self.loop, "Scan": self.scan}
        makers[kind](body, depth)

    def result(self, inner: Body, kind: str) -> str:
        """The name of a body's output: something that it computed, a constant, or a value around it."""
        way = self.rng.integers(8)
        own = [name for name in inner.pool[kind] if name in inner.own]
        if way < 5 and own:
            return self.node(inner, self.choice(["Tanh", "Identity"]), [own[-1]], "r")
        if way == 5:
            return self.node(inner, "Identity", [self.floats(inner, kind)], "r")
        return self.node(inner, self.choice(["Tanh", "Identity"]), [self.any(inner, kind)], "r")

    def branch(self, body: Body, depth: int) -> None:
        condition = self.truth(body)
        kinds = [self.choice(list(SHAPES)) for _ in range(int(self.rng.integers(1, 4)))]
        graphs = []
        for _ in range(2):
            inner = body.inner()
            inner.counter = body.counter
            self.fill(inner, depth - 1)
            outputs = [value(self.result(inner, kind), F32, SHAPES[kind]) for kind in kinds]
            graphs.append(graph_of(inner.nodes, [], outputs, inner.constants, name=self.name("g")))
        names = [self.name("if") for _ in kinds]
        body.nodes.append(helper.make_node("If", [condition], names, then_branch=graphs[0], else_branch=graphs[1]))
        for name, kind in zip(names, kinds, strict=True):
            self.take(body, name, kind)

    def carried(self, inner: Body, kinds: list[str], names: list[str]) -> list[str]:
        """Names of what carried values become: new, as they were, or each other."""
        results = []
        for kind, name in zip(kinds, names, strict=True):
            way = self.rng.integers(6)
            others = [n for n, k in zip(names, kinds, strict=True) if k == kind]
            if way == 0:
                results.append(self.node(inner, "Identity", [name], "r"))
            elif way == 1:
                results.append(self.node(inner, "Identity", [self.choice(others)], "r"))
            elif way == 2 and others[-1] != name:
                results.append(self.node(inner, "Identity", [others[-1]], "r"))
            else:
                mixed = self.node(inner, "Add", [name, self.result(inner, kind)])
                results.append(self.node(inner, "Tanh", [mixed], "r"))
        return results

    def loop(self, body: Body, depth: int) -> None:
        inner = body.inner()
        inner.counter, going = self.name("i"), self.name("going")
        kinds = [self.choice(list(SHAPES)) for _ in range(int(self.rng.integers(1, 4)))]
        ports = [self.take(inner, self.name("p"), kind) for kind in kinds]
        initial = [self.any(body, kind) for kind in kinds]
        stacks = [self.choice(list(SHAPES)) for _ in range(int(self.rng.integers(3)))]
        has_turns = self.turns[0] > 0
        is_sure = bool(stacks) and depth < 3 and not has_turns
        trips = self.constant(body, np.array(self.rng.choice(self.turns)))
        trips = trips if is_sure else self.choice([trips, "n", ""])
        self.fill(inner, depth - 1, 1)
        on = self.node(inner, "Identity", [going]) if is_sure or self.chance(0.6) else self.truth(inner)
        if not trips:
            most = self.constant(inner, np.array(self.rng.choice([0, 1, 6])))
            on = self.node(inner, "And", [on, self.node(inner, "Less", [inner.counter, most])])
        results = self.carried(inner, kinds, ports)
        rows = [self.result(inner, kind) for kind in stacks]
        inputs = [value(inner.counter, I64, []), value(going, BOOL, [])]
        inputs += [value(port, F32, SHAPES[kind]) for port, kind in zip(ports, kinds, strict=True)]
        outputs = [value(on, BOOL, [])]
        outputs += [value(n, F32, SHAPES[kind]) for n, kind in zip(results + rows, kinds + stacks, strict=True)]
        graph = graph_of(inner.nodes, inputs, outputs, inner.constants, name=self.name("g"))
        start = ""
        if not is_sure and (not trips or self.chance(0.3)):
            start = self.constant(body, np.array(True)) if has_turns else self.truth(body)
        lasts, piles = [self.name("l") for _ in kinds], [self.name("s") for _ in stacks]
        body.nodes.append(helper.make_node("Loop", [trips, start, *initial], lasts + piles, body=graph))
        for name, kind in zip(lasts, kinds, strict=True):
            self.take(body, name, kind)
        self.sum(body, piles, stacks)

    def sum(self, body: Body, piles: list[str], kinds: list[str]) -> None:
        """Use stacked values: sums over the turns."""
        axes = self.constant(body, np.array([0]))
        for pile, kind in zip(piles, kinds, strict=True):
            if self.chance(0.8):
                self.add(body, "Tanh", [self.node(body, "ReduceSum", [pile, axes], keepdims=0)], kind)

    def scan(self, body: Body, depth: int) -> None:
        inner = body.inner()
        kinds = [self.choice(list(SHAPES)) for _ in range(int(self.rng.integers(3)))]
        count, outs = int(self.rng.integers(1, 3)), int(self.rng.integers(0 if kinds else 1, 3))
        ports = [self.take(inner, self.name("p"), kind) for kind in kinds]
        slices = [self.take(inner, self.name("q"), "b") for _ in range(count)]
        initial = [self.any(body, kind) for kind in kinds]
        sources = [self.any(body, "a") for _ in range(count)]
        self.fill(inner, depth - 1, 1)
        results = self.carried(inner, kinds, ports)
        rows = [self.result(inner, "b") for _ in range(outs)]
        inputs = [value(n, F32, SHAPES[k]) for n, k in zip(ports + slices, [*kinds, *"b" * count], strict=True)]
        outputs = [value(n, F32, SHAPES[k]) for n, k in zip(results + rows, [*kinds, *"b" * outs], strict=True)]
        graph = graph_of(inner.nodes, inputs, outputs, inner.constants, name=self.name("g"))
        lasts, piles = [self.name("l") for _ in kinds], [self.name("s") for _ in range(outs)]
        directions = {"scan_input_directions": [int(self.rng.integers(2)) for _ in range(count)]}
        if outs:
            directions["scan_output_directions"] = [int(self.rng.integers(2)) for _ in range(outs)]
        body.nodes.append(
            helper.make_node(
                "Scan", [*initial, *sources], lasts + piles, body=graph, num_scan_inputs=count, **directions
            )
        )
        for name, kind in zip(lasts, kinds, strict=True):
            self.take(body, name, kind)
        for name in piles:
            self.take(body, name, "a")
