"""Programs of a session with state, one for each number of new tokens, and the budget that they are planned for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flexnn import _core
from flexnn.graph.bind import Binder
from flexnn.graph.ir import Array, Graph
from flexnn.graph.passes import run_passes
from flexnn.graph.stateful import Stateful
from flexnn.measure import Spans
from flexnn.planning.overhead import NODE_BYTES, overhead_bytes
from flexnn.quick_dataclass import quick_dataclass

from .constants import Packing
from .engine import BoundProgram
from .segments import BoundSegments
from .state_plans import Placed

WIDTH_NODE_BYTES = 19 << 8
"""Bytes of a node in the graph, the planner and the program of a number of tokens: measured 1.6 to 4.4 KiB, as the
graphs of a session share a model, which is counted by itself.
"""


class StateBudget(NamedTuple):
    """A budget, and the plans for it: of each number of tokens, and of what is made once."""

    memory: int | None
    placed: Placed
    once: Placed


@quick_dataclass(eq=False)
class Width:
    """The program for a number of new tokens."""

    tokens: int
    graph: Graph
    constants: list[Array]
    """Arrays of the graph's last inputs."""
    program: BoundProgram | None = None
    signature: _core.Signature | None = None
    """Signature of all runs of the program; None before the first."""


def spans_of(width: Width) -> Spans | None:
    """Return the times of the last run of a program; None where there are none."""
    return width.program.spans if width.program is not None else None


def bound_graph(made: Stateful, tokens: int, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """Return the graph for so many new tokens; ``shapes``: those of inputs that are none of these."""
    model = made.model
    binder = Binder(model.opset, in_run=True)
    binder.constants = model.graph.constants
    for port in model.graph.inputs:
        dims = port.dims or ()
        own = (1, tokens, *(d for d in dims[2:] if isinstance(d, int)))
        binder.add_input(port.name, shapes.get(port.name, own), str(port.dtype))
    for node in model.graph.nodes:
        binder.add(node)
    binder.set_outputs([port.name for port in model.graph.outputs])
    return run_passes(binder.graph, precision=model.precision)


def finished(graph: Graph, segments: BoundSegments) -> list[Array]:
    """Let the weights of a graph be those of the artifact; return its constants."""
    packing = Packing.of(graph)
    constants = packing.arrays(graph)
    packing.apply(graph)
    segments.find_weights(graph)
    return constants


def program_overhead(graph: Graph, step_count: int, load_count: int, threads: int) -> dict[str, int]:
    """Return the bytes that a program takes beside the arena."""
    program = overhead_bytes(graph, step_count, load_count, threads)["program"]
    return {"program": program - (NODE_BYTES - WIDTH_NODE_BYTES) * (len(graph.nodes) - graph.added)}
