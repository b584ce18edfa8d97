"""Models of one node, run with fixed and with open shapes, without a limit and at their smallest budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import flexnn

Array = np.ndarray
ATTEMPTS = 8
"""Times that a refusal may name a larger budget, as later parts of a run are met."""


def one_node(
    operator: str,
    inputs: Mapping[str, Array],
    outputs: Sequence[Any],
    constants: Mapping[str, Array] | None = None,
    *,
    domain: str = "ai.onnx.ml",
    is_open: bool = False,
    order: Sequence[str] | None = None,
    ml: int = 3,
    opset: int = 17,
    **attrs: Any,
) -> bytes:
    """The model of one node. ``outputs``: their dtypes, or str; ``order``: of inputs and constants."""
    made = constants or {}
    names = order or [*inputs, *made]
    node = helper.make_node(operator, names, [f"y{i}" for i in range(len(outputs))], domain=domain, **attrs)
    ports = [
        helper.make_tensor_value_info(
            name, _type(array.dtype), [f"{name}{i}" if is_open else d for i, d in enumerate(array.shape)]
        )
        for name, array in inputs.items()
    ]
    results = [helper.make_tensor_value_info(f"y{i}", _type(kind), None) for i, kind in enumerate(outputs)]
    initializers = [numpy_helper.from_array(array, name) for name, array in made.items()]
    versions = {"": opset, "ai.onnx.ml": ml, "com.microsoft": 1}
    opsets = [helper.make_opsetid(name, version) for name, version in versions.items()]
    graph = helper.make_graph([node], "test", ports, results, initializers)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def _type(kind: Any) -> int:
    is_text = kind is str or np.dtype(kind).kind in "UO"
    return int(TensorProto.STRING if is_text else helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def run_all_ways(
    folder: Path, operator: str, inputs: Mapping[str, Array], outputs: Sequence[Any], *rest: Any, **attrs: Any
) -> list[list[Any]]:
    """Outputs with fixed and open shapes, each without a limit and at the smallest budget."""
    results = []
    for is_open in (False, True):
        path = folder / f"{operator}{is_open}.onnx"
        path.write_bytes(one_node(operator, inputs, outputs, *rest, is_open=is_open, **attrs))
        artifact = flexnn.compile(path)
        with flexnn.Session(artifact, threads=2) as session:
            results.append(session.run(None, dict(inputs)))
        results.append(run_at_smallest(artifact, inputs))
    return results


def run_at_smallest(artifact: Path, inputs: Mapping[str, Array]) -> list[Any]:
    """Outputs at the least budget that refusals name."""
    memory = 1
    for _ in range(ATTEMPTS):
        try:
            with flexnn.Session(artifact, memory=memory, threads=1) as session:
                made = session.run(None, dict(inputs))
                assert session.session_bytes <= memory
                return made
        except flexnn.BudgetError as error:
            assert error.minimum is not None
            assert error.minimum > memory
            memory = error.minimum
    raise AssertionError("a refusal's number was not enough")


def check_node(
    folder: Path,
    operator: str,
    inputs: Mapping[str, Array],
    outputs: Sequence[Any],
    *rest: Any,
    tolerance: float = 1e-5,
    **attrs: Any,
) -> None:
    """Compare with onnxruntime, all ways."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = one_node(operator, inputs, outputs, *rest, **attrs)
    wanted = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, dict(inputs))
    for results in run_all_ways(folder, operator, inputs, outputs, *rest, **attrs):
        for mine, theirs in zip(results, wanted, strict=True):
            assert mine.shape == theirs.shape
            if theirs.dtype.kind in "UO":
                assert mine.tolist() == theirs.tolist()
                continue
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine.astype(np.float64), theirs, rtol=tolerance, atol=tolerance)
