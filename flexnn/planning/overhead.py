"""What a session takes beside its arena (the budget is a promise about the process, DESIGN §1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flexnn.graph.ir import Graph

BASE_BYTES = 2_031_616
"""Python objects of session and plan, library pages touched first: 1.9375 MiB."""
NODE_BYTES = 8 << 10
"""Graph, parameters and costs of a node, in Python and in the program."""
STEP_BYTES = 512
"""A step and the load before it: 88 in the plan, 260 in the engine, the rest what watching runs keeps of times."""
CHECKSUM_BYTES = 8
"""Of each chunk of a weight: the artifact's table, and the engine's copy. A table of embeddings has many."""
STACK_BYTES = 64 << 10
"""Touched stack of each thread that the engine starts: compute threads but one, and a reader of the loader's."""
READER_BYTES = 16 << 10
"""Of each of the other two readers."""
GROUPING_BYTES = 192 << 10
"""Of looking at groups of nodes: what it imports and leaves in the heap, measured 0.03 to 0.16 MiB."""

Overhead = Callable[[Graph, int, int, int], dict[str, int]]


def overhead_bytes(
    graph: Graph, step_count: int, load_count: int, threads: int, *, reuse_outputs: bool = False
) -> dict[str, int]:
    """Bytes by what takes them: ``io`` (the caller's input and output arrays, in full; outputs twice, as a caller still
    holds the last run's while the next one's are made, unless they are the same), ``program``, ``stacks``, ``base``.
    """
    outputs = sum(graph.tensors[t].nbytes for t in graph.outputs)
    return {
        "io": sum(graph.tensors[t].nbytes for t in graph.inputs) + outputs * (1 if reuse_outputs else 2),
        "program": NODE_BYTES * len(graph.nodes)
        + STEP_BYTES * max(step_count, load_count)
        + CHECKSUM_BYTES * sum(weight.chunks for weight in graph.weights),
        "stacks": STACK_BYTES * threads + 2 * READER_BYTES,
        "base": BASE_BYTES,
    }


def overhead_for(*, reuse_outputs: bool) -> Overhead:
    """``overhead_bytes`` of sessions that write each run's outputs into the same arrays, or not."""
    return partial(overhead_bytes, reuse_outputs=reuse_outputs)


def with_groups(overhead: Overhead) -> Overhead:
    """``overhead`` of sessions that look at groups of nodes, whether they take them or not."""

    def counted(graph: Graph, step_count: int, load_count: int, threads: int) -> dict[str, int]:
        return overhead(graph, step_count, load_count, threads) | {"groups": GROUPING_BYTES}

    return counted
