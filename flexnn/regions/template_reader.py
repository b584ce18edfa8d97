"""Stored templates of an artifact (template_writer.py): nothing in them is believed before it was checked.

What says whether a template fits is read at once; its segment and graph, when it first does. Hostile bytes can only be
refused: each graph is checked again for its sizes (graph/template_reader.py), and the engine checks every program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, TypeVar

import numpy as np

from flexnn.graph.attributes import int_in, ints_in, name_of, row_of
from flexnn.graph.ir import DTYPES, RANK_MAX, Array, GraphError, Shape
from flexnn.graph.late import Late, numbers_read
from flexnn.graph.like_template import LIKE, Like, LikeTemplate
from flexnn.graph.model import Constant, ModelAttr, ModelGraph, ModelNode
from flexnn.graph.parsed import parsed, parsed_bytes
from flexnn.graph.replay import Numbers, Replay
from flexnn.graph.template import Template
from flexnn.graph.template_reader import Parts, layout, read_late, read_template
from flexnn.quick_dataclass import quick_dataclass

from .keys import Fact, Key, Marks
from .region import Nodes, Region, members
from .scope import Value
from .segment import Segment
from .templates import SegmentTemplate, given_numbers, numbers_at
from .turns import NUMBERS_MAX

ALIGN = 8
ARRAYS = {dtype.str: dtype for dtype in DTYPES.values()}
COUNT_MAX = 1 << 12
"""Most templates, and most arrays."""
NODES_MAX = 1 << 16
LIST_MAX = 1 << 16
PARSED_BYTES_MAX = 8 << 20
"""Most bytes that a part takes as Python's objects: what lists the templates, or a template's body."""
USES = 16
"""Most bytes of all trails and bodies, for each byte of the templates: they share arrays."""
FACTS = ("name", "dtype", "rank", "is absent", "is settled", "is steady")
"""Facts of each value; behind them, of one with bounds, its shape and which elements have one number."""
REPLAY = ("operations", "conditions", "preferences", "words", "floats", "givens")

Made = TypeVar("Made")


def load_templates(
    raw: bytes, region: Region, constants: Sequence[Constant], opset: int, most: int = PARSED_BYTES_MAX
) -> dict[Key, list[StoredTemplate]]:
    """Return the templates in ``raw`` by the keys that they serve, without those that would take more than ``most``
    bytes as Python's objects. Raises GraphError.
    """
    size = int.from_bytes(raw[:ALIGN], "little")
    if most < parsed_bytes(raw[ALIGN : ALIGN + size]) <= PARSED_BYTES_MAX:
        return {}
    return _refusing(lambda: _File(raw, region, constants, opset, most).templates())


def _refusing(read: Callable[[], Made]) -> Made:
    """Return what ``read`` returns. Raises GraphError for whatever is malformed."""
    try:
        return read()
    except GraphError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise GraphError(f"the artifact's templates: {str(error)[:120]}") from None


class _File:
    """The bytes of all templates."""

    def __init__(self, raw: bytes, region: Region, constants: Sequence[Constant], opset: int, most: int) -> None:
        self.most = most
        """Bytes that a template may take as Python's objects."""
        self.regions = [region, *region.inside]
        size = int.from_bytes(raw[:ALIGN], "little")
        if size > len(raw):
            raise ValueError("they are cut")
        self._left = USES * len(raw)
        head = self.parsed(raw[ALIGN : ALIGN + size])
        self._arrays: list[Array] = []
        at = ALIGN + -(-size // ALIGN) * ALIGN
        for row in _listed(head["arrays"]):
            dtype, dims = row_of(row, ("dtype", "shape"))
            shape = ints_in(dims, 0, len(raw), RANK_MAX)
            count = prod(shape)
            end = at + count * ARRAYS[dtype].itemsize
            if end > len(raw):
                raise ValueError("an array is cut")
            self._arrays.append(np.frombuffer(raw, ARRAYS[dtype], count, at if count else 0).reshape(shape))
            at += -(-(end - at) // ALIGN) * ALIGN
        self._rows = _listed(head["templates"])
        self.array = partial(_array_of, self._arrays)
        """Function that returns an array by its number, a view of all bytes. Raises ValueError."""
        self.constant = partial(_constant_of, self._arrays, {})
        """The same, of arrays that are no views: segments keep them when the templates are gone."""
        self.parts = Parts(self.constant, partial(_first_alike, self.regions, {}), constants, opset, {}, {})

    def parsed(self, raw: bytes) -> Any:
        """Return the JSON in ``raw``. Raises ValueError, also where it would take far more memory than real ones."""
        return parsed(raw, PARSED_BYTES_MAX)

    def _used(self, number: Any) -> Array:
        """Return an array of a trail or a body. Raises ValueError where all templates read far more than there is."""
        array = self.array(number)
        self._left -= array.nbytes
        if self._left < 0:
            raise ValueError("they use arrays too often")
        return array

    def templates(self) -> dict[Key, list[StoredTemplate]]:
        """Return the templates by their keys: that of before and that of after they were traced."""
        found: dict[Key, list[StoredTemplate]] = {}
        first: StoredTemplate | None = None
        for row in self._rows:
            before, stored = self._template(row)
            if stored.remaining == stored.region.all and not stored.region.path:
                stored.first, first = first, first or stored
            for key in {before, before._replace(marks=stored.after)}:
                found.setdefault(key, []).append(stored)
        return found

    def _template(self, row: dict[str, Any]) -> tuple[Key, StoredTemplate]:
        region = self.regions[int_in(row["region"], 0, len(self.regions) - 1)]
        remaining = _nodes(row["remaining"], region.all)
        facts = tuple([_fact(fact) for fact in _listed(row["facts"])])
        given = [fact[0] for fact in facts]
        sized, known = _names(row["sized"]), {name: self.array(i) for name, i in row["known"].items()}
        if _names(row["names"]) != given or not {*sized, *known} <= set(given) or len(set(given)) != len(given):
            raise ValueError("values that are given have other names")
        replay = _replay([self._used(number) for number in row_of(row["replay"], REPLAY)])
        before, after, found = (_marks(row[name], region) for name in ("before", "after", "found"))
        body, alike = self._used(row["body"]), bool(row.get("alike"))
        like = [self.array(number) for number in row_of(row["like"], LIKE)] if "like" in row else None
        stored = StoredTemplate(self, region, remaining, facts, sized, known, replay, body, after, found, alike, like)
        return Key(region, remaining, facts, before, bool(row["inlines"])), stored


@quick_dataclass(slots=True, eq=False)
class StoredTemplate:
    """A template whose segment and graph are read when they are first needed."""

    file: _File
    region: Region
    remaining: Nodes
    facts: tuple[Fact, ...]
    sized: list[str]
    known: Mapping[str, Array]
    replay: Replay
    body: Array
    """Bytes of JSON."""
    after: Marks
    found: Marks
    alike: bool
    """Whether what is planned for the first template serves this one, too, as the compiler found: runs look again."""
    like: list[Array] | None = None
    """Arrays that tell it by the first template (graph/like_template.py)."""
    first: StoredTemplate | None = None
    """The first template of the whole model, where this is a later one."""
    read: SegmentTemplate | None = None
    """The template, once it was read."""

    def typical(self, dims: Mapping[str, Sequence[Any]]) -> tuple[SegmentTemplate, Segment, dict[str, Array]] | None:
        """Return the template, its segment for sizes like those for which it was traced, and values of these sizes;
        dimensions in ``dims`` that are numbers are these. Return None where that is another one. Raises GraphError.
        """
        return _refusing(lambda: self._typical(dims))

    def _typical(self, dims: Mapping[str, Sequence[Any]]) -> tuple[SegmentTemplate, Segment, dict[str, Array]] | None:
        given, at = self.replay.traced, 0
        for name, _, rank, *_ in self.facts:
            known = [d if isinstance(d, int) else None for d in dims.get(name, ())]
            if len(known) == rank:
                given[at : at + rank] = [
                    g if d is None else d for g, d in zip(given[at : at + rank], known, strict=True)
                ]
            at += rank
        read = self.read or self._read()
        numbers = read.template.numbers(given) if read is not None else None
        if read is None or numbers is None or not read.template.takes(numbers):
            return None
        self.read = read
        return read, read.sized_to(numbers, {}), self._values(given)

    def _values(self, given: Sequence[int]) -> dict[str, Array]:
        """Return values of the sizes that are given, and with the numbers that are; all others are 0."""
        values, at = {}, 0
        for name, dtype, rank, *_ in self.facts:
            values[name] = np.broadcast_to(np.zeros((), ARRAYS[dtype]), given[at : at + rank])
            at += rank
        at += sum(2 * prod(shape) for shape in map(_bounded_shape, self.facts) if shape is not None)
        for name in self.sized:
            size = values[name].size
            values[name] = np.array(given[at : at + size], values[name].dtype).reshape(values[name].shape)
            at += size
        return values

    def loaded(self, values: Mapping[str, Value]) -> tuple[SegmentTemplate, Numbers] | None:
        """Return the template, and the numbers that its trail gives for these values, if it holds for them. Raises
        GraphError.
        """
        return _refusing(lambda: self._loaded(values))

    def _loaded(self, values: Mapping[str, Value]) -> tuple[SegmentTemplate, Numbers] | None:
        names = [fact[0] for fact in self.facts]
        found = numbers_at(self.replay, given_numbers(names, self.sized, self.known, values))
        if found is None:
            return None
        if self.read is None:
            self.read = self._told() or self._read()
        return None if self.read is None else (self.read, found)

    def tell(self) -> None:
        """Read the template as the first one tells it, if it does. Raises GraphError."""
        self.read = self.read or _refusing(self._told)

    def _told(self) -> SegmentTemplate | None:
        """Return the template as the first one tells it, if that was read; None where it must be read itself."""
        first = self.first.read if self.first is not None else None
        if first is None or self.like is None or self.first is None:
            return None
        own = [fact[:3] for fact in self.facts if len(fact) == len(FACTS)]
        if len(own) != len(self.facts) or own != [fact[:3] for fact in self.first.facts]:
            return None
        if len(self.replay.words) < len(first.template.replay.words) and self._lacks_numbers(first):
            return None
        like = Like.read(self.like, self.replay, first.template)
        shapes = like.columns[0][like.order[first.template.inputs]].tolist()
        dtypes = [first.template.tensors[i][2] for i in first.template.inputs]
        given = [tuple([k for k in shape if k >= 0]) for shape in shapes]
        self._check_feeds(first.segment.feeds, list(zip(given, dtypes, strict=True)))
        parts = self.file, self.region, self.remaining, self.facts, self.sized, self.known, self.replay, self.body
        unread = StoredTemplate(*parts, self.after, self.found, self.alike)  # this one holds what is made: a circle
        template = LikeTemplate(self.replay, first.template, like, lambda: _refusing(unread._whole))
        known, late = dict(self.known), first.late
        return CheckedSegmentTemplate(first.segment, template, first.names, self.sized, known, late, first.lacking)

    def _lacks_numbers(self, first: SegmentTemplate) -> bool:
        """Return whether constants of the first template, which are this one's, are made of numbers beyond its own."""
        makers = [*first.late.values(), *(make for *_, make in first.template.known if make is not None)]
        return any(index >= len(self.replay.words) for make in makers for index in numbers_read(make))

    def _whole(self) -> Template:
        """Return the graph's template with its nodes."""
        read = self._read()
        if read is None:
            raise ValueError("a template has other parameters than the first one")
        return read.template

    def _read(self) -> SegmentTemplate | None:
        """Return the template; None where this release has other parameters."""
        names = [fact[0] for fact in self.facts]
        raw = self.body.tobytes()
        if self.file.most < parsed_bytes(raw) <= PARSED_BYTES_MAX:
            return None
        row = self.file.parsed(raw)
        if row["layout"] != layout(name_of(node[1]) for node in _listed(row["graph"])):
            return None
        parts = self.file.parts.fresh()
        graph = read_template(row, self.replay, parts)
        count = len(self.replay.words)
        late = {name_of(name): read_late(value, count, parts) for name, value in row["late"].items()}
        segment = self._segment(row, graph, late)
        return CheckedSegmentTemplate(segment, graph, names, self.sized, dict(self.known), late)

    def _segment(self, row: dict[str, Any], graph: Template, late: Mapping[str, Late]) -> Segment:
        """Return the segment without its graph."""
        region, names = self.region, {fact[0] for fact in self.facts}
        nodes = _nodes(row["nodes"], self.remaining)
        inlined = _nodes(row["inlined"], nodes)
        feeds, makes, consumed = (_names(row[part]) for part in ("feeds", "makes", "consumed"))
        aliases = {name_of(name): name_of(other) for name, other in row["aliases"].items()}
        constants = {name_of(name): self.file.constant(number) for name, number in row["constants"].items()}
        computed = {name for i in members(nodes) for name in region.nodes[i].output if name}
        needed = region.needed(self.remaining & ~nodes) & computed
        own = [*makes, *aliases, *constants, *late]
        if len(own) != len(set(own)) or set(own) != needed or not {*feeds, *consumed} <= names:
            raise ValueError("a segment makes other values than its nodes")
        if not set(aliases.values()) <= {*names, *makes} or len(makes) != len(graph.outputs_at):
            raise ValueError("a segment has other outputs than its graph")
        taken = [graph.tensors[i] for i in graph.inputs]
        self._check_feeds(feeds, [(graph.lists[tensor[1]], tensor[2]) for tensor in taken])
        return Segment(
            region, nodes, None, feeds, makes, constants, aliases, dict.fromkeys(consumed, np.empty(0)), inlined
        )

    def _check_feeds(self, feeds: Sequence[str], taken: Sequence[tuple[tuple[int, ...], str]]) -> None:
        """Check that a graph's inputs, of which ``taken`` are shapes and types, are those of the values that they take.
        Raises ValueError.
        """
        if len(feeds) != len(taken) or len(set(feeds)) != len(feeds):
            raise ValueError("a segment has other inputs than its graph")
        at, shapes = 0, {}
        for fact in self.facts:
            name, dtype, rank, *_ = fact
            shapes[name] = tuple(self.replay.givens[at : at + rank].tolist()), _bounded_shape(fact), dtype
            at += rank
        for name, (indices, own) in zip(feeds, taken, strict=True):
            given, fixed, dtype = shapes[name]
            if DTYPES[own].str != dtype or (indices != given if fixed is None else not self._are(indices, fixed)):
                raise ValueError(f"value {name!r} has another shape or type")

    def _are(self, indices: Sequence[int], numbers: Sequence[int]) -> bool:
        """Return whether these indices of the trail are constants, and those numbers."""
        replay = self.replay
        changing = {*replay.operations[:, 3].tolist(), *replay.givens.tolist(), *replay.floats.tolist()}
        return changing.isdisjoint(indices) and replay.words[list(indices)].tolist() == list(numbers)


class CheckedSegmentTemplate(SegmentTemplate):
    """A segment's template that a file holds."""

    __slots__ = ()

    def at(self, values: Mapping[str, Value], *, is_best: bool = True, found: Numbers | None = None) -> Segment | None:
        """Return the segment for these values; None where it is another one (SegmentTemplate.at). Raises GraphError."""
        return _refusing(lambda: SegmentTemplate.at(self, values, is_best=is_best, found=found))


def _array_of(arrays: Sequence[Array], number: Any) -> Array:
    return arrays[int_in(number, 0, len(arrays) - 1)]


def _constant_of(arrays: Sequence[Array], copies: dict[int, Array], number: Any) -> Array:
    """Return a copy of an array, which is made once."""
    array = _array_of(arrays, number)
    if number not in copies:
        copies[number] = array.copy()
        copies[number].flags.writeable = False
    return copies[number]


def _node_of(regions: Sequence[Region], region: Any, node: Any) -> ModelNode:
    nodes = regions[int_in(region, 0, len(regions) - 1)].nodes
    return nodes[int_in(node, 0, len(nodes) - 1)]


def _first_alike(regions: Sequence[Region], alike: dict[str, ModelNode], region: Any, node: Any) -> ModelNode:
    """Return the first node that makes the same of the same inputs as this one; ``alike``: by what they make. Raises
    ValueError.
    """
    own = _node_of(regions, region, node)
    attrs = [(name, _told(value)) for name, value in own.attrs.items()]
    made = own.op_type, own.domain, attrs, [bool(name) for name in own.output]
    return alike.setdefault(repr(made), own)


def _told(value: ModelAttr) -> object:
    """Return what tells an attribute from others."""
    if isinstance(value, Constant):
        return "constant", value.source.key, value.shape, value.dtype
    return ("graph", id(value)) if isinstance(value, ModelGraph) else value


def _replay(arrays: list[Array]) -> Replay:
    operations, conditions, preferences, words, floats, givens = arrays
    for rows in (operations, conditions, preferences):
        if rows.dtype != np.int32 or rows.ndim != 2 or rows.shape[1] != 4:
            raise ValueError("operations of a trail are malformed")
    if words.dtype != np.int64 or words.ndim != 1 or not len(words) or words[-1] != 1:
        raise ValueError("numbers of a trail are malformed")
    for indices in (floats, givens):
        if indices.dtype != np.int32 or indices.ndim != 1:
            raise ValueError("indices of a trail are malformed")
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(words):
            raise ValueError("an index of a trail is out of range")
    made = np.concatenate((operations[:, 3], givens, floats))
    if (made == len(words) - 1).any():
        raise ValueError("the last number of a trail is not 1")
    return Replay(operations, conditions, preferences, words, floats, givens)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > COUNT_MAX:
        raise ValueError("not a list, or too long")
    return value


def _names(value: Any) -> list[str]:
    return [name_of(name) for name in _listed(value)]


def _nodes(value: Any, within: Nodes) -> Nodes:
    """Return a set of nodes, all of which are ``within`` another. Raises ValueError."""
    if not isinstance(value, str) or len(value) > NODES_MAX:
        raise ValueError("a set of nodes is malformed")
    nodes = int(value, 16)
    if nodes < 0 or nodes & ~within:
        raise ValueError("a set of nodes has others than the region")
    return nodes


def _fact(row: Any) -> Fact:
    """Return the facts of a value. Raises ValueError."""
    bounded = isinstance(row, list) and len(row) == len(FACTS) + 2
    name, dtype, rank, *flags = row_of(row[:-2] if bounded else row, FACTS)
    if not isinstance(dtype, str) or not all(isinstance(flag, bool) for flag in flags):
        raise ValueError("facts of a value are malformed")
    facts = name_of(name), dtype, int_in(rank, 0, RANK_MAX), *flags
    if not bounded:
        return facts
    shape, single = tuple(ints_in(row[-2], 0, NUMBERS_MAX, rank)), tuple(_listed(row[-1]))
    if len(shape) != rank or prod(shape) != len(single) or not 0 < len(single) <= NUMBERS_MAX:
        raise ValueError("the shape of a value with bounds is malformed")
    if not all(isinstance(flag, bool) for flag in single):
        raise ValueError("facts of a value with bounds are malformed")
    return *facts, shape, single


def _bounded_shape(fact: Fact) -> Shape | None:
    """Return the shape that a value with bounds always has."""
    return fact[6] if len(fact) == 8 else None


def _marks(row: Any, region: Region) -> Marks:
    forced, hosted, apart, empty = row_of(row, Marks._fields)
    most = len(region.nodes)
    nodes = (frozenset(ints_in(part, 0, most - 1, NODES_MAX)) for part in (hosted, apart, empty))
    return Marks(frozenset(_names(forced)), *nodes)
