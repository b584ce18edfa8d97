"""Attack: artifacts whose sections were changed at random and sealed again with right checksums.

Answer: an ArtifactError or GraphError, when the file is opened or when it runs; never another exception. ``python -m
bench.faults files`` does the same for hours, and looks for crashes and wrong numbers.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from bench.faults.micro import write_micro
from bench.models.tiny import trees
from flexnn.artifact.format import HEADER_BYTES, Header
from tests.artifact.test_artifact import forge
from tests.support.late import Moment
from tests.support.sessions import write_branched_model, write_model

pytestmark = pytest.mark.sanitized

CASES = 150
FEED_BYTES_MAX, RUN_SECONDS = 256 << 20, 10
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 1 << 31, 1 << 63, 1 << 70, 0.5, 1e308, "", "x", "f32", "conv", [], [1], [[]], {}, [None]
]  # fmt: skip


def write_control_model(path: Path) -> Path:
    """An If whose condition and shapes are known at run time only, with a Loop beside it."""

    def branch(name: str, op: str) -> onnx.GraphProto:
        node = helper.make_node(op, ["x"], [name])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])

    turn = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["v"], ["w"])],
        "turn",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["a"], then_branch=branch("t", "Abs"), else_branch=branch("e", "Neg")),
        helper.make_node("Loop", ["n", "", "a"], ["y"], body=turn),
    ]
    graph = helper.make_graph(
        nodes,
        "control",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["r", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["r", 3])],
        [helper.make_tensor("n", TensorProto.INT64, [], [3])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def branched(path: Path) -> Path:
    return write_branched_model(path, 3, batch="n")


@pytest.fixture(scope="module", params=[write_model, branched, write_control_model], ids=["graph", "open", "control"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(request.param(tmp_path_factory.mktemp("resealed") / "model.onnx")))


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything in a section."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


def found(section: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        section = section[key]
    return section


def change(section: Any, rng: random.Random) -> tuple[Any, ...]:
    """Replace, remove or copy something."""
    every = list(places(section))
    place = rng.choice(every)
    owner, kind = found(section, place[:-1]), rng.random()
    if kind < 0.6:
        owner[place[-1]] = rng.choice(VALUES)
    elif kind < 0.75:
        del owner[place[-1]]
    else:
        owner[place[-1]] = json.loads(json.dumps(found(section, rng.choice(every))))
    return place


class LateError(Exception):
    """A run was broken off: a loop that was told to go on for ever does."""


def break_off(*_: object) -> None:
    raise LateError


def opened_and_run(path: Path, seconds: int = RUN_SECONDS) -> None:
    before = signal.signal(signal.SIGALRM, break_off)
    signal.alarm(seconds)
    begun = Moment()
    try:
        with flexnn.Session(path, threads=1) as session:
            shapes = [(i.name, [d if isinstance(d, int) else 2 for d in i.shape], i) for i in session.get_inputs()]
            if sum(prod(shape) * port.numpy_dtype.itemsize for _, shape, port in shapes) > FEED_BYTES_MAX:
                return  # the test's own arrays would take what a sanitizer allows
            session.run(None, {name: np.ones(shape, port.numpy_dtype) for name, shape, port in shapes})
    except (flexnn.FlexNNError, MemoryError, LateError):
        pass
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert begun.since() < seconds + RUN_SECONDS


def section_of(raw: bytes) -> Any:
    header = Header.unpack(raw[:HEADER_BYTES], len(raw))
    return json.loads(raw[HEADER_BYTES : HEADER_BYTES + header.graph_bytes])


def test_random_changes(artifact: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng, raw, target = random.Random(seed), artifact.read_bytes(), tmp_path / "changed.flexnn"
    for _ in range(CASES):
        section = section_of(raw)
        place = change(section, rng)
        print(place)
        target.write_bytes(raw)
        forge(target, json.dumps(section, separators=(",", ":")).encode())
        opened_and_run(target)


def test_an_if_without_a_condition(tmp_path: Path) -> None:
    """Was an IndexError."""
    artifact = Path(flexnn.compile(write_control_model(tmp_path / "model.onnx")))
    section = section_of(artifact.read_bytes())
    (node,) = (place for place in places(section) if found(section, place) == "If")
    owner = found(section, node[:-1])
    inputs = next(key for key in range(len(owner)) if owner[key] == ["c"])
    owner[inputs] = []
    section["templates"] = -1  # they would tell that the model is another one
    forge(artifact, json.dumps(section, separators=(",", ":")).encode())
    with pytest.raises(flexnn.FlexNNError, match="condition"), flexnn.Session(artifact) as session:
        session.run(None, {"x": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize("kind", ["Scan", "Loop"])
def test_a_body_that_returns_too_few(tmp_path: Path, kind: str) -> None:
    """Was a ValueError of zip."""
    path = tmp_path / "model.onnx"
    artifact = Path(flexnn.compile(write_control_model(path) if kind == "Loop" else write_micro("loop", path)))
    section = section_of(artifact.read_bytes())
    (node,) = (node for node in section["model"]["graph"]["nodes"] if node[0] == kind)
    node[4].append("more than the body has")
    section["templates"] = -1
    forge(artifact, json.dumps(section, separators=(",", ":")).encode())
    with (
        pytest.raises(flexnn.FlexNNError, match=r"the body returns \d values, but \d are needed"),
        flexnn.Session(artifact) as session,
    ):
        session.run(None, {i.name: np.ones((2, i.shape[1]), i.numpy_dtype) for i in session.get_inputs()})


def test_trees_out_of_range(tmp_path: Path) -> None:
    """Was a ValueError of the core's, when the run planned."""
    path = tmp_path / "trees.onnx"
    path.write_bytes(trees())
    artifact = Path(flexnn.compile(path))
    section = section_of(artifact.read_bytes())
    (node,) = (node for node in section["model"]["graph"]["nodes"] if node[0].endswith("Trees"))
    node[-1]["depth"] = 1 << 30
    section["templates"] = -1
    forge(artifact, json.dumps(section, separators=(",", ":")).encode())
    with pytest.raises(flexnn.FlexNNError, match="trees: a parameter"), flexnn.Session(artifact) as session:
        session.run(None, {i.name: np.ones((2, i.shape[1]), i.numpy_dtype) for i in session.get_inputs()})


def test_a_loop_without_end_can_be_broken_off(tmp_path: Path) -> None:
    """Neither a number of turns nor a condition: ONNX says that it goes on for ever."""
    artifact = Path(flexnn.compile(write_control_model(tmp_path / "model.onnx")))
    section = section_of(artifact.read_bytes())
    (node,) = (place for place in places(section) if found(section, place) == "Loop")
    owner = found(section, node[:-1])
    inputs = next(key for key in range(len(owner)) if owner[key] == ["n", "", "a"])
    owner[inputs] = ["", "", "a"]
    section["templates"] = -1
    forge(artifact, json.dumps(section, separators=(",", ":")).encode())
    begun = time.monotonic()
    opened_and_run(artifact, seconds=1)
    assert time.monotonic() - begun >= 1
