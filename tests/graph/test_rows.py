"""Constants that are read some rows at a time, and compiling inside a budget: the artifact is the same, and what does
not fit is refused with a budget that takes it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.cli import main
from flexnn.graph import allowance, rows
from flexnn.graph.allowance import allowed
from flexnn.graph.descriptor import Descriptor
from flexnn.graph.ir import Array, WeightSource
from flexnn.graph.sources import ArraySource, FileSource, MappedSource, ModelSource

SHAPE = (37, 24)
Function = Callable[[Array], Array]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSource:
    """A matrix in a file, and batches of a few of its rows."""
    monkeypatch.setattr(rows, "BATCH_BYTES", 600)
    values = np.arange(37 * 24, dtype=np.float32)
    (tmp_path / "weights").write_bytes(b"12345678" + values.tobytes())
    return FileSource(Descriptor(str(tmp_path / "weights")), 8, np.dtype(np.float32), SHAPE)


def mapped(source: WeightSource, function: Function, is_view: bool = True) -> MappedSource:
    return MappedSource(source, function, "f", is_view=is_view)


VIEWS: dict[str, tuple[Function, bool]] = {
    "as it is": (lambda v: v, True),
    "kept": (lambda v: v.reshape(37, 24, 1, 1), True),
    "parted": (lambda v: v.reshape(37, 6, 2, 2), True),
    "parted and moved": (lambda v: v.reshape(37, 6, 2, 2).transpose(0, 2, 3, 1), True),
    "turned": (lambda v: v.T.reshape(24, 37, 1, 1), True),
    "some": (lambda v: v[5:20], True),
    "flipped": (lambda v: v[:, ::-1], True),
    "upside down": (lambda v: v[::-1], True),
    "every other": (lambda v: v[::2], True),
    "parts of columns": (lambda v: v.reshape(37, 6, 4).transpose(1, 0, 2), True),
    "flat": (lambda v: v.reshape(-1), True),
    "scaled": (lambda v: v * 2, False),
    "said to be a view": (lambda v: (v * 2).astype(np.float32), True),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("memory", [None, 1 << 30])
def test_rows_are_those_of_the_whole(stored: FileSource, name: str, memory: int | None) -> None:
    function, is_view = VIEWS[name]
    source = mapped(mapped(ModelSource(0, stored), lambda v: v), function, is_view)
    whole = source.load()
    with allowed(memory):
        read = list(rows.batches(source, 2, whole.nbytes))
        np.testing.assert_array_equal(np.concatenate([part for _, part in read]), whole)
        assert [first for first, _ in read] == list(np.cumsum([0, *(len(part) for _, part in read[:-1])]))
        assert all(first % 2 == 0 for first, _ in read)
        raw = b"".join(bytes(part) for part in rows.parts(source, 64, whole.nbytes))
    assert raw == np.ascontiguousarray(whole).tobytes()
    if name in ("as it is", "kept", "parted", "parted and moved", "some"):
        assert len(read) > 2


def test_what_is_no_file_is_whole() -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    (first, read), *rest = rows.batches(ArraySource(values), 2, values.nbytes)
    assert read is values
    assert (first, rest) == (0, [])


def test_columns_come_in_batches_of_what_is_left(stored: FileSource, monkeypatch: pytest.MonkeyPatch) -> None:
    source = mapped(stored, lambda v: v.T.reshape(24, 37, 1, 1))
    monkeypatch.setattr(allowance, "MARGIN", 0)
    monkeypatch.setattr(allowance, "resident", lambda: 1000)
    with allowed(4 * 37 * 4 * 5):  # a quarter of it holds five rows
        read = list(rows.batches(source, 4, 37 * 24 * 4))
    assert [len(part) for _, part in read] == [4] * 6
    np.testing.assert_array_equal(np.concatenate([part for _, part in read]), source.load())


def test_reserving(monkeypatch: pytest.MonkeyPatch, stored: FileSource) -> None:
    taken = [1 << 20]
    monkeypatch.setattr(allowance, "resident", lambda: taken[0])
    with allowed(None) as none:
        assert none is None
    with allowed(16 << 20) as found:
        assert found is not None
        found.reserve(12 << 20, "this")
        taken[0] += 3 << 20
        assert found.left == 9 << 20
        stored.load()
        taken[0] += 9 << 20
        with pytest.raises(flexnn.CompileError, match=r"^that takes 1 MiB, and 16 of the 16 MiB are taken: .* 17MiB"):
            found.reserve(1 << 20, "that")
        with pytest.raises(flexnn.CompileError, match=r"^that takes 1 MiB"):
            found.check("nothing")
    with pytest.raises(flexnn.CompileError, match=r"a constant of shape \[37, 24\]"), allowed(4 << 20):
        stored.load()


def test_another_way_after_a_refusal_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an error was turned into: the refusal is what the user can mend."""
    monkeypatch.setattr(allowance, "resident", lambda: 0)
    with pytest.raises(flexnn.CompileError, match="this takes 9 MiB"), allowed(8 << 20) as found:
        assert found is not None
        found.refuse(9 << 20, "this")
        raise ValueError("something else")


def write_model(path: Path, k: int, n: int, *, folds: bool = False) -> Path:
    """x [1, k] times W [k, n], then times V, of which the file holds the transposed one."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.random((k, n), np.float32),
        "v": random.random((48, n), np.float32),
        "table": random.random((n, 40), np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Gemm", ["h", "v"], ["g"], transB=1),
        helper.make_node("Gather", ["table", "i"], ["e"]),
    ]
    if folds:
        nodes = [helper.make_node("Sin", ["w"], ["w2"]), *nodes]
        nodes[1].input[1] = "w2"
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, k]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [3]),
        ],
        [
            helper.make_tensor_value_info("g", TensorProto.FLOAT, [1, 48]),
            helper.make_tensor_value_info("e", TensorProto.FLOAT, [3, 40]),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_the_artifact_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "m.onnx", 700, 333)
    monkeypatch.setattr(rows, "BATCH_BYTES", 1 << 40)
    whole = Path(flexnn.compile(model, tmp_path / "whole.flexnn")).read_bytes()
    monkeypatch.setattr(rows, "BATCH_BYTES", 3000)
    for name, memory in (("batches", None), ("budget", 1 << 30), ("text", "1GiB")):
        assert Path(flexnn.compile(model, tmp_path / f"{name}.flexnn", memory=memory)).read_bytes() == whole


def test_a_budget_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written, with one that works."""
    model, target = write_model(tmp_path / "m.onnx", 1024, 2048, folds=True), tmp_path / "m.flexnn"
    assert main(["compile", str(model), "--quiet", "--memory", "2MiB"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert not target.exists()
    for _ in range(9):
        memory = re.search(r"--memory (\d+MiB) goes on", told)
        assert memory, told
        if main(["compile", str(model), "--quiet", "--memory", memory[1]]) == 0:
            break
        told = capsys.readouterr().err
    assert target.exists()
    with pytest.raises(ValueError, match="not a size"):
        flexnn.compile(model, memory="much")


PEAK = """
import sys
import numpy, flexnn
def status(name):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name + ":"))
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
try:
    flexnn.compile(sys.argv[1], sys.argv[2], memory=sys.argv[3])
except flexnn.CompileError as error:
    print(error, file=sys.stderr)
print(status("VmHWM") - before)
"""


@pytest.mark.parametrize("folds", [False, True])
def test_the_peak(tmp_path: Path, folds: bool) -> None:
    """Weights of 96 MiB in 64 MiB: by batches of columns; folded they do not fit, which is known before."""
    model = write_model(tmp_path / "m.onnx", 4096, 6144, folds=folds)
    command = [sys.executable, "-P", "-c", PEAK, str(model), str(tmp_path / "m.flexnn"), "80MiB"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 80 << 20
    assert (tmp_path / "m.flexnn").exists() != folds
    assert ("goes on from here" in done.stderr) == folds
