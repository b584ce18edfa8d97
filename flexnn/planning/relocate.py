"""Relocation of programs: several that share an arena need other addresses than those they were planned at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flexnn import _core

from .types import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray


def relocated(program: Program, split: int, front: int, rest: int) -> Program:
    """Return the program with what lies below arena offset ``split`` (what is pinned) moved up by ``front`` bytes and
    what lies above it (the working part) moved by ``rest``, both multiples of the I/O alignment.
    """
    if not front and not rest:
        return program
    nodes, steps, pinned, loads = _tables(program)
    _core.relocate(nodes, steps, pinned, loads, split, front, rest)
    end = max(split + front, program.arena_bytes + rest)
    moved = replace(program, nodes=nodes, steps=steps, pinned=pinned, loads=loads)
    return replace(moved, arena_bytes=end, zeros_offset=program.zeros_offset + front)


def held_apart(program: Program, own_bytes: int, split: int, front: int, held_at: int, rest: int) -> Program:
    """Return the program as ``relocated`` does, but with the pinned slices that lie from offset ``own_bytes`` on at
    arena offset ``held_at``, below the working part: they are not its own, but held for it.
    """
    own = sum(address < own_bytes for address in program.pinned["address"].tolist())
    between = held_at - own_bytes
    nodes, steps, pinned, loads = _tables(program)
    held, pinned = pinned[own:], pinned[:own]
    _core.relocate(nodes, steps, pinned[:0], loads, split, 0, rest - between)
    _core.relocate(nodes, steps, pinned, loads, own_bytes, front, between)
    held["address"] += between
    end = max(held_at + split - own_bytes, program.arena_bytes + rest)
    moved = replace(program, nodes=nodes, steps=steps, pinned=pinned, loads=loads, held=held)
    return replace(moved, arena_bytes=end, zeros_offset=program.zeros_offset + front)


def _tables(program: Program) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return copies of the tables that have addresses: nodes, steps, pinned, loads."""
    return program.nodes.copy(), program.steps.copy(), program.pinned.copy(), program.loads.copy()
