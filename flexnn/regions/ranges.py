"""Ranges: the least and the most that numbers can be which only a run knows, for sizes that data decide.

They are asked for, and computed backwards through the nodes of the model: a count is at most as many elements as there
are, a remainder is below its divisor, a trip count comes from numbers that were clipped. Only sums of many numbers that
may be large are guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from flexnn.graph.bind import Binder
from flexnn.graph.ir import DTYPE_NAMES, DTYPES, Array, GraphError, Shape
from flexnn.graph.lower import Const, array_const
from flexnn.graph.model import ModelNode
from flexnn.quick_dataclass import quick_dataclass

from .range_rules import FEW, Given, Range, exact, hull, node_range, uniform
from .region import Nodes, Region, members
from .segment import Segment

DEPTH_MAX = 150
"""Most nodes that are followed backwards."""
CONSTANT_BYTES_MAX = 1 << 20
"""Most bytes of a constant whose numbers are looked at."""


@quick_dataclass(slots=True)
class _Part:
    """Nodes of a segment, and what is known of the values that they read: shapes and types, or numbers."""

    region: Region
    nodes: Nodes
    feeds: dict[str, tuple[Shape, str]]
    consumed: dict[str, Array]
    is_bound: bool = False
    """Whether the shapes inside it are known."""


class Ranges:
    """Ranges of the values of a model in one run. ``note`` and ``meet`` tell which shapes and numbers are known."""

    def __init__(self, root: Region, opset: int, inputs: Mapping[str, Array]) -> None:
        self._root, self._opset, self._inputs = root, opset, inputs
        self._around: dict[Region, tuple[Region, int]] = {}
        self._makers: dict[Region, dict[str, int]] = {}
        for region in root.walk():
            self._makers[region] = {name: i for i, node in enumerate(region.nodes) for name in node.output if name}
            for i, bodies in region.children.items():
                self._around.update((body, (region, i)) for body in bodies.values())
        self._shapes: dict[tuple[Region, str], Shape] = {}
        self._known: dict[tuple[Region, str], Array] = {}
        self._parts: dict[tuple[Region, int], _Part] = {}
        """Nodes that were lowered together, by each of them."""
        self._found: dict[tuple[Region, str], Range] = {}
        self._doubted: set[tuple[Region, str]] = set()
        """Values whose numbers follow from some that are the most that they can be: others may be larger for less."""
        self._depth = 0

    def note(self, region: Region, name: str, shape: Shape, array: Array | None = None) -> None:
        """Note the shape of a value, and its numbers where they are known."""
        if self._shapes.get((region, name)) != shape:
            self._shapes[region, name] = shape
            self._found.clear()
        if array is None or (region, name) in self._doubted:
            self._known.pop((region, name), None)
        elif array.size <= FEW:
            self._known[region, name] = array

    def doubt(self, region: Region, name: str) -> None:
        """Note that the numbers that will be told of a value are only the most that they can be."""
        self._doubt(region, {name})
        self._found.clear()

    def _doubt(self, region: Region, names: set[str]) -> None:
        """Doubt values of a region, and all that its nodes make of them."""
        for i, node in enumerate(region.nodes):
            if names & region.reads[i]:
                names.update(node.output)
                for body in region.children.get(i, {}).values():
                    self._doubt(body, names | {port.name for port in body.graph.inputs})
        for name in names:
            self._doubted.add((region, name))
            self._known.pop((region, name), None)

    def meet(self, segment: Segment) -> None:
        """Note a segment, whose inner shapes follow from those of its inputs."""
        inputs = [segment.graph.tensors[i] for i in segment.graph.inputs]
        feeds = {name: (t.shape, t.dtype) for name, t in zip(segment.feeds, inputs, strict=False)}
        part = _Part(segment.region, segment.nodes, feeds, segment.consumed)
        self._parts.update(((segment.region, i), part) for i in members(segment.nodes))
        self._found.clear()

    def most(self, region: Region, name: str) -> Array | None:
        """Return the most that the elements of a value can be, or None where nothing is known."""
        found = self.of(region, name)
        shape = self.shape(region, name)
        if shape is None or not np.isfinite(found.most).all():
            return None
        return np.broadcast_to(found.most, shape) if found.most.shape in ((), shape) else None

    def of(self, region: Region, name: str) -> Range:
        """Return the range of a value that the region's nodes see."""
        key = region, name
        if (found := self._found.get(key)) is not None:
            return found
        if self._depth >= DEPTH_MAX:
            return uniform()
        self._found[key] = uniform()  # of a value that goes into itself, turn by turn
        self._depth += 1
        try:
            found = self._computed(region, name)
        except (GraphError, ValueError, TypeError, IndexError, OverflowError):
            found = uniform()
        finally:
            self._depth -= 1
        self._found[key] = found
        return found

    def shape(self, region: Region, name: str) -> Shape | None:
        """Return the shape of a value, or None where it is not known."""
        found = self._shapes.get((region, name))
        if found is None and (array := self._known.get((region, name))) is not None:
            return array.shape
        if found is not None:
            return found
        i = self._makers[region].get(name)
        if i is None:
            if name in region.constants:
                return region.constants[name].shape
            return self.shape(self._around[region][0], name) if region in self._around else None
        part = self._parts.get((region, i))
        if part is not None and not part.is_bound:
            part.is_bound = True
            self._bind(part)
            return self.shape(region, name)
        return None

    def _bind(self, part: _Part) -> None:
        """Find out the shapes inside a part: bind its nodes again."""
        region = part.region
        binder = Binder(self._opset, in_run=True)
        binder.constants = region.constants
        for name in {name for i in members(part.nodes) for name in region.reads[i]}:
            array = part.consumed.get(name, self._known_around(region, name))
            if name in part.feeds:
                binder.add_input(name, *part.feeds[name])
            elif array is not None and array.dtype in DTYPE_NAMES:
                binder.values[name] = array_const(name, array)
        for i in members(part.nodes):
            try:
                binder.add(region.nodes[i])
            except GraphError:
                continue
            for name in region.nodes[i].output:
                value = binder.value(name) if name else None
                if isinstance(value, Const):
                    self._shapes.setdefault((region, name), value.shape)
                    if value.nbytes <= FEW * 8 and (region, name) not in self._doubted:
                        self._known.setdefault((region, name), value.load().reshape(value.shape))
                elif value is not None:
                    self._shapes.setdefault((region, name), binder.graph.tensors[value].shape)

    def _known_around(self, region: Region, name: str) -> Array | None:
        while (region, name) not in self._known:
            if name in self._makers[region] or region not in self._around:
                return None
            region = self._around[region][0]
        return self._known[region, name]

    def _computed(self, region: Region, name: str) -> Range:
        if (known := self._known.get((region, name))) is not None:
            return exact(known)
        i = self._makers[region].get(name)
        if i is not None:
            node = region.nodes[i]
            k = list(node.output).index(name)
            if i in region.children:
                return self._controlled(region, i, k)
            self.shape(region, name)  # binds the segment that it is in
            if (known := self._known.get((region, name))) is not None:
                return exact(known)
            return node_range(self._given(region, node, k))
        if name in region.constants:
            constant = region.constants[name]
            if prod(constant.shape) * DTYPES[constant.dtype].itemsize > CONSTANT_BYTES_MAX:
                return uniform()
            return exact(np.asarray(constant.source.load()).reshape(constant.shape))
        if region in self._around:
            return self._port(region, name)
        array = self._inputs.get(name)
        return uniform() if array is None else exact(array)

    def _given(self, region: Region, node: ModelNode, k: int) -> Given:
        return Given(
            node,
            k,
            self._opset,
            lambda i: self.of(region, node.input[i]) if i < len(node.input) and node.input[i] else None,
            lambda i: self.shape(region, node.input[i]) if i < len(node.input) and node.input[i] else None,
            self.shape(region, node.output[k]),
        )

    # ---- control flow ----

    def turns(self, region: Region, i: int) -> int | None:
        """Return the most turns that a Loop takes, or None where nothing is known."""
        node = region.nodes[i]
        most = self.of(region, node.input[0]).most if node.input and node.input[0] else np.array(np.inf)
        return max(0, int(most.max())) if np.isfinite(most).all() else None

    def _controlled(self, region: Region, i: int, k: int) -> Range:
        """Return the range of output ``k`` of a node with bodies."""
        node, bodies = region.nodes[i], region.children[i]
        if node.op_type == "If":
            return hull(*(self.of(body, body.outputs[k]) for body in bodies.values()))
        body = bodies["body"]
        carried = self._carried(node)
        own = self.of(body, body.outputs[k + (node.op_type == "Loop")])
        return hull(self.of(region, self._initial(node, k)), own) if k < carried else hull(own)

    def _carried(self, node: ModelNode) -> int:
        if node.op_type == "Loop":
            return max(0, len(node.input) - 2)
        count = node.attrs.get("num_scan_inputs")
        return len(node.input) - count if isinstance(count, int) else 0

    def _initial(self, node: ModelNode, k: int) -> str:
        return node.input[k + 2 * (node.op_type == "Loop")]

    def _port(self, region: Region, name: str) -> Range:
        """Return the range of a value from outside a body: an input of it, or a value of a region around it."""
        around, i = self._around[region]
        node = around.nodes[i]
        ports = [port.name for port in region.graph.inputs]
        if name not in ports:
            return self.of(around, name)
        k = ports.index(name)
        if node.op_type == "Loop":
            if k == 0:
                turns = self.turns(around, i)
                return uniform(0, np.inf if turns is None else max(turns - 1, 0))
            if k == 1:
                return uniform(0, 1)
            k -= 2
        if k >= self._carried(node):
            return hull(self.of(around, node.input[k]))
        first = self.of(around, self._initial(node, k))
        return hull(first, self.of(region, region.outputs[k + (node.op_type == "Loop")]))
