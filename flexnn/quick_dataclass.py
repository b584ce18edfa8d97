"""Dataclasses that are made quickly: a process that opens a model makes a hundred of them before its first run, and few
of them ever have an object there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["quick_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as quick_dataclass
else:

    def quick_dataclass(
        *, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False
    ) -> Callable[[type], type]:
        """Return a decorator that makes a dataclass, of whose methods only ``__init__`` is compiled, when the first
        object is made. It compares, hashes and prints as one of ``dataclasses`` does. That frozen ones do not change is
        left to type checkers, so their objects are made more quickly, too.
        """

        def made(cls: type) -> type:
            cls = dataclass(slots=slots, init=False, eq=False, repr=False, match_args=False)(cls)
            _add_init(cls, kw_only=kw_only)
            fields = cls.__dataclass_fields__.values()
            if eq:
                _add_comparison(cls, [field.name for field in fields if field.compare], hashes=frozen)
            if cls.__repr__ is object.__repr__:
                cls.__repr__ = _printed
            return cls

        return made


_ABSENT = object()
"""Default of a parameter whose value a function makes for each object."""


def _add_init(cls: Any, *, kw_only: bool) -> None:
    """Give a class an ``__init__`` that compiles the one which takes its place."""

    def compiled(self: Any, *args: Any, **named: Any) -> None:
        cls.__init__ = _init_of(cls, kw_only=kw_only)
        cls.__init__(self, *args, **named)

    cls.__init__ = compiled


def _init_of(cls: Any, *, kw_only: bool) -> Any:
    """Return a function that sets the fields of a new object."""
    scope: dict[str, Any] = {"_absent": _ABSENT}
    parameters, lines = ["self"], list[str]()
    for name, field in cls.__dataclass_fields__.items():
        value = name
        if field.default_factory is not MISSING:
            scope[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_absent")
            value = f"_make_{name}() if {name} is _absent else {name}"
        elif field.default is not MISSING:
            scope[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    if kw_only and cls.__dataclass_fields__:
        parameters.insert(1, "*")
    lines.append(" return None")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines), scope)
    return scope["__init__"]


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
