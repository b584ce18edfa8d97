"""Reading and checking a model in a process beside the one that compiles it."""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from flexnn.graph import GraphError, beside, load_model, onnx_file
from flexnn.graph.beside import YOUNG_NS, Beside
from flexnn.graph.dump import dump_model
from flexnn.graph.tensors import numbers_of, value_of
from flexnn.maker import LATER
from tests.support.hangs import HANG_SECONDS, wait_until
from tests.support.sessions import write_branched_model, write_model

TYPES = ("FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "BOOL", "FLOAT16", "DOUBLE", "UINT32", "UINT64")
SCRIPT = """
import os, sys
from flexnn.graph.beside import Beside
print(Beside(sys.argv[1])._process, flush=True)
os._exit(0)
"""
FIRST = """
import os, sys
flexnn = sys.modules["flexnn"] = type(sys)("flexnn")
flexnn.__path__ = [sys.argv[2]]
from flexnn import maker
asked, end = os.getpid(), os._exit
def ended(status):
    path = os.path.join(sys.argv[1], "asked" if os.getpid() == asked else "beside")
    modules = ("numpy", "flexnn.graph.checked", "flexnn.graph.importer")
    if not os.path.exists(path):  # a process that goes on for later ends last
        with open(path, "w") as file:
            print(status, *(name for name in modules if name in sys.modules), file=file)
    end(status)
os._exit = ended
maker.start()
"""
"""The program of the process that makes artifacts; both processes say what they have imported when they end."""


def old(path: Path) -> str:
    """Wait until the next change of a file would have another time."""
    while time.time_ns() - path.stat().st_ctime_ns <= YOUNG_NS:
        time.sleep(0.005)
    return str(path)


@pytest.mark.parametrize("kind", ["bound", "open", "external"])
def test_the_model_is_the_one_that_reading_makes(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.onnx"
    if kind == "open":
        write_branched_model(path, 3, batch="n")
    else:
        write_model(path)
    if kind == "external":
        onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights")
    made, wanted = load_model(str(path), beside=Beside(old(path))), load_model(str(path))
    assert dump_model(made) == dump_model(wanted)
    assert made.about == wanted.about
    assert made.externals == wanted.externals == (("weights",) if kind == "external" else ())
    for name, constant in wanted.graph.constants.items():
        assert np.array_equal(made.graph.constants[name].source.load(), constant.source.load())


def test_each_process_imports_what_it_needs(tmp_path: Path) -> None:
    """It waited for numpy, which it does not need, and the other one imported the checks, too."""
    path = tmp_path / "m.onnx"
    write_branched_model(path, 3, batch="n")
    asked = json.dumps({"model": old(path), "shapes": {}, "note": "", "terminal": None})
    command = [sys.executable, "-P", "-c", FIRST, str(tmp_path), str(Path(beside.__file__).parents[1]), asked]
    environment = {**os.environ, LATER: "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1].endswith(".flexnn")
    if len(os.sched_getaffinity(0)) > 1:
        assert (tmp_path / "asked").read_text().split() == ["0", "numpy", "flexnn.graph.importer"]
        assert (tmp_path / "beside").read_text().split() == ["0", "flexnn.graph.checked"]


def test_what_is_wrong_is_said_by_who_asked(tmp_path: Path) -> None:
    path = Path(write_model(tmp_path / "m.onnx"))
    model = onnx.load(path)
    model.graph.node[0].input[0] = "nothing"
    onnx.save(model, path)
    process = Beside(old(path))
    with pytest.raises(GraphError, match="no earlier node computes input 'nothing'"):
        load_model(str(path), beside=process)


@pytest.mark.parametrize("change", ["replaced", "written", "young", "killed"])
def test_a_file_that_changes_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    path = Path(write_model(tmp_path / "m.onnx"))
    if change == "young":
        path.write_bytes(path.read_bytes())
        monkeypatch.setattr(beside, "YOUNG_NS", 60_000_000_000)
        with pytest.raises(BlockingIOError):
            Beside(str(path))
        return
    process = Beside(old(path))
    if change == "killed":
        os.kill(process._process, 9)
    elif change == "replaced":
        (tmp_path / "other").write_bytes(path.read_bytes())
        (tmp_path / "other").rename(path)
    else:
        path.write_bytes(path.read_bytes())
    assert process.take() is None or change == "killed"  # it may have been quicker


def test_a_process_that_dies_while_it_says_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it is nothing."""
    dumps = marshal.dumps
    monkeypatch.setattr(marshal, "dumps", lambda found: dumps((bytes(1 << 20), found)))  # more than a pipe holds
    process = Beside(old(write_model(tmp_path / "m.onnx")))
    select.select([process._reads], [], [])
    os.kill(process._process, signal.SIGKILL)
    assert process.take() is None


@pytest.mark.parametrize("change", ["none", "replaced", "killed", "wrong"])
def test_the_file_is_hashed_once_its_model_is_taken(tmp_path: Path, change: str) -> None:
    path = Path(write_model(tmp_path / "m.onnx"))
    if change == "wrong":
        path.write_bytes(path.read_bytes()[:-20])
    process = Beside(old(path))
    if change == "killed":
        os.kill(process._process, signal.SIGKILL)
    taken = process.take()
    if change == "replaced":
        (tmp_path / "other").write_bytes(path.read_bytes())
        (tmp_path / "other").rename(path)
    digest = process.digest()
    if change == "none":
        assert taken is not None
    if change in ("replaced", "wrong"):
        assert digest is None
    else:
        assert digest == hashlib.sha256(path.read_bytes()).digest() or change == "killed"
    with pytest.raises(ChildProcessError):
        os.waitpid(process._process, 0)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_numbers_are_those_that_onnx_reads(name: str, raw: bool) -> None:
    kind = TensorProto.DataType.Value(name)
    values = np.array([[0, 1, 3], [100, 2, 1]]).astype(helper.tensor_dtype_to_np_dtype(kind))
    tensor = numpy_helper.from_array(values) if raw else helper.make_tensor("t", kind, [2, 3], values.reshape(-1))
    found = numbers_of(tensor)
    assert found.dtype == values.dtype
    assert np.array_equal(found, numpy_helper.to_array(tensor))


def test_numbers_that_do_not_fit_are_refused() -> None:
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0])
    tensor.dims[0] = 3
    with pytest.raises(ValueError, match="reshape"):
        numbers_of(tensor)
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1], raw_data=b"abc")
    with pytest.raises(ValueError, match="buffer size"):
        numbers_of(tensor)


@pytest.mark.parametrize("value", [3, 2.5, "text", [1, 2], [0.5], ["a", "b"]])
def test_values_are_those_that_onnx_reads(value: object) -> None:
    attribute = helper.make_attribute("a", value)
    assert value_of(attribute) == helper.get_attribute_value(attribute)


@pytest.mark.parametrize("is_first", [True, False])
def test_it_ends_with_its_maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool) -> None:
    """It computed on for up to 120 s; ``is_first``: who made it ended before it had begun."""
    begun, gone = tmp_path / "begun", tmp_path / "gone"

    def endless(path: str, file: object) -> None:
        begun.touch()
        while True:
            pass

    monkeypatch.setattr(onnx_file, "open_onnx", endless)
    if is_first:
        end = beside._end_without_reader
        monkeypatch.setattr(beside, "_end_without_reader", lambda fd: (wait_until(gone.exists), end(fd)))
    process = Beside(old(write_model(tmp_path / "m.onnx")))
    if not is_first:
        wait_until(begun.exists)
    os.close(process._reads)
    gone.touch()
    wait_until(lambda: os.waitpid(process._process, os.WNOHANG)[0] != 0)
    assert begun.exists() != is_first


def test_it_ends_when_nobody_takes_what_it_read(tmp_path: Path) -> None:
    """It waited for ever where that is more than a pipe holds, as it was a reader of the pipe itself."""
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], f"node {i} {'x' * 200}") for i in range(1000)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("t0", "t1000")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    command = [sys.executable, "-P", "-c", SCRIPT, old(path)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    end = time.monotonic() + HANG_SECONDS
    while _runs(int(said)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _runs(int(said))


def _runs(process: int) -> bool:
    """Return whether a process is there that has not ended."""
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
