"""FlexNN: ONNX models inside a memory budget given in bytes."""

from flexnn.artifact import ArtifactError
from flexnn.compiler import compile  # noqa: A004
from flexnn.errors import CompileError, FlexNNError
from flexnn.graph.ir import GraphError
from flexnn.planned import plan
from flexnn.planning import BudgetError, Plan
from flexnn.session import NodeArg, Session, SessionError

__version__ = "0.1.0"

__all__ = [
    "ArtifactError",
    "BudgetError",
    "CompileError",
    "FlexNNError",
    "GraphError",
    "NodeArg",
    "Plan",
    "Session",
    "SessionError",
    "__version__",
    "compile",
    "plan",
]
