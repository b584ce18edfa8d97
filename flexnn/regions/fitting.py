"""Sizes of open dimensions that weights decide: the model declares them open, but runs at no others.

Exporters leave the features of a frame open where the program was traced with names for all sizes. The weights say
how many there are: a product has as many rows, a convolution as many channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from .region import Region
from .sampler import Collects, Sampler

TELLING = (61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137)
"""Sizes of which each tells one open dimension, as what nodes make of others is rarely one of them."""
ELEMENTS_MAX = 1 << 26
"""Most elements of a made-up input."""


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
    unused = unused_sources(model)
    while True:
        found = _decided(model, region, ports)
        for source in unused:
            source.used = False
        if found is None:
            return ports
        name, size = found
        ports = [
            port._replace(dims=tuple(size if own == name else d for own, d in zip(row, port.dims or (), strict=True)))
            for row, port in zip(dimension_names(ports), ports, strict=True)
        ]


def _decided(model: Model, region: Region, ports: Sequence[Port]) -> tuple[str, int] | None:
    """Return the name and the size of an open dimension that weights decide; None: a walk finds no other one."""
    names = sorted({name for row in dimension_names(ports) for name in row} - {""})
    if not names or len(names) > len(TELLING):
        return None
    told = dict(zip(TELLING, names, strict=False))
    shapes = shapes_at(ports, {name: size for size, name in told.items()})
    if max(map(prod, shapes)) > ELEMENTS_MAX:
        return None
    random = np.random.default_rng(0)
    feeds = {
        port.name: random_array(random, shape, DTYPES[str(port.dtype)])
        for port, shape in zip(ports, shapes, strict=True)
    }
    fits = _Fits(model, region, told)
    region.unmark()
    with suppress(GraphError), made_up_shapes():
        fits.run(feeds)
    return fits.decided


class _Fits(Sampler):
    """Sampler that stops at the first layer outside of branches and loops whose weights ask for another size."""

    decided: tuple[str, int] | None = None
    """The open dimension and the size that they ask for."""

    def __init__(self, model: Model, region: Region, told: dict[int, str]) -> None:
        """``told``: the dimension that each size tells."""
        super().__init__(model, Collects(), region)
        self._told = told

    def _computed(self, region: Region, node: ModelNode, inputs: Sequence[Array | None]) -> list[Array]:
        if not region.path:
            weights = [name in region.constants for name in node.input]
            shapes = [None if array is None else array.shape for array in inputs]
            for size, asked in _pairs(node, shapes, weights):
                if size != asked and size in self._told:
                    self.decided = self._told[size], asked
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


def _layers(node: ModelNode) -> Sequence[Layer]:
    if node.op_type == "Gemm":
        return [Layer(0, 0 if node.attrs.get("transA") else 1, 1, 1 if node.attrs.get("transB") else 0)]
    return LAYERS.get(node.op_type, ())
