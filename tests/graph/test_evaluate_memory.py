"""Memory of evaluators: never more than they say, rarely much less, and said before they take it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from flexnn.graph.evaluate import EVALUATORS, MemoryNeededError, evaluate, memory_needed
from flexnn.graph.ir import GraphError
from tests.graph.test_evaluate import CASES, HUGE, as_array, attrs_of
from tests.support.calls import GROUPS, Called, all_calls

ALLOWANCE = 64 << 10
"""Bytes of Python's own objects, and of numpy's casting buffers."""
SLACK = 256 << 10
"""Bytes that may be said beyond the multiple of inputs and outputs: the temporaries of a block."""
LARGE, MIDDLE, SMALL = 1 << 18, 5000, 64

EVALUATED = [EVALUATORS[operator] for operator in EVALUATORS]
"""Importing a module takes memory, too, but once, and not of a call."""


def peak_of(function: Callable[[], Any]) -> tuple[int, Any]:
    """Return the most bytes that a function holds beside what was there, and what it returns or raises."""
    tracemalloc.start()
    try:
        result = function()
    except GraphError as error:
        result = error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, result


def nbytes(values: list[Any]) -> int:
    return sum(v.nbytes for v in values if v is not None)


@pytest.fixture(autouse=True)
def _no_cycles() -> Iterator[None]:
    """Collect no garbage between the calls: it takes longer than they do."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def check(call: Called, sparing: bool) -> None:
    arguments = call.op, call.attrs, call.inputs, call.opset, call.outputs
    told, needed = peak_of(lambda: memory_needed(*arguments))
    assert isinstance(needed, int), f"{call}: {needed}"
    assert told <= ALLOWANCE, f"{call}: saying what it takes took {told} bytes"
    if needed:
        refused, error = peak_of(lambda: evaluate(*arguments, budget_bytes=needed - 1))
        assert isinstance(error, MemoryNeededError), f"{call}: {error}"
        assert error.needed == needed
        assert "\n" not in str(error)
        assert str(needed) in str(error)
        assert refused <= ALLOWANCE, f"{call}: a refusal took {refused} bytes"
    peak, results = peak_of(lambda: evaluate(*arguments, budget_bytes=needed))
    assert not isinstance(results, GraphError), f"{call}: {results}"
    assert peak <= needed + ALLOWANCE, f"{call}: took {peak} bytes, said {needed}"
    if sparing and not call.wide:
        shown = nbytes(call.inputs) + nbytes(results)
        assert needed <= 4 * shown + SLACK, f"{call}: said {needed} bytes, inputs and outputs have {shown}"


def test_every_operator_is_called() -> None:
    assert {call.op for call in all_calls(SMALL)} == EVALUATORS.keys()


@pytest.mark.parametrize("n", [SMALL, MIDDLE, LARGE])
@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.__name__)
def test_no_call_takes_more_than_it_says(group: Callable[[int], list[Called]], n: int) -> None:
    for call in group(n):
        check(call, sparing=True)


def strided(value: np.ndarray | None) -> np.ndarray | None:
    """Return the same numbers, but neither contiguous nor in the usual order."""
    return None if value is None or value.ndim < 2 else np.asfortranarray(value)


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.__name__)
def test_no_call_of_strided_inputs_takes_more_than_it_says(group: Callable[[int], list[Called]]) -> None:
    for call in group(MIDDLE * 8):
        turned = [v if strided(v) is None else strided(v) for v in call.inputs]
        check(Called(call.op, turned, call.attrs, call.outputs, call.opset, True), sparing=False)


@pytest.mark.parametrize("op", sorted(CASES))
def test_no_official_case_takes_more_than_it_says(op: str) -> None:
    for case in CASES[op]:
        node = case.model.graph.node[0]
        names = [i.name for i in case.model.graph.input]
        opset = max(o.version for o in case.model.opset_import if o.domain == "")
        for inputs, _ in case.data_sets:
            feeds = dict(zip(names, map(as_array, inputs), strict=True))
            given = [feeds[name] if name else None for name in node.input]
            check(Called(op, given, attrs_of(node), len(node.output), opset), sparing=False)


@pytest.mark.parametrize(("op", "attrs", "inputs"), HUGE, ids=lambda v: str(v)[:20])
def test_hostile_sizes_are_refused_at_any_budget(op: str, attrs: dict[str, Any], inputs: list[Any]) -> None:
    peak, error = peak_of(lambda: evaluate(op, attrs, inputs, 17, budget_bytes=1 << 28))
    assert isinstance(error, GraphError)
    assert peak <= ALLOWANCE


def test_products_of_sizes_do_not_overflow() -> None:
    for dims in ([1 << 62, 1 << 62], [1 << 32] * 4):
        shape = np.array(dims, np.int64)
        assert memory_needed("ConstantOfShape", {}, [shape], 22) == 4 * np.prod(dims, dtype=object)
        assert memory_needed("Expand", {}, [np.zeros(1, np.uint8), shape], 22) == np.prod(dims, dtype=object)
