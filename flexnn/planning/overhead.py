"""Memory that a session takes outside its arena: the budget is a promise about the whole process."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from flexnn.graph.ir import Graph

BASE_BYTES = 720_896 + 10 * (os.sysconf("SC_PAGESIZE") - (4 << 10))
"""Bytes of Python objects of session and plan, of what a search for a plan leaves on the heap, and of library pages
touched for the first time: 0.69 MiB, and 1.27 where pages are of 64 KiB.
"""
NODE_BYTES = 8 << 10
"""Bytes of a node's graph, parameters and costs, in Python and in the program."""
ADDED_BYTES = 4 << 10
"""Bytes of a node that planning has added, in the program and in what planning leaves on the heap."""
SPILLING_BYTES = 4 << 10
"""Bytes more of such a node in a form that spills: many forms are tried before."""
STEP_BYTES = 512
"""Bytes of a step and the load before it: 88 in the plan, 260 in the engine, the rest for times of watched runs."""
CHECKSUM_BYTES = 8
"""Bytes of a chunk's checksum, in the artifact's table and in the engine's copy. A table of embeddings has many."""
STACK_BYTES = 64 << 10
"""Resident stack of each engine thread: all compute threads except the caller, plus one reader of the loader."""
READER_BYTES = 16 << 10
"""Resident stack of each of the other two readers."""
GROUPING_BYTES = 192 << 10
"""Imports and heap memory of planning in groups: 0.03 to 0.16 MiB measured."""
MEASURING_BYTES = 512 << 10
"""Memory that a session keeps of measuring the machine: 0.3 to 0.9 MiB more than sessions that find a profile."""

PART_NAMES = {
    "io": "inputs and outputs",
    "program": "steps",
    "stacks": "stacks of threads",
    "base": "Python",
    "groups": "planning in groups",
    "values": "inputs, outputs and values between parts",
    "programs": "steps of all parts",
}
"""Words for people, by purpose."""

Overhead = Callable[[Graph, int, int, int], dict[str, int]]


def overhead_bytes(
    graph: Graph, step_count: int, load_count: int, threads: int, *, output_sets: int = 2
) -> dict[str, int]:
    """Return bytes outside the arena by purpose: ``io``, ``program``, ``stacks`` and ``base``. ``io`` is the caller's
    input and output arrays. Outputs count twice, as a caller still holds those of the last run while the next ones are
    made; once where they are reused, and not at all where the caller always has arrays for them.
    """
    outputs = sum(graph.tensors[t].nbytes for t in graph.outputs)
    return {
        "io": sum(graph.tensors[t].nbytes for t in graph.inputs) + outputs * output_sets,
        "program": NODE_BYTES * (len(graph.nodes) - graph.added)
        + (ADDED_BYTES + (SPILLING_BYTES if graph.spills else 0)) * graph.added
        + STEP_BYTES * max(step_count, load_count)
        + CHECKSUM_BYTES * sum(weight.chunks for weight in graph.weights),
        "stacks": STACK_BYTES * threads + 2 * READER_BYTES,
        "base": BASE_BYTES,
    }


def overhead_for(output_sets: int) -> Overhead:
    """Return ``overhead_bytes`` for sessions that take memory for so many sets of outputs."""
    return partial(overhead_bytes, output_sets=output_sets)


def with_groups(overhead: Overhead) -> Overhead:
    """Return ``overhead`` for sessions that plan in groups, whether they then run in groups or not."""

    def counted(graph: Graph, step_count: int, load_count: int, threads: int) -> dict[str, int]:
        return overhead(graph, step_count, load_count, threads) | {"groups": GROUPING_BYTES}

    return counted


def with_measuring(overhead: Overhead) -> Overhead:
    """Return ``overhead`` for sessions that measure the machine when they open."""

    def counted(graph: Graph, step_count: int, load_count: int, threads: int) -> dict[str, int]:
        found = overhead(graph, step_count, load_count, threads)
        return found | {"base": found["base"] + MEASURING_BYTES}

    return counted
