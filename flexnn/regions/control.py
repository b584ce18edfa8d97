"""Loop and Scan, on arrays: https://onnx.ai/onnx/operators/onnx__Loop.html, onnx__Scan.html."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from flexnn.errors import FlexNNError
from flexnn.graph.ir import DTYPES, Array, GraphError
from flexnn.graph.large import stacked
from flexnn.graph.model import ModelNode

from .region import Region

Step = Callable[[Sequence[Array]], list[Array]]
"""One iteration: from the body's inputs to its outputs."""

Body = Callable[[Region, Mapping[str, Array]], list[Array]]
"""Walk of a body: from its inputs by name to its outputs."""

Row = tuple[tuple[int, ...], np.dtype[np.generic]]
Rows = Callable[[Sequence[Array]], list[Row]]
"""Shapes and types of a body's outputs, from its inputs, of which only shapes and types matter."""

SCAN_BYTES_MAX = 1 << 36


def truth(node: ModelNode, value: Array | None) -> bool:
    """Return the value of a condition. Raises GraphError unless it is one boolean."""
    if value is None or value.size != 1 or value.dtype != np.bool_:
        raise GraphError(f"{node.where}: the condition is not a single boolean")
    return bool(value.reshape(-1)[0])


def check_branches(node: ModelNode, bodies: Mapping[str, Region]) -> None:
    """Raise GraphError unless an If has a condition and both branches."""
    if not any(node.input):
        raise GraphError(f"{node.where}: its condition is missing")
    if not {"then_branch", "else_branch"} <= bodies.keys():
        raise GraphError(f"{node.where}: a branch is missing")


def walked_loop(
    node: ModelNode, bodies: Mapping[str, Region], inputs: Sequence[Array | None], body: Body, opset: int
) -> list[Array]:
    """Return the outputs of a Loop or Scan whose body Python walks, turn by turn. Raises GraphError."""
    region = bodies.get("body")
    if node.op_type not in ("Loop", "Scan") or region is None:
        raise GraphError(f"{node.where}: this control flow is not supported")
    names = [port.name for port in region.graph.inputs]

    def step(values: Sequence[Array]) -> list[Array]:
        if len(names) != len(values):
            raise GraphError(f"{node.where}: the body takes {len(names)} inputs but gets {len(values)}")
        return body(region, dict(zip(names, values, strict=True)))

    def shapes(values: Sequence[Array]) -> list[Row]:
        return _rows(node, region, step, values)

    if node.op_type == "Loop":
        return loop(node, inputs, step, shapes)
    return scan(node, inputs, step, shapes, opset)


def _rows(node: ModelNode, region: Region, step: Step, values: Sequence[Array]) -> list[Row]:
    """Return shape and type of each output of a body that never runs: as declared, or else as one iteration makes them,
    of which nothing remains. Where that fails, open dimensions are 0, as in onnxruntime. Raises GraphError.
    """
    ports = region.graph.outputs
    if not all(port.dims is not None and all(isinstance(d, int) for d in port.dims) for port in ports):
        with suppress(FlexNNError):
            return [(array.shape, array.dtype) for array in step(values)]
    if any(port.dtype is None or port.dims is None for port in ports):
        raise GraphError(f"{node.where}: there is no iteration, and its outputs declare no shape")
    return [(tuple(d if isinstance(d, int) else 0 for d in port.dims or ()), DTYPES[str(port.dtype)]) for port in ports]


def loop(node: ModelNode, inputs: Sequence[Array | None], step: Step, shapes: Rows) -> list[Array]:
    """Return the carried values after the last iteration, then the stacked scan outputs; without any iteration
    ``shapes`` tells what they are.
    """
    trips, condition, *carried = (*inputs, None, None)[: max(len(inputs), 2)]
    if any(value is None for value in carried):
        raise GraphError(f"{node.where}: a carried value is missing")
    if trips is not None and (trips.size != 1 or trips.dtype.kind not in "iu"):
        raise GraphError(f"{node.where}: the trip count is not a single integer")
    count = None if trips is None else int(trips.reshape(-1)[0])
    going = np.array(condition is None or truth(node, condition))
    values = [value for value in carried if value is not None]
    rows: list[list[Array]] = []
    iteration = 0
    while going.item() and (count is None or iteration < count):
        going, *rest = step([np.array(iteration, np.int64), going, *values])
        going = np.array(truth(node, going))
        _check_count(node, len(rest), len(values))
        values = rest[: len(values)]
        rows.append(rest[len(values) :])
        iteration += 1
    scans = len(node.output) - len(values)
    if not iteration and scans > 0:
        found = shapes([np.array(iteration, np.int64), going, *values])
        _check_count(node, len(found) - 1, len(values))
        return [*values, *(_without_rows(found[1 + len(values) + i], 0) for i in range(scans))]
    return [*values, *(_stacked(node, [row[i] for row in rows], 0, False) for i in range(scans))]


def scan(node: ModelNode, inputs: Sequence[Array | None], step: Step, shapes: Rows, opset: int) -> list[Array]:
    """Return the state after the last slice, then the scan outputs; without any slice ``shapes`` tells what they are.
    Opset 8 runs each entry of a batch by itself.
    """
    steps = step, shapes
    if opset >= 9:
        return _scan(node, inputs, steps, _ints(node, "scan_input_axes"), _ints(node, "scan_input_directions"))
    lengths, *given = inputs
    arrays = [value for value in given if value is not None]
    if len(arrays) != len(given) or not arrays or not all(a.ndim and len(a) == len(arrays[0]) for a in arrays):
        raise GraphError(f"{node.where}: the inputs do not have the same batch size")
    if lengths is not None and len(set(lengths.tolist())) > 1:
        raise GraphError(f"{node.where}: sequences of different lengths are not supported")
    batches = [
        _scan(node, [array[b] for array in arrays], steps, [], _ints(node, "directions")) for b in range(len(arrays[0]))
    ]
    return [np.stack(parts) for parts in zip(*batches, strict=True)]


def _scan(
    node: ModelNode, inputs: Sequence[Array | None], steps: tuple[Step, Rows], axes: list[int], directions: list[int]
) -> list[Array]:
    step, shapes = steps
    count = node.attrs.get("num_scan_inputs")
    if not isinstance(count, int) or not 0 < count <= len(inputs) or any(value is None for value in inputs):
        raise GraphError(f"{node.where}: attribute num_scan_inputs={count} for {len(inputs)} inputs")
    given = [value for value in inputs if value is not None]
    states, sources = given[: len(given) - count], given[len(given) - count :]
    axes, directions = axes or [0] * count, directions or [0] * count
    if len(axes) != count or len(directions) != count:
        raise GraphError(f"{node.where}: axes or directions for {len(axes)} of {count} scan inputs")
    turned = []
    for source, axis, back in zip(sources, axes, directions, strict=True):
        if not -source.ndim <= axis < source.ndim:
            raise GraphError(f"{node.where}: axis {axis} is outside a tensor with {source.ndim} dimensions")
        moved = np.moveaxis(source, axis, 0)
        turned.append(moved[::-1] if back else moved)
    if len({len(source) for source in turned}) > 1:
        raise GraphError(f"{node.where}: scan inputs have different lengths")
    rows: list[list[Array]] = []
    for slices in zip(*turned, strict=True):
        results = step([*states, *(np.asarray(part, order="C") for part in slices)])
        _check_count(node, len(results), len(states))
        states = results[: len(states)]
        rows.append(results[len(states) :])
    outs = len(node.output) - len(states)
    out_axes = [*_ints(node, "scan_output_axes"), *[0] * outs][:outs]
    out_directions = [*_ints(node, "scan_output_directions"), *[0] * outs][:outs]
    if not rows and outs > 0:
        found = shapes([*states, *(np.zeros(source.shape[1:], source.dtype) for source in turned)])
        _check_count(node, len(found), len(states))
        return [*states, *(_without_rows(row, axis) for row, axis in zip(found[len(states) :], out_axes, strict=False))]
    stacks = [
        _stacked(node, [row[i] for row in rows], axis, bool(back))
        for i, (axis, back) in enumerate(zip(out_axes, out_directions, strict=True))
    ]
    return [*states, *stacks]


def _check_count(node: ModelNode, returned: int, carried: int) -> None:
    """Raise GraphError unless the body returns all carried values and all outputs of the node."""
    wanted = max(carried, len(node.output))
    if returned < wanted:
        raise GraphError(f"{node.where}: the body returns {returned} values, but {wanted} are needed")


def _ints(node: ModelNode, name: str) -> list[int]:
    value = node.attrs.get(name, [])
    if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
        raise GraphError(f"{node.where}: attribute {name} is not a list of integers")
    return [v for v in value if isinstance(v, int)]


def _without_rows(row: Row, axis: int) -> Array:
    """Return the stack of no rows of this shape."""
    shape, dtype = row
    place = axis if axis >= 0 else axis + len(shape) + 1
    return np.zeros((*shape[:place], 0, *shape[place:]), dtype)


def _stacked(node: ModelNode, rows: list[Array], axis: int, back: bool) -> Array:
    if len({row.shape for row in rows}) > 1:
        raise GraphError(f"{node.where}: the outputs to stack have different shapes in different iterations")
    if rows[0].nbytes * len(rows) > SCAN_BYTES_MAX:
        raise GraphError(f"{node.where}: the stacked output would exceed {SCAN_BYTES_MAX >> 30} GiB")
    return stacked(rows[::-1] if back else rows, axis)


def carried_count(node: ModelNode) -> int:
    """Return how many outputs of a body, at its start, are not kept from turn to turn."""
    if node.op_type == "If":
        return len(node.output)
    if node.op_type == "Loop":
        return 1 + max(0, len(node.input) - 2)
    count = node.attrs.get("num_scan_inputs")
    return len(node.input) - count if isinstance(count, int) else 0
