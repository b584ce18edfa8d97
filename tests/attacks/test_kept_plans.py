"""Attack: what earlier sessions decided for a budget, in the user's cache folder, is changed at random.

Answer: the session opens all the same, in its budget, with the right numbers: decisions that fit the graph are
followed, and addresses are computed anew; for all others the plan is searched for. FLEXNN_PLANS: changes of each model
(40).
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.run import known_plans
from flexnn.run.fixed import FixedRun
from flexnn.run.known_plans import plan_known

COUNT = int(os.environ.get("FLEXNN_PLANS", "40"))
THREADS, WIDTH = 2, 256
VALUES: list[Any] = [0, 1, -1, 2, 15, 16, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 62) - 1, 1 << 62, 1 << 64]
VALUES += [0.5, 1e-300, 1e29, 1e308, float("nan"), float("inf"), None, True, "", "direct", [], [[]], {}]


def repeated(path: Path) -> None:
    """Layers that share weights, so that slices stay for phases."""
    rng = np.random.default_rng(0)
    order = "a" * 6 + "b" * 6 + "c"
    weights = [
        numpy_helper.from_array(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16, name) for name in "abc"
    ]
    nodes = []
    for i, name in enumerate(order):
        nodes += [
            helper.make_node("MatMul", [f"t{i}", name], [f"m{i}"]),
            helper.make_node("Tanh", [f"m{i}"], [f"t{i + 1}"]),
        ]
    save(path, nodes, [4, WIDTH], f"t{len(order)}", weights)


def banded(path: Path) -> None:
    """Convolutions over large maps, which go in bands where the budget is small."""
    rng = np.random.default_rng(1)
    nodes, weights = [], []
    for i in range(5):
        w = rng.standard_normal((16, 16 if i else 3, 3, 3)).astype(np.float32) / 8
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        nodes.append(helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"], pads=[1] * 4))
    nodes.append(helper.make_node("GlobalAveragePool", ["t5"], ["t6"]))
    save(path, nodes, [1, 3, 192, 192], "t6", weights)


def save(path: Path, nodes: list[Any], shape: list[int], last: str, weights: list[Any]) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("t0", shape), (last, None)))
    graph = helper.make_graph(nodes, "attack", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


MODELS = {"repeated": (repeated, WIDTH * WIDTH * 5), "banded": (banded, 16 << 10)}
"""How each is written, and the bytes that its budget has beside the smallest."""


class Kept(NamedTuple):
    """A model of which a plan is kept."""

    artifact: Path
    memory: int
    feed: dict[str, np.ndarray]
    expected: np.ndarray
    told: dict[str, Any]


@pytest.fixture(params=MODELS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    write, extra = MODELS[request.param]
    write(tmp_path / "m.onnx")
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    with flexnn.Session(artifact, threads=THREADS, profile="analytic") as session:
        shape = session.get_inputs()[0].shape
        feed = {"t0": np.random.default_rng(2).standard_normal(shape).astype(np.float32)}
        (expected,) = session.run(None, feed)
        memory = session.plan.minimum_memory + extra
        decisions = session._run._planner.plan(memory).decisions
    told = decisions.described()
    assert told["regions"] if request.param == "banded" else told["filled"]
    return Kept(Path(artifact), memory, feed, expected, json.loads(json.dumps(told)))


class Cache:
    """A cache that has something else than what was kept."""

    def __init__(self) -> None:
        self.text, self.written = "", 0

    def read(self, _: str) -> Any:
        return json.loads(self.text)

    def write(self, _: str, __: dict[str, Any]) -> None:
        self.written += 1


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache without files, as sessions are many."""
    made = Cache()
    monkeypatch.setattr(known_plans, "cache", made)
    monkeypatch.setattr(known_plans, "WORTH_MS", 0.0)
    monkeypatch.setattr(FixedRun, "_plan_for", lambda self, memory: plan_known(self._planner, memory, "key"))
    return made


def places(told: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value of an object of JSON."""
    items = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for key, value in items:
        if path or key != "key":
            yield (*path, key)
            yield from places(value, (*path, key))


def changed(told: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a copy in which one to three values are others, come twice, are gone, or have changed places."""
    told = json.loads(json.dumps(told))
    for _ in range(rng.choice([1, 1, 2, 3])):
        found = list(places(told))
        top = rng.choice(sorted({path[0] for path in found}))  # rows of nodes are many, other decisions few
        path = rng.choice([path for path in found if path[0] == top])
        holder: Any = told
        for key in path[:-1]:
            holder = holder[key]
        at, value = path[-1], holder[path[-1]]
        how = rng.choice(["value", "value", "near", "near", "swap", "drop", "twice"])
        if how == "near" and isinstance(value, int | float):
            holder[at] = value + rng.choice([-1, 1, -value // 2, value]) if not isinstance(value, bool) else not value
        elif how == "swap" and isinstance(holder, list):
            other = rng.randrange(len(holder))
            holder[at], holder[other] = holder[other], holder[at]
        elif how == "drop":
            del holder[at]
        elif how == "twice" and isinstance(holder, list):
            holder.insert(at, json.loads(json.dumps(value)))
        else:
            holder[at] = rng.choice(VALUES)
    return told


def test_what_was_kept_is_followed(kept: Kept, cache: Cache) -> None:
    cache.text = json.dumps(kept.told)
    flexnn.Session(kept.artifact, kept.memory, THREADS, profile="analytic").close()
    assert not cache.written


def test_random_changes(kept: Kept, cache: Cache) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(COUNT):
        cache.text = text = json.dumps(changed(kept.told, rng))
        with flexnn.Session(kept.artifact, kept.memory, THREADS, profile="analytic") as session:
            session.plan.check()
            assert session.session_bytes <= kept.memory, text
            for _ in range(2):
                (y,) = session.run(None, kept.feed)
                assert np.abs(y - kept.expected).max() <= 1e-3 * np.abs(kept.expected).max(), text
            assert session.statistics()["engine_bytes"] <= kept.memory, text
    assert cache.written < COUNT, "none was followed"
