"""Tapes for the engine: written by hand or at random, and what they do according to a Python interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from flexnn import _core
from tests.support.programs import Chain, up

Bytes = np.ndarray
KINDS = ("run", "copy", "swap", "branch", "jump", "begin", "turn", "next", "count", "row")


@dataclass
class Tape:
    """Entries and slots; those of the arena begin at offset ``at``."""

    at: int
    inputs: int = 0
    """Buffers that are only read: the first ones."""
    buffers: int = 0
    counters: int = 0
    entries: list[tuple[int, ...]] = field(default_factory=list)
    slots: list[tuple[int, ...]] = field(default_factory=list)
    operands: list[int] = field(default_factory=list)

    def slot(self, nbytes: int, base: int = 0, offset: int = 0) -> int:
        if base == 0:
            offset, self.at = self.at, self.at + up(nbytes)
        self.slots.append((base, 0, offset, nbytes))
        return len(self.slots) - 1

    def add(self, kind: str, a: int = 0, b: int = 0, c: int = 0, d: int = 0, n: int = 0) -> int:
        self.entries.append((KINDS.index(kind), a, b, c, d, 0, n))
        return len(self.entries) - 1

    def go(self, entry: int) -> None:
        """Let a branch, jump or turn go to what comes next."""
        kind, a, _, *rest = self.entries[entry]
        self.entries[entry] = (kind, a, len(self.entries), *rest)

    def run(self, program: int, *slots: int) -> int:
        self.operands += slots
        return self.add("run", program, len(self.operands) - len(slots))

    def arguments(self) -> dict:
        return {
            "entries": np.array(self.entries, _core.ENTRY_DTYPE),
            "slots": np.array(self.slots, _core.SLOT_DTYPE),
            "operands": np.array(self.operands, np.uint32),
            "buffer_count": self.buffers,
            "input_count": self.inputs,
            "counter_count": self.counters,
        }

    def open(self, engine: _core.Engine, programs: Sequence[_core.BoundProgram] = (), **options) -> _core.Recording:
        return _core.Recording(engine, programs=programs, **(self.arguments() | options))


def interpret(tape: Tape, buffers: list[Bytes], programs: Sequence[Callable[[Bytes], Bytes]]) -> list[int]:
    """Do what a tape says, on bytes; return the counters. Every row must have room."""
    memory = np.full(tape.at, 0xFF, np.uint8)
    places: list[Bytes | None] = []
    for base, _, offset, nbytes in tape.slots:
        whole = memory if base == 0 else None if base == _core.BASE_ROW else buffers[base - 1]
        places.append(None if whole is None else whole[offset : offset + nbytes])
    counters, at = [0] * tape.counters, 0

    def place(slot: int) -> Bytes:
        found = places[slot]
        assert found is not None
        return found

    while at < len(tape.entries):
        kind, a, b, c, d, _, n = tape.entries[at]
        at += 1
        match KINDS[kind]:
            case "run":
                place(tape.operands[b + 1])[:] = programs[a](place(tape.operands[b]))
            case "copy":
                place(a)[:n] = place(b)[:n].copy()
            case "swap":
                places[a], places[b] = places[b], places[a]
            case "branch":
                at = at if place(a)[0] else b
            case "jump":
                at = b
            case "begin":
                counters[a] = 0
            case "turn":
                most = int(place(d)[:8].view(np.int64)[0]) if d >= 0 else -1
                is_over = (d >= 0 and counters[a] >= most) or (c >= 0 and not place(c)[0])
                at = b if is_over or 0 <= n <= counters[a] else at
            case "next":
                counters[a] += 1
                at = b
            case "count":
                place(b)[:8] = np.array([counters[a]]).view(np.uint8)
            case "row":
                base, _, offset, nbytes = tape.slots[b]
                whole = buffers[base - 1][offset:] if base > 0 else place(b)
                first = len(whole) - (counters[c] + 1) * n if d else counters[c] * n
                assert 0 <= first <= len(whole) - n
                places[a] = whole[first : first + n]
    return counters


@dataclass
class Bench:
    """An engine with programs whose weights all stream, and the bytes behind them that are free for slots.

    ``holds``: behind them is a program of which every other weight is brought by the last one, its holder, where the
    others read theirs.
    """

    count: int = 3
    chains: list[Chain] = field(init=False)
    options: dict = field(default_factory=dict)
    holds: bool = False

    def __post_init__(self) -> None:
        slots = [2, 4, 6] if self.holds else [2] * self.count
        self.chains = [Chain(layers=1 + i, side=2, channels=24, slots=slots[i], seed=i) for i in range(self.count)]
        if self.holds:
            self.chains.append(Chain(layers=3, side=2, channels=24, slots=2, pinned_every=2, seed=9))
        end = max(chain.program["arena_bytes"] for chain in self.chains)
        for i, chain in enumerate(self.chains):
            chain.program["zeros_offset"], chain.program["arena_bytes"] = end + i * 4096, end + (i + 1) * 4096
        self.free = end + len(self.chains) * 4096
        self.engine = _core.Engine(**self.options)
        made = [chain.program for chain in self.chains]
        if self.holds:
            made.append(holder_of(made[-1]))
            made[-2] = made[-2] | {"pinned": made[-1]["pinned"]}
        self.programs = [_core.BoundProgram(self.engine, **program) for program in made]

    @property
    def nbytes(self) -> int:
        """Bytes of an input or output of a program."""
        return int(self.chains[0].program["io_bytes"][0])

    @property
    def functions(self) -> list[Callable[[Bytes], Bytes]]:
        return [self._function(chain) for chain in self.chains]

    def _function(self, chain: Chain) -> Callable[[Bytes], Bytes]:
        def run(x: Bytes) -> Bytes:
            return chain.reference(x.copy().view(np.float32).reshape(chain.shape)).reshape(-1).view(np.uint8)

        return run


def holder_of(program: dict) -> dict:
    """Return the program that brings what another one pins."""
    nothing = {name: program[name][:0] for name in ("nodes", "steps", "pinned")}
    return program | nothing | {"loads": program["pinned"], "zeros_count": 0, "io_bytes": [], "input_count": 0}


VALUES, FLAGS, ROWS = 4, 4, 8


class RandomTape(Tape):
    """A tape of nested branches and loops over four values and four flags.

    Buffer 1 brings values, flags and rows; buffer 2 takes values and flags at the end; buffer 3 takes a pile of rows,
    one for each turn of an outermost loop.
    """

    def __init__(self, rng: Generator, bench: Bench) -> None:
        super().__init__(bench.free)
        self.rng, self.programs, self.nbytes = rng, range(bench.count), bench.nbytes
        self.holds = bench.count if bench.holds else -1
        self.buffers, self.inputs = 3, 1
        self.size = VALUES * self.nbytes + FLAGS * 8
        self.values = [self.slot(self.nbytes) for _ in range(VALUES)]
        self.flags = [self.slot(8) for _ in range(FLAGS)]
        self.rows = self.slot(ROWS * self.nbytes, 1, self.size)
        self.stack, self.row_in, self.row_out = self.slot(0, 3), *(self.slot(self.nbytes, _core.BASE_ROW) for _ in "ab")
        own = [*((slot, self.nbytes) for slot in self.values), *((slot, 8) for slot in self.flags)]
        offsets = np.cumsum([0, *(size for _, size in own)])
        for (slot, size), at in zip(own, offsets, strict=False):
            self.add("copy", slot, self.slot(size, 1, int(at)), n=size)
        self.body(3, [])
        for (slot, size), at in zip(own, offsets, strict=False):
            self.add("copy", self.slot(size, 2, int(at)), slot, n=size)

    def body(self, depth: int, loops: list[int]) -> None:
        for _ in range(int(self.rng.integers(1, 5 if depth < 3 else 7))):
            choice = int(self.rng.integers(9 if depth else 6))
            a, b = (int(i) for i in self.rng.choice(self.values, 2, replace=False))
            if choice < 2:
                self.run(self.programs[int(self.rng.integers(len(self.programs)))], a, b)
            elif choice == 2:
                self.add("copy", a, b, n=self.nbytes)
            elif choice == 3:
                self.add("swap", a, b)
            elif choice == 4 and loops:
                self.add("count", loops[int(self.rng.integers(len(loops)))], int(self.rng.choice(self.flags[:2])))
            elif choice == 5 and loops:
                self.row(a, loops)
            elif choice == 6:
                self.branch(depth, loops)
            elif choice >= 7:
                self.loop(depth, loops)

    def row(self, slot: int, loops: list[int]) -> None:
        if self.rng.integers(2):
            self.add("row", self.row_in, self.rows, loops[-1], int(self.rng.integers(2)), self.nbytes)
            self.add("copy", slot, self.row_in, n=self.nbytes)
        else:
            self.add("row", self.row_out, self.stack, loops[0], 0, self.nbytes)
            self.add("copy", self.row_out, slot, n=self.nbytes)

    def branch(self, depth: int, loops: list[int]) -> None:
        branch = self.add("branch", int(self.rng.choice(self.flags)))
        self.body(depth - 1, loops)
        jump = self.add("jump") if self.rng.integers(2) else -1
        self.go(branch)
        if jump >= 0:
            self.body(depth - 1, loops)
            self.go(jump)

    def loop(self, depth: int, loops: list[int]) -> None:
        counter = self.counters
        self.counters += 1
        self.add("begin", counter)
        trips = self.flags[2] if self.rng.integers(2) else -1
        going = int(self.rng.choice(self.flags[:2])) if not self.rng.integers(3) else -1
        turn = self.add("turn", counter, 0, going, trips, -1 if trips >= 0 else int(self.rng.integers(5)))
        outside = self.programs
        if self.holds in outside or (self.holds >= 0 and self.rng.integers(2)):
            self.hold(turn, is_new=self.holds not in outside)
        self.body(depth - 1, [*loops, counter])
        self.programs = outside
        self.add("next", counter, turn)
        self.go(turn)

    def hold(self, turn: int, *, is_new: bool) -> None:
        """Let a loop run nothing but the program that holds weights, which its first turn brings if ``is_new``."""
        self.programs = range(self.holds, self.holds + 1)
        if is_new:
            self.entries[turn] = (*self.entries[turn][:5], self.holds + 2, *self.entries[turn][6:])

    def given(self, rng: Generator, bench: Bench) -> Bytes:
        """Return what the buffer of inputs holds in a run."""
        floats = rng.standard_normal((VALUES + ROWS) * self.nbytes // 4).astype(np.float32).view(np.uint8)
        flags = np.array([*rng.integers(2, size=2), rng.integers(4), rng.integers(2)]).view(np.uint8)
        split = VALUES * self.nbytes
        return np.concatenate([floats[:split], flags, floats[split:]])
