"""Planning: which kernel, which slice, which address, which moment (DESIGN D3–D9).

What few sessions need is imported where it is: ``check.check_plan``, ``moved.moved``.
"""

from .errors import BudgetError, PlanError
from .machine import MachineProfile
from .planner import Planner, make_plan
from .report import Plan
from .setting import Setting
from .types import Program

__all__ = ["BudgetError", "MachineProfile", "Plan", "PlanError", "Planner", "Program", "Setting", "make_plan"]
