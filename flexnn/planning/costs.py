"""What planning starts from: the machine's rates, and each node's sizes, lifetimes and predicted times.

Times are those measured on the machine where it knows them (flexnn/measure), else analytic: a few physical terms with
the machine's own rates, fractions of peak per kernel from the check program's bench (docs/decisions).
"""

from __future__ import annotations

from _blake2 import blake2b
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from flexnn import _core
from flexnn.graph import operators
from flexnn.graph.ir import Graph, Node
from flexnn.graph.pack import is_narrow
from flexnn.graph.tables import Table, table_of

from .types import LINE, Costs, NodeCosts, Variant, align_up

SMALL_CONSTANT_BYTES = 64 << 10
"""Raw constants up to this size always stay: a request for so little costs more than the memory."""

V_BYTES = 3 << 19
"""Transformed input that a Winograd block aims at: with the rest of its workspace at most 2 MiB."""
TILES_MIN, TILES_MAX = 16, 49
"""Of a block: products and transformed weights of the most, with the input's 64 channels at a time, fill 1 MiB."""

PEAK_FRACTION = {"direct": 0.98, "im2col": 0.85, "wino2": 0.9, "wino4": 0.9, "wino_line": 0.9, "narrow": 0.8}
TRANSFORM_FLOPS = {"wino2": (270.0, 450.0), "wino4": (460.0, 1000.0), "wino_line": (260.0, 260.0)}
"""Worth in multiply-adds' flops of transforming one channel pair's weights, and one channel of one tile."""


@dataclass(slots=True, frozen=True)
class MachineProfile:
    """Rates of the machine a plan is for."""

    flops_per_second: float
    """Of one thread, multiply-add counted twice."""
    bytes_per_second: float
    """Memory to a core."""
    storage_bytes_per_second: float = 1.0e9
    request_s: float = 60e-6
    """Each read, beside its bytes."""
    step_s: float = 4e-6
    """Each step: handing it to the threads and waiting for the last."""
    compute_share: float = 1.0
    """Speed of computing while a load is read, of that alone."""
    load_share: float = 1.0
    """Speed of a load while steps compute, of that alone."""
    times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """(fixed, channels) seconds of the ways to compute that were measured with the plan's threads, by ``way_key``."""
    scales: Mapping[str, float] = field(default_factory=dict)
    """Measured over analytic time, by kernel or operator: for the ways that were not measured."""

    @classmethod
    def measure(cls, isa: str | None = None) -> MachineProfile:
        """Measures compute and memory rates here, in about 2 ms. The rest is assumed."""
        flops, memory = _core.measure_rates(isa)
        return cls(flops, memory)

    def timed(self, op: str, params: NDArray[np.int32], way: Variant) -> Variant:
        """A way to compute with its measured time, where it has one."""
        known = self.times.get(way_key(op, params, way))
        if known is None:
            scale = self.scales.get(way.kernel or op, 1.0)
            known = way.fixed_s * scale, way.channels_s * scale
        return replace(way, fixed_s=known[0], channels_s=known[1])


def load_seconds(machine: MachineProfile, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of loads of these bytes, each alone, as drafts predict them."""
    return np.asarray(sizes / machine.storage_bytes_per_second + machine.request_s, np.float64)


def way_key(op: str, params: NDArray[np.int32], way: Variant) -> str:
    """Names a way to compute a node: operator, kernel, block, and a digest of the parameters."""
    return f"{op}.{way.kernel}.{way.tile_block}.{blake2b(params.tobytes(), digest_size=8).hexdigest()}"


def graph_costs(
    graph: Graph,
    *,
    threads: int,
    io_align: int,
    machine: MachineProfile,
    isa: str | None = None,
    every_way: bool = False,
    in_file: bool = False,
) -> Costs:
    """Sizes, lifetimes in nodes, and the ways to compute each node, fastest first. ``every_way``: also those that are
    neither the fastest nor save workspace. ``in_file``: tables stay in the file where they can.
    """
    io = {root: i for i, root in enumerate([*graph.inputs, *graph.outputs])}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    small: dict[int, None] = {}
    nodes: list[NodeCosts] = []
    seen: dict[tuple[object, ...], NodeCosts] = {}
    zeros = 0
    for index, node in enumerate(graph.nodes):
        constants = []
        table = stored_table(graph, node) if in_file else None
        for operand, tensor in enumerate(node.inputs):
            if table is not None and operand == 0:
                continue
            weight = graph.tensors[graph.root(tensor)].weight
            if weight >= 0 and graph.weights[weight].nbytes > SMALL_CONSTANT_BYTES:
                size = align_up(graph.weights[weight].nbytes, io_align) + (2 * io_align if io_align > LINE else 0)
                constants.append((operand, weight, size))
            elif weight >= 0:
                small[weight] = None
        for tensor in (*node.inputs, *node.outputs):
            root = graph.root(tensor)
            if root not in io and graph.tensors[root].weight < 0:
                first.setdefault(root, index)
                last[root] = index
        params = _core.encode_params(node.op, operators.encode(graph, node))
        zeros = max(zeros, _core.op_zeros(node.op, params))
        shapes = tuple((graph.tensors[t].shape, graph.tensors[t].dtype) for t in (*node.inputs, *node.outputs))
        alike = node.op, params.tobytes(), shapes, table and (table.rows, table.chunk_bytes)
        if alike not in seen:
            known = _profile_node(graph, node, params, threads, machine, isa)
            if table is not None:
                known.variants = [_reading_rows(table, threads, machine)]
            else:
                known.variants = [machine.timed(node.op, params, way) for way in known.variants]
                known.variants = known.variants if every_way else _useful(known.variants)
            seen[alike] = known
        own_table = table.weight if table is not None else -1
        nodes.append(replace(seen[alike], weight=node.weight, constants=tuple(constants), table=own_table))
    profile = Costs(
        nodes=nodes,
        roots=list(first),
        root_bytes=[align_up(max(graph.tensors[r].nbytes, 1)) for r in first],
        first=list(first.values()),
        last=[last[r] for r in first],
        small_constants=list(small),
        small_bytes=0,
        zeros_count=zeros,
        io_bytes=[graph.tensors[r].nbytes for r in io],
        threads=threads,
        io_align=io_align,
    )
    for w in small:
        profile.small_bytes += profile.occupied(graph.weights[w].offset, graph.weights[w].nbytes)
    return profile


def _profile_node(
    graph: Graph,
    node: Node,
    params: NDArray[np.int32],
    threads: int,
    machine: MachineProfile,
    isa: str | None,
) -> NodeCosts:
    """Without its weight and constants, which nodes alike have of their own."""
    panel_bytes = _core.op_panel_bytes(node.op, params)
    panels = _core.op_panels(node.op, params) if panel_bytes else 0
    if operators.OPERATORS[node.op].kernels:
        variants = _conv_variants(params, panels, panel_bytes, threads, machine, isa)
    else:
        workspace = align_up(_core.op_workspace(node.op, "", params, isa))
        seconds = _plain_seconds(graph, node, panels * panel_bytes, threads, machine)
        variants = [Variant("", 0, workspace, machine.step_s, seconds)]
    return NodeCosts(variants, params, panels, panel_bytes, -1, ())


def stored_table(graph: Graph, node: Node) -> Table | None:
    """The table that a node may read rows of: the file has it with checksums by rows."""
    table = table_of(graph, node)
    return table if table is not None and graph.weights[table.weight].chunk_bytes == table.chunk_bytes else None


def _reading_rows(table: Table, threads: int, machine: MachineProfile) -> Variant:
    """A gather whose threads read a chunk for each row."""
    reads_s = table.rows * (machine.request_s + table.chunk_bytes / machine.storage_bytes_per_second)
    return Variant("", 0, align_up(_core.table_workspace(table.chunk_bytes)), machine.step_s, reads_s / threads)


def with_tile_block(params: NDArray[np.int32], tile_block: int) -> NDArray[np.int32]:
    """A convolution's parameters with ``tile_block``."""
    copy = params.copy()
    copy[_CONV_FIELD["tile_block"]] = tile_block
    return copy


_CONV_FIELD = {name: i for i, (name, _) in enumerate(_core.FIELDS["conv"])}


def _conv_variants(
    params: NDArray[np.int32], panels: int, panel_bytes: int, threads: int, machine: MachineProfile, isa: str | None
) -> list[Variant]:
    words = params.tolist()
    n, oh, ow, cin, kh, kw = (words[_CONV_FIELD[f]] for f in ("n", "oh", "ow", "cin_panel", "kh", "kw"))
    group = words[_CONV_FIELD["group"]]
    narrow = is_narrow(words[_CONV_FIELD["cout"]], words[_CONV_FIELD["cin"]] // group, group)
    rate = machine.flops_per_second * threads
    cout = panels * _core.NR
    read_s = panels * panel_bytes / machine.bytes_per_second
    variants = []
    for kernel in ("direct", "im2col"):
        if not _core.conv_kernel_fits(kernel, params) or (kernel == "im2col" and (kh * kw == 1 or cin > _core.NR)):
            continue
        fraction = PEAK_FRACTION["narrow" if narrow else kernel]
        if kernel == "direct" and not narrow:  # a tap's channels are a run of the inner loop: short ones do not fill it
            fraction *= cin / (cin + 3.0)
        seconds = max(2.0 * n * oh * ow * kh * kw * cin * cout / (fraction * rate), read_s)
        workspace = align_up(_core.op_workspace("conv", kernel, params, isa))
        variants.append(Variant(kernel, 0, workspace, machine.step_s, seconds))
    for kernel, side in (("wino4", 4), ("wino2", 2), ("wino_line", 4)):
        if not _core.conv_kernel_fits(kernel, params):
            continue
        high, wide = side if kh > 1 else 1, side if kw > 1 else 1  # output pixels of a tile
        tiles, planes = n * -(-oh // high) * -(-ow // wide), (high + kh - 1) * (wide + kw - 1)
        weight_flops, tile_flops = TRANSFORM_FLOPS[kernel]
        wanted = min(max(V_BYTES // (4 * planes * cin), TILES_MIN), TILES_MAX, tiles)
        wanted = min(wanted, max(-(-tiles // threads), TILES_MIN))
        for block in dict.fromkeys((wanted, max(wanted // 2, min(8, tiles)))):
            blocks = -(-tiles // block)
            flops = 2.0 * planes * tiles * cin * cout / PEAK_FRACTION[kernel]
            flops += blocks * cin * cout * weight_flops + tiles * cout * tile_flops
            busy = min(threads, blocks) / threads
            seconds = max(flops / rate, read_s)
            workspace = align_up(_core.op_workspace("conv", kernel, with_tile_block(params, block), isa))
            fixed = machine.step_s + tiles * cin * tile_flops / (rate * busy)
            variants.append(Variant(kernel, block, workspace, fixed, seconds))
    return variants


def _useful(variants: list[Variant]) -> list[Variant]:
    """Those faster than the one with the smallest workspace, fastest first, and that one."""
    smallest = min(variants, key=lambda v: v.workspace_bytes)
    ordered = sorted((v for v in variants if v.seconds() < smallest.seconds()), key=Variant.seconds)
    return [*ordered, smallest]


def _plain_seconds(graph: Graph, node: Node, weight_bytes: int, threads: int, machine: MachineProfile) -> float:
    """Of an operator with one kernel: its bytes, or its flops where they are the more."""
    cost = operators.OPERATORS[node.op].cost
    inputs, output = [graph.tensors[t] for t in node.inputs], graph.tensors[node.outputs[0]]
    sizes = [tensor.nbytes for tensor in (*inputs, output)]
    moved = (sum(sizes) * cost.passes + weight_bytes) / machine.bytes_per_second
    flops = cost.flops(node, [tensor.shape for tensor in inputs], output.shape)
    return max(flops / (machine.flops_per_second * threads * cost.peak_fraction), moved / threads)
