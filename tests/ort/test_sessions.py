"""``flexnn.ort`` beside onnxruntime: the same calls give the same answers, or errors of the same name and text."""

from __future__ import annotations

import json
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

import flexnn.ort as ours
from flexnn.ort import logs
from tests.support.hangs import HANG_SECONDS
from tests.support.sessions import write_branched_model

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.ones((1, 3), np.float32)
B = np.array(True)
FEED = {"x": X, "y": Y, "b": B}
CPU = ["CPUExecutionProvider"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    nodes = [helper.make_node("Add", ["x", "y"], ["z"]), helper.make_node("Cast", ["b"], ["c"], to=1)]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3]),
        helper.make_tensor_value_info("b", TensorProto.BOOL, []),
    ]
    outputs = [
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("c", TensorProto.FLOAT, []),
    ]
    graph = helper.make_graph(nodes, "adds", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"alphabet": "αβγ"})
    target = tmp_path_factory.mktemp("ort") / "m.onnx"
    onnx.save(model, target)
    return str(target)


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """Name and text of an error, or what was returned."""
    try:
        return "", call()
    except Exception as error:
        return type(error).__name__, str(error)


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other if isinstance(one, str) else bool(np.array_equal(one, other) and one.dtype == other.dtype)


@pytest.mark.parametrize(
    ("names", "changed"),
    [
        (None, {}),
        ([], {}),
        (["z"], {}),
        (["c", "z"], {}),
        (["nope"], {}),
        (None, {"q": Y}),
        (None, {"x": X.astype(np.float64)}),
        (None, {"x": X.astype(np.int32)}),
        (None, {"x": X[0]}),
        (None, {"x": X[:, :2]}),
        (None, {"x": X[:, :2], "y": Y[:, :1]}),
        (None, {"x": X.tolist(), "y": [[1, 2, 3]]}),
        (None, {"x": X[::-1]}),
        (None, {"x": np.asfortranarray(X)}),
        (None, {"x": X.astype(">f4").astype("<f4")}),
    ],
)
def test_runs(path: str, names: list[str] | None, changed: dict[str, Any]) -> None:
    answers = [
        outcome(lambda module=module: module.InferenceSession(path, providers=CPU).run(names, FEED | changed))
        for module in (ours, onnxruntime)
    ]
    assert answers[0][0] == answers[1][0], answers
    assert alike(answers[0][1], answers[1][1]), answers


@pytest.mark.parametrize(
    ("model", "name"),
    [("/nope.onnx", "NoSuchFile"), (b"hello world", "InvalidProtobuf"), (5, "TypeError"), ("/tmp", "InvalidProtobuf")],
)
def test_what_does_not_open(model: Any, name: str) -> None:
    for module in (ours, onnxruntime):
        assert outcome(lambda module=module: module.InferenceSession(model, providers=CPU))[0] == name


def test_a_cache_folder_that_cannot_be_used(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Was said to be a model that is no model, or is not there."""
    for folder in ("/dev/null", "/proc/none"):
        for name in ("XDG_CACHE_HOME", "TMPDIR"):
            monkeypatch.setenv(name, folder)
        with pytest.warns(RuntimeWarning, match="using"), pytest.raises(ours.Fail, match=f"FAIL : {folder}"):
            ours.InferenceSession(path)


def test_missing_inputs(path: str) -> None:
    said = [
        outcome(lambda module=module: module.InferenceSession(path, providers=CPU).run(None, {"x": X}))
        for module in (ours, onnxruntime)
    ]
    assert said[0] == said[1]


def test_scalars_are_taken(path: str) -> None:
    session = ours.InferenceSession(path)
    for value in (True, np.bool_(True), [True], np.array([True])):
        assert session.run(["c"], FEED | {"b": value})[0] == 1.0


def test_what_is_known_of_the_model(path: str) -> None:
    one, other = ours.InferenceSession(path), onnxruntime.InferenceSession(path, providers=CPU)
    for ports in ("get_inputs", "get_outputs"):
        known = [[(p.name, p.shape, p.type) for p in getattr(session, ports)()] for session in (one, other)]
        assert known[0] == known[1]
    assert one.get_modelmeta().custom_metadata_map == other.get_modelmeta().custom_metadata_map == {"alphabet": "αβγ"}
    assert one.get_modelmeta().graph_name == other.get_modelmeta().graph_name
    assert one.get_providers() == other.get_providers() == CPU
    assert one.get_provider_options() == other.get_provider_options()
    assert one.get_overridable_initializers() == []


def test_models_in_memory(path: str) -> None:
    raw = Path(path).read_bytes()
    for _ in range(2):
        assert alike(ours.InferenceSession(raw).run(None, FEED), [X + Y, np.float32(1).reshape(())])


class Named(ours.InferenceSession):
    """A class as packages derive it."""

    def __init__(self, path: str, label: str) -> None:
        super().__init__(path, providers=CPU)
        self.label = label


class Reopened(ours.InferenceSession):
    """A class that makes onnxruntime's sessions pickle, as packages have it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]


def test_derived_and_pickled(path: str) -> None:
    named = pickle.loads(pickle.dumps(Named(path, "a label")))
    assert (type(named), named.label) == (Named, "a label")
    for session in (named, pickle.loads(pickle.dumps(Reopened(path)))):
        assert alike(session.run(["z"], FEED), [X + Y])
    options = ours.SessionOptions()
    options.intra_op_num_threads = 3
    options.add_session_config_entry("k", "v")
    again = pickle.loads(pickle.dumps(options))
    assert (again.intra_op_num_threads, again.get_session_config_entry("k")) == (3, "v")


def test_async_runs(path: str) -> None:
    session, done = ours.InferenceSession(path), threading.Event()
    found: list[Any] = []

    def callback(results: list[Any], data: Any, error: str) -> None:
        found.append((results, data, error))
        done.set()

    session.run_async(None, FEED, callback, "data")
    assert done.wait(HANG_SECONDS)
    done.clear()
    session.run_async(None, FEED | {"x": X[0]}, callback, None)
    assert done.wait(HANG_SECONDS)
    assert alike(found[0][0], session.run(None, FEED))
    assert found[0][1:] == ("data", "")
    assert found[1][0] == []
    assert found[1][2].startswith("Invalid rank for input: x Got: 1 Expected: 2")


def test_a_callback_that_ends_the_program_ends_no_other_run(path: str) -> None:
    """SystemExit ended the thread that makes the runs, and those to come waited for it for ever."""
    session = ours.InferenceSession(path)
    first, done = threading.Event(), threading.Event()

    def ends(*_: Any) -> None:
        first.set()
        sys.exit(3)

    session.run_async(None, FEED, ends, None)
    assert first.wait(HANG_SECONDS)
    session.run_async(None, FEED, lambda *_: done.set(), None)
    assert done.wait(HANG_SECONDS)


def test_values_and_bindings(path: str) -> None:
    session = ours.InferenceSession(path)
    values = {name: ours.OrtValue.ortvalue_from_numpy(array) for name, array in FEED.items()}
    assert np.shares_memory(values["x"].numpy(), X)
    assert alike(session.run_with_ort_values(["z"], values)[0].numpy(), X + Y)
    assert alike(session.run(["z"], values), [X + Y])
    theirs = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    for name in ("shape", "data_type", "element_type", "is_tensor", "has_value", "device_name", "tensor_size_in_bytes"):
        assert getattr(values["x"], name)() == getattr(theirs, name)()
    binding = session.io_binding()
    place, result = ours.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32), np.empty((), np.float32)
    for name, array in FEED.items():
        binding.bind_cpu_input(name, array)
    binding.bind_ortvalue_output("z", place)
    binding.bind_output("c", "cpu", 0, np.float32, (), result.ctypes.data)
    session.run_with_iobinding(binding)
    assert alike(place.numpy(), X + Y)
    assert result == 1
    assert alike(binding.copy_outputs_to_cpu(), [X + Y, np.float32(1).reshape(())])
    copy = X.copy()
    binding.bind_input("x", "cpu", 0, np.float32, (2, 3), copy.ctypes.data)
    copy += 1
    session.run_with_iobinding(binding)
    assert alike(binding.get_outputs()[0].numpy(), X + 1 + Y)
    with pytest.raises(ValueError, match="session that created it"):
        ours.InferenceSession(path).run_with_iobinding(binding)
    with pytest.raises(RuntimeError, match="CPU"):
        ours.OrtValue.ortvalue_from_numpy(X, "cuda", 0)


def test_names_and_defaults_are_onnxruntimes() -> None:
    errors = {name for name in dir(state) if isinstance(getattr(state, name), type)}
    errors = {name for name in errors if issubclass(getattr(state, name), Exception)}
    assert errors <= set(ours.__all__)
    for name in ("SessionOptions", "RunOptions"):
        one, other = getattr(ours, name)(), getattr(onnxruntime, name)()
        fields = [field for field in dir(other) if not field.startswith("_") and not callable(getattr(other, field))]
        assert {f: int(v) if isinstance(v := getattr(one, f), int) else v for f in fields} == {
            f: v if isinstance(v := getattr(other, f), (str, int)) else int(v) for f in fields
        }
    for level, theirs in onnxruntime.GraphOptimizationLevel.__members__.items():
        assert getattr(ours.GraphOptimizationLevel, level) == int(theirs)


def test_what_is_not_known_is_said_once(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs._said.clear()
    for _ in range(2):
        options = ours.SessionOptions()
        options.enable_magic = True
        options.add_free_dimension_override_by_name("n", 2)
        ours.InferenceSession(path, options, providers=["CUDAExecutionProvider", ("CoreMLExecutionProvider", {}), *CPU])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines)) == 3, lines
    assert "CUDAExecutionProvider, CoreMLExecutionProvider: FlexNN computes on the CPU" in lines[-1]
    logs._said.clear()
    ours.set_default_logger_severity(3)
    ours.InferenceSession(path, providers=["CUDAExecutionProvider"])
    ours.set_default_logger_severity(2)
    assert not capsys.readouterr().err
    with pytest.raises(RuntimeError, match="does not have configuration"):
        ours.SessionOptions().get_session_config_entry("none")


@pytest.mark.parametrize("rows", [2, "n"])
def test_profiling_writes_what_ran(tmp_path: Path, rows: int | str) -> None:
    options = ours.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace_")
    session = ours.InferenceSession(str(write_branched_model(tmp_path / "m.onnx", 2, batch=rows)), options)
    feed = {"x": np.zeros((2, 128, 8, 8), np.float32)}
    for _ in range(3):
        session.run(None, feed)
    assert session.get_profiling_start_time_ns() > 0
    written = Path(session.end_profiling())
    assert written.parent == tmp_path
    events = json.loads(written.read_text())["traceEvents"]
    runs = [event for event in events if event["name"] == "model_run"]
    assert [event["args"]["shapes"] for event in runs] == [{"x": [2, 128, 8, 8]}] * 3
    assert all(event["dur"] * 1e3 >= event["args"]["run_ns"] > 0 for event in runs)
    assert [event["name"] for event in events].count("model_loading") == 1
    assert any(event["name"].startswith("last ") for event in events) == (rows == 2)
    assert session.end_profiling() == ""
    assert ours.InferenceSession(str(tmp_path / "m.onnx")).end_profiling() == ""


@pytest.mark.parametrize("rows", [1, "n"])
def test_runs_can_be_terminated(tmp_path: Path, rows: int | str) -> None:
    path = str(write_branched_model(tmp_path / "m.onnx", 24, batch=rows))
    session, options = ours.InferenceSession(path), ours.RunOptions()
    feed = {"x": np.zeros((1, 128, 8, 8), np.float32)}
    expected = session.run(None, feed, options)
    ended: list[int] = []
    for _ in range(5):
        options.terminate = False
        timer = threading.Timer(0.02, lambda: setattr(options, "terminate", True))
        timer.start()
        with pytest.raises(ours.Fail, match="Exiting due to terminate flag being set to true"):
            while True:
                session.run(None, feed, options)
                ended.append(1)
        timer.join()
        with pytest.raises(ours.Fail, match="terminate flag"):
            session.run(None, feed, options)
    options.terminate = False
    assert alike(session.run(None, feed, options), expected)
    assert pickle.loads(pickle.dumps(options)).terminate is False
    theirs, other = onnxruntime.InferenceSession(path), onnxruntime.RunOptions()
    other.terminate = options.terminate = True
    said = [outcome(lambda: session.run(None, feed, options)), outcome(lambda: theirs.run(None, feed, other))]
    assert said[0] == said[1]


def test_a_binding_is_written_in_place_or_copied(path: str) -> None:
    session = ours.InferenceSession(path)
    binding, place = session.io_binding(), np.zeros((2, 3), np.float32)
    binding.bind_cpu_input("y", Y)
    binding.bind_cpu_input("b", B)
    binding.bind_cpu_input("x", place)  # a state that is updated in place
    binding.bind_ortvalue_output("z", ours.OrtValue(place))
    for turn in range(1, 4):
        session.run_with_iobinding(binding)
        assert alike(place, np.full((2, 3), turn, np.float32))
    binding.bind_cpu_input("x", X)
    session.run_with_iobinding(binding)
    assert alike(place, X + Y)
    binding.bind_ortvalue_output("z", ours.OrtValue(np.zeros((3, 3), np.float32)))
    with pytest.raises(ValueError, match=r"shape|float32"):
        session.run_with_iobinding(binding)


def test_functions_of_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert ours.get_available_providers() == CPU
    assert ours.get_device() == onnxruntime.get_device() == "CPU"
    assert ours.get_version_string() == ours.__version__
    ours.print_debug_info()
    assert "FlexNN" in capsys.readouterr().out
    for call in (ours.disable_telemetry_events, ours.enable_telemetry_events, ours.preload_dlls):
        call()
    ours.set_seed(1)
    assert not ours.has_collective_ops()


def test_options_reach_an_onnxruntime_that_runs_what_is_refused(tmp_path: Path) -> None:
    """--fallback handed on the number of threads alone; a library of operators was refused before any model was."""
    options = ours.SessionOptions()
    options.intra_op_num_threads, options.enable_cpu_mem_arena = 2, False
    options.graph_optimization_level = ours.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.execution_mode = ours.ExecutionMode.ORT_PARALLEL
    options.enable_profiling = True
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_free_dimension_override_by_name("n", 2)
    real = options.given_to(onnxruntime)
    assert isinstance(real, onnxruntime.SessionOptions)
    assert (real.intra_op_num_threads, real.enable_cpu_mem_arena, real.enable_profiling) == (2, False, False)
    assert real.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert real.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert real.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    options.register_custom_ops_library("none.so")
    path = write_branched_model(tmp_path / "m.onnx", 2, batch=2)
    assert ours.InferenceSession(str(path), options).get_inputs()[0].shape[0] == 2  # it needs none of them
    with pytest.raises(state.Fail, match="none"):
        options.given_to(onnxruntime)
