"""Choosing: what each session of a pool gets, by the time that it saves and how often the session runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HALF_LIFE = 64
"""Runs of a pool after which a run counts half."""
IDLE = 1e-3
"""Rate of a session that has not run: it gets what nobody needs."""
BUSIEST = 3
"""Sessions that run most, of which each is tried first: steps for all leave no room for one's last one, which may save
most.
"""


class Point(NamedTuple):
    """Bytes that a session takes of a pool with one of its plans, and the time of a run."""

    memory: int | None
    """Budget that the plan is made for; None: no limit."""
    pinned: int
    shared: int
    """Bytes of the part of the arena that all sessions share."""
    own: int
    """Bytes outside the arena."""
    ms: float


def cost(points: Sequence[Point]) -> int:
    """Return the bytes that sessions take together."""
    pinned = sum(point.pinned + point.own for point in points)
    return pinned + max((point.shared for point in points), default=0)


def time(points: Sequence[Point], rates: Sequence[float]) -> float:
    """Return the time of runs at these rates."""
    return sum(point.ms * rate for point, rate in zip(points, rates, strict=True))


def choose(curves: Sequence[Sequence[Point]], rates: Sequence[float], room: int) -> list[Point] | None:
    """Return a point of each curve, of which the first takes least, so that all fit into ``room`` bytes: again and
    again the step that saves most time for each byte is taken. That is tried from where all take least, and from where
    one of those that run most has its fastest point that fits; the one that takes least time is chosen. None: not even
    the first points fit.
    """
    least = [curve[0] for curve in curves]
    if cost(least) > room:
        return None
    rates = [max(rate, IDLE) for rate in rates]
    starts = [least]
    for number in sorted(range(len(curves)), key=rates.__getitem__)[-BUSIEST:]:
        ways = ([*least[:number], point, *least[number + 1 :]] for point in curves[number])
        starts.append(min((way for way in ways if cost(way) <= room), key=lambda way: time(way, rates)))
    return min((_stepped(start, curves, rates, room) for start in starts), key=lambda chosen: time(chosen, rates))


def _stepped(
    start: Sequence[Point], curves: Sequence[Sequence[Point]], rates: Sequence[float], room: int
) -> list[Point]:
    """Return what the steps that save most time for each byte lead to."""
    chosen = list(start)
    while True:
        best: tuple[float, int, Point] | None = None
        now = cost(chosen)
        for number, curve in enumerate(curves):
            before = chosen[number]
            for point in curve:
                saved = (before.ms - point.ms) * rates[number]
                if saved <= 0:
                    continue
                more = cost([*chosen[:number], point, *chosen[number + 1 :]]) - now
                gain = saved / max(more, 1)
                if now + more <= room and (best is None or gain > best[0]):
                    best = gain, number, point
        if best is None:
            return chosen
        chosen[best[1]] = best[2]


class Rate:
    """How often a session runs among the last runs of its pool."""

    def __init__(self) -> None:
        self._count, self._at = 0.0, 0

    def ran(self, turn: int) -> None:
        """Count a run, which is number ``turn`` of the pool's."""
        self._count, self._at = self.at(turn) + 1, turn

    def at(self, turn: int) -> float:
        """Return the rate when so many runs are over."""
        return self._count * float(0.5 ** ((turn - self._at) / HALF_LIFE))
