"""Segments: as many of a region's remaining nodes as can be lowered at once, for the shapes of the values at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from heapq import heappop, heappush
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from flexnn.graph.bind import Binder
from flexnn.graph.evaluate import EVALUATORS
from flexnn.graph.ir import DTYPE_NAMES, Array, Graph, GraphError, Shape, Weight
from flexnn.graph.lower import Const, UnknownValueError, array_const
from flexnn.graph.model import ModelNode
from flexnn.quick_dataclass import quick_dataclass

from .inline import AgainError, ApartError, condition, inline, may_inline
from .region import SLOW, Nodes, Region, members
from .scope import NumbersError, Value

if TYPE_CHECKING:
    from flexnn.graph.replay import Numbers

    from .templates import SegmentTemplate

KEPT_BYTES = 4 << 10
"""Most bytes of a constant that is kept as an array between segments; larger ones are computed again by each reader."""
DECIDING_MAX = 4
"""Most elements of a value from the caller that decides a branch."""
ASKED_ALONE = 4
"""Most values whose numbers are asked for one by one, so that each has its own variants. More are asked for together:
after each asking, everything before the next one is bound again."""
KNOWN_MAX = 4096
"""Most elements of a value whose numbers may shape a segment (axes, sizes, bounds); no limit if no input reaches it."""


@quick_dataclass(slots=True, eq=False)
class Segment:
    """Lowered nodes. ``graph`` is empty if all of them turned out to be constants or aliases of other values."""

    region: Region
    nodes: Nodes
    built: Graph | None
    """The graph; None: it was not asked for yet, and ``template`` makes it."""
    feeds: list[str]
    """Names of the values that the graph's inputs take, in order."""
    makes: list[str]
    """Names of the values that its outputs are, in order."""
    constants: dict[str, Any]
    """Values that were known while binding, by name: arrays, but in a template (templates.py)."""
    aliases: dict[str, str]
    """Names of values that equal a fed or a made value, whose name follows."""
    consumed: dict[str, Array] = field(default_factory=dict)
    """Values whose numbers went into the graph, by name: with other numbers it is another segment."""
    inlined: Nodes = 0
    """Branches that are lowered into it."""
    fixed: list[Array] | None = None
    """Constants that the artifact does not hold: they are the graph's last inputs once it has been bound."""
    template: SegmentTemplate | None = None
    """Template that it comes from; None: it was bound."""
    numbers: Numbers | None = None
    """All numbers of the template's trail."""
    bind: Callable[[], Graph] | None = None
    """Function that binds it; None: ``graph`` is what binding would make, but for the order of its nodes."""

    @property
    def is_best(self) -> bool:
        """Whether binding would make nothing better than ``graph``, as far as that is looked at."""
        if self.bind is not None:
            return False
        return self.template is None or self.numbers is None or self.template.template.is_least(self.numbers)

    @property
    def graph(self) -> Graph:
        """The graph."""
        if self.built is None:
            assert self.template is not None
            assert self.numbers is not None
            self.built = self.template.template.at(self.numbers)
        return self.built

    def own_graph(self) -> Graph:
        """Return a graph like it that may be changed without changing it."""
        if self.built is None and self.template is not None and self.numbers is not None:
            return self.template.template.at(self.numbers)
        return self.graph.copied()

    def leave_template(self) -> None:
        """Keep the graph in place of the template that it comes from."""
        if self.template is not None:
            self.built = self.graph
            self.template = self.numbers = None

    @property
    def weights(self) -> list[Weight]:
        """Weights of the graph; but for those that are made of sizes where it comes from a template."""
        return self.graph.weights if self.template is None else self.template.template.weights

    @property
    def outputs(self) -> list[tuple[Shape, str]]:
        """Shape and type of each output of the graph."""
        if self.template is not None and self.numbers is not None:
            return self.template.template.outputs(self.numbers)
        tensors = [self.graph.tensors[i] for i in self.graph.outputs]
        return [(tensor.shape, tensor.dtype) for tensor in tensors]


Told = Callable[[str], bool]
"""Fact about a value, asked by its name."""


def build_segment(
    region: Region,
    remaining: Nodes,
    values: Mapping[str, Value],
    is_settled: Told,
    is_steady: Told | None,
    opset: int,
) -> Segment:
    """Return the segment of those ``remaining`` nodes whose inputs are in ``values`` or computed in the segment.

    Mark in the region the nodes that numpy must compute, the values that must be known, and the branches that stay
    apart. ``is_settled`` says whether no input reaches a value; ``is_steady``, whether only small integers from the
    caller do, so that it may decide a branch (None: no branch is lowered). Raises GraphError for a node that is neither
    lowered nor computed by numpy, NumbersError where the numbers of ``values`` are needed and not there.
    """
    while True:
        before = set(region.forced), set(region.apart)
        segment = _attempt(region, remaining, values, is_settled, is_steady, opset)
        forced, apart = before
        if region.apart == apart and not any(name in values for name in region.forced - forced):
            return segment


def _attempt(
    region: Region,
    remaining: Nodes,
    values: Mapping[str, Value],
    is_settled: Told,
    is_steady: Told | None,
    opset: int,
) -> Segment:
    binder = Binder(opset, in_run=True)
    binder.constants = region.constants
    done: Nodes = 0
    inlined: Nodes = 0
    consumed: dict[str, Array] = {}
    asked: list[str] = []

    def admit(name: str, known: bool) -> None:
        admit_value(binder, name, values[name], known, name not in region.varied)
        if known and values[name].size:
            consumed[name] = values[name].numbers(name)

    for i in _ready(region, remaining, values, binder):
        node = region.nodes[i]
        if i in region.hosted or not _available(region, i, binder, values):
            continue
        if i in region.hosted_empty and _has_empty(node, binder, values):
            continue
        if i in region.children:
            outcome = _branch(region, i, binder, values, is_steady, admit)
            if outcome is None:
                break
            inlined |= outcome
            done |= outcome
            continue
        try:
            for name in node.input:
                if name and name in values and name not in binder.values:
                    admit(name, name in region.forced)
            binder.add(node)
            unmade = [name for name in node.output if name and binder.value(name) is None]
            if region.needed(remaining & ~(1 << i)) & set(unmade):  # numpy makes them all
                for name in node.output:
                    binder.values.pop(name, None)
                raise GraphError(f"{node.where}: its output {unmade[0]!r} is not supported")
            done |= 1 << i
        except NumbersError as error:
            asked += [name for name in error.names if name not in asked]
        except UnknownValueError as error:
            name, small = error.value, _size(error.value, binder, values) <= KNOWN_MAX
            if not (small or (name in values and is_settled(name))):
                leave(region, i, error)
            else:
                region.forced.add(name)
                region.forced |= _origins(region, name, values)
        except GraphError as error:
            leave(region, i, error, _has_empty(node, binder, values))
    if asked:
        raise NumbersError(asked if len(asked) > ASKED_ALONE else asked[:1])
    segment = _finished(region, remaining, done, binder, consumed)
    segment.inlined = inlined
    return segment


def _ready(region: Region, remaining: Nodes, values: Iterable[str], binder: Binder) -> Iterator[int]:
    """Iterate over the nodes that may have all inputs, in order: those that read a value at hand or none, and, as they
    are looked at one after the other, those that read what these made. The rest of the region is not gone through.
    """
    waiting = list(members(remaining & region.sources))
    met, names = set(waiting), list(values)
    while True:
        for i in (i for name in names for i in region.readers.get(name, ())):
            if i not in met and remaining >> i & 1:
                met.add(i)
                heappush(waiting, i)
        if not waiting:
            return
        yield (latest := heappop(waiting))
        names = [name for name in region.nodes[latest].output if name in binder.values]


def _branch(
    region: Region,
    i: int,
    binder: Binder,
    values: Mapping[str, Value],
    is_steady: Told | None,
    admit: Callable[[str, bool], None],
) -> Nodes | None:
    """Lower the branch of an If whose condition is known. Return the node, or 0 where it stays; None: binding has to
    start again. Numbers are not asked for in vain: a run would be recorded in other parts when it comes again.
    """
    if is_steady is None or i in region.apart:
        return 0
    if not condition(region.nodes[i], binder, values, is_steady):
        asks = may_inline(region, i) and _force_condition(region, region.nodes[i], values, is_steady)
        return None if asks else 0
    name = region.nodes[i].input[0]
    if binder.value(name) is None and values[name].array is None and not may_inline(region, i):
        return 0
    try:
        inline(region, i, binder, values, region.forced, admit)
    except AgainError:
        return None
    except ApartError:
        region.apart.add(i)
        return None
    return 1 << i


def _force_condition(region: Region, node: ModelNode, values: Mapping[str, Value], is_steady: Told) -> bool:
    """Ask for the numbers of the few integers from the caller that decide a branch; return whether any are new."""
    if node.op_type != "If" or not node.input or node.input[0] in values:
        return False
    origins = _origins(region, node.input[0], values)
    few = all(is_steady(name) and values[name].size <= DECIDING_MAX for name in origins)
    new = origins - region.forced if few else set()
    region.forced |= new
    return bool(new)


def _available(region: Region, i: int, binder: Binder, values: Mapping[str, Value]) -> bool:
    names = region.reads[i]
    return all(name in binder.values or name in values or name in region.constants for name in names)


def _size(name: str, binder: Binder, values: Mapping[str, Value]) -> int:
    value = binder.values.get(name)
    if value is None:
        return values[name].size
    return prod(value.shape) if isinstance(value, Const) else binder.graph.tensors[value].size


def _has_empty(node: ModelNode, binder: Binder, values: Mapping[str, Value]) -> bool:
    """Return whether an input has no elements."""
    known = [binder.values[name] for name in node.input if name in binder.values]
    if any(isinstance(value, Const) and 0 in value.shape for value in known):
        return True
    return any(name in values and not values[name].size for name in node.input)


def leave(region: Region, i: int, error: GraphError, empty: bool = False) -> None:
    """Leave a node to numpy, only where an input has no elements if ``empty``. Raises ``error`` if numpy does not know
    its operator.
    """
    if region.nodes[i].op_type not in EVALUATORS:
        raise error
    (region.hosted_empty if empty else region.hosted).add(i)
    if region.nodes[i].op_type in SLOW:
        region.why[i] = str(error)


def _origins(region: Region, name: str, values: Mapping[str, Value]) -> set[str]:
    """Return the small integers at hand from which a value is computed: if they are known while binding, so is it.
    Return nothing if anything goes into it but these, small constants and shapes: what weights make of a text is
    computed in the run. Nor if it is a count of what other values hold: it has to be known itself, and they do not
    (graph/contrib/selection.py).
    """
    wanted, found, met = {name}, set[str](), {region.makers.get(name, -1)}
    later_first = [-i for i in met if i >= 0]
    while later_first:
        i = -heappop(later_first)
        made = wanted.intersection(region.nodes[i].output)
        wanted -= made
        inside = {n for n in made if n not in values}
        found |= made - inside
        if inside and (i in region.children or region.nodes[i].op_type.endswith(".count")):
            return set()
        if region.nodes[i].op_type == "Unique.groups":
            return set()
        read = [region.constants[n] for n in region.reads[i] if n in region.constants] if inside else []
        if any(prod(constant.shape) > KNOWN_MAX for constant in read):
            return set()
        if inside and region.nodes[i].op_type not in ("Shape", "Size"):
            wanted |= region.reads[i]
            for k in {region.makers[n] for n in region.reads[i] if n in region.makers} - met:
                met.add(k)
                heappush(later_first, -k)
    wanted -= set(region.constants)
    found |= wanted
    known = all(n in values and values[n].dtype.kind in "iub" and values[n].size <= KNOWN_MAX for n in found)
    return found if known else set()


def admit_value(binder: Binder, name: str, value: Value, known: bool, folds: bool = True) -> None:
    """Let a binding see a value, and its numbers if ``known``, or, with ``folds``, if they are few and no input reaches
    them. Raises GraphError.
    """
    if not value.size:  # no numbers: its shape says all of it
        binder.values[name] = array_const(name, np.zeros(value.shape, value.dtype))
        return
    if value.dtype not in DTYPE_NAMES:
        raise GraphError(f"value {name!r} is {value.dtype}{list(value.shape)}, which the C core does not compute")
    if known:
        binder.values[name] = const = array_const(name, value.numbers(name))
        const.is_of_run = True
    elif folds and value.is_settled and value.array is not None and value.nbytes <= KEPT_BYTES:
        binder.values[name] = array_const(name, value.array)
    else:
        binder.add_input(name, value.shape, DTYPE_NAMES[value.dtype])
        if value.bounds is not None:
            binder.elements.bound(len(binder.graph.tensors) - 1, value.bounds)


def _finished(
    region: Region,
    remaining: Nodes,
    done: Nodes,
    binder: Binder,
    consumed: dict[str, Array],
) -> Segment:
    graph = binder.graph
    feeds = [graph.tensors[i].name for i in graph.inputs]
    done = _without_weights(region, remaining, done, binder) or done
    made = {name for i in members(done) for name in region.nodes[i].output if name}
    constants: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    makes: list[str] = []
    owner = {(tensor, False): name for tensor, name in zip(graph.inputs, feeds, strict=True)}
    for name in sorted(region.needed(remaining & ~done) & made):
        value = binder.value(name)
        assert value is not None
        is_half = name in binder.halves
        if isinstance(value, Const):
            array = value.load().astype(np.float16) if is_half else value.known()
            constants[name] = np.asarray(array, order="C") if isinstance(array, np.ndarray) else array
        elif (value, is_half) in owner:
            aliases[name] = owner[value, is_half]
        else:
            owner[value, is_half] = name
            makes.append(name)
    if not makes:
        return Segment(region, done, Graph(), [], [], constants, aliases, consumed)
    from flexnn.graph.passes import run_passes  # segments of templates do without

    binder.set_outputs(makes)
    packed = run_passes(graph, precision=region.precision, only_weighs=region.only_weighs)
    return Segment(region, done, packed, feeds, makes, constants, aliases, consumed)


def _without_weights(region: Region, remaining: Nodes, done: Nodes, binder: Binder) -> Nodes:
    """Return ``done`` without nodes that make large constants which only nodes that are yet to be lowered read."""
    for i in reversed(list(members(done))):
        names = [name for name in region.nodes[i].output if name]
        values = [binder.value(name) for name in names]
        if not all(isinstance(v, Const) for v in values) or any(name in region.outputs for name in names):
            continue
        left = remaining & ~done
        found = [k for name in names for k in region.readers.get(name, ()) if left >> k & 1]
        if not found or any(k in region.children or k in region.hosted for k in found):
            continue
        if all(isinstance(v, Const) and v.nbytes > KEPT_BYTES for v in values):  # last: sizes become conditions
            done &= ~(1 << i)
    return done
