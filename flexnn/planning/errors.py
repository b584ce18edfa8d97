"""Errors of planning."""

from __future__ import annotations

from collections.abc import Mapping

from flexnn.errors import FlexNNError
from flexnn.units import format_bytes

SLIP_BYTES = 1 << 16
"""Budgets below are numbers whose unit was forgotten."""


class BudgetError(FlexNNError, ValueError):
    """No plan fits the budget. ``minimum``: smallest budget in bytes that has a plan; ``budget``: bytes asked for;
    ``how``: text for a condition, apart from the model, under which that is the smallest budget; ``parts``: bytes that
    it is made of, by what takes them; ``saved``: bytes that ``reuse_outputs`` would save.
    """

    def __init__(
        self, minimum: int, budget: int, how: str = "", parts: Mapping[str, int] | None = None, saved: int = 0
    ) -> None:
        self.minimum, self.budget, self.how, self.parts, self.saved = minimum, budget, how, dict(parts or {}), saved
        given = f"{budget} bytes" if budget < SLIP_BYTES else format_bytes(budget)
        told = [f"{name} {format_bytes(size)}" for name, size in self.parts.items() if size]
        hint = f"; {budget} alone means bytes: write {budget}MiB for MiB" if 0 < budget < SLIP_BYTES else ""
        super().__init__(
            f"a budget of {given} is too small: the smallest for this model{how} is {format_bytes(minimum)}"
            f" ({minimum} bytes)"
            + (f": {', '.join(told)}" if told else "")
            + (f"; reuse_outputs would save {format_bytes(saved)}" if saved else "")
            + hint
        )

    def __reduce__(self) -> tuple[type[BudgetError], tuple[int, int, str, dict[str, int], int]]:
        return BudgetError, (self.minimum, self.budget, self.how, self.parts, self.saved)


class PlanError(AssertionError):
    """A plan that the independent checker refuses: a defect of the planner. ``kind`` names the failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
