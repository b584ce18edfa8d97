"""Templates that an artifact tells by another one: the same graph but for sizes (likeness.py), as few arrays.

Such a template gives the sizes of its graph. Its nodes are read when a graph is asked for, which is rare: what is
planned for the other template serves it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from flexnn import _core

from .ir import RANK_MAX, Array, Graph, GraphError, Shape, Weight
from .late import Late
from .likeness import Likeness
from .replay import Numbers, Replay
from .template import NODE_BYTES, Columns, Template
from .template_reader import CheckedTemplate, check_words

LIKE = ("shapes", "strides", "offsets", "roots", "widths", "order", "also", "packed", "whole", "floats")
"""Arrays that tell a template, in order."""
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


class Like(NamedTuple):
    """Arrays that tell a template by another one, its base."""

    columns: Columns
    order: Array
    also: Array
    """Fields of a Likeness, as is ``order``."""
    packed: Array
    whole: Array
    floats: Array
    """Fields of a Template, as are the two before."""

    @staticmethod
    def of(template: Template, base: Template, found: Likeness) -> Like | None:
        """Return what tells a template, whose weights are the base's in the same order, by that base to which it has
        this likeness; None where constants are not those of the base.
        """
        own = [template.tensors[i][6] for i in found.order.tolist()]
        if any(held >= 0 and held != own[i] for i, (*_, held) in enumerate(base.tensors)):
            return None
        columns = template.find_columns()
        return Like(columns, found.order, found.also, template.packed, template.whole, template.floats)

    @property
    def arrays(self) -> list[Array]:
        """The arrays, as an artifact holds them."""
        return [*self.columns, *self[1:]]

    @staticmethod
    def read(arrays: Sequence[Array], replay: Replay, base: Template) -> Like:
        """Return what such arrays tell of a template with this trail. Raises ValueError."""
        shapes, strides, offsets, roots, widths, order, also, packed, whole, floats = arrays
        count, most = len(replay.words), len(roots)
        for array, shape, dtype in (
            (shapes, (most, shapes.shape[-1]), _INT32),
            (strides, shapes.shape, _INT32),
            (offsets, (most,), _INT32),
            (roots, (most,), _INT32),
            (widths, (most,), _INT64),
            (order, (len(base.tensors),), _INT64),
            (also, (2, also.shape[-1]), _INT64),
            (packed, (len(base), _core.PARAM_WORDS), _INT32),
        ):
            if array.shape != shape or array.dtype != dtype:
                raise ValueError("tensors, parameters or a likeness of a template are malformed")
        if shapes.shape[-1] > RANK_MAX:
            raise ValueError("tensors of a template have too many dimensions")
        columns, ports = (shapes, strides, offsets, roots, widths), np.array([*base.inputs, *base.outputs_at], _INT32)
        _core.check_told(columns, replay.floats, order, also, ports, count)
        for words in (whole, floats):
            check_words(words, packed.shape, count)
        return Like(columns, order, also, packed, whole, floats)


class LikeTemplate(CheckedTemplate):
    """A template that is told by another one. ``read`` returns it with its nodes. Raises GraphError."""

    __slots__ = ("_complete", "_places", "_read", "base", "likeness")

    def __init__(self, replay: Replay, base: Template, like: Like, read: Callable[[], Template]) -> None:
        super().__init__(replay, [], [], [], [], [], [], like.packed, like.whole, like.floats, like.columns)
        self.base = base
        self.likeness = Likeness(like.order, like.also)
        self._read = read
        self._complete: Template | None = None
        self._places: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self.base)

    @property
    def ops(self) -> list[str]:
        """Operator of each node."""
        return self.base.ops

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, about."""
        arrays = (*self.find_columns(), *self.likeness, self.packed, self.whole, self.floats)
        own = NODE_BYTES + self.replay.nbytes + sum(array.nbytes for array in arrays)
        return own + (self._complete.nbytes if self._complete is not None else 0)

    @property
    def complete(self) -> Template:
        """The template with its nodes."""
        if self._complete is None:
            made = self._read()
            if len(made.nodes) != len(self) or len(made.tensors) != len(self.find_columns()[2]):
                raise GraphError("a stored template has other nodes than it is told by")
            self._complete = made
        return self._complete

    @property
    def weights(self) -> list[Weight]:
        """Weights whose numbers are the same at all sizes."""
        return self.base.weights

    def outputs(self, values: Numbers) -> list[tuple[Shape, str]]:
        """Return shape and type of each output of the graph."""
        shapes, order = self.find_columns()[0], self.likeness.order
        found = []
        for i in self.base.outputs_at:
            indices = [k for k in shapes[order[i]].tolist() if k >= 0]
            found.append((tuple(values.words[indices].tolist()), self.base.tensors[i][2]))
        return found

    def maker(self, tensor: int) -> Late | None:
        """Return what makes the numbers of a constant; None where they do not depend on sizes."""
        return self.base.maker(self._place(tensor))

    def constant(self, tensor: int, values: Numbers) -> Array:
        """Return the numbers of a tensor that is a constant."""
        return self.base.constant(self._place(tensor), values)

    def _place(self, tensor: int) -> int:
        """Return the tensor of the base that one is."""
        if self._places is None:
            order = self.likeness.order.tolist()
            self._places = {order[at]: at for at, row in enumerate(self.base.tensors) if row[6] >= 0}
        return self._places[tensor]

    def at(self, values: Numbers) -> Graph:
        """Return the graph. Raises GraphError where nodes, weights and tensors do not fit together."""
        return self.complete.at(values)
