"""Versions that a model states: of the format, and of its operators by domain."""

from __future__ import annotations

import onnx
from onnx import defs

from ..stated import IR_VERSION_MAX, OPSET_MAX, OPSET_MIN, GraphError

OPSET_OF_EXPANSIONS = 21
"""Version of the default domain for models that have only operators of others, which become operators of it."""
_DEFAULT = ("", "ai.onnx")


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of the default domain. Raises GraphError if it is not supported."""
    foreign = all(node.domain not in _DEFAULT for node in model.graph.node)
    stated = (o.version for o in model.opset_import if o.domain in _DEFAULT)
    opset = max(stated, default=OPSET_OF_EXPANSIONS if foreign else 1)
    if not OPSET_MIN <= opset <= OPSET_MAX:
        raise GraphError(f"opset {opset}; opsets {OPSET_MIN} to {OPSET_MAX} are supported")
    known = defs.onnx_opset_version()
    if opset > known:
        raise GraphError(f"opset {opset}; the onnx package that is installed knows {known}: upgrade it")
    return opset


def check_versions(model: onnx.ModelProto) -> dict[str, int]:
    """Return the versions of operators by domain. Raises GraphError."""
    if not 1 <= model.ir_version <= IR_VERSION_MAX:
        raise GraphError(f"ir_version {model.ir_version}; versions 1 to {IR_VERSION_MAX} are supported")
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise GraphError(f"opset imports: domain {domain!r} has versions {opsets[domain]} and {entry.version}")
        if entry.version < 1:
            raise GraphError(f"opset imports: domain {domain!r} has version {entry.version}")
    opsets[""] = opset_of(model)
    return opsets
