"""Transformers as exporters write them: every attention is one node; sequences, batches and paddings as they come."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import flexnn
from bench.models.net import Net
from bench.models.transformers import TRANSFORMERS, make
from flexnn.graph import load_onnx
from flexnn.session import open_for_tests

TOLERANCE = 1e-4
TEXTS = [name for name, entry in TRANSFORMERS.items() if entry.tokens]


def fixed(name: str, tokens: int) -> Net:
    """The small variant exported with a fixed batch and sequence."""
    entry = TRANSFORMERS[name]
    net = Net(name, entry.opset)
    entry.build(net, replace(entry.small, batch=1, tokens=tokens))
    return net


@pytest.mark.parametrize("is_fixed", [False, True])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_attention_is_one_node(name: str, is_fixed: bool, tmp_path: Path) -> None:
    entry, path = TRANSFORMERS[name], tmp_path / "model.onnx"
    (fixed(name, 12) if is_fixed else make(name, small=True)).write(path)
    graph = load_onnx(str(path), {} if is_fixed else entry.shapes(small=True))
    found = Counter(node.op for node in graph.nodes)
    layers = entry.small.layers
    assert found["attention"] == layers
    assert found["layer_norm"] == (2 * layers + 1)
    assert not {"softmax", "matmul", "reduce"}.intersection(found)


def padding(random: np.random.Generator, size: tuple[int, int], kind: str) -> np.ndarray:
    """Return an attention_mask that shows everything, hides the end of the last text, or is random."""
    mask = np.ones(size, np.int64)
    if kind == "padded":
        mask[-1, -(size[1] // 3) :] = 0
    return random.integers(0, 2, size) if kind == "any" else mask


@pytest.mark.parametrize("name", TEXTS)
def test_open_sequences(name: str, tmp_path: Path) -> None:
    entry = TRANSFORMERS[name]
    source, target = tmp_path / "model.onnx", tmp_path / "model.flexnn"
    make(name, small=True).write(source)
    flexnn.compile(source, target)
    peer = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    with open_for_tests(target, memory="8.25MiB", threads=2, poison=True) as session:
        for size in ((1, 12), (2, 7), (1, 31), (1, 1)):
            for kind in ("whole", "padded", "any"):
                feed = {n: random.integers(*r, size=size) for n, r in entry.ranges(small=True).items()}
                feed["attention_mask"] = padding(random, size, kind)
                (want,), (got,) = peer.run(None, feed), session.run(None, feed)
                np.testing.assert_allclose(
                    got, want, rtol=0, atol=TOLERANCE * np.abs(want).max(), err_msg=f"{size} {kind}"
                )
