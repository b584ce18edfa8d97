"""The process of test_spill_faults.py: the n-th write to a spill file, or read from it, fails once or from then on. The
run ends with an error that names the spill file, and the next one computes what it should.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import sys

import numpy as np

import flexnn
from tests.support.faults import Faults

ARTIFACT, FOLDER, KIND, CODE = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]
MOST, SEED, THREADS = int(sys.argv[5]), int(sys.argv[6]), int(sys.argv[7])
ENDS = {
    "EIO": "Input/output error",
    "ENOSPC": "No space left on device",
    "EDQUOT": "Disk quota exceeded",
    "torn": "checksum",
    "flipped": "checksum",
}
IS_HARMLESS = CODE == "EINTR"
faults, rng = Faults(), random.Random(SEED)
memory = flexnn.plan(ARTIFACT, threads=THREADS, spill=FOLDER).minimum_memory


def feed(session: flexnn.Session, seed: int) -> dict[str, np.ndarray]:
    """Another input for each seed: rows that an earlier run stored are others than those of this one."""
    (port,) = session.get_inputs()
    return {port.name: np.random.default_rng(seed).standard_normal(port.shape, np.float32)}


def count_of(session: flexnn.Session) -> int:
    """Calls of a run without a fault."""
    faults.arm(KIND, 1 << 40)
    session.run(None, feed(session, 0))
    return faults.disarm()


def faulty(session: flexnn.Session, number: int, *, always: bool) -> str | None:
    """Run with a fault; return what the error says."""
    faults.arm(KIND, number, always=always, error=getattr(errno, CODE, errno.EIO))
    try:
        found = session.run(None, feed(session, 1))[0]
    except flexnn.FlexNNError as error:
        return str(error)
    finally:
        count = faults.disarm()
    assert CODE not in ("EIO", "ENOSPC", "EDQUOT") or count < number, "a call failed, and nobody said so"
    assert np.array_equal(found, expected[1]), "a wrong output without an error"
    return None


raised = 0
with flexnn.Session(ARTIFACT, memory, THREADS, spill=FOLDER) as session:
    expected = [session.run(None, feed(session, seed))[0] for seed in (0, 1)]
    gc.collect()
    descriptors, calls = len(os.listdir("/proc/self/fd")), count_of(session)
    numbers = sorted(rng.sample(range(1, calls + 1), min(MOST, calls)))
    for number in (1, *numbers, calls) if not IS_HARMLESS else numbers:
        for always in (False, True) if not IS_HARMLESS else (False,):
            said = faulty(session, number, always=always)
            where = f"{KIND} {CODE} {number} of {calls}, {'from then on' if always else 'once'}: {said}"
            if said is not None:
                raised += 1
                assert not IS_HARMLESS, where
                assert said.startswith(f"{FOLDER}: the spill file, "), where
                assert ENDS[CODE] in said, where
                assert "\n" not in said, where
            for seed in (0, 1):
                assert np.array_equal(session.run(None, feed(session, seed))[0], expected[seed]), where
            assert session.memory == memory, where
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors, "descriptors are lost"
print(json.dumps({"calls": calls, "raised": raised, "tried": len(numbers)}))
