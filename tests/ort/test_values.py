"""onnxruntime's values, vectors of them and words about memory; names that FlexNN has nothing for."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

import flexnn.ort as ours
from tests.support.sessions import write_branched_model

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def path(tmp_path: Path) -> str:
    shape = ["n", 3]
    nodes = [helper.make_node("Add", ["x", "y"], ["sum"]), helper.make_node("Mul", ["x", "y"], ["product"])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("sum", "product")]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx"
    )
    return str(tmp_path / "model.onnx")


def _vectors(module: Any, kind: Any, path: str, into: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """Outputs of a run on vectors of values; ``into``: arrays for them."""
    session = module.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds, fetches = kind(), kind()
    own = [module.OrtValue.ortvalue_from_numpy(v) for v in (X, X + 1, *into)]
    for to, values in ((feeds, own[:2]), (fetches, own[2:])):
        for value in values:
            to.push_back(getattr(value, "_ortvalue", value))
    device = module.OrtDevice.make("cpu", 0)
    devices = [getattr(device, "_get_c_device", lambda: device)()] * 2
    session.run_with_ortvaluevector(module.RunOptions(), ["x", "y"], feeds, ["product", "sum"], fetches, devices)
    return [np.array(value.numpy()) for value in fetches], len(fetches)


def test_a_run_on_vectors_is_onnxruntimes(path: str) -> None:
    """With places for the outputs and without."""
    for count in (0, 2):
        mine, theirs = ([np.full_like(X, 9) for _ in range(count)] for _ in range(2))
        found, expected = (
            _vectors(ours, ours.OrtValueVector, path, mine),
            _vectors(onnxruntime, state.OrtValueVector, path, theirs),
        )
        assert found[1] == expected[1] == 2
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(ours.InvalidArgument, match="fetch names has 2 elements, but fetch has 1 elements"):
        _vectors(ours, ours.OrtValueVector, path, [np.zeros_like(X)])
    with pytest.raises(state.InvalidArgument, match="fetch names has 2 elements, but fetch has 1 elements"):
        _vectors(onnxruntime, state.OrtValueVector, path, [np.zeros_like(X)])


class _Elsewhere:
    """A tensor of another device."""

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("not asked for")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_values_share_memory_with_tensors_of_others() -> None:
    array = X.copy()
    for given in (array, array.__dlpack__()):
        value = ours.OrtValue.from_dlpack(given)
        assert value.data_ptr() == array.ctypes.data
        value.update_inplace(np.full_like(X, 7 if given is array else 8))
        assert (array == (7 if given is array else 8)).all()
    assert np.shares_memory(np.from_dlpack(value), array)
    assert value.__dlpack_device__() == onnxruntime.OrtValue.from_dlpack(X.copy()).__dlpack_device__()
    assert ours.OrtValue.from_dlpack(X > 2).data_type() == "tensor(bool)"
    lone = ours.OrtValue.from_dlpack(np.full((64, 1024), 3, np.float32).__dlpack__())
    gc.collect()
    np.ones((64, 1024), np.float32)
    assert (lone.numpy() == 3).all()  # the capsule's memory lives as long as the value


@pytest.mark.parametrize("wrong", [X.T, X.astype(np.complex128), 3, "text", X.astype(">f4")], ids=str)
def test_what_is_no_tensor_is_refused_as_onnxruntime_does(wrong: Any) -> None:
    for module in (ours, onnxruntime):
        with pytest.raises((RuntimeError, TypeError, BufferError)) as error:
            module.OrtValue.from_dlpack(wrong)
        if module is ours:
            kind = error.type
    assert error.type is kind


def test_other_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="the CPU"):
        ours.OrtValue.from_dlpack(_Elsewhere())
    with pytest.raises(RuntimeError, match="not supported"):
        ours.OrtMemoryInfo("Cuda", ours.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ours.OrtMemType.DEFAULT)


def test_words_about_memory_are_onnxruntimes(path: str) -> None:
    mine = ours.InferenceSession(path)
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    fields = "name", "allocator_type", "mem_type", "device_id", "device_mem_type", "device_vendor_id"

    def said(info: Any) -> list[Any]:
        return [v if isinstance(v := getattr(info, name), str) else int(v) for name in fields]

    for which in ("get_input_memory_infos", "get_output_memory_infos"):
        assert list(map(said, getattr(mine, which)())) == list(map(said, getattr(theirs, which)()))
    for module in (ours, onnxruntime):
        info = module.OrtMemoryInfo("Cpu", module.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, module.OrtMemType.CPU)
        assert said(info) == ["Cpu", 0, -1, 0, 0, 0]
        value = module.OrtValue.ortvalue_from_shape_and_type([2, 3], 1, "cpu", 0)
        value.update_inplace(module.OrtValue.ortvalue_from_numpy(X) if module is ours else X)
        np.testing.assert_array_equal(value.numpy(), X)
        halves = module.OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([0x3C00], np.uint16), 10)
        assert halves.numpy() == 1
        device = module.OrtDevice.make("cpu", 0)
        assert (device.device_mem_type(), device.device_vendor_id()) == (0, 0)


def test_numbers_of_kinds_are_onnxruntimes() -> None:
    names = [name for name in ours.__all__ if hasattr(getattr(onnxruntime, name, None), "__members__")]
    assert {"OrtMemType", "OrtAllocatorType", "OrtSparseFormat"} <= {*names}
    for name in names:
        theirs = {member: int(value) for member, value in getattr(onnxruntime, name).__members__.items()}
        assert {m: int(v) for m, v in getattr(ours, name).__members__.items()}.items() >= theirs.items()


@pytest.mark.skipif(onnxruntime.__version__ != ours.__version__, reason="another version has other names")
def test_names_of_the_module_are_there() -> None:
    """Programs import them and may never use them."""
    theirs = {name for name in dir(onnxruntime) if not name.startswith("_") and name[0].isupper()}
    assert theirs <= {*ours.__all__}
    functions = {name for name in dir(onnxruntime) if callable(getattr(onnxruntime, name)) and name[0].islower()}
    assert functions - {"import_capi_exception"} <= {*ours.__all__}
    for name in ("InferenceSession", "OrtValue", "OrtDevice", "IOBinding"):
        theirs = {each for each in dir(getattr(onnxruntime, name)) if not each.startswith("_")}
        assert theirs <= {*dir(getattr(ours, name))}
    for name in ("SessionOptions", "RunOptions"):
        theirs = {each for each in dir(getattr(onnxruntime, name)()) if not each.startswith("_")}
        made = getattr(ours, name)()
        assert [each for each in theirs if not hasattr(made, each)] == []


@pytest.mark.parametrize("batch", ["n", 1])
def test_all_nodes_are_the_cpus(tmp_path: Path, batch: str | int) -> None:
    file = str(write_branched_model(tmp_path / "m.onnx", 3, batch=batch))
    (device,) = ours.get_ep_devices()
    theirs = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    assert device.ep_name == theirs.get_providers()[0]
    assert device.device.type == ours.OrtHardwareDeviceType.CPU
    assert device.memory_info().name == "Cpu"
    with pytest.raises(NotImplementedError, match="no streams"):
        device.create_sync_stream()
    session = ours.InferenceSession(file)
    assert session.get_input_epdevices() == [device for _ in theirs.get_inputs()]
    with pytest.raises(ours.Fail, match="record_ep_graph_assignment_info"):
        session.get_provider_graph_assignment_info()
    options = ours.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    assigned = ours.InferenceSession(file, options).get_provider_graph_assignment_info()
    assert {part.ep_name for part in assigned} == {device.ep_name}
    named = {node.name for part in assigned for node in part.get_nodes()}
    assert {"first", "branch0", "branch1", "branch2", "last"} <= named


def test_providers_that_options_name_are_noted() -> None:
    for name, arguments in (("add_provider", ("CPUExecutionProvider", {})), ("set_provider_selection_policy", (1,))):
        options = ours.SessionOptions()
        assert not options.has_providers()
        getattr(options, name)(*arguments)
        assert options.has_providers()


def test_what_there_is_nothing_for_says_what_to_do(path: str) -> None:
    value = ours.OrtValue.ortvalue_from_numpy(X)
    uses = {
        "merge the adapter": lambda: ours.LoraAdapter(),
        "dense array": lambda: ours.SparseTensor.sparse_coo_from_numpy([2, 3], X, X, "cpu"),
        "numpy\\(\\) has the numbers": value.as_sparse_tensor,
        "flexnn.compile": lambda: ours.ModelCompiler(ours.SessionOptions(), path),
        "computes on the CPU by itself": lambda: ours.register_execution_provider_library("ep", "ep.so"),
        "write the weights into the model": lambda: ours.SessionOptions().add_initializer("w", value),
        "merged model": lambda: ours.RunOptions().add_active_adapter(None),
        "types of numpy": lambda: ours.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(2, np.uint16), 16),
    }
    for text, use in uses.items():
        with pytest.raises(NotImplementedError, match=text) as error:
            use()
        assert isinstance(error.value, ours.NotImplemented)
    assert not isinstance(value, ours.SparseTensor)
