"""Errors of FlexNN and of onnxruntime against the same model computed in float64.

python -m bench.field double MODEL.onnx --shape x=1,3,256,256 [--scale 1.0]    relative L2 errors, seeded noise as input

Slow: each operator in numpy (flexnn/graph/evaluate). Models without control flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

import flexnn
from bench.cli import cli, tables, write_json
from flexnn.graph import bind_shapes, load_model
from flexnn.graph.bind import known_shape
from flexnn.graph.evaluate.of_node import evaluate_node
from flexnn.graph.ir import DTYPES, GraphError
from flexnn.units import parse_shape


def widened(values: np.ndarray) -> np.ndarray:
    """Float32 as float64, anything else as it is."""
    return values.astype(np.float64) if values.dtype == np.float32 else values


def in_double(path: str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The model's outputs, computed in float64. Raises GraphError for what numpy does not compute."""
    model = load_model(path)
    constants = model.graph.constants
    values = {name: widened(v) for name, v in feeds.items()}

    def value(name: str) -> np.ndarray | None:
        if name and name not in values:
            values[name] = widened(np.asarray(constants[name].source.load()).reshape(constants[name].shape))
        return values[name] if name else None

    for node in model.graph.nodes:
        if node.graphs:
            raise GraphError(f"{node.where}: not computed in float64")
        results = evaluate_node(node, [value(name) for name in node.input], model.opset, None)
        values.update((name, widened(v)) for name, v in zip(node.output, results, strict=False) if name)
    return [values[port.name] for port in model.graph.outputs]


def _scores(mappings: Sequence[Mapping[Any, float]]) -> tuple[list[list[Any]], np.ndarray]:
    """The labels of each row, and their scores."""
    return [list(row) for row in mappings], np.array([list(row.values()) for row in mappings], np.float32)


def relative(got: list[Any], want: list[Any]) -> float:
    """The largest relative L2 error of an output. Raises AssertionError where shapes, types, labels or texts differ, or
    what is wanted is not finite.
    """
    errors = [0.0]
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, np.ndarray):
            expected, b = _scores(b)
            if not isinstance(a, np.ndarray):  # as a file has them, scores are an array
                labels, a = _scores(a)
                assert labels == expected, f"{labels}, not {expected}"
        if b.dtype == object:
            assert a.tolist() == b.tolist(), "texts differ"
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        wide = b.astype(np.float64)
        assert np.isfinite(wide).all(), "an output is not finite: inputs of another scale?"
        errors.append(float(np.linalg.norm(a.astype(np.float64) - wide) / max(np.linalg.norm(wide), 1e-9)))
    return float(np.max(errors))  # NaN if any is


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.field double", __doc__)
    parser.add_argument("model")
    parser.add_argument("--shape", action="append", default=[], type=parse_shape, metavar="NAME=1,3,224,224")
    parser.add_argument("--scale", type=float, default=1.0, help="deviation of the noise")
    options = parser.parse_args(arguments)
    model = load_model(options.model)
    bind_shapes(model, dict(options.shape))
    rng = np.random.default_rng(0)
    feeds = {}
    for port in model.graph.inputs:
        noise = rng.standard_normal(known_shape(port)) * options.scale
        feeds[port.name] = noise.astype(DTYPES[str(port.dtype)])
    truth = in_double(options.model, feeds)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    peer = onnxruntime.InferenceSession(options.model, quiet, providers=["CPUExecutionProvider"])
    with flexnn.Session(options.model) as session:
        own = session.run(None, feeds)
    other = peer.run(None, feeds)
    row = {}
    for name, got in (("FlexNN", own), ("onnxruntime", other)):
        errors = [np.linalg.norm(a - t) / max(np.linalg.norm(t), 1e-300) for a, t in zip(got, truth, strict=True)]
        row[name] = float(max(errors))
    row["each other"] = relative(own, other)
    write_json(options.json, row)
    for name, error in row.items():
        tables(options.json).print(f"{name:12} {error:.1e}{' from float64' * (name != 'each other')}")
    return 0
