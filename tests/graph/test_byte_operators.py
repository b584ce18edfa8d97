"""Operators of 8-bit activations: the C core at each level equals the reference bit for bit, and sessions run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn.artifact.writer import write_artifact
from flexnn.graph.build import add_array, add_node, add_panels, add_tensor
from flexnn.graph.ir import Attr, Graph
from flexnn.graph.operators.quantised import NO_RESIDUAL
from flexnn.graph.pack_bytes import BytePanels
from flexnn.graph.passes import run_passes
from flexnn.graph.sources import ArraySource
from tests.support.compare import run_on_core
from tests.support.reference import run_graph

Array = np.ndarray


def window(kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1) -> dict[str, Attr]:
    return {
        "kernel": [kernel, kernel],
        "strides": [stride, stride],
        "dilations": [dilation, dilation],
        "pads": [pad, pad, pad, pad],
    }


def clamp(zero: int, lo: float | None = None, hi: float | None = None) -> dict[str, Attr]:
    """A whole byte's range, or a part of it."""
    return {
        "zero": zero,
        "lo": float(-zero) if lo is None else lo,
        "hi": float(255 - zero) if hi is None else hi,
    }


class Maker:
    """A graph that is built node by node."""

    def __init__(self, seed: int = 0) -> None:
        self.graph = Graph()
        self.rng = np.random.default_rng(seed)
        self.feeds: dict[str, Array] = {}

    def input(self, *shape: int, dtype: str = "u8") -> int:
        name = f"x{len(self.feeds)}"
        tensor = add_tensor(self.graph, name, shape, dtype)
        self.graph.inputs.append(tensor)
        if dtype == "u8":
            self.feeds[name] = self.rng.integers(0, 256, shape).astype(np.uint8)
        else:
            self.feeds[name] = self.rng.uniform(-1, 1, shape).astype(np.float32)
        return tensor

    def conv(
        self,
        inputs: list[int],
        cout: int,
        at: dict[str, Attr],
        *,
        op: str = "conv_u8",
        to: str = "u8",
        x_zero: int = 0,
        finish: dict[str, Attr] | None = None,
        by_rows: bool = False,
    ) -> int:
        cin = self.graph.tensors[inputs[0]].shape[3]
        kernel = at["kernel"]
        assert isinstance(kernel, list)
        shape = (cout, 1 if op == "dwconv_u8" else cin, kernel[0], kernel[1])
        depth = shape[1] * kernel[0] * kernel[1]
        factor = (1.0 if to == "f32" else 100.0) / (5000 * depth**0.5)
        panels = BytePanels(
            op,
            shape,
            ArraySource(self.rng.integers(-128, 128, shape).astype(np.int8)),
            ArraySource(self.rng.uniform(0.5 * factor, factor, cout).astype(np.float32)),
            x_zero,
            to,
            ArraySource(self.rng.integers(-9999, 9999, cout).astype(np.int32)),
            ArraySource(self.rng.uniform(-1, 1, cout).astype(np.float32)) if to == "f32" else None,
            by_rows,
        )
        infinite: dict[str, Attr] = {"zero": 0, "lo": -np.inf, "hi": np.inf}
        attrs = {**at, **(infinite if to == "f32" else clamp(100)), **NO_RESIDUAL, **(finish or {}), **panels.attrs}
        weight = add_panels(self.graph, f"w{len(self.graph.nodes)}", panels)
        return add_node(self.graph, f"n{len(self.graph.nodes)}", op, inputs, attrs, weight)

    def constant(self, values: Array) -> int:
        return add_array(self.graph, f"c{len(self.graph.tensors)}", values)

    def node(self, op: str, inputs: list[int], attrs: dict[str, Attr]) -> int:
        return add_node(self.graph, f"n{len(self.graph.nodes)}", op, inputs, attrs)

    def check(self, folder: Path, *outputs: int) -> dict[str, Array]:
        """Asserts that all levels and a session compute what the reference says; returns that."""
        for tensor in outputs:
            self.graph.outputs.append(tensor)
        graph = run_passes(self.graph)
        want = run_graph(graph, self.feeds)
        for level in ("scalar", None):
            for name, values in run_on_core(graph, self.feeds, level).items():
                np.testing.assert_array_equal(values, want[name], f"{name} at level {level}")
        path = folder / "bytes.flexnn"
        write_artifact(graph, str(path), source_sha256=bytes(32))
        with flexnn.Session(path) as session:
            for values, wanted in zip(session.run(None, self.feeds), want.values(), strict=True):
                np.testing.assert_array_equal(values, wanted)
        return want


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "pad", "cin"), [(1, 1, 0, 37), (3, 1, 1, 8), (3, 2, 1, 3), (7, 2, 3, 3)])
def test_convolution(tmp_path: Path, kernel: int, stride: int, pad: int, cin: int, by_rows: bool) -> None:
    m = Maker()
    y = m.conv([m.input(2, 11, 13, cin)], 35, window(kernel, stride, pad), x_zero=117, by_rows=by_rows)
    want = m.check(tmp_path, y)
    assert len(np.unique(*want.values())) > 50


def test_depthwise_behind_a_convolution_and_a_residual(tmp_path: Path) -> None:
    m = Maker()
    x = m.input(1, 9, 10, 40)
    between = m.conv([x], 40, window(3, pad=1), op="dwconv_u8", x_zero=3, finish=clamp(100, 0.0, 90.0))
    both = {"r_zero": 3, "v_scale": 0.7, "r_scale": 1.1, "sum_zero": 120, "sum_lo": 0.0, "sum_hi": 135.0}
    y = m.conv([between, x], 40, window(1), x_zero=100, finish=both)
    m.check(tmp_path, y, m.conv([y], 10, window(1), x_zero=120, to="f32"))


@pytest.mark.parametrize("op", ["conv_u8", "dwconv_u8"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "shift"), [(1, 1, 0.4), (3, 1, -2.0), (3, 2, 0.0), (7, 1, 3.0)])
def test_steps_that_a_run_computes(
    tmp_path: Path, kernel: int, stride: int, shift: float, together: bool, op: str
) -> None:
    m = Maker()
    x = m.input(2, 9, 11, 21, dtype="f32")
    m.feeds["x0"] += np.float32(shift)
    steps = m.node("byte_steps", [x], {"part": "all"})
    given = [steps]
    if not together:
        one = {"sizes": [1], "steps": [1]}
        step, zero = (m.node("slice", [steps], {"starts": [i], **one}) for i in range(2))
        given = [step, m.node("cast", [zero], {"to": "u8"})]
    y = m.node("quantize", [x, *given], {"to": "u8", "axis": 0})
    cout = 21 if op == "dwconv_u8" else 40
    at = window(kernel, stride, kernel // 2)
    z = m.conv([y, *given], cout, at, op=op, to="f32")
    m.check(tmp_path, y, z)
    if op == "conv_u8" and together:
        bounds: dict[str, Attr] = {"sum_lo": -0.5, "sum_hi": 2.0}
        m.check(tmp_path, m.conv([y, *given, z], cout, at, to="f32", finish=bounds))


@pytest.mark.parametrize("shape", [(2, 9, 5, 130), (2, 9, 130), (9, 130)])
def test_steps_of_ranges_of_rows(tmp_path: Path, shape: tuple[int, ...]) -> None:
    m = Maker()
    x = m.input(*shape, dtype="f32")
    rows = m.node("byte_steps", [x], {"part": "rows"})
    whole = m.node("byte_steps", [x], {"part": "all"})
    want = m.check(tmp_path, rows, whole, m.node("byte_steps", [rows], {"part": "ranges"}))
    _, every, joined = want.values()
    np.testing.assert_array_equal(joined, every)


def test_a_padding_pixel_is_a_zero_point(tmp_path: Path) -> None:
    m = Maker()
    x = m.input(1, 5, 5, 4)
    m.feeds["x0"][:] = 200
    want = m.check(tmp_path, m.conv([x], 16, window(3, pad=1), x_zero=200))
    (y,) = want.values()
    assert (y == y[0, 2, 2]).all()


def test_a_step_that_only_a_run_knows(tmp_path: Path) -> None:
    m = Maker()
    x, step, zero = m.input(1, 3, 1, 50), m.input(1, dtype="f32"), m.input(1)
    m.check(tmp_path, m.conv([x, step, zero], 20, window(1), to="f32"))


def test_sums_and_products_of_bytes(tmp_path: Path) -> None:
    m = Maker()
    a, b, channel = m.input(2, 5, 6, 20), m.input(2, 5, 6, 20), m.input(1, 1, 1, 20)
    add: dict[str, Attr] = {"kind": "add", "a_zero": 3, "b_zero": 130, "a_scale": 0.4, "b_scale": -0.6, **clamp(90)}
    mul: dict[str, Attr] = {"kind": "mul", "a_zero": 100, "b_zero": 9, "a_scale": 0.01, "b_scale": 0.0, **clamp(128)}
    m.check(tmp_path, m.node("binary_u8", [a, b], add), m.node("binary_u8", [a, channel], mul))


def test_tables(tmp_path: Path) -> None:
    m = Maker()
    x = m.input(2, 5, 6, 7)
    y = m.node("table_u8", [x, m.constant(m.rng.permutation(256).astype(np.uint8))], {})
    signed = m.node("table_u8", [y, m.constant((np.arange(256) ^ 128).astype(np.uint8).view(np.int8))], {})
    back = m.node("table_u8", [signed, m.constant(np.arange(256, dtype=np.float32))], {})
    m.check(tmp_path, signed, back)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("padded", [0, 1])
def test_pools(tmp_path: Path, kind: str, padded: int) -> None:
    m = Maker()
    x = m.input(2, 7, 8, 70)
    how: dict[str, Attr] = {"kind": kind, "ceil_mode": 0, "count_include_pad": padded, "x_zero": 10, "scale": 1.3}
    y = m.node("pool_u8", [x], {**window(3, 2, 1), **how, **clamp(20)})
    m.check(tmp_path, y, m.node("pool_u8", [y], {**window(1), "kernel": [4, 4], **how, **clamp(0)}))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizes(tmp_path: Path, mode: str) -> None:
    m = Maker()
    how: dict[str, Attr] = {"mode": mode, "coord": "half_pixel", "nearest": "floor"}
    sizes: dict[str, Attr] = {"sizes": [8, 6], "scale_h": 2.0, "scale_w": 0.5}
    m.check(tmp_path, m.node("resize_u8", [m.input(1, 4, 12, 33)], {**how, **sizes}))


@pytest.mark.parametrize("to", ["u8", "f32"])
def test_products_of_computed_bytes(tmp_path: Path, to: str) -> None:
    m = Maker()
    a, b = m.input(2, 3, 17, 21), m.input(3, 21, 37)
    how: dict[str, Attr] = {"a_zero": 100, "b_zero": 131, "scale": 0.002, "to": to}
    m.check(tmp_path, m.node("matmul_u8", [a, b], {**how, **clamp(120)}))


BREAKS: list[tuple[str, Callable[[Maker, int], int]]] = [
    ("rows of taps that are dilated", lambda m, x: m.conv([x], 4, window(2, dilation=2), by_rows=True)),
    ("residual of shape", lambda m, x: m.conv([x, x], 4, window(2))),
    ("steps of shapes", lambda m, x: m.conv([x, m.input(1, dtype="f32"), m.input(1)], 4, window(1))),
    ("inputs of f32, expected u8", lambda m, x: m.conv([m.input(1, 5, 5, 4, dtype="f32")], 4, window(1))),
]


@pytest.mark.parametrize(("message", "build"), BREAKS)
def test_what_does_not_fit_is_refused(message: str, build: Callable[[Maker, int], int]) -> None:
    m = Maker()
    with pytest.raises(flexnn.FlexNNError, match=message):
        build(m, m.input(1, 5, 5, 8))
