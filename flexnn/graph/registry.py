"""Functions by ONNX operator, of packages whose modules register them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar, cast

Function = TypeVar("Function")


class Registry(Mapping[str, Function]):
    """Functions by ONNX operator of the default domain. Modules of rare operators are imported when one of these is
    looked up: code takes memory of every session of open shapes.
    """

    def __init__(self, package: str, rare: Mapping[str, str]) -> None:
        self._package = package
        self._modules = {operator: module for module, operators in rare.items() for operator in operators.split()}
        self._known: dict[str, Function | None] = dict.fromkeys(self._modules)

    def __getitem__(self, operator: str) -> Function:
        if self._known[operator] is None:
            import_module(f"{self._package}.{self._modules[operator]}")
        return cast("Function", self._known[operator])

    def __contains__(self, operator: object) -> bool:
        return operator in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def register(self, operator: str, function: Function) -> None:
        """Make ``function`` that of an operator."""
        self._known[operator] = function
