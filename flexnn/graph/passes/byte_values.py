"""Bytes as the passes over 8-bit activations see them: which tensors hold them in what steps, and in the form that
operators compute with, uint8. An int8 activation is held as its number plus 128, and so is its zero point.
"""

from __future__ import annotations

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..build import add_array, constant_value
from ..ir import NARROW, Array, Graph, Node
from ..sources import KeptSource, MappedSource, RestoredSource
from .rewrite import Rewriter

CODES = np.arange(256, dtype=np.uint8)
"""Every byte."""


@quick_dataclass(frozen=True, slots=True)
class Steps:
    """The meaning of uint8: (byte - zero) times scale."""

    scale: float
    zero: int

    def restored(self, values: Array) -> Array:
        """Bytes as float32."""
        return ((values.astype(np.int32) - self.zero).astype(np.float32) * np.float32(self.scale)).astype(np.float32)

    def rounded(self, values: Array) -> Array:
        """Floats as bytes, rounded half to even; NaN as the zero point's byte is nothing that anybody relies on."""
        with np.errstate(invalid="ignore", over="ignore"):
            steps = np.rint(values.astype(np.float32) / np.float32(self.scale)) + np.float32(self.zero)
            return np.asarray(np.clip(np.nan_to_num(steps, nan=0.0), 0, 255), np.uint8)


CONSTANT_MAX = 1 << 18
"""Most numbers of a constant that passes look at."""


def is_restoring(node: Node | None) -> bool:
    """Whether a node makes floats of whole numbers."""
    return node is not None and node.op == "quantize" and node.attrs["to"] == "f32"


def is_rounding(graph: Graph, node: Node | None) -> bool:
    """Whether a node makes bytes of floats."""
    if node is None or node.op != "quantize" or node.attrs["to"] not in NARROW:
        return False
    return graph.tensors[node.inputs[0]].dtype == "f32"


def steps_of(graph: Graph, node: Node) -> Steps | None:
    """The steps of a ``quantize`` node whose scale and zero point are one constant number each."""
    bytes_dtype = graph.tensors[node.inputs[0] if is_restoring(node) else node.outputs[0]].dtype
    if bytes_dtype not in NARROW or len(node.inputs) > 3:
        return None
    values = [constant_value(graph, i) if graph.tensors[i].size == 1 else None for i in node.inputs[1:]]
    if any(v is None for v in values):
        return None
    scale, *zero = (v.reshape(-1)[0] for v in values if v is not None)
    if not np.isfinite(scale) or not scale > 0:
        return None
    shift = 128 if bytes_dtype == "i8" else 0
    return Steps(float(scale), (int(zero[0]) if zero else 0) + shift)


class Bytes(Rewriter):
    """A rewriter that knows uint8 twins of int8 activations."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._twins: dict[int, int] = {}

    def restored(self, tensor: int) -> tuple[int, Steps] | None:
        """The bytes, as uint8, that ``tensor`` is restored from, and their steps."""
        node = self.producer.get(tensor)
        if node is None or not is_restoring(node):
            return None
        steps = steps_of(self.graph, node)
        if steps is None:
            return None
        twin = self.twin(node.inputs[0])
        return None if twin is None else (twin, steps)

    def restored_by_one(self, tensor: int) -> int | None:
        """The bytes that ``tensor`` is restored from by one scale and zero point, which a run may compute."""
        node = self.producer.get(tensor)
        if node is None or not is_restoring(node) or any(self.graph.tensors[i].size != 1 for i in node.inputs[1:]):
            return None
        return node.inputs[0] if self.graph.tensors[node.inputs[0]].dtype == "u8" else None

    def twin(self, tensor: int) -> int | None:
        """A tensor of bytes as uint8; None for an int8 that a node makes which knows no uint8."""
        if self.graph.tensors[tensor].dtype == "u8":
            return tensor
        return self._twins.get(tensor)

    def set_twin(self, tensor: int, twin: int) -> None:
        """Say that ``twin`` holds the uint8 form of an int8 tensor."""
        self._twins[tensor] = twin

    def is_table(self, tensor: int, codes: Array) -> bool:
        """Whether a table holds these bytes, whatever its type."""
        return bool((self.table_of(tensor).view(np.uint8) == codes).all())

    def table_of(self, tensor: int) -> Array:
        """The bytes of a table."""
        values = constant_value(self.graph, tensor)
        assert values is not None
        return values

    def table(self, before: Node, tensor: int, table: Array) -> int:
        """Look bytes of a tensor up in 256 bytes; the bytes themselves where the table changes nothing."""
        if (table == CODES).all():
            return tensor
        values = add_array(self.graph, f"{before.name}.table", table.astype(np.uint8))
        return self.emit(before, "table_u8", [tensor, values], {})

    def restore(self, before: Node, tensor: int, steps: Steps) -> int:
        """Bytes as floats again, for what computes with floats."""
        scale = add_array(self.graph, f"{before.name}.scale", np.array(steps.scale, np.float32))
        zero = add_array(self.graph, f"{before.name}.zero", np.array(steps.zero, np.uint8))
        return self.emit(before, "quantize", [tensor, scale, zero], {"to": "f32", "axis": 0})


def restored_constant(graph: Graph, tensor: int) -> tuple[Array, Steps] | None:
    """The bytes, as uint8, and steps of a constant that the model states so; None for others."""
    weight, shape = graph.tensors[tensor].weight, graph.tensors[tensor].shape
    if weight < 0 or graph.tensors[tensor].size > CONSTANT_MAX:
        return None
    source, moves = graph.weights[weight].source, []
    while isinstance(source, (KeptSource, MappedSource)) and not isinstance(source, RestoredSource):
        if isinstance(source, MappedSource):
            moves.append(source.function)
        source = source.base
    if not isinstance(source, RestoredSource) or source.whole is None or not source.scale > 0:
        return None
    codes = source.whole.load()
    steps = Steps(source.scale, source.zero + (128 if codes.dtype == np.int8 else 0))
    codes = codes.view(np.uint8) ^ 128 if codes.dtype == np.int8 else codes
    for move in reversed(moves):
        codes = move(codes)
    value = constant_value(graph, tensor)
    same = codes.size == graph.tensors[tensor].size and codes.dtype == np.uint8 and value is not None
    codes = codes.reshape(shape) if same else codes
    return (codes, steps) if same and (steps.restored(codes) == value).all() else None
