"""Inputs and outputs of a model as it declares them: what every session knows of its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Dim = int | str | None


class Port(NamedTuple):
    """An input or output of a graph as it is declared."""

    name: str
    dtype: str | None
    """None: not declared (nested graphs)."""
    dims: tuple[Dim, ...] | None
    """None: not even the number of dimensions is declared."""


def renamed(port: Port, sizes: Mapping[str, int]) -> Port:
    """Return the port with these sizes in place of the names of its dimensions."""
    if port.dims is None:
        return port
    return port._replace(dims=tuple(sizes.get(d, d) if isinstance(d, str) else d for d in port.dims))


def open_hint(port: Port) -> str:
    """Return the message for an input whose shape is open, with the option that would bind it."""
    if port.dims is None:
        return f"its shape is not known; give one, for example --shape {port.name}=1,3,224,224"
    usual: list[Dim] = [1, 3, 224, 224] if len(port.dims) == 4 else [1] * len(port.dims)
    filled = ",".join(str(d if isinstance(d, int) else u) for d, u in zip(port.dims, usual, strict=True))
    shown = ",".join("?" if d is None else str(d) for d in port.dims)
    return f"dimensions [{shown}] are not all known; give them, for example --shape {port.name}={filled}"
