"""Small files that ask for much memory: compiling and opening have a total each, and refuse before they take more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from bench.models.tiny import control
from flexnn._core import crc32c
from flexnn.artifact.format import HEADER_BYTES, Header, page_up
from flexnn.artifact.section import PARSED_BYTES_MAX
from flexnn.graph.parsed import parsed_bytes
from tests.support.compare import model_of

TOTAL = 64 << 20
COUNT = 18
MEASURED = """
import sys
import numpy, onnx, flexnn, flexnn.compiler, flexnn.graph.importer, flexnn.graph.passes, flexnn.artifact.model_section
import flexnn.graph.ledger, flexnn.regions.sampling
flexnn.graph.ledger.TOTAL_BYTES = {total}
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
before = peak()
try:
    {action}
    print("taken")
except flexnn.FlexNNError as error:
    print(error)
print(peak() - before)
"""


def measured(action: str) -> tuple[str, int]:
    """Outcome of an action in a process of its own, and the bytes that it took at most."""
    script = MEASURED.format(total=TOTAL, action=action)
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    *_, told, size = done.stdout.splitlines()
    return told, int(size)


def folded(dims: list[int | str]) -> bytes:
    """A model of 500 bytes whose nodes of constants make 16 MB each."""
    names = [f"e{i}" for i in range(COUNT)]
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c"])]
    nodes += [helper.make_node("Exp", ["c"], [name], f"node {name}") for name in names]
    nodes += [helper.make_node("Sum", ["x", *names], ["y"])]
    return model_of(nodes, {"x": dims}, ["y"], {"s": np.array([2000, 2000])}).SerializeToString()


def made_up() -> bytes:
    """A model whose inputs are 16 MB each, and which is not bound before it runs."""
    names = [f"x{i}" for i in range(COUNT)]
    nodes = [helper.make_node("Sum", names, ["y"]), helper.make_node("NonZero", ["y"], ["z"])]
    shapes = dict.fromkeys(names, (2000, 2000))
    return model_of(nodes, shapes, ["z"], types={"z": TensorProto.INT64}).SerializeToString()


@pytest.mark.parametrize("content", [folded([1]), made_up()], ids=["constants", "inputs"])
def test_compiling_has_a_total(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    told, size = measured(f"flexnn.compile({str(path)!r})")
    assert f"compiling may compute with {TOTAL >> 20} MiB in all" in told
    assert size < TOTAL + (32 << 20)


def test_compiling_what_is_bound_late_has_a_total(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(folded(["n"]))
    _, size = measured(f"flexnn.compile({str(path)!r})")
    assert size < 2 * TOTAL + (32 << 20)


@pytest.mark.parametrize(("kind", "unit"), [(1, b"[]"), (2, b'""')], ids=["graph", "model"])
def test_opening_has_a_total(tmp_path: Path, kind: int, unit: bytes) -> None:
    """A section of 60 MiB that is nothing but small values, under checksums that fit it."""
    section = b'{"tensors":[' + (unit + b",") * ((60 << 20) // (len(unit) + 1)) + unit + b"]}"
    crc_offset = -(-(HEADER_BYTES + len(section)) // 4) * 4
    data = page_up(crc_offset)
    header = Header(16, kind, data, HEADER_BYTES, len(section), crc_offset, 0, data, 0, b"\0" * 32, crc32c(section), 0)
    path = tmp_path / "bomb.flexnn"
    path.write_bytes((header.pack() + section).ljust(data, b"\0"))
    told, size = measured(f"flexnn.Session({str(path)!r})")
    assert f"at most {PARSED_BYTES_MAX >> 20} MiB are read" in told
    assert size < 2 * len(section) + (8 << 20)


def test_the_estimate_is_an_upper_bound() -> None:
    import json
    import tracemalloc

    for text in ('[1,2.5,"abc",[3],{"a":[4]}]', "[[],[],[]]", '{"a":1,"b":{}}', '["\\u1234\\u5678"]'):
        raw = ("[" + ",".join([text] * 2000) + "]").encode()
        tracemalloc.start()
        parsed = json.loads(raw)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert parsed
        assert size <= parsed_bytes(raw) + 4096


def test_real_sections_are_far_below() -> None:
    assert flexnn.ArtifactError
    row = b'["/model/layers.11/attn/MatMul","conv",[1,2],[3],{"act":"none","alpha":0.0,"k":[3,3],"s":[1,1]},17],'
    assert parsed_bytes(row) * 100_000 < PARSED_BYTES_MAX


KEPT = 2 << 20
SHAPES = """
import random, sys
import numpy as np
import onnx
import flexnn, flexnn.run.open_shapes
flexnn.run.open_shapes.KEPT_BYTES_MAX = {most}
def resident():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4096
shapes = [(1 + i // 25, 1 + i % 25) for i in range(800)]
random.Random(0).shuffle(shapes)
before = resident()
with flexnn.Session(sys.argv[1], memory={memory}, threads=2) as session:
    session.run(None, {{"x": np.zeros((1, 3, 33, 26), np.float32)}})
    print(session.session_bytes, resident() - before)
    for i, (height, width) in enumerate(shapes):
        session.run(None, {{"x": np.zeros((1, 3, height, width), np.float32)}})
        if i % 400 == 399:
            print(session.session_bytes, resident() - before)
"""


@pytest.mark.parametrize("memory", [None, 12 << 20])
def test_400_shapes_in_turn(tmp_path: Path, memory: int | None) -> None:
    """They made a session 10 MiB larger, and 400 more again: what is kept of shapes has a bound, and is counted."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Add", ["c", "r"], ["y"]),
    ]
    weights = {"w": np.ones((16, 3, 3, 3), np.float32)}
    source, artifact = tmp_path / "m.onnx", tmp_path / "m.flexnn"
    source.write_bytes(model_of(nodes, {"x": [1, 3, "h", "w"]}, ["y"], weights).SerializeToString())
    flexnn.compile(source, artifact)
    script = SHAPES.format(memory=memory, most=KEPT)
    done = subprocess.run([sys.executable, "-P", "-c", script, artifact], capture_output=True, text=True, check=True)
    (first, start), (then, after), (last, end) = ([int(n) for n in line.split()] for line in done.stdout.splitlines())
    assert max(then, last) - first <= KEPT + (64 << 10)
    if memory is None:
        assert after - start <= KEPT + (1 << 20)
        assert end - after <= 1 << 20
    else:
        assert max(first, then, last) <= memory
        assert max(start, after, end) <= memory + (1 << 20)


@pytest.mark.parametrize("times", [1 << 50, 1 << 58, 1 << 62])
def test_a_loop_of_more_turns_than_there_are_bytes(times: int, tmp_path: Path) -> None:
    """Its outputs grow by a number each turn: placing so many bytes overflowed."""
    model = onnx.ModelProto.FromString(control())
    del model.graph.node[:2]  # which count the turns by the input's rows
    model.graph.initializer.append(numpy_helper.from_array(np.array(times), "times"))
    onnx.save(model, tmp_path / "model.onnx")
    flexnn.compile(tmp_path / "model.onnx", tmp_path / "model.flexnn")
    for memory in (None, "64MiB"):
        with (
            flexnn.Session(tmp_path / "model.flexnn", memory) as session,
            pytest.raises(flexnn.GraphError, match="which no machine has"),
        ):
            session.run(None, {"x": np.ones((2, 4), np.float32)})
