"""Seeded models whose shapes change from run to run: a net of 200 nodes over an open number of rows, and a decoder
whose cache grows by a token in each run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

from bench.models.net import Net, Port
from bench.models.transformers import Size, Writer

NODES, WIDTH = 200, 64
DECODER = Size(4, 128, 4, 512, 1000, 256)


def write_net(path: Path) -> Path:
    """Write blocks of a product, a sum, a rectifier and a residual sum; between them norms: 200 nodes. ``x`` is
    [1, rows, 64].
    """
    net = Net("growing", 17)
    net.inputs.append(Port("x", (1, "rows", WIDTH)))
    w, x = Writer(net), "x"
    for _ in range(NODES // 5):
        y = w("LayerNormalization", x, w.weight(WIDTH, mean=1.0, std=0.1), w.weight(WIDTH, std=0.02), axis=-1)
        x = w("Add", x, w("Relu", w.linear(y, WIDTH, WIDTH, gain=0.5)))
    net.output(x, (1, "rows", WIDTH), "y")
    assert len(net.nodes) == NODES
    net.write(path)
    return path


def write_decoder(path: Path) -> Path:
    """Write a decoder of 4 layers that takes one token and the keys and values of those before it, [1, 4, past, 32] for
    each layer; it returns them with its own behind them.
    """
    s, net = DECODER, Net("decoder", 17)
    w = Writer(net)
    net.inputs.append(Port("token", (1, 1), "int64"))
    caches = [f"{kind}{layer}" for layer in range(s.layers) for kind in ("key", "value")]
    net.inputs += [Port(f"past_{name}", (1, s.heads, "past", s.head)) for name in caches]
    place = w("Unsqueeze", w.size("past_key0", 2), [0, 1])
    table = w.weight(s.vocab, s.width, std=0.5)
    x = w("Add", w("Gather", table, "token"), w("Gather", w.weight(s.places, s.width, std=0.5), place))
    for layer in range(s.layers):
        y = w.layer_norm(x, s.width, apart=False)
        q, k, v = (
            w("Transpose", w("Reshape", w.linear(y, s.width, s.width), [1, 1, s.heads, s.head]), perm=[0, 2, 1, 3])
            for _ in range(3)
        )
        k, v = (w("Concat", f"past_{kind}{layer}", new, axis=2) for kind, new in (("key", k), ("value", v)))
        scores = w("Mul", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), float(s.head**-0.5))
        y = w("Transpose", w("MatMul", w("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = w("Add", x, w.linear(w("Reshape", y, [1, 1, s.width]), s.width, s.width, gain=0.2))
        y = w.gelu(w.linear(w.layer_norm(x, s.width, apart=False), s.width, s.hidden))
        x = w("Add", x, w.linear(y, s.hidden, s.width, gain=0.2))
        _outputs(net, {f"key{layer}": k, f"value{layer}": v})
    net.output(w("MatMul", w.layer_norm(x, s.width, apart=False), w("Transpose", table, perm=[1, 0])), (1, 1, s.vocab))
    net.write(path)
    return path


def _outputs(net: Net, made: dict[str, str]) -> None:
    """Make caches outputs under names of their own; other nodes read them on."""
    for name, value in made.items():
        net.nodes.append(helper.make_node("Identity", [value], [f"present_{name}"], f"present_{name}"))
        net.outputs.append(Port(f"present_{name}", (1, DECODER.heads, "more", DECODER.head)))


def empty_caches() -> dict[str, np.ndarray]:
    """Return the caches of no tokens, by input."""
    names = (f"past_{kind}{layer}" for layer in range(DECODER.layers) for kind in ("key", "value"))
    return {name: np.zeros((1, DECODER.heads, 0, DECODER.head), np.float32) for name in names}
