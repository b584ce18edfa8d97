"""Numbers made of the sizes of an open model's inputs, as far as these are stated: they are the same in each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .bind import sizes_of
from .ir import GraphError
from .lower import Const, array_const, depends, is_sizes
from .model import Constant, ModelNode
from .ports import Port
from .size_fold import fold_sizes
from .sizes import Function, Trail, is_size
from .sources import SizesSource

ANY = 2
"""Number that an open dimension has here: nothing that is found depends on it."""


class StatedSizes:
    """Numbers that are made of inputs' sizes: those that are the same whatever the open dimensions are."""

    def __init__(self, inputs: Sequence[Port], opset: int) -> None:
        trail = _Undecided()
        self._opset = opset
        self._shapes = {
            port.name: tuple([d if isinstance(d, int) else trail.given(ANY) for d in port.dims])
            for port in inputs
            if port.dims is not None
        }
        self._open: dict[str, Const] = {}
        """Numbers of which some depend on open dimensions."""

    def results(self, node: ModelNode, constants: Mapping[str, Constant]) -> list[Const] | None:
        """Return the outputs of a node of sizes, if they depend on no open dimension."""
        found = [_settled(value) for value in self._found(node, constants) or ()]
        if not any(map(depends, found)):
            return found or None
        self._open.update((name, value) for name, value in zip(node.output, found, strict=False) if is_sizes(value))
        return None

    def _found(self, node: ModelNode, constants: Mapping[str, Constant]) -> list[Const] | None:
        if node.op_type in ("Shape", "Size") and node.input[:1] and node.input[0] in self._shapes:
            return [sizes_of(node, self._shapes[node.input[0]])]
        if not self._open.keys() & set(node.input):
            return None
        given = [self._open.get(name) or _stated(constants.get(name)) for name in node.input]
        if any(name and value is None for name, value in zip(node.input, given, strict=True)):
            return None
        return fold_sizes(node, given, self._opset)


class _Undecided(Trail):
    """Trail of open dimensions: nothing is known about them."""

    def decided(self, function: Function, a: Any, b: Any) -> bool:
        """Refuse. Raises GraphError."""
        raise GraphError("an open dimension decides")


def _settled(value: Const) -> Const:
    """Return numbers of which none depends on an open dimension as others."""
    source = value.source
    if not isinstance(source, SizesSource) or any(map(is_size, source.numbers.flat)):
        return value
    return array_const(value.name, source.load())


def _stated(constant: Constant | None) -> Const | None:
    return None if constant is None else Const(constant.name, constant.shape, constant.dtype, constant.source)
