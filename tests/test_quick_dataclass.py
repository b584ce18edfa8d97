"""Quick dataclasses do what those of the library do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from flexnn.quick_dataclass import quick_dataclass


def made(decorator: Any, **options: Any) -> Any:
    class Point:
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
