"""The two-counter protocol (DESIGN D7, D8), model-checked: every interleaving of every small program.

The model is the protocol's text and nothing else: a step may begin once ``loads_done`` has reached its threshold, a
load once ``steps_done`` has reached its own; steps run one after the other, run after run; loads begin in order, some
while those before them go on, but never two that fill the same place, and are counted in order; the steps of a group
begin and end together, with the highest of their thresholds, and are counted together; a run may be broken off
anywhere, and the next one begins where both counters stand once nothing is in flight (flexnn/_core/run.c, ``prepare``).
"""

from itertools import pairwise, product
from random import Random

import numpy as np
import pytest

from flexnn import _core
from tests.support.programs import conv_params, up

RUNS = 3
READERS = 2


class Program:
    """Step j reads slot ``reads[j]`` (None: none); load i fills slot ``fills[i]``."""

    def __init__(
        self,
        reads: tuple[int | None, ...],
        fills: tuple[int, ...],
        owner: tuple[int, ...],
        groups: tuple[int, ...] = (),
    ):
        self.reads, self.fills, self.groups = reads, fills, groups
        self.S, self.L = len(reads), len(fills)
        self.owner = owner
        """owner[j]: the load whose content step j reads, -1 without."""
        self.wait_loads = [owner[j] + 1 for j in range(self.S)]
        self.wait_steps = [self._threshold(i) for i in range(self.L)]

    def group(self, step: int) -> range:
        """The steps of the group that begins with a step."""
        first = 0
        for count in self.groups:
            if first == step:
                return range(step, step + count)
            first += count
        return range(step, step + 1)

    def _threshold(self, i: int) -> int:
        """One past the last step that reads what the slot holds before load i."""
        earlier = [k for k in range(i) if self.fills[k] == self.fills[i]]
        if earlier:
            return max([j + 1 for j in range(self.S) if self.owner[j] in earlier], default=-self.S)
        others = [k for k in range(self.L) if self.fills[k] == self.fills[i]]  # of the run before
        return max([j + 1 - self.S for j in range(self.S) if self.owner[j] in others], default=-self.S)


def programs(steps: int, loads: int, slots: int):
    """All programs of a size in which a step reads the newest load of its slot at some point of the order of loads;
    steps one by one, and in groups of two."""
    for fills in product(range(slots), repeat=loads):
        for owner in product(range(-1, loads), repeat=steps):
            reads = tuple(None if k < 0 else fills[k] for k in owner)
            for groups in {(), (2,) * (steps // 2) + (1,) * (steps % 2)}:
                yield Program(reads, fills, owner, groups)


def explore(program: Program, *, aborts: bool = False) -> tuple[set[str], int]:
    """Walks every reachable state. Returns what went wrong (empty: nothing) and the number of states.

    A state: (run, step, is it running, loads done over all runs, loads that go on, contents of the slots, aborts left).
    The contents of a slot: the load, over all runs, that it holds whole, or -1.
    """
    S, L, faults = program.S, program.L, set()
    start = (0, 0, False, 0, 0, (-1,) * (max(program.fills, default=0) + 1), 1 if aborts else 0)
    seen, todo = {start}, [start]
    while todo:
        run, step, running, load, loading, slots, left = todo.pop()
        following = []
        if run >= RUNS + (2 if aborts else 0):
            continue
        steps_done = run * S + step
        if step == S:  # the run ends when its loads have ended
            if load >= (run + 1) * L:
                following.append((run + 1, 0, False, load, loading, slots, left))
        elif not running:
            if load >= run * L + max(program.wait_loads[j] for j in program.group(step)):
                following.append((run, step, True, load, loading, slots, left))
        else:
            for j in program.group(step):
                k = program.owner[j]
                if k >= 0 and slots[program.fills[k]] != run * L + k:
                    faults.add(f"step {j} runs without load {k}")
            following.append((run, program.group(step).stop, False, load, loading, slots, left))
        going_on = {program.fills[i % L] for i in range(load, load + loading)}
        if running and going_on & {program.reads[j] for j in program.group(step)}:
            faults.add(f"load {load} writes what step {step} reads")
        i = load + loading
        if L and loading < READERS and steps_done >= i // L * S + program.wait_steps[i % L]:
            slot = program.fills[i % L]
            if slot not in going_on:
                begun = (*slots[:slot], -1, *slots[slot + 1 :])
                following.append((run, step, running, load, loading + 1, begun, left))
        if loading:
            slot = program.fills[load % L]
            ended = (*slots[:slot], load, *slots[slot + 1 :])
            following.append((run, step, running, load + 1, loading - 1, ended, left))
        if left and not running and not loading:
            following.append((run + 2, 0, False, (run + 2) * L, 0, slots, 0))
        if not following:
            faults.add(f"stuck in run {run}, step {step}")
        for state in following:
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return faults, len(seen)


def is_live(program: Program) -> bool:
    """Whether the thresholds can be met at all: played in one order, with nothing in flight."""
    return not any("stuck" in fault for fault in explore(program)[0])


@pytest.mark.parametrize(
    ("steps", "loads", "slots"), [(1, 1, 1), (2, 2, 1), (3, 2, 1), (3, 2, 2), (3, 3, 2), (2, 3, 3), (4, 4, 2)]
)
@pytest.mark.parametrize("aborts", [False, True])
def test_every_interleaving_is_safe(steps, loads, slots, aborts):
    checked = states = 0
    for program in programs(steps, loads, slots):
        if not is_live(program):
            continue  # wants a slot's old content after the new: no thresholds serve it
        faults, count = explore(program, aborts=aborts)
        assert not faults, (program.fills, program.owner, faults)
        checked += 1
        states += count
    assert checked >= 2
    assert states > checked


def test_the_model_finds_thresholds_that_are_too_low():
    """Lowering a threshold that matters must be found: the checker can fail."""
    found = 0
    for program in programs(3, 3, 2):
        if not is_live(program):
            continue
        for i in range(program.L):
            for delta in (-1, -2):
                before = program.wait_steps[i]
                if before + delta >= -program.S:
                    program.wait_steps[i] = before + delta
                    found += any("without" in fault for fault in explore(program)[0])
                    program.wait_steps[i] = before
        for j in range(program.S):
            if program.wait_loads[j]:
                program.wait_loads[j] -= 1
                found += any("without" in fault for fault in explore(program)[0])
                program.wait_loads[j] += 1
    assert found > 100


def accepts(program: Program) -> bool:
    """Whether the engine takes such a program: every step a 1x1 convolution with its weights in its slot."""
    params = conv_params(side=1, channels=16)
    place = up(_core.op_panel_bytes("conv", params))
    workspace_bytes, zeros_count = up(_core.op_workspace("conv", "", params)), _core.op_zeros("conv", params)
    nodes = np.zeros(program.S, _core.NODE_DTYPE)  # one for each step, as windows of one would meet
    nodes["op"], nodes["params"] = _core.OPS.index("conv"), params
    nodes["in"]["base"] = -1
    for node in range(program.S):
        nodes[node]["in"][0] = nodes[node]["out"] = (0, 0, (6 + node) * place)
    nodes["workspace_offset"], nodes["workspace_bytes"] = (6 + program.S) * place, workspace_bytes
    window = _core.op_full_window("conv", params)
    slots = [4 if slot is None else 1 + slot for slot in program.reads]
    steps = np.array(
        [(j, wait, window, slots[j] * place) for j, wait in enumerate(program.wait_loads)], _core.STEP_DTYPE
    )
    loads = np.zeros(program.L, _core.LOAD_DTYPE)
    loads["bytes"], loads["chunk_bytes"], loads["wait_steps"] = place, place, program.wait_steps
    loads["address"] = [(1 + slot) * place for slot in program.fills]
    end = (6 + program.S) * place + workspace_bytes
    try:
        _core.EngineSession(
            nodes=nodes, steps=steps, pinned=loads[:0], loads=loads, crcs=np.zeros(0, np.uint32),
            arena_bytes=end + 4 * zeros_count, zeros_offset=end, zeros_count=zeros_count,
            io_bytes=[], input_count=0, fd=-1,
            groups=np.array(program.groups, np.uint32),
        ).close()  # fmt: skip
    except _core.EngineError as error:
        assert error.status in ("params", "overlap")
        return False
    return True


def test_the_engine_accepts_exactly_what_the_model_finds_safe():
    """All thresholds of all programs of two steps and two loads: refused if they can deadlock, or if a load can write
    what a running step reads; else taken. One by one, and both at the same time."""
    counts = {True: 0, False: 0}
    S, L = 2, 2
    for reads, fills, groups in product(product((None, 0, 1), repeat=S), ((0, 0), (0, 1)), ((), (2,))):
        for wait_loads, wait_steps in product(product(range(L + 1), repeat=S), product(range(-S, S), repeat=L)):
            program = Program(reads, fills, (-1,) * S, groups)
            program.wait_loads, program.wait_steps = list(wait_loads), list(wait_steps)
            safe = not explore(program)[0]
            assert accepts(program) == safe, (reads, fills, groups, wait_loads, wait_steps, explore(program)[0])
            counts[safe] += 1
    assert min(counts.values()) > 100
    for wait_loads, wait_steps in (([L + 1, 0], [0, 0]), ([0, 0], [-3, 0]), ([0, 0], [2, 0])):
        program = Program((None,) * S, (0,) * L, (-1,) * S)
        program.wait_loads, program.wait_steps = wait_loads, wait_steps
        assert not accepts(program)


def after(before: Program, program: Program) -> list[int]:
    """Steps of the run before, of another program, that must be done before each load (fx_touches_until): one past the
    last one that reads its slot.
    """
    return [max([j + 1 for j in range(before.S) if before.reads[j] == slot], default=0) for slot in program.fills]


def waits_of(turns: list[Program], turn: int, ahead: int) -> list[int]:
    """Steps since the run ``ahead`` turns before began that each load of a turn waits for (run.c, ``waits_of``)."""
    waits, since = [0] * turns[turn].L, 0
    for before in turns[turn - ahead : turn]:
        until = after(before, turns[turn])
        waits = [since + steps if steps else wait for wait, steps in zip(waits, until, strict=True)]
        since += before.S
    return waits


def explore_turns(
    turns: list[Program], ahead: list[int], waits: list[list[int]], *, absent: int = -1, anew: bool = True
) -> tuple[set[str], int]:
    """Explore a run of each program in turn, as ``explore`` does for a single one.

    The loader hears of turn t when turn t - ahead[t] begins. ``waits[t]`` counts the steps since then that loads of
    turn t wait for; it concerns loads that wait for no step of their own run. A load of one turn begins after all
    loads of the turns before have begun. ``absent``: a turn that is announced and does not come; the loader rests,
    and begins with the next one (``anew``; otherwise it takes what it loaded for that turn's).
    """
    loads = [(t, i) for t, p in enumerate(turns) for i in range(p.L)]
    first = [sum(p.L for p in turns[:t]) for t in range(len(turns))]
    faults: set[str] = set()
    start = (0, 0, False, 0, 0, (None, None))
    seen, todo = {start}, [start]
    while todo:
        turn, step, running, load, loading, slots = todo.pop()
        if turn == len(turns):
            continue
        p, following = turns[turn], []
        if turn == absent:
            if not loading:
                done = 0 if anew else min(load - first[turn], turns[turn + 1].L)
                following.append((turn + 1, 0, False, first[turn + 1] + done, 0, slots))
        elif step == p.S:
            if load >= first[turn] + p.L:
                following.append((turn + 1, 0, False, load, loading, slots))
        elif not running:
            if load >= first[turn] + p.wait_loads[step]:
                following.append((turn, step, True, load, loading, slots))
        else:
            if p.owner[step] >= 0 and slots[p.reads[step]] != (turn, p.owner[step]):
                faults.add(f"step {step} of turn {turn} runs without its load")
            following.append((turn, step + 1, False, load, loading, slots))
        going_on = {turns[t].fills[i] for t, i in loads[load : load + loading]}
        if running and p.reads[step] in going_on:
            faults.add(f"step {step} of turn {turn} reads what is being written")
        if load + loading < len(loads) and loading < READERS:
            t, i = loads[load + loading]
            heard, wait = t - ahead[t], turns[t].wait_steps[i]
            since = sum(p.S for p in turns[heard:turn]) + step
            ready = step >= wait if t == turn else heard <= turn and wait <= 0 and since >= waits[t][i]
            slot = turns[t].fills[i]
            if ready and slot not in going_on:
                begun = (*slots[:slot], None, *slots[slot + 1 :])
                following.append((turn, step, running, load, loading + 1, begun))
        if loading:
            t, i = loads[load]
            slot = turns[t].fills[i]
            following.append((turn, step, running, load + 1, loading - 1, (*slots[:slot], (t, i), *slots[slot + 1 :])))
        if not following:
            faults.add(f"stuck in turn {turn}, step {step}")
        for state in following:
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return faults, len(seen)


def test_programs_in_turns_are_safe():
    """Every pair of live programs of two steps and up to two loads over two slots, one after the other and back: what
    one of them reads the loads of the next leave alone, announced or not."""
    live = [p for n in (1, 2) for p in programs(2, n, 2) if not p.groups and is_live(p)]
    checked = tight = 0
    for a, b in product(live, repeat=2):
        turns, waits = [a, b, a], [[], after(a, b), after(b, a)]
        for ahead in ([0, 1, 1], [0, 0, 1]):
            faults, _ = explore_turns(turns, ahead, [waits_of(turns, t, ahead[t]) for t in range(3)])
            assert not faults, (a.fills, a.owner, b.fills, b.owner, ahead, faults)
            checked += 1
        for t in (1, 2):  # a threshold that is lower is found wherever it matters
            for i, wait in enumerate(waits[t]):
                if wait and turns[t].wait_steps[i] <= 0:
                    lower = [list(w) for w in waits]
                    lower[t][i] -= 1
                    tight += bool(explore_turns(turns, [0, 1, 1], lower)[0])
    assert checked > 500
    assert tight > 100


def test_programs_announced_far_ahead_are_safe():
    """Four turns of programs of two steps and none to two loads: whatever of them the loader hears of at once."""
    live = [p for n in (1, 2) for p in programs(2, n, 2) if not p.groups and is_live(p)]
    live += [
        Program(reads, (), (-1, -1)) for reads in product((None, 0, 1), repeat=2)
    ]  # keeps values there, loads none
    random, checked, tight = Random(0), 0, 0
    for _ in range(400):
        turns = random.choices(live, k=4)
        if any(a is b for a, b in pairwise(turns)):
            continue  # then the program's own thresholds rule
        ahead = [0, 1, *random.choice(([2, 3], [2, 1], [0, 1], [1, 2]))]
        waits = [waits_of(turns, t, ahead[t]) for t in range(4)]
        faults, _ = explore_turns(turns, ahead, waits)
        assert not faults, ([(p.reads, p.fills, p.owner) for p in turns], ahead, faults)
        checked += 1
        for t in (2, 3):
            for i, wait in enumerate(waits[t]):
                if wait and ahead[t] > 1 and turns[t].wait_steps[i] <= 0:
                    lower = [list(w) for w in waits]
                    lower[t][i] -= 1
                    tight += bool(explore_turns(turns, ahead, lower)[0])
    assert checked > 300
    assert tight > 100


def test_another_program_than_was_announced_is_safe():
    """A recording announces a branch and takes the other: of three turns the second does not come."""
    live = [p for n in (1, 2) for p in programs(2, n, 2) if not p.groups and is_live(p)]
    random, found = Random(0), 0
    for _ in range(400):
        turns = [*random.choices(live, k=4)]
        if any(a is b for a, b in pairwise(turns)):
            continue
        ahead = [0, 1, 0, 1]
        waits = [[], waits_of(turns, 1, 1), [0] * turns[2].L, waits_of(turns, 3, 1)]
        faults, _ = explore_turns(turns, ahead, waits, absent=1)
        assert not faults, ([(p.reads, p.fills, p.owner) for p in turns], faults)
        found += bool(explore_turns(turns, ahead, waits, absent=1, anew=False)[0])
    assert found > 100
