"""Relocation of programs: several that share an arena need other addresses than those they were planned at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flexnn import _core

from .types import Program

_TABLES = "nodes", "steps", "pinned", "loads"


def relocated(program: Program, split: int, front: int, rest: int) -> Program:
    """Return the program with what lies below arena offset ``split`` (what is pinned) moved up by ``front`` bytes and
    what lies above it (the working part) moved by ``rest``, both multiples of the I/O alignment.
    """
    if not front and not rest:
        return program
    tables = {name: getattr(program, name).copy() for name in _TABLES}
    _core.relocate(*tables.values(), split, front, rest)
    end = max(split + front, program.arena_bytes + rest)
    return replace(program, **tables, arena_bytes=end, zeros_offset=program.zeros_offset + front)


def held_apart(program: Program, own_bytes: int, split: int, front: int, held_at: int, rest: int) -> Program:
    """Return the program as ``relocated`` does, but with the pinned slices that lie from offset ``own_bytes`` on at
    arena offset ``held_at``, below the working part: they are not its own, but held for it.
    """
    own = sum(address < own_bytes for address in program.pinned["address"].tolist())
    between = held_at - own_bytes
    tables: dict[str, Any] = {name: getattr(program, name).copy() for name in _TABLES}
    held, tables["pinned"] = tables["pinned"][own:], tables["pinned"][:own]
    none = tables["pinned"][:0]
    _core.relocate(tables["nodes"], tables["steps"], none, tables["loads"], split, 0, rest - between)
    _core.relocate(*tables.values(), own_bytes, front, between)
    held["address"] += between
    end = max(held_at + split - own_bytes, program.arena_bytes + rest)
    return replace(program, **tables, held=held, arena_bytes=end, zeros_offset=program.zeros_offset + front)
