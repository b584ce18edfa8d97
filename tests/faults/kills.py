"""The process of test_kills.py: an action is killed before and after each of its system calls. After each kill the
folder holds the old file or the new one, whole; the action works again, and leaves nothing else behind.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import flexnn
import flexnn.compiler
import flexnn.graph.importer  # imported before the fork: what the child does is the action alone
import flexnn.graph.passes
from flexnn import files, keeping, kept_artifacts
from flexnn.measure import cache
from flexnn.planning import MachineProfile
from tests.support.kills import adopt, stops, wait
from tests.support.sessions import feed

FOLDER, MODEL, OTHER = map(Path, sys.argv[1:4])
WHAT, NAMED, MOST, SEED = sys.argv[4], sys.argv[5] == "named", int(sys.argv[6]), int(sys.argv[7])
os.environ["XDG_CACHE_HOME"] = str(FOLDER)
TARGET, STATE = FOLDER / "target.flexnn", FOLDER / "state"
KEY = "1 0123456789abcdef0123 rest of the key"


class Action(NamedTuple):
    """Action that is killed, and how its outcome is read: as bytes or text, those of before or those of after."""

    before: Callable[[], object]
    act: Callable[[], object]
    found: Callable[[], object]
    left: set[str]
    """Names in the folder when all is done."""
    folder: Path


def compiles(model: Path) -> object:
    return flexnn.compile(model, TARGET)


def keeps(arena_bytes: int) -> object:
    cache.store(KEY, cache.Kept(MachineProfile(1e11, 1e10), arena_bytes))
    return None


def opens() -> object:
    with flexnn.Session(keeping.keep(str(MODEL), {}), threads=1) as session:
        session.run(None, feed())
    return None


def spills() -> None:
    """Run a session that spills; its file has no name, or for a moment."""
    with flexnn.Session(MODEL, threads=1, memory=LEAST, spill=FOLDER) as session:
        (port,) = session.get_inputs()
        session.run(None, {port.name: np.zeros(port.shape, np.float32)})
        assert session.last_run["bytes_written"]


def saves(tokens: int) -> Callable[[], None]:
    """Return what keeps the state of so many tokens as a file."""

    def act() -> None:
        with flexnn.Session(MODEL, threads=1, kv_capacity=64) as session:
            session.run(None, {"input_ids": np.arange(tokens)[None]})
            session.save_state(STATE)

    return act


def tokens_of_state() -> int:
    """Load the state, whose checksums are checked then."""
    with flexnn.Session(MODEL, threads=1, kv_capacity=64) as session:
        session.load_state(STATE)
        return session.state_length


def clears() -> None:
    keeping.clear(kept_artifacts.open_folder())


def kept() -> object:
    """Bytes of the artifact that a session of the ONNX file would open; None: it would compile."""
    name = kept_artifacts.find(str(MODEL), {}, kept_artifacts.open_folder())
    return name and Path(kept_artifacts.folder(), name).read_bytes()


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def action() -> Action:
    if WHAT == "artifact":
        return Action(lambda: compiles(OTHER), lambda: compiles(MODEL), TARGET.read_bytes, {TARGET.name}, FOLDER)
    if WHAT == "spill":
        return Action(lambda: None, spills, lambda: None, set(), FOLDER)
    if WHAT == "state":
        return Action(saves(3), saves(5), tokens_of_state, {STATE.name}, FOLDER)
    cached = FOLDER / "flexnn"
    if WHAT == "profile":
        keeps(1)
        return Action(lambda: keeps(1), lambda: keeps(2), lambda: cache.load(KEY), names(cached), cached)
    opens()
    left = names(cached)
    return Action(clears, opens, kept, left, cached)


def judge(does: Action, outcomes: list[object]) -> None:
    wait()
    assert does.found() in outcomes, "neither the old file nor the new one"
    does.act()
    assert does.found() == outcomes[1]
    found = names(does.folder)
    assert found == does.left, f"left behind: {found - does.left}"


if NAMED:
    files._New._nameless = lambda *_: None  # type: ignore[method-assign]
    files._NAMELESS = 0  # a folder for writing is refused
LEAST = flexnn.plan(MODEL, threads=1, spill=FOLDER.parent).minimum_memory if WHAT == "spill" else None
adopt()
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir()
try:
    stops(lambda: None)
except OSError as error:
    print(json.dumps({"skip": str(error)}))
    sys.exit()
does = action()
does.act()
new = does.found()
does.before()
outcomes = [does.found(), new]
count = stops(does.act)
numbers = list(range(1, count + 1))
if len(numbers) > MOST:
    rng = random.Random(SEED)  # the end is where files get their names
    numbers = sorted({*rng.sample(numbers, MOST // 2), *rng.sample(numbers[-MOST:], MOST // 2)})
done = 0
for number in numbers:
    does.before()
    done += stops(does.act, number) == number
    judge(does, outcomes)
print(json.dumps({"stops": count, "killed": done}))
