"""Planning: which kernel, which slice, which address, which moment (DESIGN D3–D9).

What few sessions need is imported where it is: ``check.check_plan``, ``moved.moved``.
"""

from .costs import MachineProfile
from .errors import BudgetError, PlanError
from .planner import Planner, make_plan
from .report import Plan
from .types import Program

__all__ = ["BudgetError", "MachineProfile", "Plan", "PlanError", "Planner", "Program", "make_plan"]
