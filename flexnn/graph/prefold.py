"""Constants of constants of models with open shapes are made once, while compiling: each binding would make them anew.

So they are constants of the model: an artifact holds them as weights, and stored templates name them. Sizes that an
input always has, as a picture's of which only the batch is open, are such constants, too.
What binding leaves in the file until it is packed, or makes out of little, stays as it is (fold.py).
"""

from __future__ import annotations

from collections import ChainMap, Counter

from .allowance import allowance
from .evaluate.of_node import evaluate_node
from .fold import folds, is_lazy, made
from .ir import GraphError
from .ledger import current
from .lower import Const, array_const
from .model import Constant, Model, ModelGraph, ModelNode, reads
from .model_sources import model_sources, unused_sources
from .sources import ModelSource
from .stated_sizes import StatedSizes

BYTES_MAX = 256 << 20
"""Most bytes of all constants that are made; at most a quarter of what compiling may compute with, and of what is left
of its budget."""
HALF = 10
"""TensorProto.DataType of float16, which binding widens."""


def fold_constants(model: Model) -> None:
    """Replace nodes whose inputs are constants by constants, as far as there is room."""
    found = allowance()
    unused = unused_sources(model)
    last = max((source.index for source in model_sources(model)), default=-1)
    ledger = current()
    rooms = [max(left.left, 0) // 4 for left in (found, ledger) if left is not None]
    room = min(BYTES_MAX, *rooms) if rooms else BYTES_MAX
    _Folding(model.opset, room, last + 1).visit(model.graph, ChainMap(), StatedSizes(model.graph.inputs, model.opset))
    unused += [source for source in model_sources(model) if source.index > last]
    for source in unused:  # what only these constants are made of is not stored
        source.used = False


class _Folding:
    def __init__(self, opset: int, room: int, index: int) -> None:
        self._opset, self._room, self._next = opset, room, index

    def visit(self, graph: ModelGraph, outer: ChainMap[str, Constant], sizes: StatedSizes | None = None) -> None:
        """Fold nodes of a graph and of those inside it. ``sizes``: of the model's inputs, whose names inner graphs may
        give to others.
        """
        constants = outer.new_child(graph.constants)
        kept, outputs = [], {port.name for port in graph.outputs}
        readers = Counter(name for node in graph.nodes for name in reads(node))
        own: set[str] = set()
        for node in graph.nodes:
            results = None if outputs.intersection(node.output) else self._folded(node, constants, sizes)
            if results is None:
                kept.append(node)
                for inner in node.graphs:
                    self.visit(inner, constants)
                continue
            own.update(constant.name for constant in results)
            graph.constants.update((constant.name, constant) for constant in results)
            readers.subtract(reads(node))
            for name in own.intersection((*node.input, *node.output)):
                if not readers[name]:
                    self._room += graph.constants.pop(name).nbytes
                    own.remove(name)
        graph.nodes = kept

    def _folded(
        self, node: ModelNode, constants: ChainMap[str, Constant], sizes: StatedSizes | None
    ) -> list[Constant] | None:
        """Return the outputs of a node; None where it stays."""
        results = self._evaluated(node, constants) or (sizes.results(node, constants) if sizes is not None else None)
        if not results or len(results) < len(node.output) or not all(node.output):
            return None
        self._room -= sum(value.nbytes for value in results)
        return [self._constant(value) for value in results]

    def _evaluated(self, node: ModelNode, constants: ChainMap[str, Constant]) -> list[Const] | None:
        """Return the outputs of a node of constants."""
        if not node.input or not folds(node) or "." in node.op_type or node.domain or node.attrs.get("to") == HALF:
            return None
        stated = [constants.get(name) if name else None for name in node.input]
        if any(name and value is None for name, value in zip(node.input, stated, strict=True)):
            return None
        given = [None if v is None else Const(v.name, v.shape, v.dtype, v.source) for v in stated]
        if any(v is not None and (v.dtype == "f16" or v.nbytes > self._room) for v in given) or is_lazy(node, given):
            return None
        try:
            if made(node, given) is not None:
                return None
            inputs = [None if v is None else v.load() for v in given]
            arrays = evaluate_node(node, inputs, self._opset, self._room)
            results = [array_const(name, array) for name, array in zip(node.output, arrays, strict=False)]
        except GraphError:  # binding says what is wrong, or leaves it to the run
            return None
        return None if any(value.dtype == "f16" for value in results) else results

    def _constant(self, value: Const) -> Constant:
        self._next += 1
        return Constant(value.name, value.shape, value.dtype, ModelSource(self._next - 1, value.source))
