"""Planning: which kernel, which slice, which address, which moment (docs/architecture.md, D3–D9).

Modules that few sessions use, like ``check`` and ``grouping``, are imported where they are used.
"""

from .errors import BudgetError, PlanError
from .machine import MachineProfile
from .planner import Planner, make_plan
from .report import Plan
from .setting import Setting
from .types import Program

__all__ = ["BudgetError", "MachineProfile", "Plan", "PlanError", "Planner", "Program", "Setting", "make_plan"]
