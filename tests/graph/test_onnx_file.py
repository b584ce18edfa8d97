"""Opening ONNX files: what stays in the file, external data, and malformed or hostile files."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from flexnn.graph import load_onnx, onnx_file
from flexnn.graph.ir import GraphError
from flexnn.graph.onnx_file import BULK_BYTES, open_onnx
from flexnn.graph.sources import FileSource
from tests.support.compare import check_model, expected, feeds_of, model_of, run_graph, weights

BIG = BULK_BYTES // 4


def gemm_model(w=None, rows=160, cols=160):
    w = weights(rows, cols) if w is None else w
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    return model_of(nodes, {"x": (2, rows)}, ["y"], {"w": w})


def saved(tmp_path, model):
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


def test_large_tensors_stay_in_the_file(tmp_path):
    path = saved(tmp_path, gemm_model())
    opened = open_onnx(path)
    assert len(opened.bulk) == 1
    assert len(opened.model.SerializeToString()) < BULK_BYTES
    shape, dtype, source = opened.source(opened.model.graph.initializer[0])
    assert isinstance(source, FileSource)
    assert (shape, dtype) == ((160, 160), "f32")
    np.testing.assert_array_equal(source.load(), weights(160, 160))


@pytest.mark.parametrize("packed", [True, False])
def test_float_data_and_constant_nodes(tmp_path, packed):
    values = weights(BIG + 3)
    tensor = helper.make_tensor(
        "t", TensorProto.FLOAT, values.shape, values if packed else values.tobytes(), raw=not packed
    )
    nodes = [helper.make_node("Constant", [], ["c"], value=tensor), helper.make_node("Add", ["x", "c"], ["y"])]
    model = model_of(nodes, {"x": values.shape}, ["y"])
    assert len(open_onnx(saved(tmp_path, model)).bulk) == 1
    check_model(model)


def test_a_doc_string_is_no_mark(tmp_path):
    model = gemm_model(weights(4, 4), 4, 4)
    model.graph.initializer[0].doc_string = "0"
    check_model(model)
    model = gemm_model()
    model.graph.initializer[0].doc_string = "7"
    check_model(model)


def test_file_replaced_while_open(tmp_path):
    model = gemm_model()
    path = saved(tmp_path, model)
    graph = load_onnx(path)
    os.rename(path, path + ".old")
    with open(path, "wb") as file:
        file.write(b"other")
    feeds = feeds_of(graph)
    np.testing.assert_allclose(run_graph(graph, feeds)["y"], expected(model, feeds)["y"], rtol=1e-4, atol=1e-5)


def test_import_does_not_hold_the_weights(tmp_path):
    """Importing a model of 96 MiB takes no more than 24 MiB; its largest weight, 32 MiB, is not loaded."""
    side = 2896
    nodes, constants = [], {}
    for i in range(3):
        constants[f"w{i}"] = np.broadcast_to(np.float32(i), (side, side))
        nodes.append(helper.make_node("Gemm", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}"]))
    path = saved(tmp_path, model_of(nodes, {"x": (1, side)}, ["h3"], constants))
    script = (
        "import resource, sys\n"
        "import onnx, flexnn.graph.importer, flexnn.graph.passes\n"
        "from flexnn.graph import load_onnx\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        f"load_onnx({path!r})\n"
        "print(peak() - before)\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(out.stdout) < 24 << 10


# ---- external data ----


def external(tmp_path, location, *, offset="0", length=None, data=b"\0" * 64, write=True):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    model = gemm_model(weights(4, 4), 4, 4)
    del model.graph.initializer[:]
    model.graph.initializer.append(tensor)
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    if write:
        (folder / "data.bin").write_bytes(data)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return str(folder / "model.onnx")


def test_external_data(tmp_path):
    path = external(tmp_path, "data.bin", offset="8", length="64", data=b"\0" * 8 + weights(4, 4).tobytes())
    graph = load_onnx(path)
    feeds = feeds_of(graph)
    want = np.maximum(feeds["x"] @ weights(4, 4), 0)
    np.testing.assert_allclose(run_graph(graph, feeds)["y"], want, rtol=1e-5)


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "/etc/passwd", "", "a/../data.bin", "./../data.bin", "gone.bin", ".", "./.", "a//b", "a\0b"],
)
def test_external_data_elsewhere(tmp_path, location):
    (tmp_path / "secret.bin").write_bytes(b"\0" * 64)
    with pytest.raises(GraphError, match="external data"):
        load_onnx(external(tmp_path, location))


def test_external_data_through_links(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"\0" * 64)
    path = external(tmp_path, "data.bin", write=False)
    (tmp_path / "folder" / "data.bin").symlink_to(secret)
    with pytest.raises(GraphError, match="symbolic link"):
        load_onnx(path)
    (tmp_path / "folder" / "data.bin").unlink()
    os.link(secret, tmp_path / "folder" / "data.bin")
    with pytest.raises(GraphError, match="without hard links"):
        load_onnx(path)
    (tmp_path / "folder" / "data.bin").unlink()
    os.mkfifo(tmp_path / "folder" / "data.bin")
    with pytest.raises(GraphError, match="must be a regular file"):
        load_onnx(path)
    linked = tmp_path / "folder" / "sub"
    linked.symlink_to(tmp_path)
    with pytest.raises(GraphError, match="symbolic link"):
        load_onnx(external(tmp_path, "sub/secret.bin", write=False))


@pytest.mark.parametrize(
    ("offset", "length"),
    [("1", "64"), ("-1", "64"), ("0", "60"), ("0", "65"), ("x", "64"), (str(2**70), "64"), ("0", "-64")],
)
def test_external_data_of_wrong_size(tmp_path, offset, length):
    with pytest.raises(GraphError, match="tensor 'w'"):
        load_onnx(external(tmp_path, "data.bin", offset=offset, length=length))


# ---- malformed files ----


def test_not_a_model(tmp_path):
    for content in (b"", b"not a model", b"\xff" * 100, b"\x3a\x05", b"\x0b", os.urandom(300)):
        path = tmp_path / "bad.onnx"
        path.write_bytes(content)
        with pytest.raises(GraphError, match=r"bad\.onnx"):
            load_onnx(str(path))
    with pytest.raises(FileNotFoundError):
        load_onnx(str(tmp_path / "none.onnx"))


def test_wrong_sizes_of_tensors(tmp_path):
    for dims in ([160, 161], [-1, 160], [2**40, 2**40]):
        model = gemm_model()
        tensor = model.graph.initializer[0]
        del tensor.dims[:]
        tensor.dims.extend(dims)
        with pytest.raises(GraphError, match="tensor 'w'"):
            load_onnx(saved(tmp_path, model))


def test_constants_that_grow(tmp_path):
    huge = np.array([1 << 20, 1 << 20], np.int64)
    growing = [
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("Expand", ["one", "s"], ["c"]),
        helper.make_node("Tile", ["row", "s"], ["c"]),
        helper.make_node("Range", ["zero", "end", "step"], ["c"]),
    ]
    constants = {"s": huge, "one": weights(1), "row": weights(1, 1), "zero": np.float32(0), "end": np.float32(1e12)}
    for node in growing:
        nodes = [node, helper.make_node("Add", ["x", "c"], ["y"])]
        path = saved(tmp_path, model_of(nodes, {"x": (1,)}, ["y"], constants | {"step": np.float32(1)}))
        with pytest.raises(GraphError, match=f"{node.op_type} node"):
            load_onnx(path)


def mutations(raw: bytes, count: int, seed: int):
    """Bit flips, truncations, and edited bytes: of lengths and tags mostly."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(raw)
        kind = rng.randrange(3)
        if kind == 0:
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[rng.randrange(len(data)) :]
        else:
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(1, 5)] = bytes(rng.randrange(256) for _ in range(rng.randrange(5)))
        yield bytes(data)


def small_net():
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "b", "b", "b", "one"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["z"]),
        helper.make_node("Add", ["p", "z"], ["q"]),
        helper.make_node("Resize", ["q", "", "k"], ["u"]),
        helper.make_node("Concat", ["u", "r"], ["t"], axis=1),
        helper.make_node("Slice", ["t", "i", "j"], ["l"]),
        helper.make_node("Flatten", ["l"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["y"], transB=1),
    ]
    constants = {
        "w": weights(4, 3, 3, 3), "b": weights(4), "one": np.ones(4, np.float32), "g": weights(5, 7 * 36),
        "k": np.array([1, 1, 2, 2], np.float32), "i": np.array([0, 1]), "j": np.array([9, 8]),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 3, 6, 6)}, ["y"], constants)


def test_mutated_files_are_refused_or_right(tmp_path):
    """1,500 damaged files: each imports, or ends in one line; none crashes, hangs or takes memory."""
    raw = small_net().SerializeToString()
    path = tmp_path / "m.onnx"
    outcomes = {"loaded": 0, "refused": 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in mutations(raw, 1500, seed=11):
        path.write_bytes(data)
        try:
            load_onnx(str(path))
            outcomes["loaded"] += 1
        except GraphError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_nested_too_deeply(tmp_path):
    inner = b""
    for _ in range(200):  # graph in attribute in node in graph
        attribute = b"\x32" + _length(inner) + inner
        node = b"\x2a" + _length(attribute) + attribute
        inner = b"\x0a" + _length(node) + node
    path = tmp_path / "deep.onnx"
    path.write_bytes(b"\x3a" + _length(inner) + inner)
    with pytest.raises(GraphError, match="nested too deeply"):
        load_onnx(str(path))


def _length(data: bytes) -> bytes:
    value, out = len(data), bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def test_declared_shapes_may_lie(tmp_path):
    model = gemm_model()
    model.graph.output[0].type.tensor_type.shape.dim.add(dim_value=77)
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [3]))
    graph = load_onnx(saved(tmp_path, model))
    assert [graph.tensors[i].shape for i in graph.outputs] == [(2, 160)]
    model.graph.value_info[0].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(GraphError, match=r"value 'h' is tensor\(float\), but is declared tensor\(int64\)"):
        load_onnx(saved(tmp_path, model))


def test_initializers_listed_as_inputs(tmp_path):
    model = gemm_model()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [160, 160]))
    model.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.INT64, []))
    model.graph.initializer.append(numpy_helper.from_array(np.array(3), "unused"))
    graph = load_onnx(saved(tmp_path, model))
    assert [graph.tensors[i].name for i in graph.inputs] == ["x"]
    assert onnx.__version__


LISTS = {
    "ints": [0, 1, -1, 127, 128, 300, 2**40, -(2**40)] * 9_000,
    "floats": [0.0, 1.5, -3.25e-9] * 9_000,
    "strings": ["", "LEAF", "BRANCH_LEQ", "größer", "x" * 31, "y" * 32, "z" * 300] * 3_000,
}


def of_lists(tmp_path, **lists):
    attributes = {f"nodes_{name}": values for name, values in lists.items()}
    node = helper.make_node("Odd", ["x"], ["y"], domain="test", **attributes)
    for attribute in node.attribute:  # twice, so that other fields stand between the lists
        attribute.doc_string = "dropped"
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("test", 1)]
    model = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:]), opset_imports=opsets, ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return node


def test_long_lists_are_walked_in_long_strides(tmp_path, monkeypatch):
    """Trees have millions of numbers and names: each took two calls."""
    node = of_lists(tmp_path, **LISTS)
    calls = 0
    own = onnx_file._Skim._varint

    def counted(*args):
        nonlocal calls
        calls += 1
        return own(*args)

    monkeypatch.setattr(onnx_file._Skim, "_varint", counted)
    opened = open_onnx(str(tmp_path / "m.onnx"))
    for attribute in node.attribute:
        attribute.ClearField("doc_string")
    assert list(opened.model.graph.node[0].attribute) == list(node.attribute)
    assert calls < 40_000  # most of them for names of more than 31 bytes


def test_lists_whose_last_entry_is_cut(tmp_path):
    of_lists(tmp_path, ints=LISTS["ints"])
    path = tmp_path / "m.onnx"
    data = bytearray(path.read_bytes())
    at = data.rindex(b"\x40" + b"\xff" * 3)  # the last negative number
    data[at + 10] = 0xFF  # it does not end
    path.write_bytes(data)
    with pytest.raises(GraphError, match="malformed"):
        open_onnx(str(path))


def test_numbers_of_one_byte_are_read_at_once(tmp_path, monkeypatch):
    """Most numbers of a file have one byte: none of them is put together from bytes."""
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(50)]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("v0", "v50")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    path = saved(tmp_path, helper.make_model(graph))
    asked = []
    byte = onnx_file._Skim._byte

    def counted(self, at):
        asked.append(at)
        return byte(self, at)

    monkeypatch.setattr(onnx_file._Skim, "_byte", counted)
    assert len(open_onnx(path).model.graph.node) == 50
    assert len(asked) < 10
