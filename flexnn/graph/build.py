"""Building a graph: functions by which lowerings and passes add tensors and nodes.

Between binding and the storage pass a graph has values only: every tensor is a root, and three operators stand for
views: ``reshape`` {shape}, ``slice`` {starts, sizes, steps} and ``concat`` {axis}. The storage pass turns them into
places. ``reduction`` {kind, axes, keepdims} is ``reduce`` over any axes; the layout pass, which knows the order in
memory, makes reduces of it. No artifact has these four.
"""

from __future__ import annotations

from math import prod

import numpy as np

from .attributes import int_attr, ints_attr
from .ir import (
    DTYPE_NAMES,
    DTYPES,
    RANK_MAX,
    RAW_CHUNK_BYTES,
    Array,
    Attr,
    Graph,
    GraphError,
    Node,
    Shape,
    Tensor,
    Weight,
    WeightSource,
)
from .operators import infer_shapes
from .pack import PanelSource
from .pack_bytes import BytePanels
from .sources import ArraySource

VIEWS = ("reshape", "slice", "concat")
REDUCTION = "reduction"
NO_ACT: dict[str, Attr] = {"act": "none", "alpha": 0.0, "beta": 0.0}
MAXIMUM: dict[str, Attr] = {"x_zero": 0, "scale": 1.0, "zero": 0, "lo": 0.0, "hi": 255.0}
"""Attributes of ``pool_u8`` that say nothing about a maximum."""


def infer_any(node: Node, shapes: list[Shape], dtypes: list[str], least: int = 1) -> tuple[Shape, str]:
    """Shape and dtype of the output of an internal operator or a view operator. ``least``: of each dimension, of an
    internal one. Raises GraphError.
    """
    if node.op == "reshape":
        shape = tuple(ints_attr(node, "shape"))
        if prod(shape) != prod(shapes[0]) or len(shape) > RANK_MAX:
            raise GraphError(f"node {node.name!r}: {shapes[0]} does not reshape to {shape}")
        return shape, dtypes[0]
    if node.op == "slice":
        return tuple(ints_attr(node, "sizes")), dtypes[0]
    if node.op == "concat":
        axis = int_attr(node, "axis")
        first = shapes[0]
        if any(len(s) != len(first) or s[:axis] + s[axis + 1 :] != first[:axis] + first[axis + 1 :] for s in shapes):
            raise GraphError(f"node {node.name!r}: shapes {shapes} do not concatenate on axis {axis}")
        if len(set(dtypes)) > 1:
            raise GraphError(f"node {node.name!r}: inputs have different types: {', '.join(sorted(set(dtypes)))}")
        return (*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :]), dtypes[0]
    if node.op == REDUCTION:
        axes, keep = set(ints_attr(node, "axes")), int_attr(node, "keepdims")
        return tuple(1 if i in axes else d for i, d in enumerate(shapes[0]) if keep or i not in axes), dtypes[0]
    return infer_shapes(node, shapes, dtypes, least)[0]


def add_tensor(graph: Graph, name: str, shape: Shape, dtype: str) -> int:
    """A new root tensor."""
    graph.tensors.append(Tensor(name, shape, dtype))
    return len(graph.tensors) - 1


def add_constant(graph: Graph, name: str, source: WeightSource, shape: Shape, dtype: str) -> int:
    """A new constant tensor with a raw weight."""
    nbytes = prod(shape) * DTYPES[dtype].itemsize
    graph.weights.append(Weight(name, "raw", nbytes, RAW_CHUNK_BYTES, source=source))
    graph.tensors.append(Tensor(name, shape, dtype, weight=len(graph.weights) - 1))
    return len(graph.tensors) - 1


def add_array(graph: Graph, name: str, values: Array) -> int:
    """A new constant tensor with these values."""
    values = np.ascontiguousarray(values).reshape(values.shape)
    return add_constant(graph, name, ArraySource(values), values.shape, DTYPE_NAMES[values.dtype])


def add_panels(graph: Graph, name: str, panels: PanelSource | BytePanels) -> int:
    """A new panel weight; returns its index. Its sizes are final after the last pass (passes/__init__.py)."""
    graph.weights.append(Weight(name, "panels", panels.nbytes, panels.panel_bytes, panels=panels))
    return len(graph.weights) - 1


def panels_of(graph: Graph, node: Node) -> PanelSource:
    """The panels of floats' products that a node has, while compiling."""
    panels = graph.weights[node.weight].panels
    assert isinstance(panels, PanelSource)
    return panels


def add_node(
    graph: Graph, name: str, op: str, inputs: list[int], attrs: dict[str, Attr], weight: int = -1, output: str = ""
) -> int:
    """Append a node with a new output tensor, and return the tensor's index. Raises GraphError."""
    node = Node(name, op, inputs, [], attrs, weight)
    tensors = [graph.tensors[i] for i in inputs]
    shape, dtype = infer_any(node, [t.shape for t in tensors], [t.dtype for t in tensors])
    node.outputs = [add_tensor(graph, output or name, shape, dtype)]
    graph.nodes.append(node)
    return node.outputs[0]


def copy_attrs(rank: int, perm: list[int] | None = None, expand: list[int] | None = None) -> dict[str, Attr]:
    """Attributes of a copy: plain, or transposing, or broadcasting."""
    return {"perm": perm or list(range(rank)), "expand": expand or [0] * rank}


def constant_value(graph: Graph, tensor: int) -> Array | None:
    """The value of a constant tensor, or None."""
    weight = graph.tensors[tensor].weight
    if weight < 0:
        return None
    source = graph.weights[weight].source
    assert source is not None
    return source.load().reshape(graph.tensors[tensor].shape)
