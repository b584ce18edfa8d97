"""Relocation of programs: several that share an arena need other addresses than those they were planned at."""

from __future__ import annotations

from dataclasses import replace

from flexnn import _core

from .types import Program


def relocated(program: Program, split: int, front: int, rest: int) -> Program:
    """Return the program with what lies below arena offset ``split`` (what is pinned) moved up by ``front`` bytes and
    what lies above it (the working part) moved by ``rest``, both multiples of the I/O alignment.
    """
    if not front and not rest:
        return program
    nodes, steps, pinned, loads = (
        table.copy() for table in (program.nodes, program.steps, program.pinned, program.loads)
    )
    _core.relocate(nodes, steps, pinned, loads, split, front, rest)
    end = max(split + front, program.arena_bytes + rest)
    return replace(
        program,
        nodes=nodes,
        steps=steps,
        pinned=pinned,
        loads=loads,
        arena_bytes=end,
        zeros_offset=program.zeros_offset + front,
    )
