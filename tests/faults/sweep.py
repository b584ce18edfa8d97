"""The process of test_faults.py: one kind of call fails, the first time at its first call, then at its second, and so
on, in each stage of a model's life. After each fault the stage must work again.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from flexnn import files
from flexnn.measure import cache
from flexnn.planning import MachineProfile
from tests.support.faults import Faults
from tests.support.sessions import feed

ERRORS = {
    "read": errno.EIO,
    "write": errno.ENOSPC,
    "quota": errno.EDQUOT,
    "open": errno.EMFILE,
    "rename": errno.EIO,
    "link": errno.EIO,
    "sync": errno.EIO,
    "allocate": errno.ENOMEM,
    "map": errno.ENOMEM,
    "thread": errno.EAGAIN,
}
ALLOWED = (flexnn.FlexNNError, OSError, MemoryError)
MODEL, LEAST, KIND, MOST, SEED = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
ARTIFACT = MODEL.with_suffix(".flexnn")
CALL = "write" if KIND == "quota" else KIND
KEY = "1 0123456789abcdef0123 rest of the key"
KEPT = [cache.Kept(MachineProfile(1e11, 1e10), arena_bytes) for arena_bytes in (1, 2)]
os.environ["XDG_CACHE_HOME"] = str(MODEL.parent / "cache")
faults, rng, x = Faults(), random.Random(SEED), feed()


def opened(memory: int | None = LEAST) -> flexnn.Session:
    return flexnn.Session(ARTIFACT, memory=memory, threads=2)


def right(session: flexnn.Session) -> None:
    """The session works, and in its budget."""
    y = session.run(None, x)[0]
    assert np.abs(y - expected).max() <= 1e-4 * np.abs(expected).max()


def compiles() -> None:
    flexnn.compile(MODEL, ARTIFACT)


def opens() -> None:
    with opened() as session:
        assert session.threads in (1, 2)
        assert KIND == "thread" or session.threads == 2


def runs() -> None:
    right(session)


def changes() -> None:
    session.memory = None if session.memory else LEAST


def closes() -> None:
    opened().close()


def keeps() -> None:
    """A profile goes into the cache, or what was there stays."""
    cache.store(KEY, KEPT[0])
    KEPT.reverse()


STAGES: dict[str, Callable[[], Any]] = {
    "compile": compiles, "open": opens, "run": runs, "memory": changes, "close": closes,
    "cache": keeps,
}  # fmt: skip


def forgotten() -> None:
    """Have the page cache forget the artifact, so that readers read."""
    fd = os.open(ARTIFACT, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def faulty(stage: str, number: int, *, always: bool) -> tuple[int, bool]:
    """Do a stage with a fault; return how many calls there were, and whether it raised."""
    before, budget = ARTIFACT.read_bytes(), session.memory
    forgotten()
    faults.arm(CALL, number, always=always, error=ERRORS[KIND])
    try:
        STAGES[stage]()
        raised = False
    except ALLOWED as error:
        raised = True
        assert "closed" not in str(error), error
    finally:
        count = faults.disarm()
    assert ARTIFACT.read_bytes() == before, "another or a torn artifact"
    assert not [name for name in os.listdir(ARTIFACT.parent) if "flexnn-tmp" in name], "left behind"
    if stage == "memory":
        assert (session.memory == budget) == raised
    if stage == "cache":
        assert not raised
        assert cache.load(KEY) in KEPT
        keeps()
        assert cache.load(KEY) == KEPT[1]
        assert len(os.listdir(files.cache_folder())) == 1, "left behind"
    right(session)
    return count, raised


with opened(None) as session:
    expected = session.run(None, x)[0]
session = opened()
right(session)
for stage in STAGES:
    STAGES[stage]()
right(session)
gc.collect()
descriptors, injected, raised = len(os.listdir("/proc/self/fd")), 0, 0
for stage in (*STAGES, "memory"):  # twice: to less memory, and to more
    faults.arm(CALL, 1 << 40)
    forgotten()
    STAGES[stage]()
    calls = faults.disarm()
    numbers = list(range(1, calls + 1))
    if len(numbers) > MOST:
        numbers = sorted(rng.sample(numbers, MOST))
    for number in numbers:
        for always in (False, True):
            count, has_raised = faulty(stage, number, always=always)
            injected += count >= number
            raised += has_raised
gc.collect()
assert len(os.listdir("/proc/self/fd")) == descriptors, "descriptors are lost"
session.close()
print(json.dumps({"injected": injected, "raised": raised}))
