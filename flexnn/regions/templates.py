"""Templates of segments: a segment that is bound to shapes once is bound to others by computing its sizes again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from flexnn.garbage import Uncollected
from flexnn.graph.element import singles
from flexnn.graph.ir import DTYPE_NAMES, Array, Graph, Shape
from flexnn.graph.late import Late
from flexnn.graph.likeness import Skeleton
from flexnn.graph.lower import Const, array_const, sizes_const
from flexnn.graph.replay import Numbers, Replay
from flexnn.graph.sizes import SizeError, Trail
from flexnn.graph.template import Template
from flexnn.graph.traced import make_template
from flexnn.quick_dataclass import quick_dataclass

from .keys import Key, Marks, Table
from .region import Nodes, Region
from .scope import NumbersError, Value
from .segment import Segment, Told, build_segment

TEMPLATES_MAX = 16
"""Most templates of the same nodes; the one used longest ago goes."""
NODES_MAX = 8192
"""Most internal nodes of all templates; those made longest ago go."""
SIZE_BYTES = 4
"""Least bytes of an integer that may be a size; narrower ones are weights."""
NUMBERS_MAX = 64
"""Most integers of a value that a template may take as sizes."""
FOLDED_MAX = 8
"""Most other numbers of a value of which a template makes a constant: it then serves values of that shape alone."""
NODE_OBJECTS = 4
"""Internal nodes of which planning makes as many objects as binding makes of one of the model's."""
SEGMENT_BYTES = 4 << 10
"""Bytes of a segment in Python, without its graph."""


class Given:
    """A value at hand, as binding sees it: of a type, of a shape of sizes, and with numbers if it asks for them. It has
    the attributes of a ``Value``.
    """

    def __init__(self, trail: Trail, value: Value) -> None:
        self._trail, self._array = trail, value.array
        self.dtype, self.is_steady = value.dtype, value.is_steady
        array = value.array
        self.is_settled = value.is_settled and (array is None or array.dtype.kind in "iu" or array.size <= FOLDED_MAX)
        self.shape: Any = tuple(map(trail.given, value.shape))
        self._bounds = value.bounds
        self.bounds: Any = None
        self.is_known = False
        """Whether its numbers are the same always, or such as its sizes say."""
        self._sizes: list[Any] = []
        self.first = -1
        """Position of its numbers among the numbers given; -1: they are the same always."""

    def bound(self, shape: Shape) -> None:
        """Give its bounds, after the shapes of all values; its own is then the same always."""
        if self._bounds is not None:
            self.shape = shape
            given = [(self._trail.given(least), self._trail.given(most)) for least, most in self._bounds]
            self.bounds = tuple(
                [
                    (least, least) if is_single else (least, most)
                    for (least, most), is_single in zip(given, singles(self._bounds), strict=True)
                ]
            )

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its numbers."""
        return self.size * self.dtype.itemsize

    @property
    def array(self) -> Given | None:
        """The value itself, which makes constants of its numbers; None where they are not there."""
        return None if self._array is None else self

    def numbers(self, name: str) -> Given:
        """Return the value itself. Raises NumbersError, naming the value ``name``."""
        if self._array is None:
            raise NumbersError([name])
        return self

    def const(self, name: str) -> Const:
        """Return a constant of its numbers."""
        assert self._array is not None
        self.is_known = True
        if (
            self.dtype.kind not in "iu"
            or self.dtype.itemsize < SIZE_BYTES
            or self._array.size > NUMBERS_MAX
            or self.dtype not in DTYPE_NAMES
        ):
            return array_const(name, self._array)
        own = tuple(map(int, self.shape))  # how many there are is the same always
        if self.first < 0:
            self.first = len(self._trail.givens)
            self._sizes = [self._trail.given(v) for v in self._array.reshape(-1).tolist()]
        numbers = np.empty(len(self._sizes), object)
        numbers[:] = self._sizes
        return sizes_const(name, numbers.reshape(own), DTYPE_NAMES[self.dtype])


class Trace(NamedTuple):
    """A template, and what tracing it met."""

    template: SegmentTemplate
    before: Key
    """Key when tracing began."""
    after: Marks
    """Marks of the key when it had ended."""
    found: Marks
    """All marks that it left and that were not there before."""


@quick_dataclass(slots=True, eq=False)
class SegmentTemplate:
    """A segment of which the trail of its sizes is known."""

    segment: Segment
    template: Template
    names: list[str]
    """Names of the values of which the dimensions are given, in order."""
    sized: list[str]
    """Names of those of which the numbers are given, too, in order."""
    known: dict[str, Array]
    """Values whose numbers are the same always, by name."""
    late: dict[str, Late]
    """Makers of those of the segment's constants that depend on sizes, by name."""
    lacking: set[str] | None = None
    """Names of nodes whose weights cannot be had, once it was asked for."""
    skeleton: Skeleton | None = None
    """Graph without its sizes, once it was asked for."""

    def __len__(self) -> int:
        return len(self.template)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, about."""
        return SEGMENT_BYTES + self.template.nbytes + sum(array.nbytes for array in self.known.values())

    def at(self, values: Mapping[str, Value], *, is_best: bool = True, found: Numbers | None = None) -> Segment | None:
        """Return the segment for these values; None where it is another one, or, with ``is_best``, where its nodes
        would stand in another order. ``found``: the numbers that the trail gives for them, if they are known.
        """
        replay = self.template.replay
        if found is None:
            found = numbers_at(replay, given_numbers(self.names, self.sized, self.known, values))
        sizes = self.template.taken(found)
        if sizes is None or (is_best and not self.is_best(sizes)):
            return None
        return self.of(values, sizes)

    def is_best(self, sizes: Numbers) -> bool:
        """Return whether binding to these sizes would find nothing better, as far as that is looked at."""
        return self.template.replay.is_best(sizes) and self.template.is_least(sizes)

    def of(self, values: Mapping[str, Value], sizes: Numbers) -> Segment | None:
        """Return the segment for these values, which give all these numbers; None where an operator cannot take
        them.
        """
        if not self.template.takes(sizes):
            return None
        return self.sized_to(sizes, {name: values[name].numbers(name) for name in self.segment.consumed})

    def sized_to(self, sizes: Numbers, consumed: dict[str, Array]) -> Segment:
        """Return the segment of these sizes, into which the numbers of ``consumed`` values go."""
        s, made = self.segment, {name: make(sizes) for name, make in self.late.items()}
        constants = s.constants | made
        return Segment(
            s.region, s.nodes, None, s.feeds, s.makes, constants, s.aliases, consumed, s.inlined, None, self, sizes
        )


def given_numbers(
    names: list[str], sized: list[str], known: Mapping[str, Array], values: Mapping[str, Value]
) -> list[int] | None:
    """Return the numbers that a template's trail is given: dimensions, then numbers of values; None where values that
    are the same always differ.
    """
    for name, array in known.items():
        own = values[name].numbers(name)
        if own is not array and not np.array_equal(own, array):
            return None
    numbers: list[int] = []
    for name in names:
        numbers += values[name].shape
    for name in names:
        numbers += [number for pair in values[name].bounds or () for number in pair]
    for name in sized:
        numbers += values[name].numbers(name).reshape(-1).tolist()
    return numbers


def numbers_at(replay: Replay, given: list[int] | None) -> Numbers | None:
    """Return all numbers of a trail for those that are given; None where there are none, or the trail does not hold."""
    return replay.at(given) if given is not None and len(given) == len(replay.givens) else None


class StoredTemplate(Protocol):
    """A template in an artifact (template_reader.py)."""

    read: SegmentTemplate | None
    """The template, once it was read."""

    def loaded(self, values: Mapping[str, Value]) -> tuple[SegmentTemplate, Numbers] | None:
        """Return the template, read and checked, and the numbers that its trail gives for these values, if it holds for
        them. Raises GraphError.
        """
        ...

    def typical(self, dims: Mapping[str, Sequence[Any]]) -> tuple[SegmentTemplate, Segment, dict[str, Array]] | None:
        """Return the template, its segment for sizes like those for which it was traced, and values of these sizes;
        dimensions in ``dims`` that are numbers are these. Return None where that is another one. Raises GraphError.
        """
        ...

    def tell(self) -> None:
        """Read the template as the first one tells it, if it does. Raises GraphError."""
        ...

    @property
    def alike(self) -> bool:
        """Whether what is planned for the first template serves this one, too."""
        ...

    @property
    def after(self) -> Marks:
        """Marks of its key when it had been traced."""
        ...

    @property
    def found(self) -> Marks:
        """All marks that tracing it left."""
        ...


Stored = Mapping[Key, Sequence[StoredTemplate]]


class Templates:
    """Templates of the segments of a model. ``stored`` reads those of its artifact, when one is first needed."""

    def __init__(self, opset: int, stored: Callable[[], Stored] | None = None) -> None:
        self._opset = opset
        self.keeps_best = True
        """Whether nodes are to stand in the order that binding would find. Any order that they have is right."""
        self._found: Table[list[SegmentTemplate]] = Table()
        self.nodes = 0
        """Internal nodes of all templates."""
        self._read = stored
        self._stored: Table[Sequence[StoredTemplate]] = Table()
        self.is_closed = False
        """Whether none are kept any more."""
        self.may_trace = True
        """Whether there is memory for tracing new ones."""
        self.traces: list[Trace] | None = None
        """Templates that were traced, if they are to be kept."""

    @property
    def nbytes(self) -> int:
        """Bytes of all templates, about."""
        return sum(template.nbytes for found in self._found.values() for template in found)

    def holds(self, template: SegmentTemplate) -> bool:
        """Return whether a template is kept."""
        return any(template in found for found in self._found.values())

    def close(self) -> None:
        """Drop all templates, and make no more."""
        self._found, self.nodes, self._stored = Table(), 0, Table()
        self.is_closed = True

    def segment(
        self,
        region: Region,
        remaining: Nodes,
        values: Mapping[str, Value],
        is_settled: Told,
        is_steady: Told | None,
    ) -> Segment:
        """Return the segment that ``build_segment`` returns."""
        if self.is_closed:
            return build_segment(region, remaining, values, is_settled, is_steady, self._opset)
        read = region.needed(remaining)
        names = sorted(name for name in values if name in read)  # most regions read more than there is
        if not remaining & region.parents:
            is_steady = None  # there is no branch to decide

        def key() -> Key:
            facts = tuple(
                (
                    name,
                    value.dtype.str,
                    len(value.shape),
                    value.array is None,
                    is_settled(name),
                    bool(is_steady and is_steady(name)),
                    *(() if value.bounds is None else (value.shape, singles(value.bounds))),
                )
                for name, value in ((name, values[name]) for name in names)
            )
            own = Marks(
                frozenset(region.forced & read),
                frozenset([i for i in region.hosted if remaining >> i & 1]),
                frozenset([i for i in region.apart if remaining >> i & 1]),
                frozenset(),
            )
            return Key(region, remaining, facts, own, is_steady is not None)

        before = key()
        segment = self._computed(before, values)
        if segment is not None:
            self._rebinds(segment, before, {name: values[name] for name in names})
            return segment
        if not self.may_trace:
            return build_segment(region, remaining, values, is_settled, is_steady, self._opset)
        marks = Marks.of(region)
        self._ask(before)
        self._vary(before, values)
        try:
            with Uncollected(NODE_OBJECTS * remaining.bit_count()):
                template = _with_trail(region, remaining, values, names, is_settled, is_steady, self._opset)
            segment = template.at(values, is_best=False)  # as it was traced
        except (SizeError, TypeError):  # some operator computes with its sizes in a way that is not known here
            segment = None
        if segment is None:
            return build_segment(region, remaining, values, is_settled, is_steady, self._opset)
        after = key()
        if self.traces is not None:
            self.traces.append(Trace(template, before, after.marks, Marks.of(region).without(marks)))
        self._keep(after, template)
        return segment

    def typical(self, dims: Mapping[str, Sequence[Any]], count: int) -> Iterator[tuple[Segment, dict[str, Array]]]:
        """Iterate over segments of the first ``count`` stored templates of whole regions, but those like the first one,
        at typical sizes: those of ``dims`` where they are numbers, else those for which they were traced; and over
        values of these sizes. Those like the first one are read as it tells them. Raises GraphError, ArtifactError.
        """
        for key, found in self._all_stored().items():
            for stored in found if key.remaining == key.region.all and not key.region.path else ():
                if stored.after != key.marks or count <= 0:
                    continue
                if stored.alike:
                    count -= 1
                    stored.tell()
                elif (made := stored.typical(dims)) is not None:
                    template, segment, values = made
                    self._keep(key, template)
                    count -= 1
                    yield segment, values

    def _all_stored(self) -> Table[Sequence[StoredTemplate]]:
        """Return the templates that the artifact holds, read the first time."""
        if self._read is not None:
            self._stored, self._read = Table(self._read()), None
        return self._stored

    def _rebinds(self, segment: Segment, key: Key, values: dict[str, Value]) -> None:
        """Let a segment of which binding would make something better know how it is bound."""
        template, numbers = segment.template, segment.numbers
        if self.keeps_best or template is None or numbers is None or template.template.replay.is_best(numbers):
            return
        settled = {fact[0]: fact[4] for fact in key.facts}
        steady = {fact[0]: fact[5] for fact in key.facts}

        def bound() -> Graph:
            is_steady = steady.__getitem__ if key.inlines else None
            found = build_segment(key.region, key.remaining, values, settled.__getitem__, is_steady, self._opset)
            return found.graph

        segment.bind = bound

    def _computed(self, key: Key, values: Mapping[str, Value]) -> Segment | None:
        """Return a segment that a template of this key gives; None where none does."""
        tried: set[SegmentTemplate | None] = set()
        for found, others in self._found.serving(key):
            for template in reversed(found):
                if template.segment.nodes & others:
                    continue
                if (segment := template.at(values, is_best=self.keeps_best)) is not None:
                    found.remove(template)
                    found.append(template)
                    return segment
                tried.add(template)
        for kept, others in self._all_stored().serving(key):
            for stored in kept:
                loaded = None if stored.read in tried else stored.loaded(values)
                if loaded is None or loaded[0].segment.nodes & others:
                    continue
                if (segment := loaded[0].at(values, is_best=self.keeps_best, found=loaded[1])) is not None:
                    stored.found.put(key.region)
                    self._keep(key._replace(marks=key.marks.union(stored.after)), loaded[0])
                    return segment
        return None

    def _vary(self, key: Key, values: Mapping[str, Value]) -> None:
        """Mark the values that kept a template of this key from serving: it took their numbers for constants."""
        for found, _ in self._found.serving(key):
            for template in found:
                for name, array in template.known.items():
                    if not np.array_equal(values[name].numbers(name), array):
                        key.region.varied.add(name)

    def _ask(self, key: Key) -> None:
        """Raise NumbersError if a template serves this key, but for numbers that it has: at shapes like these they
        turned out to be needed.
        """
        for stored, _ in (*self._all_stored().alike(key), *self._found.alike(key)):
            pairs = list(zip(key.facts, stored.facts, strict=False))
            names = {own[0] for own, other in pairs if own[3] and not other[3]}
            alike = [own[:3] + own[4:] == other[:3] + other[4:] for own, other in pairs]
            marks = stored.marks._replace(forced=key.marks.forced | names)
            if names and len(key.facts) == len(stored.facts) and all(alike) and stored.marks.within(marks, key.facts):
                key.region.forced |= names
                raise NumbersError(names)

    def _keep(self, key: Key, template: SegmentTemplate) -> None:
        own = self._found.pop(key) or []
        self._found.put(key, own)
        own.append(template)
        gone = own[:-TEMPLATES_MAX]
        del own[:-TEMPLATES_MAX]
        self.nodes += len(template) - sum(map(len, gone))
        while self.nodes > NODES_MAX and len(self._found) > 1:
            self.nodes -= sum(map(len, self._found.pop_first() or ()))


def _with_trail(
    region: Region,
    remaining: Nodes,
    values: Mapping[str, Value],
    names: list[str],
    is_settled: Told,
    is_steady: Told | None,
    opset: int,
) -> SegmentTemplate:
    trail = Trail()
    try:
        given = {name: Given(trail, values[name]) for name in names}
        for name, value in given.items():
            value.bound(values[name].shape)
        segment = build_segment(region, remaining, given, is_settled, is_steady, opset)  # type: ignore[arg-type]
        sized = sorted((value.first, name) for name, value in given.items() if value.first >= 0)
        known = {n: values[n].numbers(n) for n, value in given.items() if value.is_known and value.first < 0}
        late = {n: v.source.late(trail.indices) for n, v in segment.constants.items() if isinstance(v, Const)}  # type: ignore[attr-defined]
        segment.constants = {n: v for n, v in segment.constants.items() if not isinstance(v, Const)}
        template = make_template(trail, segment.graph)
        segment.built = Graph()
        return SegmentTemplate(segment, template, names, [name for _, name in sized], known, late)
    finally:
        trail.forget()
