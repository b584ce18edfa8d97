"""Models for the benches of faults: one of fixed shapes, one of open shapes, and a chain of many nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import flexnn

CHANNELS, SIDE = 32, 8
Feed = dict[str, NDArray[np.float32]]


def write_chain(path: Path, nodes: int, batch: int | str = 1, kernel: int = 3) -> Path:
    """Write convolutions in a row; each has weights of its own."""
    rng = np.random.default_rng(nodes)
    weights, made = [], []
    for i in range(nodes):
        w = rng.standard_normal((CHANNELS, CHANNELS, kernel, kernel)).astype(np.float32)
        weights.append(numpy_helper.from_array(w / np.float32(CHANNELS * kernel * kernel) ** 0.5, f"w{i}"))
        made.append(helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"conv{i}", pads=[kernel // 2] * 4))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, CHANNELS, SIDE, SIDE])
        for name in ("t0", f"t{nodes}")
    ]
    graph = helper.make_graph(made, "chain", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def compiled(folder: Path, kind: str, nodes: int, kernel: int = 3) -> Path:
    """Return the artifact of a chain, ``kind`` "closed" or "open", made once in a folder."""
    target = folder / f"{kind}_{nodes}_{kernel}.flexnn"
    if not target.exists():
        batch = "n" if kind == "open" else 1
        flexnn.compile(write_chain(target.with_suffix(".onnx"), nodes, batch, kernel), target)
    return target


def feed(batch: int = 1) -> Feed:
    """Return inputs of a chain."""
    return {"t0": np.random.default_rng(0).standard_normal((batch, CHANNELS, SIDE, SIDE)).astype(np.float32)}


def smallest(artifact: Path, threads: int) -> int:
    """Return the smallest budget of a chain's session."""
    with flexnn.Session(artifact, threads=threads, profile="analytic") as session:
        session.run(None, feed())
        return session.plan.minimum_memory
