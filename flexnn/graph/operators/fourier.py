"""Fourier transforms of signals, whole or frame by frame."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, prod

from ..attributes import Int, int_attr, node_error
from ..ir import Node, Shape, Tensor
from .record import FLOAT, Cost, Values, whole_operator

LENGTH_MAX = 1 << 26


def _infer_fourier(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    n, size, frames, hop, bins, parts = (
        int_attr(node, name) for name in ("n", "size", "frames", "hop", "bins", "parts")
    )
    x, table = shapes[0], shapes[1]
    floats = 2 * n if size == n else 4 * size + 2 * n
    if len(x) != 4 or x[3] > 2 or bins > n or (size != n and size < 2 * n - 1) or table != (floats,):
        raise node_error(node, f"shapes {shapes} do not fit transforms of length {n}")
    if parts == 1 and (x[3] != 2 or bins != n or not node.attrs["inverse"]):
        raise node_error(node, "only half a spectrum becomes a real signal")
    reads = min(n // 2 + 1 if parts == 1 else n, x[1])
    if (frames - 1) * hop + reads > x[1] or (len(shapes) > 2 and (shapes[2] != (n,) or reads < n)):
        raise node_error(node, f"{frames} frames of {n} every {hop} do not fit shapes {shapes}")
    return (x[0], frames, bins, x[2], parts), "f32"


def _encode_fourier(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    outer, samples, inner, x_parts = inputs[0].shape
    values: Values = {name: int_attr(node, name) for name in ("n", "size", "frames", "hop", "bins", "inverse")}
    values |= {"outer": outer, "samples": samples, "inner": inner, "x_parts": x_parts}
    return values | {"y_parts": int_attr(node, "parts"), "has_window": int(len(inputs) > 2)}


def _flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    size = int_attr(node, "size")
    return 5.0 * prod(output) / output[2] / output[4] * size * log2(size + 1) * inputs[0][3] / 2


OPERATORS = (
    whole_operator(
        "fourier",
        attrs={
            "n": Int(1, LENGTH_MAX),
            "size": Int(1, 2 * LENGTH_MAX),
            "frames": Int(1),
            "hop": Int(1),
            "bins": Int(1),
            "parts": Int(1, 2),
            "inverse": Int(0, 1),
        },
        inputs=(2, 3),  # signals, cosines and sines, window (params.h)
        dtypes=FLOAT,
        infer=_infer_fourier,
        encode=_encode_fourier,
        cost=Cost(passes=1.0, peak_fraction=0.04, flops=_flops),
    ),
)
