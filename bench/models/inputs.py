"""Inputs of ONNX files: their shapes, and random values for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Feed = Mapping[str, NDArray[Any]]
Shapes = Mapping[str, tuple[int, ...]]


def input_shapes(path: Path, shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Name → shape of every input of the ONNX file, ``shapes`` winning over the file."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    weights = {w.name for w in model.graph.initializer}
    stated = {
        i.name: tuple(d.dim_value for d in i.type.tensor_type.shape.dim)
        for i in model.graph.input
        if i.name not in weights
    }
    return {**stated, **shapes}


def random_feed(
    shapes: Shapes, seed: int, scale: float, ranges: Mapping[str, tuple[int, int]] | None = None
) -> dict[str, NDArray[Any]]:
    """Normal inputs, mean 0, standard deviation ``scale``; those in ``ranges`` are int64 within their own."""
    rng = np.random.default_rng(seed)
    whole = ranges or {}
    return {
        name: rng.integers(*whole[name], shape)
        if name in whole
        else np.float32(scale) * rng.standard_normal(shape, np.float32)
        for name, shape in shapes.items()
    }
