"""Constants that a model makes out of nothing: large ones are made when they are read, and never all at once."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.graph.ir import GraphError
from tests.support.compare import check_model, load, model_of, weights
from tests.support.regions import F32, I64, check_run, graph_of, numbers, opened, value
from tests.support.regions import model_of as region_model

ROWS, COLUMNS = 9000, 8000
"""More than 256 MiB."""


def ints(*values):
    return np.array(values, np.int64)


def filled(name, shape, number):
    tensor = helper.make_tensor("", TensorProto.FLOAT, [1], [number])
    return helper.make_node("ConstantOfShape", [shape], [name], value=tensor)


def made_net():
    """Convolutions and products whose weights are one number each."""
    nodes = [
        filled("w0", "s0", 0.01),
        filled("w1", "s1", 0.002),
        filled("b1", "s2", 0.5),
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["y"], transB=1),
    ]
    constants = {"s0": ints(512, 640, 3, 3), "s1": ints(700, 8192), "s2": ints(700)}
    return model_of(nodes, {"x": (1, 640, 4, 4)}, ["y"], constants)


def test_a_net_of_made_weights():
    check_model(made_net(), tolerance=1e-4)


MAKERS = [
    ([filled("c", "s", 3.0)], {"s": ints(3, 600, 400)}),
    ([helper.make_node("ConstantOfShape", ["s"], ["c"])], {"s": ints(3, 600, 400)}),
    ([helper.make_node("Expand", ["k", "s"], ["c"])], {"k": weights(600, 1), "s": ints(3, 600, 400)}),
    ([helper.make_node("Tile", ["k", "s"], ["c"])], {"k": weights(3, 6, 400), "s": ints(1, 100, 1)}),
    (
        [helper.make_node("Range", ["a", "b", "k"], ["r"]), helper.make_node("Reshape", ["r", "s"], ["c"])],
        {"a": np.float32(1), "b": np.float32(720001), "k": np.float32(1), "s": ints(3, 600, 400)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "constants"), MAKERS, ids=[nodes[0].op_type for nodes, _ in MAKERS])
def test_operators(tmp_path, nodes, constants):
    """In a bound graph, and where shapes are open."""
    nodes = [*nodes, helper.make_node("Mul", ["x", "c"], ["y"])]
    check_model(model_of(nodes, {"x": (3, 600, 400)}, ["y"], constants))
    inputs = [value("x", F32, ["n", 1, 400])]
    model = region_model(graph_of(nodes, inputs, [value("y", F32, [None, 600, 400])], constants))
    with opened(tmp_path, model) as session:
        for _ in range(2):
            check_run(session, model, {"x": numbers(3, 1, 400)})


def test_a_made_constant_is_an_output(tmp_path):
    """An array of its own."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Expand", ["k", "s"], ["y"])]
    inputs, outputs = [value("x", F32, ["n", 1000])], [value("y", I64, ["n", 1000])]
    model = region_model(graph_of(nodes, inputs, outputs, {"k": ints(7)}))
    with opened(tmp_path, model) as session:
        (y,) = session.run(None, {"x": numbers(300, 1000)})
    assert y.flags.c_contiguous
    assert (y == 7).all()


def large_model(dims):
    nodes = [filled("w", "s", 0.25), helper.make_node("MatMul", ["x", "w"], ["y"])]
    return model_of(nodes, {"x": dims}, ["y"], {"s": ints(ROWS, COLUMNS)})


@pytest.mark.parametrize("dims", [(1, ROWS), ("n", ROWS)], ids=["bound", "open"])
def test_weights_of_any_size_compile_in_bounded_memory(tmp_path, dims):
    path = tmp_path / "m.onnx"
    path.write_bytes(large_model(dims).SerializeToString())
    code = "import re, sys, flexnn\nflexnn.compile(sys.argv[1])\n"
    code += "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    done = subprocess.run([sys.executable, "-P", "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) << 10 < 4 * ROWS * COLUMNS
    assert (tmp_path / "m.flexnn").stat().st_size > 4 * ROWS * COLUMNS
    x = numbers(1, ROWS)
    with flexnn.Session(tmp_path / "m.flexnn", memory="60MiB") as session:
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, np.full((1, COLUMNS), x.sum(dtype=np.float64) / 4), rtol=1e-3, atol=1e-2)


def test_the_total_is_bounded():
    """Each would do alone; the error is one line."""
    count = 36
    nodes = [filled(f"c{i}", "s", float(i)) for i in range(count)]
    nodes += [helper.make_node("MatMul", [f"x{i}", f"c{i}"], [f"x{i + 1}"]) for i in range(count)]
    model = model_of(nodes, {"x0": (1, 8192)}, [f"x{count}"], {"s": ints(8192, 8192)})
    with pytest.raises(GraphError, match=r"ConstantOfShape node 'c32': .* 8448 MiB in all, at most 8192") as caught:
        load(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(-1, -(1 << 20)), (1 << 40, 1 << 40), (1, 2, 3, 4, 5, 6, 7, 8, 1 << 20)])
def test_wrong_shapes_are_refused(shape):
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    with pytest.raises(GraphError, match=r"ConstantOfShape|Add node|dimensions"):
        load(model_of(nodes, {"x": (1,)}, ["y"], {"s": ints(*shape)}))
