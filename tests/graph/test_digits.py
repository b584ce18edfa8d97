"""Products of one row of floats that is cut into digits of 8 bits: the bits of the scalar level, as exact as floats,
and by floats where a row cannot be cut.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from flexnn import _core
from flexnn.graph import pack
from tests.support.compare import load, model_of, run_on_core, weights
from tests.support.reference import run_graph

FORMS = "q4", "q4f", "q4m", "q4mf", "s8b", "s8bf", "s8"
LEVELS = [
    level for level in _core.isa_levels() if level == "avx512_vnni" or level.startswith(("neon_dot", "neon_i8mm"))
]
"""Levels that multiply four bytes at once, beside the scalar one."""
CHANNELS = 32 * 11


def net() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    return model_of(nodes, {"x": (1, CHANNELS)}, ["y"], {"w": weights(CHANNELS, 40), "b": weights(40)})


def computed(row: np.ndarray, form: str, level: str, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """Return the product of a row at a level, and what sums of floats make of the weights as they are stored."""
    monkeypatch.setattr(pack, "STORED_AS", form)
    graph, feeds = load(net()), {"x": row.reshape(1, -1)}
    assert [node.attrs["wtype"] for node in graph.nodes if node.weight >= 0] == [form]
    return run_on_core(graph, feeds, level)["y"][0], run_graph(graph, feeds)["y"][0]


def row_of(kind: str) -> np.ndarray:
    row = np.random.default_rng(5).standard_normal(CHANNELS).astype(np.float32)
    if kind == "uneven":  # as those of language models
        row[::37] *= 1000
    elif kind == "zeros":
        row[32:96] = 0
    elif kind == "limits":  # of a block: digits of 127, and a power of two less
        row[:32], row[3], row[32:64], row[40] = 0, 0x7F7F7F, 1, np.nextafter(np.float32(0x7F7F7F), np.float32(1e9))
        row[64:96], row[70] = -row[64:96], -0x7F7F7F
    return row


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["even", "uneven", "zeros", "limits"])
def test_levels_make_the_scalar_bits(form: str, kind: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [computed(row_of(kind), form, name, monkeypatch)[0] for name in ("scalar", level)]
    np.testing.assert_array_equal(found[0].view(np.uint32), found[1].view(np.uint32))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "most"), [("even", 8e-7), ("zeros", 8e-7), ("uneven", 1.5e-6)])
def test_they_are_as_exact_as_sums_of_floats(
    form: str, kind: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are parts of the row's length times the largest weight. Sums of floats err by 2e-7 to 5e-7 of that here.
    Neighbours of a number that is 1000 times as large have 13 bits.
    """
    row = row_of(kind)
    for level in ("scalar", *LEVELS):
        got, want = computed(row, form, level, monkeypatch)
        assert np.abs(got - want).max() < most * np.linalg.norm(row) * np.abs(weights(CHANNELS, 40)).max(), level


@pytest.mark.parametrize("form", ["q4", "s8b", "s8"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-38])
def test_rows_that_cannot_be_cut_are_multiplied_as_floats(
    form: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = row_of("even")
    if value == 1e-38:
        row[32:64] = value
    else:
        row[40] = value
    for level in ("scalar", *LEVELS):
        got, want = computed(row, form, level, monkeypatch)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_whole_numbers_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of up to 11 bits and weights of 4, whose sums are below 2^24: nothing is rounded."""
    monkeypatch.setattr(pack, "STORED_AS", "q4")
    rng = np.random.default_rng(1)
    whole = rng.integers(-7, 8, (CHANNELS, 16)).astype(np.float32)
    whole[::32] = -8  # so that a step is 1
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, CHANNELS)}, ["y"], {"w": whole})
    row = rng.integers(-1023, 1024, (1, CHANNELS)).astype(np.float32)
    for level in ("scalar", *LEVELS):
        np.testing.assert_array_equal(run_on_core(load(model), {"x": row}, level)["y"], row @ whole)
