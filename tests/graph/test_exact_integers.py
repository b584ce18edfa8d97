"""Sums of products of integers against int64 arithmetic, bit for bit: 500 random convolutions and products, at every
level of this CPU, with and without a limit; and what is quantised again, against onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn import _core
from flexnn.graph.evaluate import evaluate
from flexnn.graph.ir import Graph
from tests.support.compare import expected, load, model_of, run_on_core
from tests.support.reference import run_graph

Array = NDArray[np.generic]
KINDS = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8}
CASES, BATCH = 500, 50
FLOAT_MOST = 1 << 24
"""Integers above it are not all floats."""


@dataclass(slots=True)
class Case:
    """A node, its input, its constants, and what must come out."""

    node: onnx.NodeProto
    x: Array
    constants: dict[str, Array]
    want: Array


def wrapped(sums: NDArray[np.int64]) -> NDArray[np.int32]:
    return sums.astype(np.int32)


def integers(rng: np.random.Generator, shape: tuple[int, ...], *, extreme: bool) -> Array:
    """Integers of a random type; ``extreme``: so near its upper end that sums are the largest."""
    info = np.iinfo(rng.choice([np.uint8, np.int8]))
    low = info.max - 3 if extreme else info.min
    return rng.integers(low, info.max + 1, shape).astype(info.dtype)


def zero_point(rng: np.random.Generator, values: Array, axis: int, *, extreme: bool) -> Array | None:
    """None, one, or one for each slice of ``axis``; ``extreme``: the least that there is."""
    info = np.iinfo(values.dtype)
    shape = [None, (), (values.shape[axis],)][rng.integers(3)]
    if extreme:
        return np.asarray(info.min, values.dtype)
    return None if shape is None else np.asarray(rng.integers(info.min, info.max + 1, shape), values.dtype)


def centred(values: Array, zero: Array | None, axis: int) -> NDArray[np.int64]:
    shape = [-1 if i == axis % values.ndim else 1 for i in range(values.ndim)]
    return values.astype(np.int64) - (0 if zero is None else zero.astype(np.int64).reshape(shape if zero.ndim else ()))


def named(i: int, **values: Array | None) -> tuple[list[str], dict[str, Array]]:
    """Names of constants of node ``i``, "" for those that are not, and the constants by name."""
    return (
        [f"{key}{i}" if value is not None else "" for key, value in values.items()],
        {f"{key}{i}": value for key, value in values.items() if value is not None},
    )


def product_case(rng: np.random.Generator, i: int) -> Case:
    extreme = bool(rng.random() < 0.3)
    m, n = (int(v) for v in rng.integers(1, 40, 2))
    k = int(rng.integers(1, 40)) if rng.random() < 0.5 else int(rng.integers(200, 1500))
    if i % 100 == 0:
        extreme, m, n, k = True, 3, 2, 34000  # beyond int32
    batch = ((), (2,), (2, 3))[rng.integers(3)] if k < 40 else ()
    a, b = integers(rng, (*batch, m, k), extreme=extreme), integers(rng, (k, n), extreme=extreme)
    za = zero_point(rng, a, -2, extreme=extreme)
    zb = zero_point(rng, b, -1, extreme=extreme)
    names, constants = named(i, b=b, za=za, zb=zb)
    node = helper.make_node("MatMulInteger", [f"x{i}", *names], [f"y{i}"])
    return Case(node, a, constants, wrapped(centred(a, za, -2) @ centred(b, zb, -1)))


def computed_product_case(rng: np.random.Generator, i: int) -> Case:
    """Both operands are computed: x times its own transpose."""
    extreme = bool(rng.random() < 0.5)
    m, k = int(rng.integers(1, 30)), int(rng.choice([1, 7, 64, 257, 300, 900]))
    x = integers(rng, (2, m, k), extreme=extreme)
    za = zero_point(rng, x, 1, extreme=extreme)
    if za is not None and za.ndim:
        za = za[0]
    names, constants = named(i, za=za, zb=za)
    node = helper.make_node("MatMulInteger", [f"x{i}", f"turned{i}", *names], [f"y{i}"])
    whole = centred(x, za, 1)
    return Case(node, x, constants, wrapped(whole @ whole.transpose(0, 2, 1)))


def convolution_case(rng: np.random.Generator, i: int) -> Case:
    extreme = bool(rng.random() < 0.3)
    rank = int(rng.choice([1, 2, 2, 2]))
    group = int(rng.choice([1, 1, 1, 2, 3, 8]))
    kernel = [int(k) for k in rng.choice([1, 2, 3, 3, 5], rank)]
    wide, per_group = (int(v) for v in rng.integers(1, 20, 2))
    shape = rng.random()
    if shape < 0.15:
        wide = per_group = 1
    elif shape < 0.35:
        wide = per_group = int(rng.choice([2, 4, 8]))
        kernel = [int(k) for k in rng.choice([1, 3, 7, 9], rank)]
    elif shape < 0.5:
        group, wide = 1, int(rng.integers(60, 400))
    if i % 50 == 0:  # depthwise, with more taps than a float sum is exact for
        group, wide, per_group, rank, kernel, extreme = 5, 1, 1, 2, [17, 17], True
    strides, dilations = rng.integers(1, 4, rank).tolist(), rng.integers(1, 3, rank).tolist()
    pads = [int(rng.integers(0, k + 1)) for k in (*kernel, *kernel)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = [max(1, r - pads[j] - pads[j + rank]) + int(rng.integers(0, 7)) for j, r in enumerate(reach)]
    x = integers(rng, (int(rng.integers(1, 3)), group * wide, *size), extreme=extreme)
    w = integers(rng, (group * per_group, wide, *kernel), extreme=extreme)
    zx, zw = zero_point(rng, x, 1, extreme=extreme), zero_point(rng, w, 0, extreme=extreme)
    zx = zx if zx is None or not zx.ndim else zx[0]
    names, constants = named(i, w=w, zx=zx, zw=zw)
    node = helper.make_node(
        "ConvInteger", [f"x{i}", *names], [f"y{i}"], group=group, strides=strides, dilations=dilations, pads=pads
    )
    want = convolved(centred(x, zx, 1), centred(w, zw, 0), group, strides, dilations, pads)
    return Case(node, x, constants, wrapped(want))


def convolved(
    x: NDArray[np.int64], w: NDArray[np.int64], group: int, strides: list[int], dilations: list[int], pads: list[int]
) -> NDArray[np.int64]:
    """Tap by tap, in int64."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    kernel = w.shape[2:]
    size = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(x.shape[2:], kernel, dilations, strides, strict=True)]
    parts = []
    for own, filters in zip(np.split(x, group, 1), np.split(w, group, 0), strict=True):
        y = np.zeros((len(x), len(filters), *size), np.int64)
        for tap in product(*map(range, kernel)):
            at = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, dilations, size, strides, strict=True)
            )
            y += np.einsum("oc,nc...->no...", filters[(..., *tap)], own[(..., *at)])
        parts.append(y)
    return np.concatenate(parts, 1)


MAKERS: tuple[Callable[[np.random.Generator, int], Case], ...] = (
    convolution_case,
    product_case,
    convolution_case,
    product_case,
    computed_product_case,
)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    rng = np.random.default_rng(14)
    return [MAKERS[i % len(MAKERS)](rng, i) for i in range(CASES)]


def batches(cases: list[Case]) -> Iterator[tuple[onnx.ModelProto, dict[str, Array], dict[str, Array]]]:
    """Models of ``BATCH`` cases side by side, with their inputs and what must come out."""
    for first in range(0, len(cases), BATCH):
        part = cases[first : first + BATCH]
        nodes, inputs, constants, types = [], {}, {}, {}
        for case in part:
            name = case.node.input[0]
            if case.node.input[1].startswith("turned"):
                nodes.append(helper.make_node("Transpose", [name], [case.node.input[1]], perm=[0, 2, 1]))
            nodes.append(case.node)
            inputs[name], types[name] = case.x, KINDS[case.x.dtype]
            types[case.node.output[0]] = TensorProto.INT32
            constants |= case.constants
        outputs = {case.node.output[0]: case.want for case in part}
        shapes = {name: x.shape for name, x in inputs.items()}
        yield model_of(nodes, shapes, list(outputs), constants, 17, types), inputs, outputs


def assert_equal(got: dict[str, Array], want: dict[str, Array]) -> None:
    for name, values in want.items():
        assert got[name].dtype == values.dtype
        np.testing.assert_array_equal(got[name], values, err_msg=name)


def test_the_cases_have_what_breaks_float_sums(cases: list[Case]) -> None:
    largest = [int(np.abs(case.want.astype(np.int64)).max()) for case in cases]
    assert len(cases) == CASES
    assert sum(v > FLOAT_MOST for v in largest) >= CASES // 10
    types = {(case.x.dtype, c.dtype) for case in cases for name, c in case.constants.items() if name[0] in "bw"}
    assert len(types) == 4


def test_every_level_computes_the_integers(cases: list[Case]) -> None:
    for model, inputs, want in batches(cases):
        graph = load(model)
        assert_equal(run_graph(graph, inputs), want)
        for level in _core.isa_levels():
            assert_equal(run_on_core(graph, inputs, level), want)
        assert_equal(run_on_core(graph, inputs, None, "im2col"), want)


def test_sessions_compute_the_integers_at_every_budget(
    cases: list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for (model, inputs, want), level in zip(batches(cases), cycle(_core.isa_levels()), strict=False):
        monkeypatch.setenv("FLEXNN_ISA", level)
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        artifact = tmp_path / "model.flexnn"
        flexnn.compile(path, artifact)
        with pytest.raises(flexnn.BudgetError) as refused:
            flexnn.Session(artifact, memory=1 << 10)
        for memory in (None, refused.value.minimum):
            with flexnn.Session(artifact, memory=memory, threads=2) as session:
                got = dict(zip(want, session.run(list(want), inputs), strict=True))
            assert_equal(got, want)


def test_numpy_computes_the_integers(cases: list[Case]) -> None:
    for case in cases[:200]:
        given = [case.x, *(case.constants.get(name) for name in case.node.input[1:])]
        if case.node.input[1].startswith("turned"):
            given[1] = case.x.transpose(0, 2, 1)
        attrs = {a.name: helper.get_attribute_value(a) for a in case.node.attribute}
        attrs = {name: v if isinstance(v, int) else list(v) for name, v in attrs.items()}
        (y,) = evaluate(case.node.op_type, attrs, given, 17, 1)
        assert_equal({"y": y}, {"y": case.want})


def test_three_dimensions(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x, w = (
        rng.integers(0, 256, (1, 7, 4, 5, 3)).astype(np.uint8),
        rng.integers(250, 256, (3, 7, 2, 3, 2)).astype(np.uint8),
    )
    zx = np.asarray(200, np.uint8)
    node = helper.make_node("ConvInteger", ["x", "w", "zx"], ["y"], pads=[1, 0, 1, 0, 2, 1], strides=[1, 2, 1])
    types = {"x": TensorProto.UINT8, "y": TensorProto.INT32}
    path = tmp_path / "model.onnx"
    onnx.save(model_of([node], {"x": x.shape}, ["y"], {"w": w, "zx": zx}, 17, types), path)
    want = convolved(centred(x, zx, 1), w.astype(np.int64), 1, [1, 2, 1], [1, 1, 1], [1, 0, 1, 0, 2, 1])
    with flexnn.Session(path) as session:
        assert_equal({"y": session.run(None, {"x": x})[0]}, {"y": wrapped(want)})


def test_weights_of_one_byte_stay_so() -> None:
    """Signed weights, and unsigned ones around 128, in any group."""
    w = np.random.default_rng(3).integers(-128, 128, (24, 6, 3, 3)).astype(np.int8)
    for values, zero in ((w, np.int8(0)), ((w.astype(np.int16) + 128).astype(np.uint8), np.uint8(128))):
        node = helper.make_node("ConvInteger", ["x", "w", "", "z"], ["y"])
        types = {"x": TensorProto.UINT8, "y": TensorProto.INT32}
        graph = load(model_of([node], {"x": (1, 6, 5, 5)}, ["y"], {"w": values, "z": np.asarray(zero)}, 17, types))
        assert [n.attrs["wtype"] for n in graph.nodes if n.op == "conv"] == ["s8"]


# ---- quantised again ----


def quantised_case(rng: np.random.Generator, op: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """QLinearConv or QLinearMatMul: scales and zero points of a result whose numbers fill its type."""
    kind = rng.choice([np.uint8, np.int8])
    some = {"sx": np.float32(rng.uniform(0.005, 0.1)), "zx": integers(rng, (), extreme=False).astype(kind)}
    wide, n, per = int(rng.integers(1, 60)), int(rng.integers(1, 40)), bool(rng.random() < 0.5)
    scale = rng.uniform(0.001, 0.02, n if per else ()).astype(np.float32)
    if op == "QLinearConv":
        shape: tuple[int, ...] = (2, wide, 6, 5)
        w = rng.integers(-128, 128, (n, wide, 3, 3)).astype(np.int8)
        bias = rng.integers(-9000, 9000, n).astype(np.int32) if rng.random() < 0.6 else None
    else:
        shape, bias = (2, 5, wide), None
        w = rng.integers(-128, 128, (wide, n)).astype(np.int8)
    constants = some | {"w": w, "sw": scale, "zw": np.zeros(scale.shape, np.int8)}
    constants |= {"sy": np.float32(rng.uniform(0.05, 0.5)), "zy": integers(rng, (), extreme=False).astype(kind)}
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    if bias is not None:
        constants["bias"] = bias
        names.append("bias")
    node = helper.make_node(op, names, ["y"])
    types = {"x": KINDS[np.dtype(kind)], "y": KINDS[np.dtype(kind)]}
    info = np.iinfo(kind)
    x = rng.integers(info.min, info.max + 1, shape).astype(kind)
    arrays = {name: np.asarray(v) for name, v in constants.items()}
    return model_of([node], {"x": shape}, ["y"], arrays, 17, types), {"x": x}


@pytest.mark.parametrize("op", ["QLinearConv", "QLinearMatMul"])
def test_sums_are_quantised_as_by_onnxruntime(op: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(25):
        model, feeds = quantised_case(rng, op)
        want = expected(model, feeds)
        graph: Graph = load(model)
        assert_equal(run_graph(graph, feeds), want)
        for level in _core.isa_levels():
            assert_equal(run_on_core(graph, feeds, level), want)
        (node,) = model.graph.node
        attrs = {a.name: list(a.ints) for a in node.attribute}
        constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        (y,) = evaluate(op, attrs, [feeds["x"], *(constants[name] for name in node.input[1:])], 17, 1)
        assert_equal({"y": y}, want)


@pytest.mark.parametrize("op", ["MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm"])
@pytest.mark.parametrize("biased", [False, True])
def test_what_onnxruntime_writes_has_its_bits(op: str, biased: bool) -> None:
    rng = np.random.default_rng(6)
    f32 = np.float32
    for _ in range(8):
        m, k, n = (int(v) for v in rng.integers(1, 60, 3))
        x = rng.integers(0, 256, (m, k)).astype(np.uint8)
        sa, sb = rng.uniform(0.005, 0.1, 1).astype(f32), rng.uniform(0.001, 0.02, n).astype(f32)
        b, zb = rng.integers(-128, 128, (k, n)).astype(np.int8), np.zeros(n, np.int8)
        za, bias = rng.integers(0, 256, 1).astype(np.uint8), rng.standard_normal(n).astype(f32)
        constants = {"b": b, "sb": sb, "zb": zb, "bias": bias}
        names, attrs, types = ["x", "b", "sb", "zb"], {}, {}
        if op == "MatMulIntegerToFloat":
            names, types = ["x", "b", "sa", "sb", "za", "zb"], {"x": TensorProto.UINT8}
            constants |= {"sa": sa, "za": za}
        elif op == "QGemm":
            names, types = ["x", "sa", "za", "b", "sb", "zb"], {"x": TensorProto.UINT8}
            attrs = {"alpha": float(rng.choice([1.0, 0.7])), "transB": 1}
            constants |= {"sa": sa.reshape(()), "za": za.reshape(()), "b": np.ascontiguousarray(b.T)}
            constants["bias"] = rng.integers(-9000, 9000, n).astype(np.int32)
            if rng.random() < 0.5:
                names += ["bias" if biased else "", "sy", "zy"]
                types["y"] = TensorProto.UINT8
                constants |= {"sy": f32(rng.uniform(0.05, 0.5)), "zy": np.uint8(rng.integers(0, 256))}
        else:
            x = rng.standard_normal((m, k)).astype(f32)
        if biased and "bias" not in names:
            names.append("bias")
        given = {name: np.asarray(v) for name, v in constants.items() if name in names}
        node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attrs)
        model = model_of([node], {"x": x.shape}, ["y"], given, 17, types)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        assert_equal(run_on_core(load(model), {"x": x}), expected(model, {"x": x}))
