"""The meaning of operators over numbers of 16 bits: what those over float32 mean, rounded where it is stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flexnn.graph.ir import DTYPES, Graph, Node

Array = np.ndarray


def operators_of(plain: dict[str, Callable[..., Array]]) -> dict[str, Callable[..., Array]]:
    """The operators that take and make 16 bits, of those over float32."""
    return {
        f"{name}_f16": _of(plain[name]) for name in ("conv", "dwconv", "pool", "unary", "binary", "resize", "reduce")
    }


def _of(plain: Callable[..., Array]) -> Callable[..., Array]:
    def compute(graph: Graph, node: Node, *inputs: Array) -> Array:
        same = Node(node.name, node.op.removesuffix("_f16"), node.inputs, node.outputs, node.attrs, node.weight)
        return plain(graph, same, *(i.astype(np.float32) for i in inputs)).astype(DTYPES[str(node.attrs["to"])])

    return compute
