"""Planning: which kernel, which slice, which address, which moment (DESIGN D3–D9)."""

from .check import check_plan
from .errors import BudgetError, PlanError
from .moved import moved
from .planners import Planners, make_plan
from .profile import Machine
from .report import Plan
from .types import Program

__all__ = ["BudgetError", "Machine", "Plan", "PlanError", "Planners", "Program", "check_plan", "make_plan", "moved"]
