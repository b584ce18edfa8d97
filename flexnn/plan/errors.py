"""What planning can answer other than a plan."""

from __future__ import annotations


class BudgetError(ValueError):
    """No plan fits the budget. ``minimum``: bytes of the smallest budget that has one; ``budget``: bytes asked for."""

    def __init__(self, minimum: int, budget: int) -> None:
        super().__init__(f"a budget of {budget} bytes is too small: the smallest for this model is {minimum} bytes")
        self.minimum = minimum
        self.budget = budget

    def __reduce__(self) -> tuple[type[BudgetError], tuple[int, int]]:
        return BudgetError, (self.minimum, self.budget)


class PlanError(AssertionError):
    """A plan that the independent checker refuses: a defect of the planner. ``kind`` names the failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
