"""Quick dataclasses do what those of the library do."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from flexnn.quick_dataclass import quick_dataclass


def made(decorator: Any, **options: Any) -> Any:
    class Point:
        """Without this text, dataclasses would make one."""

        x: int
        y: list[int] = field(default_factory=list)
        z: int = field(default=0, compare=False, repr=False)

    return decorator(**options)(Point)


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_they_compare_hash_and_print_alike(frozen: bool, slots: bool) -> None:
    for point in (made(how, frozen=frozen, slots=slots) for how in (dataclass, quick_dataclass)):
        assert point(1, [2]) == point(1, [2], 3) != point(1, [4])
        assert point(1) != (1, [])
        assert repr(point(1, [2])).endswith("Point(x=1, y=[2])")
        assert replace(point(1, [2]), x=5) == point(5, [2])
        assert hasattr(point(1), "__dict__") is not slots
        if frozen:
            assert hash(point(1, ())) == hash(point(1, (), 9))
        else:
            with pytest.raises(TypeError, match="unhashable"):
                hash(point(1))


def test_without_comparison_each_is_its_own() -> None:
    point = made(quick_dataclass, eq=False)
    one = point(1)
    assert one == one != point(1)
    assert len({one, point(1)}) == 2


@pytest.mark.parametrize("kw_only", [False, True])
@pytest.mark.parametrize("slots", [False, True])
def test_objects_are_made_alike(slots: bool, kw_only: bool) -> None:
    """With what bases have, defaults that are no literals, names as parameters, and work behind it."""
    marker = object()

    def point(how: Any) -> Any:
        @how(slots=slots, kw_only=kw_only)
        class Base:
            x: int
            made: list[int] = field(default_factory=list)

        @how(slots=slots, kw_only=kw_only)
        class Point(Base):
            kept: object = marker
            total: int = 0

            def __post_init__(self) -> None:
                self.total += self.x

        return Point

    for one in map(point, (dataclass, quick_dataclass)):
        objects = [one(x=1), one(x=1, made=[7], kept=None, total=4)]
        assert [(o.x, o.made, o.kept is marker, o.total) for o in objects] == [(1, [], True, 1), (1, [7], False, 5)]
        assert objects[0].made is not one(x=1).made
        with pytest.raises(TypeError):
            one()
        with pytest.raises(TypeError):
            one(1, 2, 3, 4, 5)
        if kw_only:
            with pytest.raises(TypeError):
                one(1)
        else:
            assert one(1, [2], 3, 4).total == 5


def test_nothing_is_compiled_for_a_class_without_objects() -> None:
    """It took most of the time that a class took, and few of them have objects at a first start."""
    compiled = []
    sys.addaudithook(lambda event, _: compiled.append(event) if event == "compile" else None)
    point = made(quick_dataclass)
    assert compiled == []
    assert point(1).y == point(1).y == []
    assert compiled == ["compile"]


@pytest.mark.parametrize("kw_only", [False, True])
def test_one_without_fields_is_made(kw_only: bool) -> None:
    """It was a syntax error when the first object was made."""

    @quick_dataclass(frozen=True, kw_only=kw_only)
    class Empty:
        """Nothing."""

    assert Empty() == Empty()
    with pytest.raises(TypeError):
        Empty(1)  # type: ignore[call-arg]
