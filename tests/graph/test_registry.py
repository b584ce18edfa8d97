"""Modules of rare operators: they are imported when they are asked for, and register what the tables say."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from flexnn.graph.evaluate import EVALUATORS
from flexnn.graph.lower import LOWERINGS
from flexnn.graph.registry import Registry


@pytest.mark.parametrize(("registry", "package"), [(EVALUATORS, "evaluate"), (LOWERINGS, "lower")])
def test_each_module_registers_what_the_table_says(registry: Registry[object], package: str) -> None:
    modules: dict[str, set[str]] = {}
    for operator, module in registry._modules.items():
        modules.setdefault(module, set()).add(operator)
    for module, operators in modules.items():
        found = import_module(f"flexnn.graph.{package}.{module}")
        own = {name for name in registry if getattr(registry[name], "__module__", "") == found.__name__}
        assert own == operators


def test_opening_a_model_imports_no_rare_operators() -> None:
    code = """
import sys, flexnn.run.open_shapes
rare = "evaluate.recurrent", "evaluate.signal", "lower.quantised", "lower.recurrent", "passes.byte_operators"
assert not [name for name in rare if "flexnn.graph." + name in sys.modules]
"""
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
