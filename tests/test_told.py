"""Text that people see: short tables, refusals that say what a budget is made of, inputs set on the command line."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn import cli
from flexnn.inputs import set_input
from flexnn.units import parse_bytes
from tests.support.sessions import smallest, write_choosing_model, write_model


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_model(tmp_path_factory.mktemp("told") / "small.onnx")))


@pytest.fixture(scope="module")
def branching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_choosing_model(tmp_path_factory.mktemp("branching") / "branching.onnx")))


def test_plans_are_a_short_table(artifact: Path, branching: Path) -> None:
    for path, shapes in ((artifact, {}), (branching, {"x": (5,)})):
        text = repr(flexnn.plan(path, shapes=shapes))
        assert len(text) < 600, text
        assert len(text.splitlines()) <= 8
        assert re.search(r"memory +[\d.]+MiB of a budget of no limit", text), text


def test_sessions_say_model_budget_and_state(artifact: Path) -> None:
    with flexnn.Session(artifact, memory="20M", threads=1) as session:
        assert repr(session) == f"<flexnn.Session of {str(artifact)!r}, budget 20.00MiB, 1 threads, ready>"
    assert "closed" in repr(session)
    assert "not open" in repr(flexnn.Session.__new__(flexnn.Session))


@pytest.mark.parametrize("text", ["48M", "48 M", "48m", "48MiB", "48mib", 48 << 20])
def test_sizes(text: str | int) -> None:
    assert parse_bytes(text) == 48 << 20


@pytest.mark.parametrize(("text", "size"), [("2K", 2048), ("2KB", 2000), ("1G", 1 << 30), ("1.5M", 3 << 19)])
def test_short_units_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_bytes(text) == size


def test_a_refusal_says_what_the_smallest_budget_is_made_of(artifact: Path) -> None:
    minimum = smallest(artifact)
    with pytest.raises(flexnn.BudgetError) as caught:
        flexnn.plan(artifact, memory=minimum - 1)
    error = caught.value
    assert sum(error.parts.values()) == error.minimum == minimum
    assert f"({minimum} bytes)" in str(error)
    assert error.saved == 128 * 8 * 8 * 4
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.parts, again.saved) == (str(error), error.parts, error.saved)
    plan = flexnn.plan(artifact, memory=minimum - error.saved, reuse_outputs=True)  # what it says is so
    assert plan.minimum_memory <= minimum - error.saved
    with pytest.raises(flexnn.BudgetError, match="is too small") as caught:
        flexnn.plan(artifact, memory=1 << 20, reuse_outputs=True)
    assert "reuse_outputs" not in str(caught.value)


def test_an_error_after_random_inputs_says_so(branching: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["run", str(branching), "--shape", "x=5", "--repeat", "1"]
    assert cli.main(base) != 0
    assert "'x', 'rate' had random numbers: --input or --set gives others" in capsys.readouterr().err
    assert cli.main([*base, "--set", "rate=16000"]) == 0
    assert cli.main([*base, "--set", "rate=16000", "--set", "x=4"]) == 0
    assert cli.main([*base, "--set", "rate=8000", "--set", "x=4"]) != 0
    assert "random" not in capsys.readouterr().err


def test_plans_of_open_models_use_plain_words(branching: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", str(branching), "--shape", "x=5"]) == 0
    text = capsys.readouterr().out
    assert "choose if true: 1 nodes from 'root'" in text
    assert not re.search("segment|template|then_branch|naive|joint", text), text
    assert cli.main(["plan", str(branching), "--shape", "x=5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["regions"]


@pytest.mark.parametrize(
    ("shape", "kind", "numbers", "expected"),
    [
        ([], "tensor(int64)", [16000], np.int64(16000)),
        ([1], "tensor(float)", [0.5], np.float32([0.5])),
        ([2, 3], "tensor(float)", [7], np.full((2, 3), 7, np.float32)),
        (["n"], "tensor(int32)", [1, 2, 3], np.int32([1, 2, 3])),
        ([2, "n"], "tensor(int32)", [1, 2, 3, 4], np.int32([[1, 2], [3, 4]])),
        ([2], "tensor(bool)", [1, 0], np.array([True, False])),
    ],
)
def test_inputs_are_set(shape: list[int | str], kind: str, numbers: list[float], expected: np.ndarray) -> None:
    made = set_input(flexnn.NodeArg("x", list(shape), kind), numbers)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(
    ("kind", "numbers"), [("tensor(int64)", [0.5]), ("tensor(uint8)", [256]), ("tensor(bool)", [2])]
)
def test_numbers_that_an_input_does_not_take(kind: str, numbers: list[float]) -> None:
    with pytest.raises(ValueError, match="takes"):
        set_input(flexnn.NodeArg("x", [1], kind), numbers)


def test_all_errors_have_one_base() -> None:
    errors = [value for value in vars(flexnn).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(errors) >= 6
    assert all(issubclass(error, flexnn.FlexNNError) for error in errors)
