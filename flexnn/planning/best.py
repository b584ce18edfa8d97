"""The fastest plan of a budget among the variants of a graph."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING

from .report import Plan
from .variant_planner import VariantPlanner

if TYPE_CHECKING:
    from .planner import AnyForm, Planner

MORE_WORK = 0.5
"""Part of the time that a form's further work seems to take, for which it is sure to take longer."""


class Best:
    """Best plan so far of one budget, and variants whose plans may be better. A large form is planned while it is
    written, as writing it again would take longer than planning; others from the least bound on.
    """

    def __init__(self, planner: Planner, memory: int, room: int) -> None:
        """``room``: bytes that plans may have; those that cannot do with them have what they need of ``memory``."""
        self.memory, self.room = memory, room
        self.plan: Plan | None = None
        self.form: AnyForm | None = None
        self.bound_ms = math.inf
        self._planner = planner
        self._known: list[tuple[float, AnyForm | None]] = []
        self._fastest_ms = 0.0
        """Least time of the form's nodes."""

    def add(self, form: AnyForm | None) -> None:
        """Look at the plan of a form, now or later; None: of the graph as it is."""
        variant = self._planner.variant(form)
        bound = variant.bound_ms(self._room_of(variant))
        self.bound_ms = min(self.bound_ms, bound)
        self._known.append((bound, form))
        is_large = form is not None and self._planner.is_large(variant)
        if is_large and not self._planner.spills:  # of forms that spill there are more
            self.look_at_all()

    def _room_of(self, variant: VariantPlanner) -> int:
        """Return the bytes that a variant's plan may have."""
        return max(self.room, variant.minimum, min(self.memory, variant.sliced_memory))

    def look_at_all(self) -> None:
        """Plan those that were added, but for those that can not be better."""
        for bound, form in sorted(self._known, key=itemgetter(0)):
            if self.plan is not None and bound >= self.plan.predicted_ms:
                continue
            variant = self._planner.variant(form)
            known_ms = math.inf if self.plan is None else self.plan.predicted_ms
            made = variant.better_plan(self._room_of(variant), known_ms)
            if made is not None:
                self.plan, self.form, self._fastest_ms = made, form, variant.fastest_ms
        self._known = []

    def is_slower(self, form: AnyForm, unsure: float = 0.0) -> bool:
        """Whether a form that is not written is sure to be slower than the best plan, by what it computes more;
        ``unsure``: work that it may not have.
        """
        if self.plan is None or self._planner.spills:
            return False
        more = form.work - (0 if self.form is None else self.form.work) - unsure
        return self._fastest_ms + MORE_WORK * more * self._planner.whole.fastest_ms >= self.plan.predicted_ms
