"""ONNX operators in numpy, without onnx: constants are folded with them, and rare operators run with them.

One function for each operator, exactly the semantics of https://onnx.ai/onnx/operators at the model's opset. Heavy
operators of networks are lowered to the core instead (graph/lower); where one is here too, it is for constants, and for
element types that the core does not compute.

Every call states how many bytes it takes before it takes them, and is refused where those are not left. What it takes
beside its outputs is small: evaluators write into their outputs, some thousand elements at a time (blocks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..ir import Array, GraphError
from . import elementwise, indexing, logic, reduction, shape  # noqa: F401 (each registers its operators)
from .call import BYTES_MAX, EVALUATORS, Call, MemoryNeededError, Value

__all__ = ["BYTES_MAX", "EVALUATORS", "MemoryNeededError", "evaluate", "memory_needed"]


def evaluate(
    op: str,
    attrs: Mapping[str, Value],
    inputs: Sequence[Array | None],
    opset: int,
    outputs: int = 1,
    budget_bytes: int | None = BYTES_MAX,
    stated: list[int] | None = None,
) -> list[Array]:
    """The outputs of operator ``op`` of the default domain.

    ``inputs``: None where an optional one is left out. ``outputs``: how many the node names (Split divides by it; the
    result may have fewer or more). ``budget_bytes``: of all that the call allocates, outputs and temporaries; None: as
    much as it likes; ``stated`` receives how many these are. Raises MemoryNeededError before it takes more, and
    GraphError in one line, naming the operator, for what is not supported or does not fit together.
    """
    evaluator = EVALUATORS.get(op)
    if evaluator is None:
        raise GraphError(f"{op}: the operator is not supported")
    try:
        with np.errstate(all="ignore"):
            results = evaluator(Call(op, attrs, inputs, opset, outputs, budget_bytes, stated))
    except GraphError:
        raise
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:  # numpy's own checks
        reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise GraphError(f"{op}: {reason}") from None
    return [np.asarray(r) for r in results]


def memory_needed(
    op: str, attrs: Mapping[str, Value], inputs: Sequence[Array | None], opset: int, outputs: int = 1
) -> int:
    """An upper bound of the bytes that ``evaluate`` takes for these values, which allocates nothing that grows with
    them. Raises GraphError as ``evaluate`` does, where it finds out without computing.
    """
    try:
        evaluate(op, attrs, inputs, opset, outputs, budget_bytes=-1)
    except MemoryNeededError as error:
        return error.needed
    raise GraphError(f"{op}: the operator does not state what it takes")
