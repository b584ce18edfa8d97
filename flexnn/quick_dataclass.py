"""Dataclasses that are made quickly: a process that opens a model makes a hundred of them before its first run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["quick_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as quick_dataclass
else:

    def quick_dataclass(
        *, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False
    ) -> Callable[[type], type]:
        """Return a decorator that makes a dataclass, of whose methods only ``__init__`` is compiled: in a third of the
        time. It compares, hashes and prints as one of ``dataclasses`` does. That frozen ones do not change is left to
        type checkers, so their objects are made more quickly, too.
        """

        def made(cls: type) -> type:
            cls = dataclass(slots=slots, eq=False, repr=False, match_args=False, kw_only=kw_only)(cls)
            fields = cls.__dataclass_fields__.values()
            if eq:
                _add_comparison(cls, [field.name for field in fields if field.compare], hashes=frozen)
            if cls.__repr__ is object.__repr__:
                cls.__repr__ = _printed
            return cls

        return made


def _add_comparison(cls: type, names: list[str], *, hashes: bool) -> None:
    def few(one: Any) -> tuple[Any, ...]:
        return tuple(getattr(one, name) for name in names)

    values: Callable[[Any], Any] = attrgetter(*names) if len(names) > 1 else few

    def equals(self: Any, other: object) -> bool:
        return bool(values(self) == values(other)) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    cls.__eq__ = equals  # type: ignore[assignment, method-assign]
    cls.__hash__ = hashed if hashes else None  # type: ignore[assignment, method-assign]


def _printed(self: Any) -> str:
    fields = [field.name for field in self.__dataclass_fields__.values() if field.repr]
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in fields)})"
