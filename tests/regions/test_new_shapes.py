"""New shapes are cheap: one template serves short and long texts, and in a budget nothing is bound."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import flexnn
from flexnn.graph.template import Template
from flexnn.regions import template_reader
from flexnn.regions.stretch import Stretch
from flexnn.run.lacking import LackingRecorder
from flexnn.run.open_stretches import OpenStretches
from flexnn.run.recording import ReadyStretch
from flexnn.run.segments import BoundSegments
from tests.regions.test_templates import images
from tests.support.regions import F32, Binds, check_run, compiled, graph_of, model_of, numbers, value

node = onnx.helper.make_node
WIDTH, HEADS, LAYERS = 16, 2, 3


def decoder() -> onnx.ModelProto:
    """A decoder without caches, as T5's: positions relative to each other, a mask over the encoder's states."""
    deep = WIDTH // HEADS
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Range", ["zero", "length", "one"], ["places"]),
        node("Unsqueeze", ["places", "first"], ["row"]),
        node("Unsqueeze", ["places", "second"], ["column"]),
        node("Sub", ["row", "column"], ["apart"]),
        node("Abs", ["apart"], ["distance"]),
        node("Cast", ["distance"], ["far"], to=F32),
        node("Mul", ["far", "slope"], ["bias"]),
        node("Sub", ["mask", "unit"], ["unseen"]),
        node("Mul", ["unseen", "large"], ["hidden"]),
        node("Unsqueeze", ["hidden", "middle"], ["masked"]),
    ]
    last = "x"
    for i in range(LAYERS):
        for kind, other, added in (("s", last, "bias"), ("c", "states", "masked")):
            name = f"{kind}{i}"
            for role, source, perm in (
                ("q", last, [0, 2, 1, 3]),
                ("k", other, [0, 2, 3, 1]),
                ("v", other, [0, 2, 1, 3]),
            ):
                nodes += [
                    node("MatMul", [source, f"w{role}{name}"], [f"{role}a{name}"]),
                    node("Reshape", [f"{role}a{name}", "heads"], [f"{role}b{name}"]),
                    node("Transpose", [f"{role}b{name}"], [f"{role}{name}"], perm=perm),
                ]
            nodes += [
                node("MatMul", [f"q{name}", f"k{name}"], [f"scores{name}"]),
                node("Add", [f"scores{name}", added], [f"sum{name}"]),
                node("Softmax", [f"sum{name}"], [f"p{name}"], axis=-1),
                node("MatMul", [f"p{name}", f"v{name}"], [f"seen{name}"]),
                node("Transpose", [f"seen{name}"], [f"turned{name}"], perm=[0, 2, 1, 3]),
                node("Reshape", [f"turned{name}", "flat"], [f"y{name}"]),
                node("Add", [f"y{name}", last], [f"r{name}"]),
            ]
            last = f"r{name}"
    nodes.append(node("Tanh", [last], ["y"]))
    whole = {"zero": 0, "one": 1, "first": [0], "second": [1], "middle": [1, 2], "heads": [0, 0, HEADS, deep]}
    constants = {name: np.array(number, np.int64) for name, number in whole.items()}
    constants |= {"flat": np.array([0, 0, WIDTH]), "slope": np.array(-0.1, np.float32)}
    constants |= {"unit": np.array(1, np.float32), "large": np.array(1e9, np.float32)}
    names = [f"w{role}{kind}{i}" for role in "qkv" for kind in "sc" for i in range(LAYERS)]
    constants |= {name: numbers(WIDTH, WIDTH) / 10 for name in names}
    inputs = [
        value("x", F32, ["batch", "length", WIDTH]),
        value("states", F32, ["batch", "keys", WIDTH]),
        value("mask", F32, ["batch", "keys"]),
    ]
    return model_of(graph_of(nodes, inputs, [value("y", F32, ["batch", "length", WIDTH])], constants))


def feed(length: int, keys: int) -> dict[str, np.ndarray]:
    return {"x": numbers(1, length, WIDTH), "states": numbers(1, keys, WIDTH), "mask": np.ones((1, keys), np.float32)}


@pytest.mark.parametrize("first", [64, 260])
def test_one_template_serves_short_and_long_texts(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one token, texts longer than what they look at, and where the run computes what short texts fold."""
    model = decoder()
    monkeypatch.setattr("flexnn.open_contents._store_templates", lambda *_: None)
    path = compiled(tmp_path, model)
    binds = Binds(monkeypatch)
    with flexnn.Session(path) as session:
        for length, keys in ((first, 96), (3, 30), (31, 30), (1, 30), (9, 200)):
            check_run(session, model, feed(length, keys))
        assert binds.count == 1


def test_what_was_traced_is_taken_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template is stored and serves where another order of its graph would keep less alive."""
    with monkeypatch.context() as patch:
        patch.setattr(Template, "is_least", lambda *_: False)
        path = compiled(tmp_path, images())
    binds = Binds(monkeypatch)
    with flexnn.Session(path) as session:
        check_run(session, images(), {"x": numbers(1, 3, 64, 96)})
        assert binds.count == 0


def test_new_lengths_in_a_budget_bind_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The templates of the artifact are read for the first run, too; orders of nodes are no conditions."""
    model = decoder()
    path = compiled(tmp_path, model)
    with pytest.raises(flexnn.BudgetError) as refused, flexnn.Session(path, memory=1 << 16) as session:
        session.run(None, feed(40, 60))
    binds = Binds(monkeypatch)
    with flexnn.Session(path, memory=refused.value.minimum + (3 << 20)) as session:
        for length in (40, 2, 3, 5, 8, 13, 21, 34):
            check_run(session, model, feed(length, 60))
        assert binds.count == 0


def test_what_a_budget_refuses_is_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of a template may stand in an order that needs more than that of binding."""
    path = compiled(tmp_path, decoder())
    own, calls = OpenStretches.ready, list[int]()

    def ready(*given: Any) -> ReadyStretch:
        calls.append(1)
        if len(calls) == 1:
            raise flexnn.BudgetError(2, 1)
        return own(*given)

    monkeypatch.setattr(OpenStretches, "ready", ready)
    binds = Binds(monkeypatch)
    with flexnn.Session(path, memory=64 << 20) as session:
        check_run(session, decoder(), feed(40, 60))
        assert binds.count == 1
        check_run(session, decoder(), feed(41, 60))
        assert binds.count == 1  # other sizes may take the template again


def test_templates_that_were_read_once_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a stretch is a view of the bytes of all templates, which would be in the way of planning."""
    path = compiled(tmp_path, decoder())
    monkeypatch.setattr(BoundSegments, "may_hold_templates", lambda *_: False)
    read: list[bytes] = []
    load, record = template_reader.load_templates, LackingRecorder.record

    def recorded(*given: Any) -> Stretch:
        stretch = record(*given)
        while read:
            raw = read.pop()
            assert sys.getrefcount(raw) == 2
        return stretch

    monkeypatch.setattr(template_reader, "load_templates", lambda raw, *given: (read.append(raw), load(raw, *given))[1])
    monkeypatch.setattr(LackingRecorder, "record", recorded)
    with flexnn.Session(path, memory=64 << 20) as session:
        for length in (40, 2, 3):
            session.run(None, feed(length, 60))
