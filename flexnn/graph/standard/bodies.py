"""Branches and bodies of control flow: inputs, outputs and types that fit the node they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
from onnx import AttributeProto

from .names import node_error, where
from .types import Type

Check = Callable[[onnx.GraphProto, Sequence[Type], str], list[Type]]
"""Checks a graph inside the one of the node, whose inputs have these types; returns the types of its outputs."""

CONTROL = ("If", "Loop", "Scan")
_SCAN_LISTS = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions", "directions")


def check_bodies(node: onnx.NodeProto, types: Sequence[Type], version: int, check: Check) -> list[Type]:
    """Check an If, Loop or Scan that fits its schema; return the types of its outputs. Raises GraphError.

    ``types``: of its inputs. ``version``: of the default domain.
    """
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if node.op_type == "If":
        return _check_if(node, attributes["then_branch"].g, attributes["else_branch"].g, check)
    body = attributes["body"].g
    if node.op_type == "Loop":
        return _check_loop(node, body, types, check)
    return _check_scan(node, attributes, types[1:] if version < 9 else types, check)


def _check_if(
    node: onnx.NodeProto, then_branch: onnx.GraphProto, else_branch: onnx.GraphProto, check: Check
) -> list[Type]:
    found = []
    for name, branch in (("then_branch", then_branch), ("else_branch", else_branch)):
        if branch.input:
            raise node_error(node, f"{name} has {len(branch.input)} inputs; branches have none")
        _equal(node, f"outputs of {name}", len(branch.output), len(node.output))
        found.append(check(branch, (), f"{where(node)}: {name}"))
    for i, (mine, other) in enumerate(zip(*found, strict=True)):
        if mine and other and mine != other:
            raise node_error(node, f"output {i} is {mine} in then_branch, but {other} in else_branch")
    return [mine or other for mine, other in zip(*found, strict=True)]


def _check_loop(node: onnx.NodeProto, body: onnx.GraphProto, types: Sequence[Type], check: Check) -> list[Type]:
    carried = list(types[2:])
    _equal(node, "inputs of its body", len(body.input), 2 + len(carried))
    _equal(node, "outputs of its body", len(body.output), 1 + len(node.output))
    if len(node.output) < len(carried):
        raise node_error(node, f"has {len(node.output)} outputs, but carries {len(carried)} values")
    found = check(body, ["tensor(int64)", "tensor(bool)", *carried], f"{where(node)}: body")
    if found[0] not in (None, "tensor(bool)"):
        raise node_error(node, f"the condition that its body makes is {found[0]}, not tensor(bool)")
    return _carried(node, carried, found[1:])


def _check_scan(
    node: onnx.NodeProto, attributes: dict[str, AttributeProto], types: Sequence[Type], check: Check
) -> list[Type]:
    body, scanned = attributes["body"].g, attributes["num_scan_inputs"].i
    if not 1 <= scanned <= len(types):
        raise node_error(node, f"attribute num_scan_inputs is {scanned}; the node has {len(types)} inputs")
    states = len(types) - scanned
    _equal(node, "inputs of its body", len(body.input), len(types))
    _equal(node, "outputs of its body", len(body.output), len(node.output))
    if len(node.output) < states:
        raise node_error(node, f"has {len(node.output)} outputs, but carries {states} values")
    for name in _SCAN_LISTS:
        if name not in attributes:
            continue
        values = list(attributes[name].ints)
        wanted = len(node.output) - states if "output" in name else scanned
        _equal(node, f"values of attribute {name}", len(values), wanted)
        if name.endswith("directions") and not {0, 1}.issuperset(values):
            raise node_error(node, f"attribute {name} is {values}: a direction is 0 or 1")
    return _carried(node, types[:states], check(body, types, f"{where(node)}: body"))


def _carried(node: onnx.NodeProto, before: Sequence[Type], after: Sequence[Type]) -> list[Type]:
    """Return the types of outputs; values that are carried keep theirs."""
    for i, (old, new) in enumerate(zip(before, after, strict=False)):
        if old and new and _held(old) != _held(new):
            raise node_error(node, f"carried value {i} is {old}, but its body makes {new} of it")
    return [new or (before[i] if i < len(before) else None) for i, new in enumerate(after)]


def _held(kind: str) -> str:
    """Return the type of what an optional value holds; any other type as it is."""
    return kind.removeprefix("optional(").removesuffix(")") if kind.startswith("optional(") else kind


def _equal(node: onnx.NodeProto, what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise node_error(node, f"{what}: {found}, but the node needs {wanted}")
