"""Planning: which kernel, which slice, which address, which moment (DESIGN D3–D9).

What few sessions need is imported where it is: ``check.check_plan``, ``moved.moved``.
"""

from .errors import BudgetError, PlanError
from .planners import Planners, make_plan
from .profile import Machine
from .report import Plan
from .types import Program

__all__ = ["BudgetError", "Machine", "Plan", "PlanError", "Planners", "Program", "make_plan"]
