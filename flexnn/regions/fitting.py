"""Sizes of open dimensions that weights decide: the model declares them open, but runs at no others.

Exporters leave the features of a frame open where the program was traced with names for all sizes. The weights say
how many there are: a product has as many rows, a convolution as many channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import NamedTuple

import numpy as np

from flexnn.graph.ir import DTYPES, Array, GraphError, Shape
from flexnn.graph.model import Model, ModelNode
from flexnn.graph.model_sources import unused_sources
from flexnn.graph.ports import Port
from flexnn.graph.random_array import random_array
from flexnn.graph.state import made_up_shapes

from .dimensions import dimension_names, shapes_at
from .region import Nodes, Region
from .sampler import Collects, Sampler

TELLING = (61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137)
"""Sizes of which each tells one open dimension, as what nodes make of others is rarely one of them."""
SCALES = (1, 4)
"""Factors of these sizes: windows of some layers are larger than what others leave of the small ones."""
ELEMENTS_MAX = 1 << 24
"""Most elements of a made-up input."""
WALKS_MAX = 48
"""Most walks through a model."""


class Layer(NamedTuple):
    """Axes of a layer that have one size."""

    operand: int
    axis: int
    weights: int
    """Operand that its weights are."""
    weights_axis: int
    is_grouped: bool = False
    """Whether the weights are those of one of its groups."""


LAYERS = {
    **dict.fromkeys(("MatMul", "MatMulInteger"), (Layer(0, -1, 1, -2), Layer(1, -2, 0, -1))),
    **dict.fromkeys(("Conv", "ConvInteger"), (Layer(0, 1, 1, 1, is_grouped=True),)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (Layer(0, 2, 1, 2),)),
    "ConvTranspose": (Layer(0, 1, 1, 0),),
    "QLinearConv": (Layer(0, 1, 3, 1, is_grouped=True),),
    "QLinearMatMul": (Layer(0, -1, 3, -2),),
}
"""The operators whose weights decide sizes, but Gemm, whose attributes say which."""

ALIGNED = ("Add", "Sub", "Mul", "Div")
"""Operators of which a constant decides sizes, too: they could be 1 as well, which is no number of features."""


def fitted(model: Model, region: Region, ports: Sequence[Port]) -> Sequence[Port]:
    """Return the inputs with the sizes of those open dimensions that weights outside of branches and loops decide.
    Which constants count as used stays as it is.
    """
    unused, walks = unused_sources(model), _Walks(model, region)
    while True:
        found = walks.decided(ports)
        for source in unused:
            source.used = False
        if found is None:
            return ports
        name, size = found
        ports = [
            port._replace(dims=tuple(size if own == name else d for own, d in zip(row, port.dims or (), strict=True)))
            for row, port in zip(dimension_names(ports), ports, strict=True)
        ]


class Misfit(NamedTuple):
    """A size that a layer has, and its weights ask to be another."""

    node: int
    size: int
    asked: int


class _Walks:
    """Walks that look for layers whose weights ask for other sizes."""

    def __init__(self, model: Model, region: Region) -> None:
        self._model, self._region = model, region
        self._left = WALKS_MAX

    def decided(self, ports: Sequence[Port]) -> tuple[str, int] | None:
        """Return the name and the size of an open dimension that weights decide; None: no other one is found."""
        names = list(dict.fromkeys(name for row in dimension_names(ports) for name in row if name))
        if not names or len(names) > len(TELLING):
            return None
        for scale in SCALES:
            sizes = {name: scale * size for name, size in zip(names, TELLING, strict=False)}
            misfit, _ = self._walked(ports, sizes)
            if misfit is not None:
                break
        else:
            return None
        for name, size in sizes.items():
            if size == misfit.size:
                return name, misfit.asked
        for name in reversed(names):
            found = self._searched(ports, sizes, name, misfit)
            if found is not None:
                return name, found
        return None

    def _searched(self, ports: Sequence[Port], sizes: dict[str, int], name: str, misfit: Misfit) -> int | None:
        """Return the size of one open dimension at which a layer has the size that its weights ask for: halves an
        interval at whose ends it has less and more. Sizes at which no walk reaches the layer are too small for it.
        """

        def size_at(d: int) -> int:
            found, lowered = self._walked(ports, sizes | {name: d})
            if lowered >> misfit.node & 1:
                return misfit.asked
            return found.size if found is not None and found.node == misfit.node else 0

        low, high = 0, sizes[name]
        found = misfit.size
        while found < misfit.asked:
            low, high = high, 2 * high
            before, found = found, size_at(high)
            if found <= before:
                return None  # it depends on another dimension, or there is no room for more
        while high - low > 1 and found != misfit.asked:
            middle = (low + high) // 2
            found = size_at(middle)
            low, high = (middle, high) if found < misfit.asked else (low, middle)
        return high if found == misfit.asked else None

    def _walked(self, ports: Sequence[Port], sizes: Mapping[str, int]) -> tuple[Misfit | None, Nodes]:
        """Return the first misfit at these sizes of the open dimensions, and the nodes that kernels compute."""
        self._left -= 1
        shapes = shapes_at(ports, sizes)
        if self._left < 0 or max(map(prod, shapes)) > ELEMENTS_MAX:
            return None, 0
        random = np.random.default_rng(0)
        feeds = {
            port.name: random_array(random, shape, DTYPES[str(port.dtype)])
            for port, shape in zip(ports, shapes, strict=True)
        }
        fits = _Fits(self._model, Collects(), self._region)
        self._region.unmark()
        with suppress(GraphError), made_up_shapes():
            fits.run(feeds)
        return fits.misfit, fits.walked.lowered.get(self._region.path, 0)


class _Fits(Sampler):
    """Sampler that stops at the first layer outside of branches and loops whose weights ask for another size."""

    misfit: Misfit | None = None

    def _computed(self, region: Region, node: ModelNode, inputs: Sequence[Array | None]) -> list[Array]:
        if not region.path:
            shapes = [None if array is None else array.shape for array in inputs]
            weights = [name in region.constants for name in node.input]
            pairs = _rows(*inputs) if node.op_type == "Reshape" else _pairs(node, shapes, weights)
            for size, asked in pairs:
                if size != asked:
                    self.misfit = Misfit(region.makers[node.output[0]], size, asked)
                    raise GraphError(f"{node.where}: its weights ask for {asked}")
        return super()._computed(region, node, inputs)


def _pairs(node: ModelNode, shapes: Sequence[Shape | None], weights: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Iterate over sizes of a node's operands, each with the one that its weights ask for there."""
    if node.op_type in ALIGNED and len(shapes) == 2 and weights[0] != weights[1]:
        own, asked = (shapes[0], shapes[1]) if weights[1] else (shapes[1], shapes[0])
        yield from ((d, n) for d, n in zip(reversed(own or ()), reversed(asked or ()), strict=False) if n > 1)
    for layer in _layers(node):
        if max(layer.operand, layer.weights) >= len(shapes) or not weights[layer.weights]:
            continue
        own, asked = shapes[layer.operand], shapes[layer.weights]
        if own and asked and -len(own) <= layer.axis < len(own) and len(asked) > 1:
            group = node.attrs.get("group", 1) if layer.is_grouped else 1
            yield own[layer.axis], asked[layer.weights_axis] * (group if isinstance(group, int) else 1)


def _rows(array: Array | None = None, dims: Array | None = None) -> Iterator[tuple[int, int]]:
    """Iterate over the elements behind the first dimension of a tensor that does not reshape to rows of a stated number
    of elements, and that number: a product comes next.
    """
    asked = prod(map(int, dims[1:])) if dims is not None and dims.ndim == 1 and dims.size > 1 and dims[0] == -1 else 0
    if array is not None and asked > 0 and array.size % asked:
        yield prod(array.shape[1:]), asked


def _layers(node: ModelNode) -> Sequence[Layer]:
    if node.op_type == "Gemm":
        return [Layer(0, 0 if node.attrs.get("transA") else 1, 1, 1 if node.attrs.get("transB") else 0)]
    return LAYERS.get(node.op_type, ())
