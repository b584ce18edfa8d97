"""FlexNN: ONNX models inside a memory budget given in bytes."""

from typing import TYPE_CHECKING, Any

from flexnn.artifact import ArtifactError
from flexnn.errors import CompileError, FlexNNError, StateError
from flexnn.graph.ir import GraphError
from flexnn.planning import BudgetError, Plan
from flexnn.session import NodeArg, Session, SessionError

if TYPE_CHECKING:
    from flexnn.compiler import compile  # noqa: A004
    from flexnn.llm.language import generate
    from flexnn.llm.pair import EncoderDecoder
    from flexnn.planned import plan
    from flexnn.pool import Pool

__version__ = "0.1.0"

__all__ = [
    "ArtifactError",
    "BudgetError",
    "CompileError",
    "EncoderDecoder",
    "FlexNNError",
    "GraphError",
    "NodeArg",
    "Plan",
    "Pool",
    "Session",
    "SessionError",
    "StateError",
    "__version__",
    "compile",
    "generate",
    "plan",
]


def __getattr__(name: str) -> Any:
    """Import ``compile``, ``plan``, ``Pool``, ``generate`` and ``EncoderDecoder`` when they are asked for: sessions of
    artifacts do without them.
    """
    if name == "compile":
        from flexnn.compiler import compile  # noqa: A004

        return compile
    if name == "plan":
        from flexnn.planned import plan

        return plan
    if name == "generate":
        from flexnn.llm.language import generate

        return generate
    if name == "EncoderDecoder":
        from flexnn.llm.pair import EncoderDecoder

        return EncoderDecoder
    if name == "Pool":
        from flexnn.pool import Pool

        return Pool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
