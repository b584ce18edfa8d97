"""A budget that follows the system: looked at before each run, lowered at once, raised after a calm while.

What runs models may have what it holds and what is free, less the reserve and less what others are about to take: their
rate, for as long as a run and a change of budget take. Below what it holds it shrinks, to somewhat less than that, so
that others may take more before the next change. It grows when all of a calm time would have let it, and that is longer
after a growth that was taken back soon. It grows in steps, which are short, and leaves what others would take meanwhile
at the fastest that they were seen to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from flexnn.errors import printable
from flexnn.planning import BudgetError
from flexnn.units import format_bytes

from .limits import Limits

MS = 1_000_000
AT_ONCE_NS = 1 * MS
"""Time from one cheap look to the next."""
SHORT_NS, AMPLE_NS = 4 * MS, 20 * MS
"""Time from one whole look to the next, where memory is short and where there is plenty."""
RATE_NS = 40 * MS
"""Time over which the rate is taken at which others take memory."""
SOON_NS, LATER_NS = 160 * MS, 3000 * MS
"""Times in which half of a rate is forgotten: for what is about to be taken, and before growing."""
CALM_NS, CALM_MOST_NS = 250 * MS, 4000 * MS
"""Time that memory must be free for before more of it is taken; the most it becomes."""
SOON = 8
"""A growth that is taken back within so many calm times came too early; the next one waits twice as long."""
FORGIVEN = 30
"""Without growth for so many calm times, the next one is not late any more."""
PRESSED_NS = 1000 * MS
"""Time from one shrinking to the next where the kernel says that memory is short though there is some."""
PRESSED_TIMES = 3
"""Most of these in a row: pressure that stays is not of this process."""
GAIN_PART = 16
"""A growth is worth it from one part in so many of the budget on."""

INSIDE_NS = 40 * MS
"""Time in which a run that is broken off gives back what it holds: it looks every 20 ms, and ends a step."""

log = logging.getLogger("flexnn")


class BrokenOff(BaseException):
    """A run is broken off because others need its memory; no part of the program is to take it for an error."""


class Target(Protocol):
    """Owner of the budget: a session's run, or a pool."""

    @property
    def memory(self) -> int | None:
        """The budget in bytes."""
        ...

    @property
    def session_bytes(self) -> int:
        """Bytes that are held, as plans count them."""
        ...

    def rebudget(self, memory: int | None) -> None:
        """Plan for another budget. Raises BudgetError where it is too small."""
        ...


class Watcher:
    """Follower of the system's memory for one target. One thread calls it at a time."""

    def __init__(
        self,
        target: Target,
        limits: Limits,
        reserve: int,
        *,
        grows: bool,
        name: str = "a model",
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._target, self._limits, self.reserve, self._name, self._clock = (
            target,
            limits,
            reserve,
            printable(name),
            clock,
        )
        self._grows = grows
        """Whether runs at other shapes may take all of the budget; else what is held is all that is ever held."""
        self._owned = 0
        """Bytes of what is held that surely are in memory."""
        self._has_run = False
        """Whether all that is held is, because a run has ended since the last change."""
        self._due_ns = self._whole_due_ns = 0
        self._needed = reserve
        """Free bytes from which on nothing is to be done."""
        self._others: tuple[int, int] | None = None
        """Time, and how much others have, but for a constant."""
        self._rate = 0.0
        """Bytes that others take in a ns."""
        self._fastest = 0.0
        """The most of these, slowly forgotten."""
        self._rated_ns = 0
        self._run_ns = self._change_ns = 0
        self._least = 1
        """The smallest budget, as far as it is known."""
        self._calm_ns, self._calm_since, self._calm_room = CALM_NS, 0, 0
        self._is_grown, self._grown_ns, self._tried = False, 0, 0
        self._pressed_ns = self._pressed_times = 0
        self._inside = 0, 0
        """Time of the last look during a run, and what was free then."""

    def opened(self, owned: int) -> None:
        """Learn how many bytes of what was opened are in memory."""
        self._owned, self._has_run = min(self._in_memory() + owned, self._target.session_bytes), False

    def resident(self) -> int:
        """Return the bytes of this process that are in memory."""
        return self._limits.resident()

    def ran(self, run_ns: int) -> None:
        """Learn that a run has ended: all that is held is in memory."""
        self._run_ns = max(run_ns, self._run_ns * 7 // 8)
        self._has_run = True

    def check(self, *, may_grow: bool = True) -> None:
        """Change the budget where it must, or may, be changed. Raises what the target does, but for BudgetError."""
        now = self._clock()
        if now < self._due_ns:
            return
        self._due_ns = now + AT_ONCE_NS
        if now < self._whole_due_ns and self._limits.at_once() >= self._needed:
            return
        self._look(now, may_grow)

    def look_inside(self) -> None:
        """Raise BrokenOff, during a run, where others will soon have taken the reserve, unless the budget is the
        smallest one. The run itself leaves the reserve.
        """
        now, free = self._clock(), self._limits.at_once()
        if free >= self.reserve:
            self._inside = now, free
            return
        free = self._limits.free()  # with page cache
        then, before = self._inside
        self._inside = now, free
        rate = max(before - free, 0) / max(now - then, MS) if now - then < 2 * INSIDE_NS else 0.0
        least = min(self.reserve // 4 + int(rate * INSIDE_NS), self.reserve * 3 // 4)
        memory = self._target.memory
        if free < least and memory is not None and memory > self._least:
            self._rate = max(self._rate, rate)
            raise BrokenOff

    def broken_off(self, *, is_last: bool) -> None:
        """Shrink after a run that was broken off and has given back all. The smallest budget is taken the last time.
        Raises what the target does, but for BudgetError.
        """
        now, free = self._clock(), self._limits.free()
        self._owned, self._has_run = 0, False
        self._note_late(now)
        memory, held = self._target.memory, self._target.session_bytes
        assert memory is not None
        room = free - self.reserve - self._taken(self._rate)
        room = min(room, min(memory, max(held, self._least)) - self.reserve // 2)
        wanted = self._least if is_last else max(room - min(self.reserve // 2, room // 4), self._least)
        why = f"a run was broken off, {format_bytes(max(free, 0))} left {self._limits.tightest}"
        if wanted < memory:
            self._change(wanted, why)

    def needs(self, wanted: int) -> None:
        """Give a run that was broken off the smallest budget that it can be run again in."""
        self._change(wanted, f"a run that was broken off needs {format_bytes(wanted)}")

    def gives(self, wanted: int) -> bool:
        """Give a refused run the budget that it needs, if there is as much, half of the reserve included; return
        whether there is.
        """
        room = self._in_memory() + self._limits.free() - self.reserve
        if wanted > room + self.reserve // 2:
            return False
        return self._change(max(wanted, room), f"a run needs {format_bytes(wanted)}")

    def _look(self, now: int, may_grow: bool) -> None:
        free, owned = self._limits.free(), self._in_memory()
        ahead = self._ahead(now, free)
        self._needed = self.reserve + ahead
        self._whole_due_ns = now + (SHORT_NS if free < 4 * self._needed else AMPLE_NS)
        room = owned + free - self._needed
        memory, held = self._target.memory, self._target.session_bytes
        assert memory is not None
        why = f"{format_bytes(max(free, 0))} left {self._limits.tightest}"
        if self._limits.pressed(now, self.reserve):
            self._calm_since = 0
            if now - self._pressed_ns >= PRESSED_NS and self._pressed_times < PRESSED_TIMES:
                self._pressed_ns, self._pressed_times = now, self._pressed_times + 1
                room, why = min(room, held - self.reserve // 2), f"the kernel reports pressure, {why}"
        elif now - self._pressed_ns > 10 * PRESSED_NS:
            self._pressed_times = 0
        if room < (memory if self._grows else held):
            self._shrink(now, room, why)
        elif may_grow:
            self._grow(now, room + ahead - self._taken(self._fastest) - self.reserve // 4, why)

    def _in_memory(self) -> int:
        if self._has_run:
            self._owned = self._target.session_bytes
        return self._owned

    def _ahead(self, now: int, free: int) -> int:
        """Return the bytes that others are about to take."""
        others = -free - self._owned
        then, before = self._others or (now, others)
        elapsed = now - then
        rate = (others - before) / max(elapsed, RATE_NS)
        since = now - self._rated_ns
        self._rated_ns = now
        self._rate = max(rate, self._rate * 0.5 ** (since / SOON_NS), 0.0)
        self._fastest = max(self._rate, self._fastest * 0.5 ** (since / LATER_NS))
        if self._others is None or elapsed >= RATE_NS:
            self._others = now, others
        return self._taken(self._rate)

    def _taken(self, rate: float) -> int:
        """Return the bytes that others take at a rate during a change and a run."""
        return int(min(rate * (self._run_ns + self._change_ns), 2 * self.reserve))

    def _shrink(self, now: int, room: int, why: str) -> None:
        self._note_late(now)
        memory, held = self._target.memory, self._target.session_bytes
        assert memory is not None
        wanted = room - min(self.reserve // 2, room // 4)
        if self._grows:
            wanted = min(wanted, memory - memory // 4)
        wanted = max(wanted, self._least)
        if wanted < min(memory, held if not self._grows else memory):
            self._change(wanted, why)

    def _note_late(self, now: int) -> None:
        """Wait longer before growing where what is given back was taken a short while ago."""
        if self._is_grown and now - self._grown_ns < SOON * self._calm_ns:
            self._calm_ns = min(2 * self._calm_ns, CALM_MOST_NS)
        self._is_grown = False
        self._calm_since = self._tried = 0

    def _grow(self, now: int, room: int, why: str) -> None:
        """Take what was free for all of a calm time."""
        if not self._calm_since:
            self._calm_since, self._calm_room = now, room
        self._calm_room = min(self._calm_room, room)
        memory = self._target.memory
        assert memory is not None
        if now - self._calm_since < self._calm_ns or now - self._pressed_ns < PRESSED_NS:
            return
        if not self._has_run:
            return  # what is held is not all in memory
        wanted = min(self._calm_room, self._target.session_bytes + max(self.reserve, memory // 2))
        if now - self._grown_ns > FORGIVEN * self._calm_ns:
            self._calm_ns = CALM_NS
        if wanted < memory + memory // GAIN_PART or wanted < self._tried + self._tried // 2 or self._is_ample(memory):
            self._calm_since = 0
            return
        before = self._target.session_bytes
        if self._change(wanted, why):
            self._is_grown, self._grown_ns = True, now
            self._tried = 0 if self._target.session_bytes > before else wanted

    def _is_ample(self, memory: int) -> bool:
        """Return whether what may grow by itself has more than it takes."""
        return self._grows and self._target.session_bytes < memory // 2

    def _change(self, wanted: int, why: str) -> bool:
        """Change the budget, or take the smallest one; return whether it has changed."""
        target, before = self._target, self._target.memory
        assert before is not None
        started, resident, held = self._clock(), self._limits.resident(), target.session_bytes
        refusal = ""
        try:
            target.rebudget(wanted)
        except BudgetError as error:
            self._least = error.minimum
            refusal = f", and it needs {format_bytes(error.minimum)} at least"
            if error.minimum < min(before, held):
                target.rebudget(error.minimum)
        taken = max(self._limits.resident() - resident, 0)
        self._owned, self._has_run = min(self._owned + taken, target.session_bytes), False
        self._others = None
        memory = target.memory
        assert memory is not None
        took = self._clock() - started
        self._change_ns = max(took, self._change_ns * 7 // 8)
        if memory != before:
            sizes = f"{format_bytes(before)} -> {format_bytes(memory)}"
            log.info("%s: budget %s in %.0f ms: %s%s", self._name, sizes, took / MS, why, refusal)
        return memory != before

    def close(self) -> None:
        """Give the descriptors back."""
        self._limits.close()
