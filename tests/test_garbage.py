"""Nothing is collected while a large graph is read, compiled or planned; the collector goes on, whatever happened."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn import garbage
from flexnn.garbage import Uncollected
from flexnn.graph import load_model
from flexnn.regions import templates
from flexnn.regions.record import Recorder
from flexnn.regions.scope import Scope, Value
from flexnn.regions.segment import Segment
from tests.support.sessions import write_branched_model


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_large_graphs_pause_it() -> None:
    with Uncollected(garbage.NODES - 1):
        assert gc.isenabled()
    with pytest.raises(ValueError, match="planning"), Uncollected(garbage.NODES):
        assert not gc.isenabled()
        raise ValueError("planning")
    assert gc.isenabled()


def _made_in_a_pause() -> tuple[list[str], list[list[int]]]:
    """Return the collections right after a pause, and the objects that it made."""
    found: list[str] = []
    with Uncollected(garbage.NODES):
        made: list[list[int]] = [[] for _ in range(20_000)]

    def told(phase: str, _: dict[str, int]) -> None:
        found.append(phase)

    gc.callbacks.append(told)
    try:
        few = [[] for _ in range(100)]  # type: ignore[var-annotated]
    finally:
        gc.callbacks.remove(told)
    assert len(few) == 100
    return found, made


def test_what_was_made_is_not_walked_at_once() -> None:
    found, made = _made_in_a_pause()
    assert not found
    made[0].append(made)  # type: ignore[arg-type]
    del made
    assert gc.collect() >= 20_000  # it is looked at later


def test_objects_that_a_program_froze_stay_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with Uncollected(garbage.NODES):
            pass
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()


def test_who_disabled_it_keeps_it_so() -> None:
    gc.disable()
    with Uncollected(garbage.NODES):
        pass
    assert not gc.isenabled()


def test_an_interrupt_while_it_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    again: list[str] = []
    monkeypatch.setattr(gc, "disable", interrupted)
    monkeypatch.setattr(gc, "enable", lambda: again.append("enabled"))
    with pytest.raises(KeyboardInterrupt), Uncollected(garbage.NODES):
        pass
    assert again == ["enabled"]


@pytest.mark.parametrize("batch", [1, "n"])
def test_compiling_leaves_no_circles(tmp_path: Path, batch: int | str) -> None:
    """Sizes and the trails of an open model were 500 objects a template, until a collection held Ctrl-C up."""
    path = write_branched_model(tmp_path / "m.onnx", 3, batch=batch)
    flexnn.compile(path)
    gc.collect()
    gc.disable()
    flexnn.compile(path)
    assert gc.collect() < 20


def test_binding_many_nodes_pauses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A speech network of 3,600 nodes was bound in 2.1 s, of which collections were 0.3."""
    found: list[bool] = []
    build = templates.build_segment

    def noted(*arguments: Any) -> Segment:
        found.append(gc.isenabled())
        return build(*arguments)

    for count in (10, garbage.NODES // templates.NODE_OBJECTS):
        nodes = [helper.make_node("Relu" if i % 2 else "Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("v0", f"v{count}")]
        onnx.save(helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:])), tmp_path / f"{count}.onnx")
        model = load_model(str(tmp_path / f"{count}.onnx"))
        with monkeypatch.context() as patched:
            patched.setattr(templates, "build_segment", noted)
            recorder = Recorder(model)
            recorder.templates = templates.Templates(model.opset)
            scope = Scope({"v0": Value((2, 4), np.dtype(np.float32))})
            recorder.record(recorder.region, scope, recorder.region.all)
        assert gc.isenabled()
    assert found == [True, False]
