"""Plans for other sizes: a program that was planned once runs the same nodes at other sizes, with the same weights in
the same places.

Only what sizes decide is computed again: parameters, windows, places of activations and workspaces. A program that
pins everything gets new places; one that reads weights while it runs keeps all of its places, so it serves whatever is
not larger than what it was planned for. All programs that come from one plan share its pinned weights in the arena.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import DTYPES, Graph
from flexnn.graph.likeness import Likeness
from flexnn.graph.operators import OPERATORS

from .costs import fastest_conv
from .report import Plan
from .setting import Setting
from .types import I64, Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KH, _KW = ([name for name, _ in _core.FIELDS["conv"]].index(field) for field in ("kh", "kw"))
RANGE = 2
"""Outputs of convolutions may be this many times as large or as small in all as those that kernels were chosen for.
Beyond, where there is no budget and a plan pins everything, kernels are chosen anew: one that is right for small maps
may be slow for large ones.
"""
_NONE = np.zeros((3, 0), np.int32)


class Sizes(NamedTuple):
    """Numbers that binding to sizes decides, of a graph of which all else is known."""

    params: NDArray[np.int32]
    """Parameters of each node."""
    nbytes: I64
    """Bytes of each tensor."""
    offsets: I64
    """Bytes from the start of its root's storage to each tensor."""


class Refitted(NamedTuple):
    """A program for other sizes, made of a plan."""

    program: Program
    working_bytes: int
    edits: int
    """Number of words in which nodes and steps differ from the plan's."""


class Refit:
    """Maker of plans for other sizes, out of a plan of ``graph``. ``plan`` runs nodes one by one, in the graph's order.
    ``setting`` is what kernels are chosen by where sizes are far from the plan's; None: they stay.
    """

    def __init__(self, plan: Plan, graph: Graph, setting: Setting | None = None) -> None:
        program, nodes = plan.program, plan.program.nodes
        self._setting, self._plan, self._program = setting, plan, program
        self._is_pinned = not len(program.loads) and not len(program.tables)
        sizes = sizes_of(graph)
        self._io = np.array(list(dict.fromkeys([*graph.inputs, *graph.outputs])), np.int64)
        conv = np.flatnonzero(nodes["op"] == _core.OPS.index("conv"))
        self._choosing = conv[nodes["params"][conv][:, (_KH, _KW)].prod(axis=1) > 1]
        """Convolutions that have several kernels."""
        self._maps = np.array([graph.nodes[i].outputs[0] for i in self._choosing.tolist()], np.int64)
        self._map_bytes = int(sizes.nbytes[self._maps].sum())
        base = program.arena_bytes - plan.working_bytes
        root, operands = np.array([graph.root(i) for i in range(len(graph.tensors))], np.int64), _operands(graph)
        first, last, at = _lives(graph, program, root, operands, sizes.offsets)
        may_work = nodes["workspace_bytes"] > 0
        may_work[self._choosing] |= self._is_pinned and setting is not None
        working = np.flatnonzero(may_work)
        roots = np.array(list(first), np.int64)
        places = np.array([*at.values(), *nodes["workspace_offset"][working].tolist()], np.int64) - base
        self._core = _core.Refit(
            nodes=nodes,
            steps=program.steps,
            step_counts=np.bincount(program.steps["node"], minlength=len(nodes)).astype(np.int32),
            offsets=sizes.offsets,
            roots=roots.astype(np.int32),
            room=sizes.nbytes[roots],
            working=working.astype(np.int32),
            places=places,
            moved=_moved(program, operands, root, roots),
            first=np.array([*first.values(), *working.tolist()], np.int32),
            last=np.array([*last.values(), *working.tolist()], np.int32),
            order=np.argsort(places, kind="stable").astype(np.int32),
            base=base,
            zeros_count=program.zeros_count,
            threads=program.threads,
            is_pinned=self._is_pinned,
        )

    def at(self, sizes: Sizes, alike: Likeness | None = None) -> Refitted | None:
        """Return what the plan is at other sizes; None where they need another plan. ``alike``: the sizes are those of
        another graph, whose tensors it tells.
        """
        program, chosen, order = self._program, _NONE, None if alike is None else alike.order
        if self._is_pinned and self._setting is not None and len(self._choosing):
            maps = self._maps if order is None else order[self._maps]
            map_bytes = int(sizes.nbytes[maps].sum())
            if not self._map_bytes <= RANGE * map_bytes <= RANGE**2 * self._map_bytes:
                chosen = _chosen(self._choosing, sizes.params, self._setting)
        nodes, steps = np.empty_like(program.nodes), np.empty_like(program.steps)
        end, edits = self._core.at(*sizes, chosen, nodes, steps, alike)
        if end < 0:
            return None
        working_bytes = end if self._is_pinned else self._plan.working_bytes
        made = replace(
            program,
            nodes=nodes,
            steps=steps,
            arena_bytes=program.arena_bytes - self._plan.working_bytes + working_bytes,
            io_bytes=sizes.nbytes[self._io if order is None else order[self._io]],
        )
        return Refitted(made, working_bytes, edits)


def _operands(graph: Graph) -> list[tuple[int, int, int]]:
    """Return the operands of a graph's nodes: the node, the number of the operand, and its tensor."""
    return [
        (i, _core.MAX_INPUTS if slot == len(node.inputs) else slot, tensor)
        for i, node in enumerate(graph.nodes)
        for slot, tensor in enumerate([*node.inputs, node.outputs[0]])
    ]


def _lives(
    graph: Graph, program: Program, root: I64, operands: list[tuple[int, int, int]], offsets: I64
) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Return the first and the last node of each activation, and its arena offset."""
    io = {*graph.inputs, *graph.outputs}
    inputs, outputs = program.nodes["in"]["offset"].tolist(), program.nodes["out"]["offset"].tolist()
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    at: dict[int, int] = {}
    for i, slot, tensor in operands:
        owner = int(root[tensor])
        if owner in io or graph.tensors[owner].weight >= 0:
            continue
        first.setdefault(owner, i)
        last[owner] = i
        at[owner] = (outputs[i] if slot == _core.MAX_INPUTS else inputs[i][slot]) - int(offsets[tensor])
    return first, last, at


def _moved(program: Program, operands: list[tuple[int, int, int]], root: I64, roots: I64) -> NDArray[np.int32]:
    """Return the operands that move with their tensors, all but tables in the file, as rows of ``fx_moved``."""
    fields = _core.NODE_DTYPE.fields
    assert fields is not None
    (inputs, in_at), (output, out_at) = fields["in"][:2], fields["out"][:2]
    assert output.fields is not None
    node, slot, tensor = np.array(operands, np.int64).reshape(-1, 3).T
    is_out = slot == _core.MAX_INPUTS
    at = np.where(is_out, out_at, in_at + slot * inputs.base.itemsize) + output.fields["offset"][1]
    moves = is_out | (program.nodes["in"]["base"][node, np.where(is_out, 0, slot)] != _core.BASE_FILE)
    place = np.full(len(root), len(roots), np.int64)
    place[roots] = np.arange(len(roots))
    rows = ((node * _core.NODE_DTYPE.itemsize + at) // 8, tensor, place[root[tensor]])
    return np.ascontiguousarray(np.stack(rows, axis=1)[moves].astype(np.int32))


def _chosen(which: I64, params: NDArray[np.int32], setting: Setting) -> NDArray[np.int32]:
    """Return some convolutions, and the fastest kernels and tile blocks for these parameters."""
    kernels = OPERATORS["conv"].kernels
    known: dict[bytes, tuple[int, int]] = {}
    found = np.empty((3, len(which)), np.int32)
    found[0] = which
    for number, i in enumerate(which.tolist()):
        key = params[i].tobytes()
        if key not in known:
            variant = fastest_conv(params[i], setting)
            known[key] = kernels.index(variant.kernel), variant.tile_block
        found[1:, number] = known[key]
    return found


def sizes_of(graph: Graph) -> Sizes:
    """Return the sizes of a graph."""
    width = [DTYPES[tensor.dtype].itemsize for tensor in graph.tensors]
    params = [node.params for node in graph.nodes]
    return Sizes(
        np.stack(params) if params else np.zeros((0, _core.PARAM_WORDS), np.int32),  # type: ignore[arg-type]
        np.array([tensor.nbytes for tensor in graph.tensors], np.int64),
        np.array([tensor.offset * size for tensor, size in zip(graph.tensors, width, strict=True)], np.int64),
    )
