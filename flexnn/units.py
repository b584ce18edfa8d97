"""Sizes, shapes and other options as people write them: ``48MiB``, ``input=1,3,224,224``."""

from __future__ import annotations

import re
from operator import index
from typing import Literal

Groups = int | Literal["auto"] | None
"""Number of groups into which each layer of independent nodes is split; "auto": the number that is predicted to be
fastest; None: nodes run one by one."""
_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SIZE_MAX = 1 << 46
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str | int) -> int:
    """Return the bytes that ``text`` says: an integer, or a number with KiB, MiB, GiB, or K, M, G for short (powers of
    1024), or KB, MB, GB (powers of 1000). Raises ValueError for anything else, floats too, and for less than one byte.
    """
    if not isinstance(text, str):
        if isinstance(text, bool) or not hasattr(text, "__index__"):
            kind = type(text).__name__
            raise ValueError(f"not a size: {text!r} is a {kind}; write bytes as an integer, or text like '48MiB'")
        size = index(text)
    else:
        match = _SIZE.fullmatch(text)
        if not match or match[2].upper() not in _UNITS:
            raise ValueError(f"not a size: {text!r}; write bytes, or a number with KiB, MiB, GiB, KB, MB or GB")
        size = int(min(float(match[1]) * _UNITS[match[2].upper()], SIZE_MAX + 1))
    if not 1 <= size <= SIZE_MAX:
        raise ValueError(f"size out of range: {text!r}")
    return size


def asks_system(memory: object) -> bool:
    """Return whether a budget is asked of the system (flexnn/system): ``auto``, ``auto:RESERVE`` or a part like 50%."""
    return isinstance(memory, str) and (memory.strip().startswith("auto") or memory.strip().endswith("%"))


def format_bytes(size: int) -> str:
    """Return ``size`` in MiB with two decimals, rounded up so that the text never says less than the size."""
    hundredths = -(-size * 100 // (1 << 20))
    return f"{hundredths // 100}.{hundredths % 100:02d}MiB"


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the dimensions in ``NAME=1,3,224,224`` (or ``1x3x224x224``). Raises ValueError."""
    name, equals, dims = text.rpartition("=")
    parts = re.split("[,x]", dims) if dims else []
    if not equals or not name or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"not a shape: {text!r}; write NAME=1,3,224,224")
    return name, tuple(int(part) for part in parts)


def parse_groups(value: str | int | None) -> Groups:
    """Return the groups that ``off`` (or None), ``auto`` or a number from 1 asks for. Raises ValueError otherwise."""
    if value is None or value in ("off", "auto"):
        return "auto" if value == "auto" else None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:9])
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"not a number of groups: {value!r}; write off, auto or a number from 1")
    return value
