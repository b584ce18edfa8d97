"""Decisions of the search for a plan: enough to make the plan once more, without the search.

Addresses are no decisions: they are computed again, and checked as those of every plan. Kernels are named, as their
number among a node's kernels depends on measured times. Decisions may come from a file (run/known_plans.py): what does
not fit the graph is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flexnn import _core

from .drafts import Draft, Filled, Records
from .types import Costs

if TYPE_CHECKING:
    from .bands import Form

NODES_MAX = 2_000
"""Most nodes of graphs whose decisions are told: those of more take longer to read than they save."""
ROW_BYTES = 96
"""Bytes of a node in decisions that a session keeps: references, its rank, and a few rows that differ."""
_Rows = list[tuple[int, int, int]]


class Decisions(NamedTuple):
    """All that a plan consists of beside its addresses."""

    placement: int
    """Index of the activations' placement among those that are tried."""
    working_bytes: int
    """Bytes of the arena's working part."""
    from_top: bool
    """Whether loads lie at the highest addresses that are free."""
    kernels: list[tuple[str, int]]
    """Kernel of each node, and how many tiles that transforms at once."""
    slices: _Rows
    """Panels of each node's slices, its pinned panels, and a bit for each pinned constant."""
    filled: Filled | None
    """Way in which more slices were pinned; None: none were."""
    regions: list[tuple[int, int, int, int]] | None = None
    """Walks in bands: first node, last node, bands, and whether maps grow over others. None: the graph as it is."""
    way: int = 0
    """Index of the graph that was walked."""
    bound_ms: float = 0.0
    """Time that no plan of the budget beats."""
    pace: float = 0.0
    """Bytes that the storage gave in the time of the fastest kernels of the graph as it is."""

    @classmethod
    def of(cls, draft: Draft, costs: Costs, placement: int) -> Decisions | None:
        """Return what makes a draft; None where that is too much to tell."""
        if len(costs.nodes) > NODES_MAX:
            return None
        rows: list[tuple[int, int, int, int]] = draft.choices.tolist()
        variants = [node.variants[row[0]] for node, row in zip(costs.nodes, rows, strict=True)]
        known: dict[Any, Any] = {}  # many rows are equal, and sessions with open shapes keep them
        kernels = [known.setdefault(row, row) for row in ((v.kernel, v.tile_block) for v in variants)]
        slices = [known.setdefault(row[1:], row[1:]) for row in rows]
        return cls(placement, draft.working_bytes, draft.from_top, kernels, slices, draft.filled)

    def in_form(self, form: Form | None, bound_ms: float, pace: float) -> Decisions:
        """Return the decisions with the form of the graph that they are for, the bound and the pace."""
        found = self._replace(bound_ms=bound_ms, pace=pace)
        if form is None:
            return found
        rows = [(region.first, region.last, region.bands, region.pairs) for region in form.regions]
        return found._replace(regions=rows, way=form.way)

    def choices(self, costs: Costs, *, resized: bool = False) -> Records:
        """Return the choice of each node. Raises ValueError where a node has no such kernel; if it is ``resized``, one
        with other blocks will do, or else the fastest.
        """
        known: dict[int, dict[tuple[str, int], int]] = {}
        made = []
        for node, kernel, row in zip(costs.nodes, self.kernels, self.slices, strict=True):
            numbers = known.get(id(node.variants))
            if numbers is None:
                numbers = {(v.kernel, v.tile_block): i for i, v in reversed([*enumerate(node.variants)])}
                known[id(node.variants)] = numbers
            number = numbers.get(kernel)
            if number is None and not resized:
                raise ValueError(f"no kernel {kernel}")
            if number is None:
                number = next((i for i, v in enumerate(node.variants) if v.kernel == kernel[0]), 0)
            made.append((number, *row))
        return np.array(made, _core.CHOICE_DTYPE)

    @property
    def nbytes(self) -> int:
        """Bytes that they take, about."""
        return ROW_BYTES * len(self.slices)

    def described(self) -> dict[str, Any]:
        """Return the decisions as an object for JSON."""
        return self._asdict() | {"filled": self.filled and [*self.filled]}


def read(found: dict[str, Any]) -> Decisions:
    """Return the decisions that ``described`` told. Raises ValueError, TypeError or KeyError for anything else."""
    given, regions = found["filled"], found["regions"]
    filled = None
    if given is not None:
        rank, bytes_max, next_bytes_max, looks = given
        filled = Filled(tuple(_numbers(rank)), _whole(bytes_max), _whole(next_bytes_max), _whole(looks, 31))
    return Decisions(
        placement=_whole(found["placement"], 31),
        working_bytes=_whole(found["working_bytes"]),
        from_top=bool(found["from_top"]),
        kernels=[(str(kernel), _whole(block, 31)) for kernel, block in found["kernels"]],
        slices=_rows(found["slices"]),
        filled=filled,
        regions=None if regions is None else _regions(regions),
        way=_whole(found["way"], 31),
        bound_ms=_numbers([found["bound_ms"]])[0],
        pace=_numbers([found["pace"]])[0],
    )


def _rows(found: Sequence[Sequence[object]]) -> _Rows:
    return [(_whole(a, 31), _whole(b, 31), _whole(c, 31)) for a, b, c in found]


def _regions(found: Sequence[Sequence[object]]) -> list[tuple[int, int, int, int]]:
    return [(_whole(a, 31), _whole(b, 31), _whole(c, 31), _whole(d, 1)) for a, b, c, d in found]


def _whole(found: object, bits: int = 62) -> int:
    if not isinstance(found, int) or not 0 <= found < 1 << bits:
        raise ValueError(found)
    return int(found)


def _numbers(found: Sequence[object]) -> list[float]:
    if not all(isinstance(number, int | float) and abs(number) < 1e30 for number in found):  # no NaN either
        raise ValueError(found)
    return [float(number) for number in found]  # type: ignore[arg-type]
