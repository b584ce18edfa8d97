"""Costs of a graph, from which planning starts: each node's sizes, lifetimes and predicted times.

Times are measured ones where the machine's profile has them (flexnn/measure), else analytic: a few physical terms with
the machine's rates, and fractions of peak per kernel from the check program's bench (docs/decisions).
"""

from __future__ import annotations

from sys import byteorder
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph import operators
from flexnn.graph.ir import Graph, GraphError, Node, Shape, Tensor
from flexnn.graph.panels import is_narrow
from flexnn.graph.tables import GATHERS, Table, table_of

from .setting import Setting
from .types import Costs, Lives, NodeCosts, Variant, align_up, room_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL_CONSTANT_BYTES = 64 << 10
"""Largest raw constant that is always pinned: a request for so little costs more than the memory."""

CACHED_BYTES_MAX = 32 << 20
"""Bytes of a graph's panels up to which a CPU's cache may hold them from run to run."""
V_BYTES = 3 << 19
"""Bytes of transformed input that a Winograd block aims at: with the rest of its workspace at most 2 MiB."""
TILES_MIN, TILES_MAX = 16, 49
"""Fewest and most tiles of a Winograd block: products and transformed weights of 49 tiles, with 64 input channels at a
time, fill 1 MiB.
"""

PEAK_FRACTION = {
    "direct": 0.98,
    "im2col": 0.98,
    "wino2": 0.9,
    "wino4": 0.9,
    "wino_line": 0.9,
    "narrow": 0.8,
    "planar": 0.95,
    "half": 1.7,
}
"""Share of the peak rate of float32 that each kernel reaches; sums of halves take half the instructions."""
TRANSFORM_FLOPS = {"wino2": (270.0, 450.0), "wino4": (460.0, 1000.0), "wino_line": (260.0, 260.0)}
"""Cost in flops of multiply-adds of transforming one channel pair's weights, and one channel of one tile."""
POINTING_FLOPS = 300.0
"""Cost in flops of multiply-adds of pointing at a pixel's taps and storing its outputs."""
PLANAR_FLOPS = 30.0
"""Cost in flops of multiply-adds of laying out a number of a map by channel."""
ACTIVATION_FLOPS = 100.0
"""Cost in flops of multiply-adds of an activation that a pass of its own computes, of one number."""
ROUNDED_FLOPS = 0.45
"""Cost in flops of multiply-adds of one by rows that are rounded to 8 bits."""
_ROUNDED_SUMS = tuple(_core.ENUMS["dtype"]).index("i8")
CLOSE = 2.5
"""Time of a kernel over the fastest one's up to which measuring may show that it is faster: analytic times are off by
factors of up to 2.
"""
_PLAIN = "direct", "im2col", "planar", "half"
_WINOGRAD = {"wino4": 4, "wino2": 2, "wino_line": 4}
"""Outputs along a side of a tile."""


Known = dict[tuple[object, ...], tuple[NodeCosts, int]]
"""Costs of nodes without their weights, and how many zeros they read, by all that these depend on."""


NO_WEIGHTS = -1, (), -1
"""Weight, constants and table of a node that has none."""


def graph_costs(
    graph: Graph, setting: Setting, *, every_variant: bool = False, in_file: bool = False, seen: Known | None = None
) -> Costs:
    """Return sizes, lifetimes in nodes, and the variants of each node, the fastest first. ``every_variant``: also those
    that are neither the fastest nor save workspace. ``in_file``: tables stay in the file where they can. ``seen``:
    costs of nodes under the same setting, which get those of this graph.
    """
    tensors = graph.tensors
    roots = [i if tensor.root < 0 else tensor.root for i, tensor in enumerate(tensors)]
    weights = [tensors[root].weight for root in roots]
    kinds = _kinds(tensors)
    small: dict[int, None] = {}
    nodes, zeros = list[NodeCosts](), 0
    spilled = {spill.root for spill in graph.spills}
    sorts = _Sorts(graph, setting, {} if seen is None else seen, every_variant, _is_cold(graph))
    looks = _looks(tensors, kinds, [w >= 0 or root in spilled for w, root in zip(weights, roots, strict=True)])
    alike: dict[tuple[object, ...], tuple[NodeCosts, object]] = {}  # what is encoded, too: a key has its id
    for node in graph.nodes:
        source = node.params if isinstance(node.params, np.ndarray) else node.attrs
        look = node.op, id(source), node.weight, *[looks[t] for t in node.inputs], *[looks[t] for t in node.outputs]
        if look in alike:
            known = alike[look][0]
        else:
            table = stored_table(graph, node) if in_file and node.op in GATHERS else None
            constants: tuple[tuple[int, int, int], ...] = ()
            if max([weights[t] for t in node.inputs], default=-1) >= 0:
                constants, small_ones = _constants(graph, node, setting.io_align, has_table=table is not None)
                small |= dict.fromkeys(small_ones)
            stores = bool(spilled) and roots[node.outputs[0]] in spilled
            known, read = sorts.of(node, _encoded(graph, node), table, stores=stores)
            zeros = max(zeros, read)
            own = node.weight, constants, table.weight if table is not None else -1
            if own != NO_WEIGHTS:
                known = NodeCosts(known.variants, known.params, known.panels, known.panel_bytes, *own, known.close)
            alike[look] = known, source
        node.params = known.params
        nodes.append(known)
    costs = Costs(
        nodes=nodes,
        **_lives(graph, roots, weights, kinds),
        small_constants=list(small),
        small_bytes=0,
        zeros_count=zeros,
        io_bytes=[tensors[r].nbytes for r in dict.fromkeys([*graph.inputs, *graph.outputs])],
        threads=setting.threads,
        io_align=setting.io_align,
    )
    for w in small:
        costs.small_bytes += costs.occupied_bytes(graph.weights[w].offset, graph.weights[w].nbytes)
    return costs


def _is_cold(graph: Graph) -> bool:
    """Return whether a graph's panels are more than a cache holds."""
    panels: dict[int, int] = {}
    for number in {node.weight for node in graph.nodes if node.weight >= 0}:
        weight = graph.weights[number]
        panels[weight.offset if weight.offset >= 0 else -1 - number] = weight.nbytes
    return sum(panels.values()) > CACHED_BYTES_MAX


def lives_of(graph: Graph) -> Lives:
    """Return what costs say of a graph's activations."""
    tensors = graph.tensors
    roots = [i if tensor.root < 0 else tensor.root for i, tensor in enumerate(tensors)]
    return Lives(**_lives(graph, roots, [tensors[root].weight for root in roots], _kinds(tensors)))


def _kinds(tensors: list[Tensor]) -> list[int]:
    """Return the number of each tensor's shape and type."""
    number: dict[tuple[Shape, str], int] = {}
    return [number.setdefault((tensor.shape, tensor.dtype), len(number)) for tensor in tensors]


def _looks(tensors: list[Tensor], kinds: list[int], is_own: list[bool]) -> list[int]:
    """Return numbers of tensors: those with the same shape, type and strides have one in common, but for those that
    ``is_own`` says.
    """
    number: dict[tuple[int, Shape], int] = {}
    return [
        -1 - i if own else number.setdefault((kind, tensor.strides), len(number))
        for i, (tensor, kind, own) in enumerate(zip(tensors, kinds, is_own, strict=True))
    ]


def _lives(graph: Graph, roots: list[int], weights: list[int], kinds: list[int]) -> dict[str, list[int]]:
    """Return what costs say of activations: their storage, bytes, first and last nodes. ``roots``, ``weights`` and
    ``kinds``: of each tensor.
    """
    activations, first, last = _lifetimes(graph, roots, weights)
    return {
        "roots": activations,
        "root_bytes": _root_bytes(graph.tensors, activations, kinds),
        "first_node": [first[r] for r in activations],
        "last_node": [last[r] for r in activations],
    }


def _root_bytes(tensors: list[Tensor], roots: list[int], kinds: list[int]) -> list[int]:
    """Return the arena bytes of each of these tensors; ``kinds``: numbers of shape and type."""
    known: dict[int, int] = {}
    for root in roots:
        if kinds[root] not in known:
            known[kinds[root]] = align_up(max(tensors[root].nbytes, 1))
    return [known[kinds[root]] for root in roots]


class _Sorts(NamedTuple):
    """Costs of nodes that differ, each computed once."""

    graph: Graph
    setting: Setting
    seen: Known
    every_variant: bool
    is_cold: bool
    """Whether no cache holds the weights from run to run."""

    def of(self, node: Node, params: NDArray[np.int32], table: Table | None, *, stores: bool) -> tuple[NodeCosts, int]:
        """Return costs of a node without its weights, and the zeros it reads. ``stores``: it stores an activation."""
        tensors, setting = self.graph.tensors, self.setting
        operands = [(tensors[t].shape, tensors[t].dtype) for t in (*node.inputs, *node.outputs)]
        moves = stores or (table and (table.rows, table.chunk_bytes))
        alike = node.op, params.tobytes(), tuple(operands), moves, self.is_cold
        found = self.seen.get(alike)
        if found is None:
            read, known = _zeros(node, params), _node_costs(self.graph, node, params, setting)
            if table is not None or stores:
                known.variants = [_moving_rows(table, tensors[node.outputs[0]].nbytes, setting)]
            else:
                cold = known.weight_bytes if self.is_cold and operators.OPERATORS[node.op].kernels else 0
                known.variants = [setting.machine.timed(node.op, params, variant, cold) for variant in known.variants]
                known.close = _close(known.variants)
                known.variants = known.variants if self.every_variant else _useful(known.variants)
            found = self.seen[alike] = known, read
        return found


def _encoded(graph: Graph, node: Node) -> NDArray[np.int32]:
    """Return a node's parameters."""
    if isinstance(node.params, np.ndarray):
        return node.params
    return _core.encode_params(node.op, operators.encode(graph, node))


def _zeros(node: Node, params: NDArray[np.int32]) -> int:
    """Return how many zeros a node reads. Raises GraphError."""
    try:
        return _core.op_zeros(node.op, params)
    except ValueError as error:  # of an open model's artifact, which was checked for less
        raise GraphError(f"node {node.name!r}: {error}") from None


def _lifetimes(graph: Graph, roots: list[int], weights: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Return the activations in the order in which nodes touch them, and for each tensor the first and the last node
    that touch it, -1 where none does. ``roots`` and ``weights``: of each tensor.
    """
    first, last = [-1] * len(roots), [-1] * len(roots)
    order: list[int] = []
    for index, node in enumerate(graph.nodes):
        for tensors in (node.inputs, node.outputs):
            for tensor in tensors:
                root = roots[tensor]
                last[root] = index
                if first[root] < 0:
                    first[root] = index
                    order.append(root)
    elsewhere = {*graph.inputs, *graph.outputs, *(spill.root for spill in graph.spills)}
    return [root for root in order if weights[root] < 0 and root not in elsewhere], first, last


def _constants(
    graph: Graph, node: Node, io_align: int, *, has_table: bool
) -> tuple[tuple[tuple[int, int, int], ...], list[int]]:
    """Return a node's big raw constants (``NodeCosts.constants``) and the weights of its small ones. ``has_table``: the
    first operand stays in the file.
    """
    big, small = [], []
    for operand, tensor in enumerate(node.inputs):
        weight = graph.tensors[graph.root(tensor)].weight
        if weight < 0 or (has_table and operand == 0):
            continue
        source = graph.weights[weight]
        if source.nbytes > SMALL_CONSTANT_BYTES or source.offset >= _core.SPILL_FROM:
            big.append((operand, weight, room_bytes(source.nbytes, io_align)))
        else:
            small.append(weight)
    return tuple(big), small


def _node_costs(graph: Graph, node: Node, params: NDArray[np.int32], setting: Setting) -> NodeCosts:
    """Return a node's costs without its weight and constants, in which equal nodes differ."""
    panel_bytes = _core.op_panel_bytes(node.op, params)
    panels = _core.op_panels(node.op, params) if panel_bytes else 0
    if operators.OPERATORS[node.op].kernels:
        variants = _allowed_variants(node.op, params, panels, panel_bytes, setting)
    else:
        workspace = align_up(_core.op_workspace(node.op, "", params))
        seconds = _plain_seconds(graph, node, panels * panel_bytes, setting)
        variants = [Variant("", 0, workspace, setting.machine.step_s, seconds)]
    return NodeCosts(variants, params, panels, panel_bytes, -1, ())


def stored_table(graph: Graph, node: Node) -> Table | None:
    """Return the table whose rows a node may read from the file, which has checksums by rows; else None."""
    table = table_of(graph, node)
    return table if table is not None and graph.weights[table.weight].chunk_bytes == table.chunk_bytes else None


def _reading_rows(table: Table, setting: Setting) -> Variant:
    """Return the variant of a gather whose threads read a chunk for each row."""
    machine = setting.machine
    reads_s = table.rows * (machine.request_s + table.chunk_bytes / machine.storage_bytes_per_second)
    return Variant("", 0, align_up(_core.table_workspace(table.chunk_bytes)), machine.step_s, reads_s / setting.threads)


def _moving_rows(table: Table | None, nbytes: int, setting: Setting) -> Variant:
    """Return the variant of a gather that reads rows of a table, or of a node that stores ``nbytes``."""
    return _storing(nbytes, setting) if table is None else _reading_rows(table, setting)


def _storing(nbytes: int, setting: Setting) -> Variant:
    """Return the variant of a node that stores an activation in the spill file: at the rate of reading, as the system
    writes behind.
    """
    machine = setting.machine
    return Variant("", 0, 0, machine.step_s + machine.request_s, nbytes / machine.storage_bytes_per_second)


def params_with(params: NDArray[np.int32], variant: Variant) -> NDArray[np.int32]:
    """Return a node's parameters with the ``tile_block`` of ``variant``, if it is a convolution's."""
    return with_tile_block(params, variant.tile_block) if variant.kernel else params


def with_tile_block(params: NDArray[np.int32], tile_block: int) -> NDArray[np.int32]:
    """Return a convolution's parameters with ``tile_block``."""
    return np.frombuffer(bytearray(bytes_with_tile_block(params.tobytes(), tile_block)), np.int32)


def bytes_with_tile_block(params: bytes, tile_block: int) -> bytes:
    """Return the bytes of a convolution's parameters with ``tile_block``."""
    at = 4 * TILE_BLOCK
    return params[:at] + tile_block.to_bytes(4, byteorder) + params[at + 4 :]


_CONV_FIELD = {name: i for i, (name, _) in enumerate(_core.FIELDS["conv"])}
_PRELU = tuple(_core.ENUMS["act"]).index("prelu")
"""The last activation that kernels compute as they store."""
TILE_BLOCK = _CONV_FIELD["tile_block"]
"""Index of the block among a convolution's parameters."""


class _Shape(NamedTuple):
    """Facts that kernels of a convolution depend on, beside its maps."""

    kh: int
    kw: int
    cin_panel: int
    cout: int


def _is_narrow(words: list[int]) -> bool:
    group = words[_CONV_FIELD["group"]]
    return is_narrow(words[_CONV_FIELD["cout"]], words[_CONV_FIELD["cin"]] // group, group)


def may_add_halves(op: str, params: NDArray[np.int32]) -> bool:
    """Return whether a convolution may add up halves, which this CPU adds up faster than floats."""
    return op == "conv_f16" and _core.adds_halves() and _core.conv_half_fits(params)


def _fits(op: str, kernel: str, params: NDArray[np.int32], shape: _Shape) -> bool:
    """Return whether a kernel computes a convolution and may be the fastest."""
    if kernel == "half":
        return may_add_halves(op, params)
    if kernel == "im2col" and (shape.kh * shape.kw == 1 or shape.cin_panel > _core.NR):
        return False
    return _core.conv_kernel_fits(kernel, params)


def _pixel_flops(kernel: str, narrow: bool, shape: _Shape, panels: int) -> float:
    """Return the operations at the peak rate that take as long as a kernel without transforms takes for a pixel."""
    products = float(shape.kh * shape.kw * shape.cin_panel)
    fraction, columns = PEAK_FRACTION["narrow" if narrow else kernel], panels * _core.NR
    beside = 0.0 if narrow else POINTING_FLOPS
    if kernel == "direct" and not narrow:  # a tap's channels are a run of the inner loop: short ones do not fill it
        fraction *= shape.cin_panel / (shape.cin_panel + 3.0)
    elif kernel == "half":  # eight channels of a tap come at once
        fraction *= shape.cin_panel / (shape.cin_panel + 6.0)
    elif kernel == "im2col":  # a tile is pointed at and stored, however few its products
        fraction *= products / (products + 10.0)
    elif kernel == "planar":  # a vector that is loaded is multiplied once for each output channel
        columns = shape.cout
        fraction *= columns / (columns + 1.0)
        beside = PLANAR_FLOPS * (shape.cin_panel + columns)
    return 2.0 * products * columns / fraction + beside


def _tile(shape: _Shape, side: int) -> tuple[int, int, int]:
    """Return the height and width of a Winograd tile's outputs, and its planes."""
    high, wide = side if shape.kh > 1 else 1, side if shape.kw > 1 else 1
    return high, wide, (high + shape.kh - 1) * (wide + shape.kw - 1)


def _tile_flops(kernel: str, planes: int, tiles: int, blocks: int, cin: int, cout: int) -> tuple[float, float]:
    """Return the operations of tiles in blocks: those for output channels, and those that do not depend on them."""
    weight_flops, tile_flops = TRANSFORM_FLOPS[kernel]
    flops = 2.0 * planes * tiles * (cin + 4) * cout / PEAK_FRACTION[kernel]  # each sum is stored, however short
    flops += blocks * cin * cout * weight_flops + tiles * cout * tile_flops
    return flops, tiles * max(cin, _core.NR) * tile_flops  # vectors of few channels are as wide


def _conv_variants(
    op: str, params: NDArray[np.int32], panels: int, panel_bytes: int, setting: Setting
) -> list[Variant]:
    threads, machine = setting.threads, setting.machine
    words = params.tolist()
    shape = _Shape(*(words[_CONV_FIELD[name]] for name in _Shape._fields))
    n, oh, ow = (words[_CONV_FIELD[f]] for f in ("n", "oh", "ow"))
    cin, narrow = shape.cin_panel, _is_narrow(words)
    rate = machine.flops_per_second * threads
    cout = panels * _core.NR
    read_s = panels * panel_bytes / machine.bytes_per_second
    act_s = n * oh * ow * cout * ACTIVATION_FLOPS / rate if words[_CONV_FIELD["act"]] > _PRELU else 0.0
    variants = []
    rounded = words[_CONV_FIELD["sums"]] == _ROUNDED_SUMS
    for kernel in _PLAIN:
        if not _fits(op, kernel, params, shape):
            continue
        wide = align_up(ow, _core.PLANAR_PIXELS) if kernel == "planar" else ow  # its vectors hold pixels of one row
        flops = n * oh * wide * _pixel_flops(kernel, narrow, shape, panels) * (ROUNDED_FLOPS if rounded else 1.0)
        seconds = act_s + max(flops / rate, read_s)
        workspace = align_up(_core.op_workspace(op, kernel, params))
        variants.append(Variant(kernel, 0, workspace, machine.step_s, seconds))
    for kernel, side in _WINOGRAD.items():
        if not _fits(op, kernel, params, shape):
            continue
        high, wide, planes = _tile(shape, side)
        tiles = n * -(-oh // high) * -(-ow // wide)
        wanted = min(max(V_BYTES // (4 * planes * cin), TILES_MIN), TILES_MAX, tiles)
        wanted = min(wanted, max(-(-tiles // threads), TILES_MIN))
        for block in dict.fromkeys((wanted, max(wanted // 2, min(8, tiles)))):
            blocks = -(-tiles // block)
            flops, beside = _tile_flops(kernel, planes, tiles, blocks, cin, cout)
            busy = min(threads, blocks) / threads
            seconds = act_s + max(flops / rate, read_s)
            workspace = align_up(_core.op_workspace(op, kernel, with_tile_block(params, block)))
            fixed = machine.step_s + beside / (rate * busy)
            variants.append(Variant(kernel, block, workspace, fixed, seconds))
    return variants


def _kernel_by_rule(op: str, params: NDArray[np.int32], panels: int) -> str:
    """Return the kernel of the fewest operations for an output over a large map. Sizes of activations do not matter:
    they differ from run to run, and one plan serves several.
    """
    words = params.tolist()
    shape = _Shape(*(words[_CONV_FIELD[name]] for name in _Shape._fields))
    cout, narrow = panels * _core.NR, _is_narrow(words)
    flops = {kernel: _pixel_flops(kernel, narrow, shape, panels) for kernel in _PLAIN}
    for kernel, side in _WINOGRAD.items():
        high, wide, planes = _tile(shape, side)
        weights, tiles = _tile_flops(kernel, planes, TILES_MAX, 1, shape.cin_panel, cout)
        flops[kernel] = (weights + tiles) / (TILES_MAX * high * wide)
    return min((kernel for kernel in flops if _fits(op, kernel, params, shape)), key=lambda kernel: flops[kernel])


def _allowed_variants(
    op: str, params: NDArray[np.int32], panels: int, panel_bytes: int, setting: Setting
) -> list[Variant]:
    """Return the variants of a convolution that plans may choose from."""
    variants = _conv_variants(op, params, panels, panel_bytes, setting)
    if not setting.deterministic:
        return variants
    kernel = _kernel_by_rule(op, params, panels)
    return [variant for variant in variants if variant.kernel == kernel]


def fastest_conv(params: NDArray[np.int32], setting: Setting) -> Variant:
    """Return the variant of a convolution that ``graph_costs`` lists first."""
    panels, panel_bytes = _core.op_panels("conv", params), _core.op_panel_bytes("conv", params)
    variants = _allowed_variants("conv", params, panels, panel_bytes, setting)
    return _useful([setting.machine.timed("conv", params, variant) for variant in variants])[0]


def _close(variants: list[Variant]) -> tuple[str, ...]:
    """Return the kernels that measuring may show to be the fastest; none where there is one."""
    if len(variants) == 1:
        return ()
    limit = CLOSE * min([variant.seconds() for variant in variants])
    close = dict.fromkeys([variant.kernel for variant in variants if variant.seconds() <= limit])
    return (*close,) if len(close) > 1 else ()


def _useful(variants: list[Variant]) -> list[Variant]:
    """Return the variants faster than the one with the smallest workspace, the fastest first, and that one."""
    smallest = min(variants, key=lambda v: v.workspace_bytes)
    ordered = sorted((v for v in variants if v.seconds() < smallest.seconds()), key=Variant.seconds)
    return [*ordered, smallest]


def _plain_seconds(graph: Graph, node: Node, weight_bytes: int, setting: Setting) -> float:
    """Return the time of an operator with one kernel, by its bytes or by its flops, whichever takes longer."""
    cost = operators.OPERATORS[node.op].cost
    inputs, output = [graph.tensors[t] for t in node.inputs], graph.tensors[node.outputs[0]]
    sizes = [tensor.nbytes for tensor in (*inputs, output)]
    moved = (sum(sizes) * cost.passes + weight_bytes) / setting.machine.bytes_per_second
    flops = cost.flops(node, [tensor.shape for tensor in inputs], output.shape)
    return max(
        flops / (setting.machine.flops_per_second * setting.threads * cost.peak_fraction), moved / setting.threads
    )
