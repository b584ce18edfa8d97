"""The process of test_faults.py: one kind of call fails, the first time at its first call, then at its second, and so
on, in each stage of the life of a session, of one that spills, of one with state, or of a pool. After each fault the
stage must work again.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import sys
from pathlib import Path

import numpy as np

import flexnn
from tests.faults.stages import SUBJECTS, PoolSubject, SessionSubject, SpillSubject, StateSubject
from tests.support.faults import Faults
from tests.support.sessions import feed, lost_segments

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
WHAT, MODEL, LEAST, KIND = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
MOST, SEED = int(sys.argv[5]), int(sys.argv[6])
ARTIFACT = MODEL.with_suffix(".flexnn")
CALL = "write" if KIND == "quota" else KIND
os.environ["XDG_CACHE_HOME"] = str(MODEL.parent / "cache")
faults, rng = Faults(), random.Random(SEED)


def right() -> None:
    """All sessions work, and compute what they computed."""
    for y in subject.outputs():
        assert np.abs(y - expected).max() <= 1e-4 * np.abs(expected).max()
    assert not any(map(lost_segments, subject.sessions)), "segments are lost"


def forgotten() -> None:
    """Have the page cache forget the artifact, so that readers read."""
    fd = os.open(ARTIFACT, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def faulty(name: str, number: int, *, always: bool) -> tuple[int, bool]:
    """Do a stage with a fault; return how many calls there were, and whether it raised."""
    stage, before, budget = subject.stages[name], ARTIFACT.read_bytes(), subject.memory
    forgotten()
    faults.arm(CALL, number, always=always, error=ERRORS[KIND])
    try:
        stage.act()
        raised = False
    except ALLOWED as error:
        raised = True
        assert "closed" not in str(error), error
    finally:
        count = faults.disarm()
    assert ARTIFACT.read_bytes() == before, "another or a torn artifact"
    assert not [entry for entry in os.listdir(ARTIFACT.parent) if "flexnn-tmp" in entry], "left behind"
    assert not stage.is_change or (subject.memory == budget) == raised, (subject.memory, budget, raised)
    if stage.judge:
        stage.judge(raised)
    right()
    return count, raised


subject: SessionSubject | PoolSubject | SpillSubject | StateSubject = SUBJECTS[WHAT](MODEL, LEAST)
expected = subject.outputs()[0]
if WHAT in ("session", "pool"):
    with flexnn.Session(ARTIFACT, threads=2) as session:
        expected = session.run(None, feed())[0]
right()
for stage in subject.stages.values():
    stage.act()
    if stage.judge:
        stage.judge(False)
right()
gc.collect()
descriptors, injected, raised = len(os.listdir("/proc/self/fd")), 0, 0
for name, stage in subject.stages.items():
    forgotten()
    faults.arm(CALL, 1 << 40)
    stage.act()
    calls = faults.disarm()
    if stage.judge:
        stage.judge(False)
    numbers = list(range(1, calls + 1))
    if len(numbers) > MOST:
        numbers = sorted(rng.sample(numbers, MOST))
    for number in numbers:
        for always in (False, True):
            try:
                count, has_raised = faulty(name, number, always=always)
            except BaseException:
                print(f"{WHAT}, {name}: {KIND} {number} of {calls}, {'from then on' if always else 'once'}", flush=True)
                raise
            injected += count >= number
            raised += has_raised
gc.collect()
assert len(os.listdir("/proc/self/fd")) == descriptors, "descriptors are lost"
subject.close()
print(json.dumps({"injected": injected, "raised": raised}))
