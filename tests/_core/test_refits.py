"""Refits and relocations in C: wrong lengths and indices out of range are refused, addresses move as they must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flexnn import _core
from tests.support.programs import Chain

pytestmark = pytest.mark.sanitized


def arguments() -> dict[str, Any]:
    """A refit of two nodes without operands that move."""
    nodes = np.zeros(2, _core.NODE_DTYPE)
    steps = np.zeros(2, _core.STEP_DTYPE)
    steps["node"] = 0, 1
    whole = {"nodes": nodes, "steps": steps, "base": 64, "zeros_count": 0, "threads": 1, "is_pinned": True}
    rows = {"step_counts": [1, 1], "roots": [0, 2], "working": [1], "first": [0, 0, 1], "last": [1, 1, 1]}
    rows |= {"order": [0, 1, 2], "moved": [[0, 0, 0]]}
    long = {"offsets": [0, 0, 0], "room": [64, 64], "places": [0, 64, 128]}
    arrays = {name: np.array(row, np.int32) for name, row in rows.items()}
    return whole | arrays | {name: np.array(row, np.int64) for name, row in long.items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", None),
        ("step_counts", [1]),
        ("roots", [0, 3]),
        ("roots", [-1, 0]),
        ("roots", [0]),
        ("room", [1]),
        ("working", [2]),
        ("working", [-1]),
        ("places", [0, 64]),
        ("moved", [[0, 3, 0]]),
        ("moved", [[0, 0, 3]]),
        ("moved", [[-1, 0, 0]]),
        ("moved", [[1 << 30, 0, 0]]),
        ("moved", [[0, 0]]),
        ("base", -1),
        ("threads", 0),
    ],
)
def test_what_is_out_of_range_is_refused(name: str, value: object) -> None:
    good = arguments()
    _core.Refit(**good)
    if name == "steps":
        good["steps"]["node"][1] = 2
    elif isinstance(value, list):
        good[name] = np.array(value, good[name].dtype)
    else:
        good[name] = value
    with pytest.raises(ValueError, match=r"refit|items"):
        _core.Refit(**good)


def test_sizes_of_other_lengths_are_refused() -> None:
    given = arguments()
    refit = _core.Refit(**given)
    sizes = [np.zeros((2, _core.PARAM_WORDS), np.int32), np.zeros(3, np.int64), np.zeros(3, np.int64)]
    rest = [np.zeros((3, 0), np.int32), given["nodes"].copy(), given["steps"].copy()]
    assert refit.at(*sizes, *rest) == (-1, 0)  # whose parameters are those of no operator
    for i, array in enumerate([*sizes, *rest]):
        wrong = [*sizes, *rest]
        wrong[i] = np.zeros(array.size + 7, np.int8)
        with pytest.raises(ValueError, match="items"):
            refit.at(*wrong)
    with pytest.raises(ValueError, match="chosen"):
        refit.at(*sizes, np.array([[5], [0], [0]], np.int32), *rest[1:])


def test_sizes_of_another_graph_are_in_its_order() -> None:
    """Pairs that differ need another plan; indices out of range and lists of other lengths are refused."""
    given = arguments()
    program = Chain(layers=2, side=6, channels=32, slots=1).program
    nodes, steps = program["nodes"], program["steps"]
    count, each = len(nodes), list(range(len(nodes)))
    rows = {
        "step_counts": np.bincount(steps["node"]),
        "working": each,
        "order": range(2 + count),
        "moved": np.zeros((0, 3)),
    }
    rows |= {"first": [0, 0, *each], "last": [count - 1, count - 1, *each]}
    given |= {
        "nodes": nodes,
        "steps": steps,
        "zeros_count": program["zeros_count"],
        "places": 64 * np.arange(2 + count),
    }
    given |= {name: np.array(row, np.int32) for name, row in rows.items()}
    refit = _core.Refit(**given)
    params, none = nodes["params"].copy(), np.zeros((3, 0), np.int32)
    made = nodes.copy(), steps.copy()
    nbytes, offsets = np.array([7, 40, 64, 64, 9], np.int64), np.zeros(5, np.int64)
    order, also = np.array([2, 4, 3]), np.array([[0], [1]])
    with pytest.raises(ValueError, match="nbytes: 5 items"):
        refit.at(params, nbytes, offsets, none, *made)
    assert refit.at(params, nbytes, offsets, none, *made, (order, also)) == (-1, 0)  # 7 and 40 bytes are not the same
    own = refit.at(params, nbytes[order], offsets[:3], none, *made)
    assert own[0] > 0
    for pairs in (also[:, :0], np.array([[2], [3]])):
        assert refit.at(params, nbytes, offsets, none, *made, (order, pairs)) == own
    for wrong in ((order[:2], also), (order, also.reshape(-1)[:1]), (np.array([2, 4, 5]), also), (order, also - 1)):
        with pytest.raises(ValueError, match=r"items|out of range"):
            refit.at(params, nbytes, offsets, none, *made, wrong)


@pytest.mark.parametrize(("front", "rest"), [(0, 4096), (64, 0), (128, 8192), (192, -64)])
def test_programs_move(front: int, rest: int) -> None:
    program = Chain(layers=4, side=6, channels=32, slots=2, pinned_every=2).program
    tables = [program[name].copy() for name in ("nodes", "steps", "pinned", "loads")]
    rng = np.random.default_rng(front)
    nodes, steps, pinned, loads = tables
    split = 10_000
    for places in (nodes["in"], nodes["out"]):
        places["base"] = rng.integers(-2, 3, places["base"].shape)
        places["offset"] = rng.integers(0, 2 * split, places["base"].shape)
    nodes["workspace_bytes"] = rng.integers(0, 2, len(nodes)) * 64
    steps["panel_offset"] = rng.integers(-1, 2 * split, len(steps))
    expected = [table.copy() for table in tables]
    for places in (expected[0]["in"], expected[0]["out"]):
        moved = places["offset"] + np.where(places["offset"] < split, front, rest)
        places["offset"] = np.where(places["base"] == 0, moved, places["offset"])
    expected[0]["workspace_offset"] += np.where(nodes["workspace_bytes"] > 0, rest, 0)
    at = steps["panel_offset"]
    expected[1]["panel_offset"] = np.where(at < 0, at, at + np.where(at < split, front, rest))
    expected[2]["address"] += front
    expected[3]["address"] += rest
    _core.relocate(nodes, steps, pinned, loads, split, front, rest)
    for made, wanted in zip(tables, expected, strict=True):
        np.testing.assert_array_equal(made, wanted)
