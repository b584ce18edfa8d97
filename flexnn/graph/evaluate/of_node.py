"""Evaluation of a node of the model, its attributes loaded and its name in errors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ..allowance import allowance
from ..ir import DTYPES, GraphError
from ..ledger import current
from ..model import Constant, ModelNode
from . import BYTES_MAX, MemoryNeededError, evaluate

FEW_BYTES = 64 << 10
"""Bytes of attributes that are loaded whatever the budget, to find out what a node takes."""


def evaluate_node(
    node: ModelNode,
    inputs: Sequence[np.ndarray | None],
    opset: int,
    budget_bytes: int | None = BYTES_MAX,
    stated: list[int] | None = None,
) -> list[np.ndarray]:
    """The outputs of ``node``, computed in numpy in at most ``budget_bytes``, attributes that are loaded among them
    (None: without a limit); ``stated`` receives how many it takes, in parts. Raises MemoryNeededError before it takes
    more, and GraphError naming the node.
    """
    read = sum(prod(v.shape) * DTYPES[v.dtype].itemsize for v in node.attrs.values() if isinstance(v, Constant))
    if budget_bytes is not None and read > max(budget_bytes, FEW_BYTES):
        raise MemoryNeededError(f"{node.where}: its attributes take {read} bytes; {budget_bytes} are left", read)
    attrs: dict[str, object] = dict(node.attrs)
    for name, value in node.attrs.items():
        if isinstance(value, Constant):
            attrs[name] = np.asarray(value.source.load()).reshape(value.shape)
    left = None if budget_bytes is None else budget_bytes - read
    if stated is not None:
        stated.append(read)
    ledger = current()
    is_total = ledger is not None and (left is None or ledger.left < left)
    if ledger is not None and is_total:
        left = ledger.left
    found = allowance()
    is_short = found is not None and (left is None or found.left < left)
    if found is not None and is_short:
        left = max(found.left, 0)
    try:
        made = evaluate(node.op_type, attrs, inputs, opset, len(node.output), left, stated)
        if ledger is not None:
            ledger.add(made, inputs)
        return made
    except GraphError as error:
        if found is not None and is_short and isinstance(error, MemoryNeededError):
            found.refuse(error.needed, node.where)
        elif ledger is not None and is_total and isinstance(error, MemoryNeededError):
            ledger.refuse(f"{node.where}: takes {error.needed >> 20} MiB")
        message = f"{node.where}: {str(error).removeprefix(f'{node.op_type}: ')}"
        if isinstance(error, MemoryNeededError):
            raise MemoryNeededError(message, error.needed + read, error.made) from None
        raise GraphError(message) from None
