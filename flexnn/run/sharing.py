"""Sharing: the one arena of a pool's sessions, its engine, and the bytes that each of them gets.

The pinned parts and slots of all sessions lie side by side, and behind them the part that they share: activations,
workspaces, streamed weights of the run that goes on. What runs, rests, or was closed says so to its seat.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from flexnn._core import OpenFile
from flexnn.graph.ir import Array
from flexnn.planning import BudgetError
from flexnn.planning.overhead import BASE_BYTES, READER_BYTES, STACK_BYTES
from flexnn.planning.types import align_up, io_alignment
from flexnn.units import format_bytes

from .choosing import Point, Rate, choose, cost, time
from .engine import Engine, SessionError
from .options import RunOptions

if TYPE_CHECKING:
    from flexnn.system.watcher import Watcher

SEAT_BYTES, SMALL_BYTES = 256 << 10, 64 << 10
"""Bytes of Python objects of each session of a pool, beside those that the pool counts once; and those of them for
outputs that callers hold.
"""
LOOKS = 32
"""Runs of a pool from one look at what the sessions' weights are worth to the next."""
LEAVES = 4
"""Times 10 ms that a session which leaves a pool waits for a device; after that, a later call closes it."""
WORTH = 0.9
"""Weights move where the runs of all sessions then take at most this part of the time."""


class Member(Protocol):
    """The run of a session in a pool."""

    code_bytes: int
    """Bytes of modules that it imports; a pool counts those of one member."""

    @property
    def now(self) -> Point:
        """The point of what it takes now."""
        ...

    @property
    def input_bytes(self) -> int:
        """Bytes of its inputs."""
        ...

    def needed_bytes(self, floor_bytes: int) -> int:
        """Return the smallest budget of its last run, if each has one of its own, beside others that need so much of
        the shared part of the arena; else 0.
        """
        ...

    @property
    def value_bytes(self) -> int:
        """Bytes of values beside its inputs while it runs: two sets of outputs, or one where they are reused."""
        ...

    def smallest(self) -> Point:
        """Return the point that takes least."""
        ...

    def fastest(self) -> Point:
        """Return the point without a limit."""
        ...

    def curve(self) -> Sequence[Point]:
        """Return points to choose from, the smallest first."""
        ...

    def adopt(self, point: Point) -> Callable[[], None]:
        """Plan for a point, unbound; return what takes that back. Raises BudgetError, nothing has changed then."""
        ...

    @property
    def is_bound(self) -> bool:
        """Whether programs are bound, or will be by the run that needs them."""
        ...

    def bind(self, pinned_at: int, shared_at: int) -> None:
        """Bind the program at these offsets. Raises SessionError."""
        ...

    def unbind(self) -> None:
        """Unbind all programs."""
        ...

    def drop_values(self) -> None:
        """Drop arrays that are kept for the next outputs."""
        ...

    @property
    def files(self) -> tuple[OpenFile, ...]:
        """Files that its programs read."""
        ...

    def close(self, *, learn: bool = True) -> None:
        """Give everything back that is not the pool's."""
        ...


class Seat:
    """The place of a member in the pool."""

    def __init__(self, shared: SharedArena, member: Member) -> None:
        self.shared, self.member = shared, member
        self.rate = Rate()
        self.place: tuple[int, int] | None = None
        """Arena offsets of its pinned part and of the shared one, as it was bound last."""
        self._outputs: list[weakref.ref[Array]] = []

    def gave(self, outputs: Sequence[Array]) -> None:
        """Count outputs until their caller lets them go."""
        held = {id(array): found for found in self._outputs if (array := found()) is not None}
        held |= {id(array): weakref.ref(array) for array in outputs}  # an input that is an output comes again and again
        self._outputs = list(held.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of outputs that callers hold, beyond those that each seat counts in any case."""
        arrays = [found() for found in self._outputs]
        return max(sum([array.nbytes for array in arrays if array is not None]) - SMALL_BYTES, 0)


class SharedArena:
    """The engine of a pool with ``memory`` bytes (None: no limit), and its seats."""

    def __init__(self, memory: int | None, options: RunOptions) -> None:
        self.memory, self.options = memory, options
        self.engine = Engine(
            options.switches(direct=options.io == "direct"), trace=2 if options.trace else int(options.measures)
        )
        self.align = io_alignment(direct=options.io == "direct")
        self.seats: list[Seat] = []
        self.moves = 0
        """How often weights moved because another choice was faster."""
        self._last: Seat | None = None
        """The seat that ran last."""
        self._reserve = 0
        """Bytes for values that plans leave."""
        self._most_values = 0
        """Most bytes of values since the last look."""
        self._turn = 0
        self.is_closed = False
        self.watcher: Watcher | None = None
        """Follower of the system's memory; None: the budget stays."""
        self._began_ns = 0

    # ---- bytes ----

    @property
    def base_bytes(self) -> int:
        """Bytes that a pool counts once."""
        code = max((seat.member.code_bytes for seat in self.seats), default=0)
        return BASE_BYTES + STACK_BYTES * self.options.threads + 2 * READER_BYTES + code

    @property
    def _seats_bytes(self) -> int:
        """Bytes of all sessions' objects, the first one's apart, which the base counts."""
        return SEAT_BYTES * max(len(self.seats) - 1, 0)

    def _fixed_bytes(self) -> int:
        """Bytes of base, of seats and of their inputs."""
        return self.base_bytes + self._seats_bytes + sum(seat.member.input_bytes for seat in self.seats)

    def values_bytes(self, runs: Seat) -> int:
        """Return the bytes of values while a seat runs: its own, and outputs of all that callers hold."""
        others = sum(seat.held_bytes for seat in self.seats if seat is not runs)
        return others + max(runs.member.value_bytes, runs.held_bytes + runs.member.value_bytes // 2)

    def _least_reserve(self) -> int:
        return max((self.values_bytes(seat) for seat in self.seats if not seat.member.code_bytes), default=0)

    @property
    def session_bytes(self) -> int:
        """Bytes that all sessions own."""
        last = self._last if self._last in self.seats else None
        held = sum(seat.held_bytes for seat in self.seats)
        values = max(self._least_reserve(), held)
        if last is not None:
            values = held + max(last.member.value_bytes - last.held_bytes, 0)
        return self._fixed_bytes() + values + cost(self._now)

    @property
    def smallest(self) -> int:
        """The smallest budget of the sessions."""
        least = [seat.member.smallest() for seat in self.seats]
        together = self._fixed_bytes() + self._least_reserve() + cost(least)
        alone = [self._alone_bytes(number, least) for number in range(len(least))]
        return max([together, *alone])

    def _alone_bytes(self, runs: int, least: Sequence[Point]) -> int:
        """Return the smallest budget of a seat's last run beside others that take their least."""
        others = [number for number in range(len(least)) if number != runs]
        floor = max((least[number].shared for number in others), default=0)
        needed = self.seats[runs].member.needed_bytes(floor)
        taken = self._taken_bytes([(self.seats[number], least[number]) for number in others])
        return needed + taken + self._code_beside(self.seats[runs]) if needed else 0

    def _taken_bytes(self, others: Sequence[tuple[Seat, Point]]) -> int:
        """Return the bytes that others take while one runs, what a pool counts once and the shared part apart."""
        own = sum(s.member.input_bytes + s.held_bytes + point.pinned + point.own for s, point in others)
        return own + self._seats_bytes

    def _code_beside(self, runs: Seat) -> int:
        """Return the bytes of modules that others import and a seat does not."""
        code = max((seat.member.code_bytes for seat in self.seats), default=0)
        return code - runs.member.code_bytes

    @property
    def _now(self) -> list[Point]:
        return [seat.member.now for seat in self.seats]

    def floor_bytes(self, but: Seat) -> int:
        """Return the bytes of the shared part that others need."""
        return max((seat.member.now.shared for seat in self.seats if seat is not but), default=0)

    def left_bytes(self, runs: Seat) -> int | None:
        """Return the budget that the others leave to a seat, with all that a pool counts once; None: no limit."""
        if self.memory is None:
            return None
        taken = self._taken_bytes([(seat, seat.member.now) for seat in self.seats if seat is not runs])
        again = max(runs.held_bytes - runs.member.value_bytes // 2, 0)  # outputs of runs before the last
        return self.memory - taken - again - self._code_beside(runs)

    @property
    def beside_bytes(self) -> int:
        """Bytes of the seats outside the arena, without what a pool counts once."""
        return sum(s.member.now.own + s.member.input_bytes + s.held_bytes for s in self.seats) + self._seats_bytes

    # ---- seats come and go ----

    def join(self, seat: Seat) -> None:
        """Give a new seat its first bytes: what is left, and what it needs from the others. Raises BudgetError,
        SessionError: the others are as they were.
        """
        self.seats.append(seat)
        try:
            self._choose(joins=seat)
        except BaseException:
            self.seats.remove(seat)
            seat.member.unbind()
            raise
        self._last = None  # what a run like the last would have counts when it comes
        self._prepare()

    def _prepare(self) -> None:
        """Plan, where the budget follows the system, what a smaller one leaves: when others need memory it is too late,
        since planning takes as long as they take to use it up.
        """
        if self.watcher is not None:
            for seat in self.seats:
                seat.member.curve()

    def may_leave(self) -> bool:
        """Return whether nothing is read, perhaps after a moment: a seat that leaves waits until then."""
        return any(self.engine.core.rest(patient=False) for _ in range(LEAVES))

    def leave(self, seat: Seat, fd: int) -> None:
        """Give back what a seat has, and forget its file."""
        seat.member.unbind()
        self.engine.core.forget(fd)
        self.seats.remove(seat)
        if self._last is seat:
            self._last = None  # it has the arena
        del seat.member  # which has the seat
        self.engine.trim(keep=True)

    def rebudget(self, memory: int | None) -> None:
        """Plan all seats again for another budget. If that fails (BudgetError, SessionError, Ctrl-C), the old budget
        stays, and the old plans, which are bound when they run.
        """
        before, self.memory = self.memory, memory
        try:
            if memory is not None and memory < self.smallest:
                raise self._refusal(self.smallest)
            self._choose()
        except BaseException:
            self.memory = before
            raise
        self._last = None  # what a run like the last would have counts when it comes

    def clear(self) -> None:
        """Unbind all programs and give the arena back: something else needs its memory for a while."""
        for seat in self.seats:
            seat.member.unbind()
        self.engine.trim()

    def follow(self, watcher: Watcher | None) -> None:
        """Follow the system by a watcher from now on; None: no more."""
        before, self.watcher = self.watcher, watcher
        if before is not None:
            before.close()
        self._prepare()

    def close(self, *, learn: bool = True) -> None:
        """Close the engine; with ``learn``, keep what runs showed about the machine. Sessions cannot run again."""
        self.is_closed = True
        self.follow(None)
        seats, self.seats, self._last = self.seats, [], None
        files = tuple(file for seat in seats for file in seat.member.files)
        self.engine.close(files)
        for seat in seats:
            seat.member.close(learn=learn)
            del seat.member

    def statistics(self) -> dict[str, Any]:
        """Return figures of the pool (Pool.statistics)."""
        return {
            "sessions": len(self.seats),
            "engine_bytes": self.engine.nbytes,
            "moves": self.moves,
            "pinned_bytes": [seat.member.now.pinned for seat in self.seats],
        }

    # ---- runs ----

    def begin(self, seat: Seat) -> None:
        """Make room for a run's values, and bind its program. Raises BudgetError, SessionError."""
        if self.is_closed:
            raise SessionError("the session's pool is closed")
        if self.watcher is not None:
            self.watcher.check()
            self._began_ns = monotonic_ns()
        for other in self.seats:
            if other is not seat:
                other.member.drop_values()
        needed = self.values_bytes(seat)
        self._most_values = max(self._most_values, needed)
        self._last = seat
        is_fixed = not seat.member.code_bytes  # others know what they need when they run
        if is_fixed and self.memory is not None and self._fixed_bytes() + needed + cost(self._now) > self.memory:
            self._choose(values_bytes=self.values_bytes(seat) if self.has_collected() else needed)
        places = self._places()
        if seat.place != places[seat]:
            seat.member.unbind()
        if not seat.member.is_bound:
            self._clear_for(seat, places)
            self._bind(seat, places[seat])

    def settle(self, seat: Seat) -> tuple[int, int]:
        """Return the offsets of a seat whose parts have other sizes; others that move are bound again when they run."""
        places = self._places()
        self._clear_for(seat, places)
        seat.place = places[seat]
        return seat.place

    def _clear_for(self, seat: Seat, places: dict[Seat, tuple[int, int]]) -> None:
        """Unbind others that are not in their places; they are bound there when they run."""
        for other in self.seats:
            if other is not seat and other.place != places[other]:
                other.member.unbind()

    def make_room(self, seat: Seat, needed: int, *, all_of_it: bool) -> None:
        """Have others give back until a seat has a budget of ``needed`` bytes, or all that they can."""
        left = self.left_bytes(seat)
        others = [other for other in self.seats if other is not seat]
        if left is None or not others or (needed <= left and not all_of_it):
            return
        room = sum(other.member.now.pinned + other.member.now.own for other in others) - (needed - left)
        floor = self.floor_bytes(seat)
        curves = [[p._replace(shared=0) for p in other.member.curve() if p.shared <= floor] for other in others]
        rates = [other.rate.at(self._turn) for other in others]
        found = choose(curves, rates, room) if all(curves) and not all_of_it else None
        for number, other in enumerate(others):
            point = other.member.smallest() if found is None else found[number]
            if found is not None:
                point = next(p for p in other.member.curve() if p._replace(shared=0) == point)
            if point != other.member.now:
                other.member.adopt(point)

    def refusal(self, seat: Seat, needed: int) -> BudgetError:
        """Return the error of a seat that needs a budget which the others do not leave at their smallest."""
        taken = 0 if self.memory is None else self.memory - (self.left_bytes(seat) or 0)
        return self._refusal(needed + taken)

    def has_collected(self) -> bool:
        """Let outputs go that only garbage holds, as the frames of an error may; return whether there were any."""
        before = sum(seat.held_bytes for seat in self.seats)
        if before:
            gc.collect()
        return sum(seat.held_bytes for seat in self.seats) < before

    def refused(self, seat: Seat) -> None:
        """Count no values of a run that began and was refused."""
        if self._last is seat:
            self._last = None

    def end(self, seat: Seat, outputs: Sequence[Array]) -> None:
        """Count a run that is over, and look now and then whether other weights should be pinned."""
        seat.gave(outputs)
        if self.watcher is not None:
            self.watcher.ran(monotonic_ns() - self._began_ns)
        self._turn += 1
        seat.rate.ran(self._turn)
        if self._turn % LOOKS == 0 and self.memory is not None:
            self._reserve = max(self._most_values, self._least_reserve())
            self._most_values = 0
            with contextlib.suppress(SessionError, BudgetError):  # runs that need what could not be read say so
                self._choose(worth=WORTH)

    # ---- choosing ----

    def _choose(self, worth: float = 1.0, joins: Seat | None = None, values_bytes: int = 0) -> None:
        """Choose what each seat gets, and arrange that if it takes less than the part ``worth`` of the time of now, or
        less time and nobody's weights. Raises BudgetError, and SessionError if the weights of the one that ``joins``
        cannot be read.
        """
        self._reserve = max(self._reserve if worth < 1 else 0, self._least_reserve(), values_bytes)
        points = [seat.member.fastest() for seat in self.seats]
        room = None if self.memory is None else self.memory - self._fixed_bytes() - self._reserve
        rates = [seat.rate.at(self._turn) for seat in self.seats]
        if room is None or cost(points) <= room:
            if worth < 1 and all(now.memory is None for now in self._now):
                return  # nobody lacks anything
        else:
            found = choose([seat.member.curve() for seat in self.seats], rates, room)
            if found is None:
                raise self._refusal(self.smallest)
            points = found
        takes = any(point.pinned < now.pinned for point, now in zip(points, self._now, strict=True))
        if worth < 1 and time(points, rates) >= (worth if takes else 1.0) * time(self._now, rates):
            return
        self.moves += worth < 1
        self._adopt(points, joins, room)

    def _refusal(self, minimum: int) -> BudgetError:
        others, held = len(self.seats) - 1, sum(seat.held_bytes for seat in self.seats)
        beside = [f"{'the other one' if others == 1 else f'the {others} others'} of its pool"] * bool(others)
        beside += [f"{format_bytes(held)} of outputs that the program holds"] * bool(held)
        return BudgetError(minimum, self.memory or 0, f" beside {' and '.join(beside)}" if beside else "")

    def _adopt(self, points: Sequence[Point], joins: Seat | None, room: int | None) -> None:
        """Have all seats take their points, in ``room`` bytes, and arrange them; if one fails, none has."""
        undo: list[Callable[[], None]] = []
        try:
            for seat, point in zip(self.seats, points, strict=True):
                if seat.member.now != point:
                    undo.append(seat.member.adopt(point))
            for seat in self.seats:  # of which more may be open than the choice says
                if room is not None and seat.member.code_bytes and cost(self._now) > room:
                    undo.append(seat.member.adopt(seat.member.smallest()))
            self._arrange(joins)
        except BaseException:
            for back in reversed(undo):
                back()
            raise

    def _arrange(self, joins: Seat | None) -> None:
        """Give every seat its place, and bind what is new or moves: first what moves up, highest first, so that nothing
        is written over before it has moved; then what moves down; then what is new. Raises SessionError if the weights
        of the seat that ``joins`` cannot be read; other seats say so when they run.
        """
        places = self._places()
        for seat in self.seats:
            if seat.member.is_bound and seat.place != places[seat]:
                seat.member.unbind()
        waiting = [seat for seat in self.seats if not seat.member.is_bound]
        up = [seat for seat in waiting if seat.place and seat.place[0] < places[seat][0]]
        down = [seat for seat in waiting if seat.place and seat not in up]
        new = [seat for seat in waiting if not seat.place]
        for seat in (*reversed(up), *down, *new):
            try:
                self._bind(seat, places[seat])
            except SessionError:
                if seat is joins:
                    raise
        self.engine.trim()

    def _bind(self, seat: Seat, place: tuple[int, int]) -> None:
        seat.place = place
        seat.member.bind(*place)

    def _places(self) -> dict[Seat, tuple[int, int]]:
        """Return the offsets of each seat's pinned part and of the shared part."""
        pinned = [align_up(seat.member.now.pinned, self.align) for seat in self.seats]
        return {seat: (sum(pinned[:number]), sum(pinned)) for number, seat in enumerate(self.seats)}


def made(outputs: Sequence[Array], into: Sequence[Array | None] | None) -> list[Array]:
    """Return the outputs that a run made, without those that the caller gave arrays for."""
    return [array for i, array in enumerate(outputs) if into is None or into[i] is None]
