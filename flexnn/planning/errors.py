"""Errors of planning."""

from __future__ import annotations

from flexnn.errors import FlexNNError


class BudgetError(FlexNNError, ValueError):
    """No plan fits the budget. ``minimum``: smallest budget in bytes that has a plan; ``budget``: bytes asked for;
    ``how``: text for a condition, apart from the model, under which that is the smallest budget.
    """

    def __init__(self, minimum: int, budget: int, how: str = "") -> None:
        super().__init__(
            f"a budget of {budget} bytes is too small: the smallest for this model{how} is {minimum} bytes"
        )
        self.minimum = minimum
        self.budget = budget
        self.how = how

    def __reduce__(self) -> tuple[type[BudgetError], tuple[int, int, str]]:
        return BudgetError, (self.minimum, self.budget, self.how)


class PlanError(AssertionError):
    """A plan that the independent checker refuses: a defect of the planner. ``kind`` names the failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
