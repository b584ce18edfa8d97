"""Weights that a model has in blocks, narrowed further by form."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import flexnn
from flexnn.artifact import open_artifact
from flexnn.narrowing import choice
from flexnn.narrowing.trial import Trial, worst_error
from tests.support.compare import model_of
from tests.support.gguf_models import SMALL, write_small

from .test_narrowing import net

WIDE = replace(SMALL["llama"], tied=True, width=256, hidden=256, key=64, vocabulary=1100)


def feeds_of(path: str, tokens: int = 9) -> list[dict[str, np.ndarray]]:
    """Inputs for calibration: tokens, and an empty past."""
    ids = np.random.default_rng(5).integers(0, WIDE.vocabulary, (1, tokens))
    with flexnn.Session(path) as session:
        past = {i.name: np.zeros((1, WIDE.kv_heads, 0, WIDE.key), np.float32) for i in session.get_inputs()[2:]}
    return [{"input_ids": ids, "position_ids": np.arange(tokens)[None], **past}]


def outputs_of(path: str, feeds: list[dict[str, np.ndarray]]) -> list[list[Any]]:
    with flexnn.Session(path) as session:
        return [list(session.run(None, feed)) for feed in feeds]


def _bytes(stored: Any) -> int:
    """Bytes of the weights without templates."""
    return sum(weight.nbytes for at, weight in enumerate(stored.weights) if at != stored.templates)


@pytest.mark.parametrize(("kind", "form", "least"), [("Q4_1", "q4", 0.93), ("Q8_0", "q4", 0.58), ("Q5_1", "q4", 0.79)])
def test_blocks_of_more_bits_take_the_form(tmp_path: Path, kind: str, form: str, least: float) -> None:
    """The table that rows are picked from, too; the error stated is the artifact's, and nothing is stored twice."""
    write_small(tmp_path / "small.gguf", replace(WIDE, kind=kind))
    own = flexnn.compile(tmp_path / "small.gguf", str(tmp_path / "own.flexnn"))
    feeds, said = feeds_of(own), []
    narrow = str(tmp_path / "narrow.flexnn")
    flexnn.compile(tmp_path / "small.gguf", narrow, weights=form, calibrate=feeds, tell=said.append)
    rows = said[0].splitlines()
    assert {row.split()[1] for row in rows[1:-1]} == {form}
    assert "against the model's own weights" in rows[-1]
    stated = float(re.search(r"error ([0-9.e+-]+) on 1 given inputs", rows[-1])[1])  # type: ignore[index]
    found = worst_error(outputs_of(narrow, feeds), outputs_of(own, feeds))
    assert 0 < found < 0.5
    assert stated == pytest.approx(found, rel=0.01)
    with open_artifact(narrow) as after, open_artifact(own) as before:
        sizes = [_bytes(artifact.contents) for artifact in (after, before)]
        names = [weight.name for weight in after.contents.weights]
    assert sizes[0] < least * sizes[1] + (8 << 10)
    assert not [name for name in names if name.endswith((".scales", ".least"))]


@pytest.mark.parametrize(
    ("kind", "form"), [("Q4_0", "q4"), ("Q8_0", "s8"), ("Q4_1", "s8"), ("Q4_K", "q4"), ("Q8_0", "f16")]
)
def test_blocks_stay_where_they_are_as_asked_for_or_smaller(tmp_path: Path, kind: str, form: str) -> None:
    write_small(tmp_path / "small.gguf", replace(WIDE, kind=kind))
    own = flexnn.compile(tmp_path / "small.gguf", str(tmp_path / "own.flexnn"))
    feeds, said = feeds_of(own), []
    path = flexnn.compile(tmp_path / "small.gguf", str(tmp_path / "a.flexnn"), weights=form, tell=said.append)
    assert re.search(r": 0 of \d+ layers narrowed", said[0])
    assert worst_error(outputs_of(path, feeds), outputs_of(own, feeds)) == 0


def test_an_error_narrows_no_blocks(tmp_path: Path) -> None:
    write_small(tmp_path / "small.gguf", replace(WIDE, kind="Q8_0"))
    said: list[str] = []
    flexnn.compile(tmp_path / "small.gguf", weights="auto:0.5", tell=said.append)
    assert "0 of 0 layers narrowed" in said[0]


def test_numbers_read_for_measuring_are_not_stored_beside_the_panels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Was: the section of an open model's trial held all weights again, as text; large models were refused for it."""
    sizes: list[int] = []

    class Noted(Trial):
        def __init__(self, contents: Any, folder: str, memory: int | None) -> None:
            super().__init__(contents, folder, memory)
            sizes.append(os.path.getsize(self._path))

    path = str(tmp_path / "net.onnx")
    onnx.save(net(open_rows=True), path)
    wide = os.path.getsize(flexnn.compile(path, str(tmp_path / "f32.flexnn")))
    monkeypatch.setattr(choice, "Trial", Noted)
    flexnn.compile(path, str(tmp_path / "s8.flexnn"), weights="s8")
    flexnn.compile(path, str(tmp_path / "auto.flexnn"), weights="auto:1e-2")
    assert sizes
    assert max(sizes) <= wide + 4096


@pytest.mark.parametrize(("bits", "most"), [(8, 0.2), (4, 0.05)])
def test_blocks_of_an_onnx_model(tmp_path: Path, bits: int, most: float) -> None:
    """MatMulNBits of 8 bits takes 4; one of 4 bits takes smaller scales, without minima."""
    k, n = 256, 128
    rng = np.random.default_rng(3)
    constants = {
        "q": rng.integers(0, 256, (n, k // 32, 32 * bits // 8), dtype=np.uint8),
        "s": (rng.random(n * k // 32) / 100).astype(np.float32),
    }
    nodes = [
        onnx.helper.make_node(
            "MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=32
        ),
    ]
    model = model_of(nodes, {"x": (3, k)}, ["y"], constants)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, tmp_path / "m.onnx")
    own = flexnn.compile(tmp_path / "m.onnx", str(tmp_path / "own.flexnn"))
    feeds, said = [{"x": rng.standard_normal((3, k)).astype(np.float32)}], []
    path = flexnn.compile(
        tmp_path / "m.onnx", str(tmp_path / "a.flexnn"), weights="q4", calibrate=feeds, tell=said.append
    )
    error = worst_error(outputs_of(path, feeds), outputs_of(own, feeds))
    assert said[0].splitlines()[1].split()[1] == "q4"
    assert 0 < error < most
    assert os.path.getsize(path) < os.path.getsize(own)
