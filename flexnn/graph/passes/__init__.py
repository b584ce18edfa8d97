"""Passes over the graph, from the bound one to the one that the artifact stores; one file each, in this order."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from flexnn import _core

from .. import operators
from ..ir import DTYPES, NARROW, Graph, GraphError
from ..pack import PanelSource
from ..sizes import preferring
from ..tables import table_of
from .activations import fuse_activations, recognise_activations
from .affine import fold_affine
from .angles import keep_angles_of_zero
from .attention import fuse_attention
from .blocks import compute_before_blocks
from .branches import merge_branches
from .cleanup import cleanup, compact
from .flatten import fold_flatten
from .grouped import merge_groups
from .layer_norm import fuse_layer_norms
from .layout import layout
from .order import order
from .padding import fold_padding
from .residual import fold_residuals
from .rotary import fuse_rotary
from .storage import assign_storage
from .twins import join_twins


def _of_bytes(module: str, name: str) -> Callable[[Graph], None]:
    """Return a pass over graphs with values of 8 bits. Its module, which takes memory of every session of open shapes,
    is imported where there is such a graph.
    """

    def step(graph: Graph) -> None:
        if any(tensor.dtype in NARROW for tensor in graph.tensors):
            getattr(import_module(f"{__name__}.{module}"), name)(graph)

    step.__name__ = name
    return step


EARLY_PASSES: tuple[Callable[[Graph], None], ...] = (keep_angles_of_zero, fuse_layer_norms, fuse_rotary, fuse_attention)
"""Passes in the model's own order of dimensions, before layout."""

IN_PLACE_PASSES: tuple[Callable[[Graph], None], ...] = (
    cleanup,
    merge_groups,
    recognise_activations,
    fold_padding,
    compute_before_blocks,
    _of_bytes("byte_moves", "move_bytes"),
    fold_affine,
    merge_branches,
    _of_bytes("byte_tables", "tabulate"),
    _of_bytes("byte_operators", "compute_in_bytes"),
    _of_bytes("byte_dynamic", "multiply_dynamically"),
    _of_bytes("byte_ranges", "measure_parts"),
    fuse_activations,
    cleanup,
    fold_flatten,
    join_twins,
    order,
    fold_residuals,
    cleanup,
    assign_storage,
)
"""Passes between layout and compact, each of which changes the graph in place."""

PLACING_PASSES = order, assign_storage
"""Those of them that leave all weights as they are."""


def _halving() -> Callable[[Graph], None]:
    from .half import halve

    return halve


Observer = Callable[[str, Graph], None]
"""Function that is called with the name of each pass and the graph after it."""


def run_passes(
    graph: Graph, observer: Observer | None = None, *, precision: str = "f32", only_weighs: bool = False
) -> Graph:
    """Return the graph that the artifact stores. ``precision``: f16 gives activations 16 bits where operators know
    them. With ``only_weighs`` it only says which weights are read, and cannot be run. Raises GraphError where an
    operator does not take what it gets.
    """
    for step in EARLY_PASSES:
        step(graph)
        if observer:
            observer(step.__name__, graph)
    graph = layout(graph)
    if observer:
        observer("layout", graph)
    for step in IN_PLACE_PASSES:
        if step is assign_storage and precision == "f16":
            _halving()(graph)
        if only_weighs and step in PLACING_PASSES:
            continue
        step(graph)
        if observer:
            observer(step.__name__, graph)
    graph = compact(graph)
    _finish_weights(graph)
    if not only_weighs:
        _check(graph)
    return graph


def _finish_weights(graph: Graph) -> None:
    """Forms and sizes of panels, now that their slopes are known; checksums by rows for tables."""
    for node in graph.nodes:
        if node.weight >= 0:
            weight = graph.weights[node.weight]
            panels = weight.panels
            assert panels is not None
            weight.nbytes, weight.chunk_bytes = panels.nbytes, panels.panel_bytes
            if isinstance(panels, PanelSource):
                node.attrs["wtype"] = panels.form.name
        elif node.op == "gather_panels" and (number := graph.tensors[graph.root(node.inputs[0])].weight) >= 0:
            graph.weights[number].chunk_bytes = DTYPES["f32"].itemsize * graph.tensors[node.inputs[0]].shape[1]
        elif node.inputs:
            with preferring((graph.tensors[node.inputs[-1]].size,), matters=False):  # artifacts have their own chunks
                table = table_of(graph, node)
            if table is not None:
                graph.weights[table.weight].chunk_bytes = table.chunk_bytes


def _check(graph: Graph) -> None:
    """Every node is legal, and computes what its output tensor is."""
    for node in graph.nodes:
        operators.check(node)
        made = [(graph.tensors[i].shape, graph.tensors[i].dtype) for i in node.outputs]
        computed = operators.infer(graph, node)
        if computed != made:
            raise GraphError(f"node {node.name!r} ({node.op}): computes {computed}, stored as {made}")
        fields = operators.encode(graph, node)
        sized = any(type(value) not in (int, float) for value in fields.values())
        node.params = fields if sized else _core.encode_params(node.op, fields)


__all__ = ["EARLY_PASSES", "IN_PLACE_PASSES", "PLACING_PASSES", "layout", "run_passes"]
