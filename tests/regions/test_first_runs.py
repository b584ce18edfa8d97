"""First runs: what the compiler traces for them, and what a session without a limit does when it opens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import flexnn
from flexnn.planning.variant_planner import VariantPlanner
from flexnn.regions import Recorder, record, templates, turns
from flexnn.run import bases, segments
from flexnn.run.constants import Packing
from flexnn.run.open_shapes import OpenShapesRun
from tests.support.regions import BOOL, F32, I64, check_run, compiled, graph_of, model_of, numbers, value

node = onnx.helper.make_node


def windows(rates: bool) -> onnx.ModelProto:
    """A layer over windows of sound that need 512 samples or, with ``rates``, 256 where the rate is another."""
    nodes = [node("Reshape", ["x", "parts"], ["r"]), node("MatMul", ["r", "w"], ["y"])]
    inputs = [value("x", F32, ["batch", "samples"])]
    weights = {"w": numbers(128, 8), "parts": np.array([-1, 4, 128], np.int64)}
    if rates:
        other = [node("Reshape", ["x", "halves"], ["s"]), node("MatMul", ["s", "w"], ["z"])]
        output = [value("o", F32, [None, None, 8])]
        one = graph_of([*nodes, node("Identity", ["y"], ["o"])], [], output)
        two = graph_of([*other, node("Identity", ["z"], ["o"])], [], output)
        nodes = [
            node("Equal", ["sr", "rate"], ["is_fast"]),
            node("If", ["is_fast"], ["y"], then_branch=one, else_branch=two),
        ]
        inputs.append(value("sr", I64, []))
        weights |= {"halves": np.array([-1, 2, 128], np.int64), "rate": np.array(16000, np.int64)}
    return model_of(graph_of(nodes, inputs, [value("y", F32, [None, None, 8])], weights))


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list of what is bound, and recorded, from now on."""
    found: list[str] = []

    def told(owner: Any, name: str) -> None:
        own: Callable[..., Any] = getattr(owner, name)

        def tell(*args: Any, **kwargs: Any) -> Any:
            found.append(name)
            return own(*args, **kwargs)

        monkeypatch.setattr(owner, name, tell)

    told(templates, "build_segment")
    told(Recorder, "record")
    return found


@pytest.mark.parametrize("rates", [False, True])
def test_a_window_of_sound_runs_as_it_was_recorded_when_the_session_opened(
    rates: bool, tmp_path: Path, events: list[str]
) -> None:
    model = windows(rates)
    with flexnn.Session(compiled(tmp_path, model)) as session:
        opened_with = len(events)
        feed: dict[str, Any] = {"x": numbers(1, 512)} | ({"sr": np.array(16000)} if rates else {})
        check_run(session, model, feed)
        assert len(events) == opened_with
        check_run(session, model, feed | ({"x": numbers(1, 256), "sr": np.array(8000)} if rates else {}))
        check_run(session, model, feed)


def test_numbers_that_templates_have_are_asked_for_at_once(tmp_path: Path, events: list[str]) -> None:
    """Nothing is bound to find out that the rate is needed, at shapes that nothing has met."""
    model = windows(True)
    with flexnn.Session(compiled(tmp_path, model)) as session:
        events.clear()
        check_run(session, model, {"x": numbers(3, 512), "sr": np.array(16000)})
        assert "record" in events
        assert events.count("build_segment") <= 1


def test_what_was_recorded_for_other_shapes_goes_with_the_first_run(tmp_path: Path) -> None:
    model = windows(False)
    with flexnn.Session(compiled(tmp_path, model)) as session:
        check_run(session, model, {"x": numbers(5, 512)})
        run = session._run
        assert isinstance(run, OpenShapesRun)
        assert session.statistics()["segments"] == 1
        assert len(run._first) == 1


def attention() -> onnx.ModelProto:
    """One token looks at those before it, of which keys and values are kept, and at itself."""
    nodes = [
        node("Concat", ["keys", "k"], ["all_keys"], axis=1),
        node("Concat", ["values", "k"], ["all_values"], axis=1),
    ]
    nodes += [node("Transpose", ["all_keys"], ["turned"], perm=[0, 2, 1]), node("MatMul", ["k", "turned"], ["scores"])]
    nodes += [node("Softmax", ["scores"], ["share"], axis=-1), node("MatMul", ["share", "all_values"], ["x0"])]
    for i in range(4):
        nodes += [node("MatMul", [f"x{i}", "w"], [f"m{i}"]), node("Tanh", [f"m{i}"], [f"x{i + 1}"])]
    nodes.append(node("Identity", ["x4"], ["y"]))
    caches = [value(name, F32, [1, "past", 8]) for name in ("keys", "values")]
    inputs = [value("k", F32, [1, 1, 8]), *caches]
    return model_of(graph_of(nodes, inputs, [value("y", F32, [1, 1, 8])], {"w": numbers(8, 8)}))


def test_a_first_run_with_empty_caches_binds_nothing(tmp_path: Path, events: list[str]) -> None:
    model = attention()
    with flexnn.Session(compiled(tmp_path, model)) as session:
        events.clear()
        for past in (0, 1, 2, 7):
            check_run(
                session, model, {"k": numbers(1, 1, 8), "keys": numbers(1, past, 8), "values": numbers(1, past, 8)}
            )
        assert "build_segment" not in events


def test_the_first_templates_are_those_of_one_long_input(tmp_path: Path, events: list[str]) -> None:
    """A row of 1 reads as another graph, which a session would otherwise plan for when it opens; likelier ones come
    first, so that a first run neither reads a template nor makes a plan.
    """
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["s"], axis=1)]
    nodes += [node("Transpose", ["s"], ["t"], perm=[0, 2, 1]), node("MatMul", ["t", "m"], ["y"])]
    ports = [value("x", F32, ["batch", "height", "width"])], [value("y", F32, [None, None, None])]
    model = model_of(graph_of(nodes, *ports, {"w": numbers(96, 16)}))
    with flexnn.Session(compiled(tmp_path, model)) as session:
        recorder = session._run._recorder  # type: ignore[attr-defined]
        stored = list(dict.fromkeys(t for found in recorder.templates._all_stored().values() for t in found))
        batch, height, _ = stored[0].replay.traced
        assert batch == 1
        assert height > 1
        assert [found.replay.traced[1] for found in stored if found.read is not None] != [1, 1]
        planned: list[Any] = []
        segments = session._run._open.segments  # type: ignore[attr-defined]
        plans, segments.planned = segments.planned, lambda *given: (planned.append(given), plans(*given))
        check_run(session, model, {"x": numbers(1, 54, 96)})
        assert not planned


def test_states_whose_second_dimension_is_the_batch_are_of_one_at_first(tmp_path: Path, events: list[str]) -> None:
    nodes = [node("Reshape", ["x", "parts"], ["r"]), node("MatMul", ["r", "w"], ["m"])]
    nodes += [node("ReduceMax", ["m"], ["most"], axes=[1], keepdims=0), node("Unsqueeze", ["most", "axis"], ["u"])]
    nodes += [node("Concat", ["u", "state"], ["s"], axis=0), node("Softmax", ["s"], ["y"], axis=2)]
    inputs = [value("x", F32, ["batch", "samples"]), value("state", F32, [2, "batch", 8])]
    weights = {"w": numbers(128, 8), "parts": np.array([-1, 4, 128], np.int64), "axis": np.array([0], np.int64)}
    model = model_of(graph_of(nodes, inputs, [value("y", F32, [3, None, 8])], weights))
    with flexnn.Session(compiled(tmp_path, model)) as session:
        events.clear()
        check_run(session, model, {"x": numbers(1, 512), "state": numbers(2, 1, 8)})
        assert not events


@pytest.mark.parametrize(
    ("kind", "window"),
    [("Conv", (1, 2)), *((kind, (size, 2)) for kind in ("MaxPool", "AveragePool", "Conv") for size in (2, 3))],
)  # onnxruntime refuses pools of windows smaller than their stride
def test_windows_of_the_same_size_serve_even_and_odd_pictures(
    kind: str, window: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pads of auto_pad are sizes: whether a picture has as many rows as whole strides decides nothing."""
    size, stride = window
    more = {"kernel_shape": [size, size], "strides": [stride, stride], "auto_pad": "SAME_UPPER"}
    nodes = [
        node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], auto_pad="VALID"),
        node(kind, ["a", "v"] if kind == "Conv" else ["a"], ["y"], **more),
    ]
    inputs, outputs = [value("x", F32, ["n", 3, "h", "w"])], [value("y", F32, [None, 8, None, None])]
    weights = {"w": numbers(8, 3, 3, 3)} | ({"v": numbers(8, 8, size, size)} if kind == "Conv" else {})
    model = model_of(graph_of(nodes, inputs, outputs, weights))
    with flexnn.Session(compiled(tmp_path, model)) as session:
        monkeypatch.setattr(templates, "build_segment", None)
        for shape in ((85, 113), (86, 113), (60, 80), (41, 90)):
            check_run(session, model, {"x": 0.1 * numbers(1, 3, *shape)})


def test_a_run_broken_off_while_its_weights_are_found_leaves_the_next_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [node("MatMul", ["x", "v"], ["h"]), node("MatMul", ["h", "w"], ["y"])]
    inputs, outputs = [value("x", F32, ["rows", 24])], [value("y", F32, ["rows", 8])]
    model = model_of(graph_of(nodes, inputs, outputs, {"v": numbers(24, 40), "w": numbers(40, 8)}))
    path, own, broken_off = compiled(tmp_path, model), segments.weight_key, 0
    for whole in range(12):
        found = 0

        def key(weight: Any, most: int = whole) -> Any:
            nonlocal found
            found += 1
            if found > most:
                raise KeyboardInterrupt
            return own(weight)

        with flexnn.Session(path, memory="16MiB") as session:
            with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
                patched.setattr(segments, "weight_key", key)
                session.run(None, {"x": numbers(3, 24)})
            broken_off += found > whole
            check_run(session, model, {"x": numbers(3, 24)})
    assert 4 <= broken_off < 12


def counted(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A list of the calls of a function from now on."""
    calls: list[tuple[Any, ...]] = []
    own: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return own(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls


def looked_up() -> onnx.ModelProto:
    """A table whose rows a run reads, which a budget would leave in the file, and a product of them."""
    nodes = [node("Gather", ["table", "ids"], ["rows"]), node("MatMul", ["rows", "w"], ["y"])]
    ports = [value("ids", I64, ["tokens"])], [value("y", F32, ["tokens", 8])]
    return model_of(graph_of(nodes, *ports, {"table": numbers(4096, 64), "w": numbers(64, 8)}))


def test_a_plan_without_limit_looks_at_no_table_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs and drafts of a graph that leaves its tables in the file were made, too, and thrown away."""
    artifact = compiled(tmp_path, looked_up())
    made = counted(VariantPlanner, "__init__", monkeypatch)
    plans = counted(VariantPlanner, "plan", monkeypatch)
    with flexnn.Session(artifact, threads=1) as session:
        check_run(session, looked_up(), {"ids": np.arange(5)})
        assert len(made) == len(plans) > 0
        session.memory = session.plan.minimum_memory + (1 << 20)
        check_run(session, looked_up(), {"ids": np.arange(7)})
        session.memory = None
        check_run(session, looked_up(), {"ids": np.arange(9)})


def layered(parts: int) -> onnx.ModelProto:
    """Parts that a number which the run reads parts from each other: two of the same operators, with other weights."""
    nodes, last, weights = [], "x", {}
    for i in range(parts):
        weights[f"w{i}"] = numbers(8, 8, seed=i)
        nodes += [
            node("MatMul", [last, f"w{i}"], [f"m{i}"]),
            node("ReduceMax", [f"m{i}"], [f"top{i}"], keepdims=0),
            node("Cast", [f"top{i}"], [f"n{i}"], to=I64),
            node("Clip", [f"n{i}", "one", "two"], [f"c{i}"]),
            node("Reshape", [f"c{i}", "single"], [f"s{i}"]),
            node("Concat", [f"s{i}", "single"], [f"r{i}"], axis=0),
            node("Tile", [f"m{i}", f"r{i}"], [f"t{i}"]),
        ]
        last = f"t{i}"
    weights |= {"one": np.array(1), "two": np.array(2), "single": np.array([1])}
    return model_of(graph_of(nodes, [value("x", F32, ["n", 8])], [value(last, F32, ["m", 8])], weights))


def test_what_a_template_is_without_sizes_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made again for each pair of templates that might share a plan, also of those of other operators."""
    model = layered(4)
    artifact = compiled(tmp_path, model)
    made = counted(Packing, "skeleton", monkeypatch)
    alike = counted(bases, "likeness", monkeypatch)
    with flexnn.Session(artifact, threads=1) as session:
        for rows in (3, 5, 1):
            check_run(session, model, {"x": numbers(rows, 8)})
    assert alike
    assert len(made) == len({id(packing) for packing, *_ in made})
    assert len(made) == len({id(template) for _, template, *_ in made})
    assert all(own.ops == other.ops for own, other in alike)


def test_turns_that_count_are_bounded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes that count were bound twice, for wide bounds and for what these proved."""
    body = graph_of(
        [
            node("Add", ["i", "one"], ["i_"]),
            node("Less", ["i_", "most"], ["on"]),
            node("Gather", ["x", "i"], ["row"], axis=0),
            node("Add", ["sum", "row"], ["sum_"]),
        ],
        [value("turn", I64, []), value("going", BOOL, []), value("i", I64, []), value("sum", F32, [8])],
        [value("on", BOOL, []), value("i_", I64, []), value("sum_", F32, [8])],
    )
    nodes = [node("Loop", ["most", "", "first", "start"], ["last", "y"], body=body)]
    constants = {"most": np.array(6), "one": np.array(1), "first": np.array(0), "start": np.zeros(8, np.float32)}
    model = model_of(graph_of(nodes, [value("x", F32, ["n", 8])], [value("y", F32, [8])], constants))
    artifact = compiled(tmp_path, model)
    trials = counted(turns._Trial, "__init__", monkeypatch)
    bounds = counted(record, "bound_turns", monkeypatch)
    with flexnn.Session(artifact, threads=1) as session:
        check_run(session, model, {"x": numbers(6, 8)})
    assert len(trials) == len(bounds) > 0
    assert all(call[3].bounds == ((0, 5),) for call in bounds)
