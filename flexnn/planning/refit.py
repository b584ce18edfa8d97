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
from flexnn.graph.operators import OPERATORS

from .costs import fastest_conv
from .report import Plan
from .setting import Setting
from .types import I64, LINE

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TILE_BLOCK, _KH, _KW = (
    [name for name, _ in _core.FIELDS["conv"]].index(field) for field in ("tile_block", "kh", "kw")
)
RANGE = 2
"""Outputs of convolutions may be this many times as large or as small in all as those that kernels were chosen for.
Beyond, where there is no budget and a plan pins everything, kernels are chosen anew: one that is right for small maps
may be slow for large ones.
"""
_WORKSPACE, _ZEROS = 0, 1
"""Columns of what ``_core.node_needs`` fills; the others are of panels."""


class Sizes(NamedTuple):
    """Numbers that binding to sizes decides, of a graph of which all else is known."""

    params: NDArray[np.int32]
    """Parameters of each node."""
    nbytes: I64
    """Bytes of each tensor."""
    offsets: I64
    """Bytes from the start of its root's storage to each tensor."""


class Refit:
    """Maker of plans for other sizes, out of a plan of ``graph``. ``plan`` runs nodes one by one, in the graph's order.
    ``setting`` is what kernels are chosen by where sizes are far from the plan's; None: they stay.
    """

    def __init__(self, plan: Plan, graph: Graph, setting: Setting | None = None) -> None:
        program = plan.program
        self._setting = setting
        self._plan, self._program = plan, program
        self._base = program.arena_bytes - plan.working_bytes
        self._is_pinned = not len(program.loads) and not len(program.tables)
        tensors = graph.tensors
        operands = [
            (i, _core.MAX_INPUTS if slot == len(node.inputs) else slot, tensor)
            for i, node in enumerate(graph.nodes)
            for slot, tensor in enumerate([*node.inputs, node.outputs[0]])
        ]
        self._node, self._slot, self._tensor = np.array(operands, np.int64).reshape(-1, 3).T.copy()
        self._root = np.array([graph.root(i) for i in range(len(tensors))], np.int64)
        sizes = sizes_of(graph)
        self._offsets = sizes.offsets
        self._io = np.array(list(dict.fromkeys([*graph.inputs, *graph.outputs])), np.int64)
        self._needs, self._windows = _needs(program.nodes) or (np.zeros((0, 4), np.int64), np.zeros((0, 4), np.int32))
        self._conv = np.flatnonzero(program.nodes["op"] == _core.OPS.index("conv"))
        taps = program.nodes["params"][self._conv][:, (_KH, _KW)].prod(axis=1)
        self._choosing = self._conv[taps > 1]
        """Convolutions that have several kernels."""
        self._maps = np.array([graph.nodes[i].outputs[0] for i in self._choosing.tolist()], np.int64)
        self._map_bytes = int(sizes.nbytes[self._maps].sum())
        self._blocks(graph, sizes)
        self._find_operands()
        self._tile_blocks = program.nodes["params"][self._conv, _TILE_BLOCK]
        steps = np.bincount(program.steps["node"], minlength=len(graph.nodes))
        self._sliced = np.flatnonzero(steps > 1)
        self._step_nodes = program.steps["node"].astype(np.int64)
        self._whole_steps = np.flatnonzero(steps[self._step_nodes] == 1)
        self._whole_nodes = self._step_nodes[self._whole_steps]

    def _find_operands(self) -> None:
        """Find the operands that move with their tensors, all but tables in the file: the words of the records that
        are their offsets, their tensors, and the places that these have.
        """
        fields = _core.NODE_DTYPE.fields
        assert fields is not None
        (inputs, in_at), (output, out_at) = fields["in"][:2], fields["out"][:2]
        assert output.fields is not None
        offset_at = output.fields["offset"][1]
        is_out = self._slot == _core.MAX_INPUTS
        at = np.where(is_out, out_at, in_at + self._slot * inputs.base.itemsize) + offset_at
        bases = self._program.nodes["in"]["base"]
        moves = is_out | (bases[self._node, np.where(is_out, 0, self._slot)] != _core.BASE_FILE)
        self._offset_words = ((self._node * _core.NODE_DTYPE.itemsize + at) // 8)[moves]
        self._moving = self._tensor[moves]
        place = np.full(len(self._root), len(self._roots), np.int64)
        place[self._roots] = np.arange(len(self._roots))
        self._moving_places = place[self._root[self._moving]]

    def _blocks(self, graph: Graph, sizes: Sizes) -> None:
        """Find the activations, their places, and when they live."""
        io = {*graph.inputs, *graph.outputs}
        nodes = self._program.nodes
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        place: dict[int, int] = {}
        for i, slot, tensor in zip(self._node.tolist(), self._slot.tolist(), self._tensor.tolist(), strict=True):
            root = int(self._root[tensor])
            if root in io or graph.tensors[root].weight >= 0:
                continue
            first.setdefault(root, i)
            last[root] = i
            where = nodes[i]["out"] if slot == _core.MAX_INPUTS else nodes[i]["in"][slot]
            place[root] = int(where["offset"]) - int(sizes.offsets[tensor]) - self._base
        self._roots = np.array(list(first), np.int64)
        may_work = nodes["workspace_bytes"] > 0
        may_work[self._choosing] = self._is_pinned and self._setting is not None
        working = np.flatnonzero(may_work | (nodes["workspace_bytes"] > 0))
        self._working = working
        self._first = np.array([*first.values(), *working.tolist()], np.int32)
        self._last = np.array([*last.values(), *working.tolist()], np.int32)
        self._places = np.array(
            [*place.values(), *(nodes["workspace_offset"][working] - self._base).tolist()], np.int64
        )
        self._order = np.argsort(self._places, kind="stable").astype(np.int32)
        is_idle = np.ones(len(nodes), bool)
        is_idle[working] = False
        self._idle = np.flatnonzero(is_idle)
        self._room = sizes.nbytes[self._roots]

    def at(self, sizes: Sizes) -> Plan | None:
        """Return the plan for other sizes; None where they need another plan."""
        program = self._program
        map_bytes = int(sizes.nbytes[self._maps].sum())
        is_near = self._map_bytes <= RANGE * map_bytes <= RANGE**2 * self._map_bytes
        nodes = program.nodes.copy()
        nodes["params"] = sizes.params
        if len(self._conv):
            nodes["params"][self._conv, _TILE_BLOCK] = self._tile_blocks
        if self._is_pinned and not is_near and self._setting is not None:
            _choose(nodes, self._choosing, sizes.params, self._setting)
        found = _needs(nodes)
        if found is None:
            return None
        needs, windows = found
        if (
            not np.array_equal(needs[:, 2:], self._needs[:, 2:])
            or needs[:, _ZEROS].max(initial=0) > program.zeros_count
        ):
            return None
        if not np.array_equal(windows[self._sliced, 2:], self._windows[self._sliced, 2:]):  # channels
            return None
        placed = self._placed(sizes, needs[:, _WORKSPACE])
        if placed is None:
            return None
        places, working_bytes, workspace = placed
        moved = (sizes.offsets - self._offsets)[self._moving]
        if places is not None:
            count = len(self._roots)
            moved += np.append(places[:count] - self._places[:count], 0)[self._moving_places]
            if len(self._working):
                nodes["workspace_bytes"] = workspace
                is_used = workspace[self._working] > 0
                nodes["workspace_offset"][self._working] = (self._base + places[count:]) * is_used
        nodes.view(np.int64)[self._offset_words] += moved
        steps = program.steps.copy()
        steps["window"]["y1"] = windows[self._step_nodes, 1]
        steps["window"]["c1"][self._whole_steps] = windows[self._whole_nodes, 3]
        made = replace(
            program,
            nodes=nodes,
            steps=steps,
            arena_bytes=self._base + working_bytes,
            io_bytes=sizes.nbytes[self._io],
        )
        return self._plan.but(program=made, working_bytes=working_bytes)

    def _placed(self, sizes: Sizes, workspace: I64) -> tuple[I64 | None, int, I64] | None:
        """Return places of activations and workspaces (None: those they had), the bytes of the working part, and each
        node's workspace in bytes; None where they have no room.
        """
        own = self._program.nodes["workspace_bytes"]
        nbytes = sizes.nbytes[self._roots]
        if not self._is_pinned:
            fits = bool((nbytes <= self._room).all()) and bool((workspace <= own).all())
            return (None, self._plan.working_bytes, own) if fits else None
        rounded = workspace + (LINE - 1) & -LINE
        if rounded[self._idle].any():
            return None
        blocks = np.concatenate((np.maximum(nbytes, 1), self._program.threads * rounded[self._working]))
        blocks = blocks + (LINE - 1) & -LINE
        places = np.zeros(len(blocks), np.int64)
        if len(blocks):
            _core.place_in_order(blocks, self._first, self._last, self._order, places)
        return places, int((places + blocks).max(initial=0)), rounded


def _choose(nodes: NDArray[np.void], which: I64, params: NDArray[np.int32], setting: Setting) -> None:
    """Write the fastest kernels of some convolutions of these parameters into their records."""
    kernels = OPERATORS["conv"].kernels
    known: dict[bytes, tuple[int, int]] = {}
    for i in which.tolist():
        key = params[i].tobytes()
        found = known.get(key)
        if found is None:
            variant = fastest_conv(params[i], setting)
            found = known[key] = kernels.index(variant.kernel), variant.tile_block
        nodes["kernel"][i], nodes["params"][i, _TILE_BLOCK] = found


def sizes_of(graph: Graph) -> Sizes:
    """Return the sizes of a graph."""
    width = [DTYPES[tensor.dtype].itemsize for tensor in graph.tensors]
    params = [node.params for node in graph.nodes]
    return Sizes(
        np.stack(params) if params else np.zeros((0, _core.PARAM_WORDS), np.int32),  # type: ignore[arg-type]
        np.array([tensor.nbytes for tensor in graph.tensors], np.int64),
        np.array([tensor.offset * size for tensor, size in zip(graph.tensors, width, strict=True)], np.int64),
    )


def _needs(nodes: NDArray[np.void]) -> tuple[I64, NDArray[np.int32]] | None:
    """Return what each node needs, and its window (``_core.node_needs``); None where a kernel cannot compute one."""
    needs, windows = np.zeros((len(nodes), 4), np.int64), np.zeros((len(nodes), 4), np.int32)
    return (needs, windows) if _core.node_needs(nodes, needs, windows) < 0 else None
