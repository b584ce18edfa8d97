"""Loops whose weights stay for their turns: several loops, scans, loops in branches and in loops, at tight budgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from bench.process import flexnn as command
from flexnn import BudgetError
from flexnn.planning.check import check_held, check_plan
from flexnn.planning.errors import PlanError
from flexnn.run.engine import SessionError
from flexnn.run.holding import Loop, shares_of
from flexnn.session import open_for_tests
from tests.support.regions import BOOL, F32, I64, check_run, compiled, graph_of, model_of, numbers, opened, value

node = helper.make_node
WIDTH, TURNS = 256, 6
MIB = 1 << 20


def weights(name: str, layers: int, seed: int) -> dict[str, np.ndarray]:
    scale = np.float32(WIDTH**-0.5)
    return {f"{name}w{i}": numbers(WIDTH, WIDTH, seed=31 * seed + i) * scale for i in range(layers)}


def layers(name: str, start: str, end: str, count: int) -> list[onnx.NodeProto]:
    """Products with weights, one after the other."""
    nodes, last = [], start
    for i in range(count):
        made = end if i == count - 1 else f"{name}t{i}"
        nodes += [node("MatMul", [last, f"{name}w{i}"], [f"{name}m{i}"]), node("Tanh", [f"{name}m{i}"], [made])]
        last = made
    return nodes


def body(name: str, count: int, inner: Sequence[onnx.NodeProto] = ()) -> onnx.GraphProto:
    """The body of a loop that carries ``s``: what is inside of it first."""
    last = inner[-1].output[0] if inner else f"{name}s"
    nodes = [node("Identity", [f"{name}c"], [f"{name}on"]), *inner, *layers(name, last, f"{name}r", count)]
    inputs = [value(f"{name}i", I64, []), value(f"{name}c", BOOL, []), value(f"{name}s", F32, [None, WIDTH])]
    outputs = [value(f"{name}on", BOOL, []), value(f"{name}r", F32, [None, WIDTH])]
    return graph_of(nodes, inputs, outputs, name=name)


def loop(name: str, source: str, count: int, *, inner: Sequence[onnx.NodeProto] = (), limit: str = "n"):
    return node("Loop", [limit, "", source], [f"{name}out"], body=body(name, count, inner))


def scan(name: str, source: str, count: int) -> list[onnx.NodeProto]:
    """A scan over rows, which adds them up through layers."""
    nodes = [node("Add", [f"{name}s", f"{name}x"], [f"{name}a"]), *layers(name, f"{name}a", f"{name}r", count)]
    nodes.append(node("Identity", [f"{name}r"], [f"{name}y"]))
    inputs = [value(f"{name}s", F32, [1, WIDTH]), value(f"{name}x", F32, [WIDTH])]
    outputs = [value(f"{name}r", F32, [1, WIDTH]), value(f"{name}y", F32, [1, WIDTH])]
    inside = graph_of(nodes, inputs, outputs, name=name)
    return [
        node("ReduceMean", [source], [f"{name}mean"], axes=[0], keepdims=1),
        node("Scan", [f"{name}mean", source], [f"{name}last", f"{name}rows"], body=inside, num_scan_inputs=1),
        node("Add", [source, f"{name}last"], [f"{name}out"]),
    ]


def several(rows: int | str, kinds: str) -> onnx.ModelProto:
    """Loops one after the other: L loop, S scan, B loop in a branch, N loop in a loop, of ``rows`` rows."""
    nodes, held, last = [], {}, "x"
    for number, kind in enumerate(kinds):
        name = f"{kind}{number}"
        held |= weights(name, 4, number)
        if kind == "S":
            nodes += scan(name, last, 4)
        elif kind == "N":
            held |= weights(name + "in", 2, 50 + number)
            inner = loop(name + "in", f"{name}s", 2, limit="two")
            nodes.append(loop(name, last, 4, inner=[inner]))
        elif kind == "B":
            made = loop(name + "a", last, 4)
            held |= weights(name + "a", 4, 70 + number)
            yes = graph_of([made], [], [value(f"{name}aout", F32, None)], name="yes")
            no = graph_of(layers(name, last, f"{name}no", 4), [], [value(f"{name}no", F32, None)], name="no")
            nodes.append(node("If", ["flag"], [f"{name}out"], then_branch=yes, else_branch=no))
        else:
            nodes.append(loop(name, last, 4))
        last = f"{name}out"
    nodes.append(node("Identity", [last], ["y"]))
    constants = held | {"n": np.array(TURNS), "two": np.array(2)}
    inputs = [value("x", F32, [rows, WIDTH])] + ([value("flag", BOOL, [1])] if "B" in kinds else [])
    return model_of(graph_of(nodes, inputs, [value("y", F32, [rows, WIDTH])], constants))


def feed(rows: int, kinds: str, seed: int = 0) -> dict[str, np.ndarray]:
    made = {"x": numbers(rows, WIDTH, seed=seed)}
    return made | ({"flag": np.array([seed % 2 == 0])} if "B" in kinds else {})


def loops_of(session) -> list[Loop]:
    """Loops of the stretches that are open."""
    open_ = session._run._open
    return [found for ready in open_._ready.values() for found in ready.loops]


def smallest(folder: Path, model: onnx.ModelProto, kinds: str) -> int:
    """Smallest budget of both branches."""
    least = 0
    with opened(folder, model, memory=1 << 40) as session:
        for seed in range(2):
            session.run(None, feed(3, kinds, seed))
            least = max(least, session.plan.minimum_memory)
    return least


def stacking(name: str, source: str, count: int) -> list[onnx.NodeProto]:
    """A loop of as many turns as an input says, so that what it stacks has a size that only a run knows."""
    inside = body(name, count)
    inside.node.append(node("Identity", [f"{name}r"], [f"{name}y"]))
    inside.output.append(value(f"{name}y", F32, [3, WIDTH]))
    stacked = node("Loop", ["turns", "", source], [f"{name}last", f"{name}rows"], body=inside)
    return [stacked, node("ReduceMean", [f"{name}rows"], [f"{name}out"], axes=[0], keepdims=0)]


CASES = [("LLLL", 3), ("LLLL", "rows"), ("LSL", "rows"), ("LBL", "rows"), ("NLN", 3), ("L", "rows")]


@pytest.mark.parametrize(("kinds", "rows"), CASES)
@pytest.mark.parametrize("share", [1.03, 1.2])
def test_runs_in_tight_budgets(tmp_path: Path, kinds: str, rows: int | str, share: float) -> None:
    """Outputs are onnxruntime's, with poisoned memory, and the bits of the session without limit; branches and lengths
    change from run to run."""
    model = several(rows, kinds)
    memory = int(share * smallest(tmp_path, model, kinds))
    with opened(tmp_path, model) as whole, opened(tmp_path, model, memory=memory) as session:
        for seed in range(4):
            given = feed(3 if rows == 3 or seed % 2 else 2, kinds, seed)
            got = check_run(session, model, given)
            np.testing.assert_array_equal(got[0], whole.run(None, given)[0])
            assert session.session_bytes <= memory


def test_loops_that_come_one_by_one_share_what_there_is(tmp_path: Path) -> None:
    """The first loop is planned before the second is met: in a budget that nearly holds all weights, a third of them
    was read again every turn, and there was room for these."""
    nodes = [*stacking("a", "x", 6), *stacking("b", "aout", 10), node("Identity", ["bout"], ["y"])]
    held = weights("a", 6, 1) | weights("b", 10, 2)
    inputs = [value("x", F32, [3, WIDTH]), value("turns", I64, [])]
    model = model_of(graph_of(nodes, inputs, [value("y", F32, [3, WIDTH])], held))
    given = {"x": numbers(3, WIDTH, seed=0), "turns": np.array(TURNS)}
    nbytes = sum(weight.nbytes for weight in held.values())
    with opened(tmp_path, model) as session:
        for _ in range(2):
            session.run(None, given)
        memory = session.session_bytes + MIB // 4 - nbytes // 32
    with opened(tmp_path, model, memory=memory) as session:
        for _ in range(3):
            check_run(session, model, given)
        assert session.last_run["bytes_read"] < nbytes
        assert session.session_bytes <= memory


@pytest.mark.parametrize("kinds", ["LLLL", "LSL", "NLN"])
def test_loops_hold_what_others_held_before(tmp_path: Path, kinds: str) -> None:
    """A run reads about what its loops hold once, not their weights every turn. The independent checker says that what
    they read is there, and that nothing writes over it meanwhile."""
    model = several(3, kinds)
    given = feed(3, kinds)
    memory = smallest(tmp_path, model, kinds) + int(1.6 * MIB)
    with opened(tmp_path, model, memory=memory) as session:
        for _ in range(3):
            check_run(session, model, given)
        held = loops_of(session)
        assert len(held) == len(kinds)
        whole = sum(4 * WIDTH * WIDTH * (6 if kind == "N" else 4) for kind in kinds)
        assert session.last_run["bytes_read"] < 1.5 * whole
        places = []
        for each in held:
            assert each.holder is not None
            bound = [segment for segment in each.segments if segment.bound is not None]
            programs = [segment.bound.program for segment in bound]
            for segment, program in zip(bound, programs, strict=True):
                check_plan(segment.base.plan.graph, program)
            holder = each.holder.plan.program
            check_held(programs, holder)
            places.append((int(holder.loads["address"].min()), int(holder.arena_bytes)))
            broken = holder.loads["address"].copy()
            holder.loads["address"] += 64
            with pytest.raises(PlanError, match="nothing brings"):
                check_held(programs, holder)
            holder.loads["address"] = broken
        assert max(start for start, _ in places) < min(end for _, end in places), "the same memory, in turns"


def test_a_process_keeps_its_budget(tmp_path: Path) -> None:
    """Alone in its process, at 1.5 of what it needs at the least, it takes at most 1 MiB more."""
    model, given = several("rows", "LLLL"), feed(3, "LLLL")
    least = smallest(tmp_path, model, "LLLL")
    artifact = compiled(tmp_path, model)
    np.savez(tmp_path / "in.npz", **given)
    for memory in (least, int(1.2 * least), int(1.5 * least)):
        options = ("--memory", memory, "--threads", 2, "--repeat", 4, "--input", tmp_path / "in.npz")
        report = command("run", artifact, *options)
        assert report["peak_rss"] - report["baseline_rss"] <= memory + MIB


def test_a_budget_that_changes(tmp_path: Path) -> None:
    """Held weights come and go with the budget; what a refusal names works."""
    model, given = several("rows", "LSL"), feed(3, "LSL")
    least = smallest(tmp_path, model, "LSL")
    with opened(tmp_path, model) as session:
        for more in (1 << 20, 0, 4 << 20, 700_000, None, 300_000):
            session.memory = None if more is None else least + more
            for seed in range(2):
                check_run(session, model, feed(3, "LSL", seed))
        with pytest.raises(BudgetError) as refused:
            session.memory = least // 2
            session.run(None, given)
        session.memory = refused.value.minimum
        check_run(session, model, given)


def test_damage_to_what_a_loop_holds(tmp_path: Path) -> None:
    """The run that reads it says which weight it is; mended, the next run is good."""
    model, given = several(3, "LLLL"), feed(3, "LLLL")
    memory = smallest(tmp_path, model, "LLLL") + int(1.6 * MIB)
    path = Path(compiled(tmp_path, model))
    with open_for_tests(path, memory=memory, threads=2, poison=True) as session:
        for _ in range(3):
            check_run(session, model, given)
        holder = loops_of(session)[2].holder
        assert holder is not None
        at = int(holder.plan.program.loads["file_offset"][0]) + 5
        whole = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([whole[at] ^ 1]))
            file.flush()
            with pytest.raises(SessionError, match=r"weight 'L2m\d'.*checksum"):
                session.run(None, given)
            file.seek(at)
            file.write(whole[at : at + 1])
        for _ in range(2):
            check_run(session, model, given)


def test_what_loops_get() -> None:
    """Loops take turns in one place; the largest keep theirs where that leaves room for the others."""
    four = [5, 5, 5, 5]
    found = shares_of(8, four, [30] * 4, 0)
    assert found is not None
    assert [(share.nbytes, share.kept) for share in found.loops] == [(5, 1)] * 4
    assert found.rest == 0
    assert shares_of(20, four, [30] * 4, 0) is None, "everything fits"
    assert shares_of(8, four, [1] * 4, 0) is None, "no turn repeats"
    one = shares_of(3, [5], [30], 10)
    assert one is not None, "before what is read once"
    assert one.loops[0] == (3, None)
    for spare in range(1, 40):
        found = shares_of(spare, [9, 7, 2, 12], [4, 9, 20, 3], 11)
        if found is not None:
            held = [share for share in found.loops if share.kept is not None]
            own = sum(share.nbytes for share in found.loops if share.kept is None) + sum(s.kept for s in held)
            area = max((share.nbytes - share.kept for share in held), default=0)
            assert own + area + found.rest <= spare
