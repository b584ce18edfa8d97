"""Models for the benches of faults: one of fixed shapes, one of open shapes, a chain of many nodes, and a GGUF file."""

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


def smallest(artifact: Path, threads: int, batch: int = 1) -> int:
    """Return the smallest budget of a chain's session."""
    with flexnn.Session(artifact, threads=threads, profile="analytic") as session:
        session.run(None, feed(batch))
        return session.plan.minimum_memory


def write_gguf(path: Path) -> Path:
    """Write a decoder of one layer, 40 KiB."""
    import gguf  # only for this

    width, heads, rows = 32, 2, 48
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(rows)])
    rng = np.random.default_rng(0)
    shapes = {"token_embd": (rows, width), "output_norm": (width,)}
    shapes |= {f"blk.0.{name}_norm": (width,) for name in ("attn", "ffn")}
    matrices = "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"
    shapes |= {f"blk.0.{name}": (width, width) for name in matrices}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.random(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
