"""Large concatenations that become bytes by steps that a run computes: the floats are never together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.graph.passes import byte_ranges
from flexnn.session import open_for_tests
from tests.support.compare import check_model, model_of, numbers_of_type, ops_of

F32 = np.float32
BYTES = {"q": TensorProto.UINT8}


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_ranges, "LARGE", 1)


def _joined(axis: int, parts: int = 2) -> list[onnx.NodeProto]:
    """A concatenation of what relu and its neighbours leave of ``x0``, as bytes."""
    made = [helper.make_node(op, ["x0"], [op]) for op in ["Relu", "Neg", "Abs", "Sqrt", "Exp"][:parts]]
    return [
        *made,
        helper.make_node("Concat", [node.output[0] for node in made], ["joined"], axis=axis),
        helper.make_node("DynamicQuantizeLinear", ["joined"], ["q", "step", "zero"]),
    ]


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0])
def test_parts_are_measured_and_rounded_by_themselves(axis: int, shift: float) -> None:
    model = model_of(_joined(axis), {"x0": (2, 3, 5, 7)}, ["q", "step"], {}, 17, BYTES)
    x = np.random.default_rng(axis).standard_normal((2, 3, 5, 7)).astype(F32) + F32(shift)
    graph = check_model(model, feeds={"x0": x}, tolerance=1e-7)
    assert ops_of(graph).count("byte_steps") == 3
    assert ops_of(graph).count("quantize") == 2
    assert max(graph.tensors[node.inputs[0]].size for node in graph.nodes if node.op == "quantize") == x.size


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    ("others", "outputs", "types"),
    [
        ([], ["q", "joined"], {}),
        ([helper.make_node("Floor", ["joined"], ["y"])], ["q", "y"], {}),
        ([helper.make_node("QuantizeLinear", ["joined", "other"], ["y"])], ["q", "y"], {"y": TensorProto.UINT8}),
    ],
    ids=["as an output", "by another node", "with another step"],
)
def test_what_is_read_as_floats_stays_together(
    others: list[onnx.NodeProto], outputs: list[str], types: dict[str, int]
) -> None:
    model = model_of([*_joined(1), *others], {"x0": (2, 3, 5, 7)}, outputs, {"other": F32(0.5)}, 17, BYTES | types)
    assert ops_of(check_model(model)).count("byte_steps") == 1


def test_small_and_flat_ones_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part adds two nodes; of a matrix each number would be a range."""
    x = {"x0": (2, 3, 5, 7)}
    assert ops_of(check_model(model_of(_joined(1), x, ["q"], {}, 17, BYTES))).count("byte_steps") == 1
    monkeypatch.setattr(byte_ranges, "LARGE", 1)
    flat = model_of(_joined(1), {"x0": (6, 35)}, ["q"], {}, 17, BYTES)
    assert ops_of(check_model(flat)).count("byte_steps") == 1
    monkeypatch.setattr(byte_ranges, "PARTS_MAX", 3)
    feeds = {"x0": np.ones((2, 3, 5, 7), F32)}
    many = model_of(_joined(1, 4), x, ["q"], {}, 17, BYTES)
    assert ops_of(check_model(many, feeds=feeds)).count("byte_steps") == 1


def test_a_map_that_waits_for_its_neighbour_is_all_that_is_kept(tmp_path: Path) -> None:
    """The waiting map takes 4 MiB; with its neighbour 8 MiB, which is enlarged twice in bands: for its range, and to
    become bytes. Memory begins as NaN.
    """
    size, some = 128, numbers_of_type(np.int8, 8, 128, 1, 1)
    factors = np.array([1, 1, 2, 2], F32)
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", ["x0"], ["waiting"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("MaxPool", ["waiting"], ["half"], **pool),
        *(helper.make_node("Softplus", [f"s{i}" if i else "half"], [f"s{i + 1}"]) for i in range(6)),
        helper.make_node("Resize", ["s6", "", "factors"], ["large"], mode="linear"),
        helper.make_node("Concat", ["waiting", "large"], ["joined"], axis=1),
        helper.make_node("DynamicQuantizeLinear", ["joined"], ["q", "step", "zero"]),
        helper.make_node("ConvInteger", ["q", "w", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "step"], ["y"]),
    ]
    constants = {"w": some, "factors": factors}
    path = tmp_path / "m.onnx"
    onnx.save(model_of(nodes, {"x0": (1, 64, size, size)}, ["y"], constants, 17), path)
    x = np.random.default_rng(3).standard_normal((1, 64, size, size)).astype(F32)
    artifact = flexnn.compile(path, tmp_path / "m.flexnn")
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        want = session.run(None, {"x0": x})[0]
        waiting, given = x.nbytes, x.nbytes + 2 * want.nbytes
        least = session.plan.minimum_memory
        assert least - given < 2 * waiting
        session.memory = least
        np.testing.assert_array_equal(session.run(None, {"x0": x})[0], want)
