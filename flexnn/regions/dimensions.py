"""Open dimensions of a model's inputs: their names, and those that a decoder's caches and tokens have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flexnn.graph.ports import Port


def dimension_names(ports: Sequence[Port]) -> list[list[str]]:
    """Return the names of the dimensions of each input; dimensions of one name have one size, "" is a known size."""
    return [
        ["" if isinstance(d, int) else d or f"{port.name}/{i}" for i, d in enumerate(port.dims or ())] for port in ports
    ]


def shapes_at(ports: Sequence[Port], sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return the shapes of all inputs at these sizes of their open dimensions."""
    return [
        tuple([sizes[n] if n else int(d or 0) for n, d in zip(row, port.dims or (), strict=True)])
        for row, port in zip(dimension_names(ports), ports, strict=True)
    ]


class Caches(NamedTuple):
    """Open dimensions of a decoder that takes its caches of keys and values from its caller, by their names."""

    held: list[str]
    """Dimensions that inputs of three or more dimensions share behind their first one."""
    tokens: str | int
    """Dimension of the new tokens, the last one of the first matrix of integers, or their number; 0: it is unknown."""
    totals: list[str]
    """Last dimensions of further such matrices, which no other input has: they may count what is held and new."""

    @classmethod
    def of(cls, ports: Sequence[Port]) -> Caches:
        """Return those of a model with these inputs."""
        names = dimension_names(ports)
        inner = [name for row in names if len(row) > 2 for name in set(row[1:]) - {""}]
        held = sorted({name for name in inner if inner.count(name) > 1})
        rows = [(row, port) for row, port in zip(names, ports, strict=True) if _is_of_tokens(row, port)]
        if not held or not rows:
            return cls(held, 0, [])
        first, port = rows[0]
        last = port.dims[-1] if port.dims else 0
        tokens = first[-1] or (last if isinstance(last, int) else 0)
        others = {name for row in names for name in row[:-1]} | {r[-1] for r in names if len(r) not in (0, 2)}
        totals = dict.fromkeys(row[-1] for row, _ in rows[1:])
        return cls(held, tokens, [name for name in totals if name not in {"", tokens, *held, *others}])

    def summed(self, sizes: dict[str, int]) -> dict[str, int]:
        """Return sizes in which each total is what is held and new together, where there is one kind of cache."""
        if len(self.held) != 1 or not self.tokens:
            return sizes
        new = self.tokens if isinstance(self.tokens, int) else sizes[self.tokens]
        return sizes | dict.fromkeys(self.totals, sizes[self.held[0]] + new)


def _is_of_tokens(row: Sequence[str], port: Port) -> bool:
    return len(row) == 2 and port.dtype in ("i64", "i32", "bool")
