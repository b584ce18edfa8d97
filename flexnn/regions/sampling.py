"""Sampling: which weights a model with open shapes needs, and in which form, found by walking it before any run.

The model is walked at a few made-up shapes, both branches of every If and one iteration of every Loop; what segments
would compute is made up, too (seeded), and host operators compute on that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from flexnn.graph.ir import DTYPES, Graph, GraphError
from flexnn.graph.model import Model, ModelNode, Port

from .region import Region
from .segment import Array, Segment
from .walk import Scope, Walker

SIDES = (64, 96, 32, 16, 128, 224, 8, 256, 512, 1, 1024, 3)
"""What an open dimension may be, tried in order."""
SAMPLES = 2
"""Shapes at which the model has to bind, if it binds at so many."""
TENSOR_MAX = 1 << 26
"""Most elements of an input that is made up."""


class _Collects:
    """Makes outputs up, and keeps the graphs."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.random = np.random.default_rng(0)

    def run(self, segment: Segment, inputs: Sequence[Array], held: int) -> list[Array]:
        self.graphs.append(segment.graph)
        tensors = [segment.graph.tensors[i] for i in segment.graph.outputs]
        return [made_up(self.random, tensor.shape, tensor.dtype) for tensor in tensors]

    def forget(self, segment: Segment) -> None:
        pass


class _MadeUpError(GraphError):
    """A host operator does not take what was made up: it says nothing of real numbers."""


class _Sampler(Walker):
    """Goes where a run could go."""

    def evaluated(self, node: ModelNode, inputs: Sequence[Array | None]) -> list[Array]:
        try:
            values = super().evaluated(node, inputs)
        except GraphError as error:
            raise _MadeUpError(str(error)) from None
        return [value if value.size else np.zeros([d or 2 for d in value.shape], value.dtype) for value in values]

    def control(
        self, node: ModelNode, bodies: Mapping[str, Region], scope: Scope, inputs: Sequence[Array | None]
    ) -> list[Array]:
        if node.op_type == "If":
            ways = [self.walk(body, Scope({}, scope)) for _, body in sorted(bodies.items())]
            return ways[-1]
        if node.op_type == "Loop":
            inputs = [np.array(1, np.int64), np.array(True), *inputs[2:]]
        return super().control(node, bodies, scope, inputs)


def made_up(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers around zero, of integers zeros and ones: they may be indices."""
    if DTYPES[dtype].kind == "f":
        return random.standard_normal(shape, np.float32).astype(DTYPES[dtype], copy=False)
    return random.integers(0, 2, shape).astype(DTYPES[dtype])


def sample(model: Model) -> list[Graph]:
    """The graphs of all segments that were met; where made-up numbers end each walk early, those met before. Raises
    GraphError, the first one, where the model binds to no shape.
    """
    found: list[Graph] = []
    partly: list[Graph] = []
    first: GraphError | None = None
    bound = 0
    for shapes in _candidates(model.graph.inputs):
        collects = _Collects()
        try:
            feeds = {
                port.name: made_up(collects.random, shape, str(port.dtype))
                for port, shape in zip(model.graph.inputs, shapes, strict=True)
            }
            _Sampler(model, collects).run(feeds)
        except _MadeUpError as error:
            partly += collects.graphs
            first = first or error
            continue
        except GraphError as error:
            first = first or error
            continue
        found += collects.graphs
        bound += 1
        if bound == SAMPLES:
            break
    if not bound and first and not partly:
        raise first
    return found or partly


def _candidates(ports: Sequence[Port]) -> Iterator[list[tuple[int, ...]]]:
    """Shapes of all inputs: equal names of dimensions get equal sizes; of three and more dimensions the first is 1."""
    seen = set()
    for side in SIDES:
        shapes = []
        for port in ports:
            dims = port.dims if port.dims is not None else ()
            batch = len(dims) > 1
            shapes.append(
                tuple(d if isinstance(d, int) else (1 if batch and not i else side) for i, d in enumerate(dims))
            )
        key = tuple(shapes)
        if key not in seen and all(np.prod(shape, dtype=float) <= TENSOR_MAX for shape in shapes):
            seen.add(key)
            yield shapes
