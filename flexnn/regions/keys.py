"""Keys of templates: all that says which segment binding makes, but for sizes and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from flexnn.graph.ir import Shape

from .region import Nodes, Region

Found = TypeVar("Found")


Fact = tuple[str, str, int, bool, bool, bool] | tuple[str, str, int, bool, bool, bool, Shape, tuple[bool, ...]]
"""Facts about a value that binding sees: name, dtype, rank, whether its numbers are not there, whether it is settled,
whether it is steady, and where its elements have bounds its shape and which of them those leave one number."""


class Marks(NamedTuple):
    """Marks of a region that binding reads and leaves (region.py): of ``forced``, ``hosted``, ``apart`` and
    ``hosted_empty``.
    """

    forced: frozenset[str]
    hosted: frozenset[int]
    apart: frozenset[int]
    empty: frozenset[int]

    @classmethod
    def of(cls, region: Region) -> Marks:
        """Return all marks of a region."""
        sets = region.forced, region.hosted, region.apart, region.hosted_empty
        return cls(frozenset(sets[0]), frozenset(sets[1]), frozenset(sets[2]), frozenset(sets[3]))

    def without(self, other: Marks) -> Marks:
        """Return the marks that the other does not have."""
        return Marks(
            self.forced - other.forced, self.hosted - other.hosted, self.apart - other.apart, self.empty - other.empty
        )

    def union(self, other: Marks) -> Marks:
        """Return the marks that either has."""
        return Marks(*(own | its for own, its in zip(self, other, strict=True)))  # type: ignore[arg-type]

    def within(self, other: Marks, facts: Sequence[Fact]) -> bool:
        """Return whether the other has these marks, and further ones of nodes, and of values that are not at hand."""
        if not (self.forced <= other.forced and self.hosted <= other.hosted and self.apart <= other.apart):
            return False
        return (other.forced - self.forced).isdisjoint([fact[0] for fact in facts])

    def put(self, region: Region) -> None:
        """Mark a region."""
        region.forced |= self.forced
        region.hosted |= self.hosted
        region.apart |= self.apart
        region.hosted_empty |= self.empty


class Key(NamedTuple):
    """All that says which segment binding makes, but for sizes and numbers."""

    region: Region
    remaining: Nodes
    facts: tuple[Fact, ...]
    marks: Marks
    """Marks of the values and nodes at hand."""
    inlines: bool
    """Whether branches are lowered with the nodes around them."""

    @property
    def of(self) -> tuple[Region, Nodes, bool]:
        """Region, nodes and way of lowering, which keys that serve each other have in common."""
        return self.region, self.remaining, self.inlines

    def serves(self, other: Key) -> bool:
        """Return whether a segment of this key is one of the other, if it has none of the nodes of the other's further
        marks: those were left by an earlier run, of what is not at hand yet.
        """
        return self.of == other.of and self.facts == other.facts and self.marks.within(other.marks, self.facts)

    def more(self, other: Key) -> Nodes:
        """Return the nodes that the other has marks of, and this key has not."""
        found = other.marks.without(self.marks)
        return sum(1 << i for i in found.hosted | found.apart)


class Table(Generic[Found]):
    """Table of what was found under keys, in the order in which it was put. Looking does not go through the keys of
    other nodes.
    """

    def __init__(self, found: Mapping[Key, Found] | None = None) -> None:
        self._found: dict[Key, Found] = {}
        self._alike: dict[tuple[Region, Nodes, bool], dict[Key, Found]] = {}
        for key, value in (found or {}).items():
            self.put(key, value)

    def __len__(self) -> int:
        return len(self._found)

    def items(self) -> Iterable[tuple[Key, Found]]:
        """Return all keys, and what is found under them."""
        return self._found.items()

    def values(self) -> Iterable[Found]:
        """Return all that is found."""
        return self._found.values()

    def pop(self, key: Key) -> Found | None:
        """Take out what is under a key; None: nothing."""
        self._alike.get(key.of, {}).pop(key, None)
        return self._found.pop(key, None)

    def put(self, key: Key, found: Found) -> None:
        """Put something under a key that has nothing."""
        self._found[key] = self._alike.setdefault(key.of, {})[key] = found

    def pop_first(self) -> Found | None:
        """Take out what was put longest ago."""
        return self.pop(next(iter(self._found)))

    def alike(self, key: Key) -> list[tuple[Key, Found]]:
        """Return the keys of the same nodes, and what is found under them."""
        return list(self._alike.get(key.of, {}).items())

    def serving(self, key: Key) -> Iterator[tuple[Found, Nodes]]:
        """Iterate over what is under a key and under those that may serve it, with the nodes that no segment of it may
        have.
        """
        if (own := self._found.get(key)) is not None:
            yield own, 0
        for other, found in self.alike(key):
            if other.serves(key) and other != key:
                yield found, other.more(key)
