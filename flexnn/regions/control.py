"""Loop and Scan, on arrays: https://onnx.ai/onnx/operators/onnx__Loop.html, onnx__Scan.html."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flexnn.graph.ir import Array, GraphError
from flexnn.graph.model import ModelNode

from .region import Region

Step = Callable[[Sequence[Array]], list[Array]]
"""One iteration: from the body's inputs to its outputs."""

Body = Callable[[Region, Mapping[str, Array]], list[Array]]
"""Walk of a body: from its inputs by name to its outputs."""

SCAN_BYTES_MAX = 1 << 36


def truth(node: ModelNode, value: Array | None) -> bool:
    """Return the value of a condition. Raises GraphError unless it is one boolean."""
    if value is None or value.size != 1 or value.dtype != np.bool_:
        raise GraphError(f"{node.where}: the condition is not a single boolean")
    return bool(value.reshape(-1)[0])


def check_branches(node: ModelNode, bodies: Mapping[str, Region]) -> None:
    """Raise GraphError unless an If has both branches."""
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

    return loop(node, inputs, step) if node.op_type == "Loop" else scan(node, inputs, step, opset)


def loop(node: ModelNode, inputs: Sequence[Array | None], step: Step) -> list[Array]:
    """Return the carried values after the last iteration, then the stacked scan outputs."""
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
    return [*values, *(_stacked(node, [row[i] for row in rows], 0, False) for i in range(scans))]


def scan(node: ModelNode, inputs: Sequence[Array | None], step: Step, opset: int) -> list[Array]:
    """Return the state after the last slice, then the scan outputs. Opset 8 runs each entry of a batch by itself."""
    if opset >= 9:
        return _scan(node, inputs, step, _ints(node, "scan_input_axes"), _ints(node, "scan_input_directions"))
    lengths, *given = inputs
    arrays = [value for value in given if value is not None]
    if len(arrays) != len(given) or not arrays or not all(a.ndim and len(a) == len(arrays[0]) for a in arrays):
        raise GraphError(f"{node.where}: the inputs do not have the same batch size")
    if lengths is not None and len(set(lengths.tolist())) > 1:
        raise GraphError(f"{node.where}: sequences of different lengths are not supported")
    batches = [
        _scan(node, [array[b] for array in arrays], step, [], _ints(node, "directions")) for b in range(len(arrays[0]))
    ]
    return [np.stack(parts) for parts in zip(*batches, strict=True)]


def _scan(
    node: ModelNode, inputs: Sequence[Array | None], step: Step, axes: list[int], directions: list[int]
) -> list[Array]:
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
    out_axes, out_directions = _ints(node, "scan_output_axes"), _ints(node, "scan_output_directions")
    stacks = [
        _stacked(
            node,
            [row[i] for row in rows],
            out_axes[i] if i < len(out_axes) else 0,
            bool(out_directions[i]) if i < len(out_directions) else False,
        )
        for i in range(outs)
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


def _stacked(node: ModelNode, rows: list[Array], axis: int, back: bool) -> Array:
    if not rows:
        raise GraphError(f"{node.where}: there was no iteration, so the shape of the stacked outputs is unknown")
    if len({row.shape for row in rows}) > 1:
        raise GraphError(f"{node.where}: the outputs to stack have different shapes in different iterations")
    if rows[0].nbytes * len(rows) > SCAN_BYTES_MAX:
        raise GraphError(f"{node.where}: the stacked output would exceed {SCAN_BYTES_MAX >> 30} GiB")
    return np.stack(rows[::-1] if back else rows, axis)
