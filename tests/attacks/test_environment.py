"""Attack: the process has an environment that few have: standard descriptors that are closed, next to no descriptors,
no file that may grow, a folder that is gone, no home, asserts left out, signals blocked or ignored.

Answer: an ONNX file and its artifact open and run right, or one line says what is missing. What was kept is whole.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import flexnn
from tests.support.sessions import feed, write_model

BUDGET = "8MiB"
SCRIPT = """
import os, resource, signal, sys
{before}
import numpy as np
import flexnn
from flexnn.errors import FlexNNError
try:
    with flexnn.Session(sys.argv[1], "{budget}", 2) as session:
        (y,) = session.run(None, dict(np.load(sys.argv[2])))
        session.memory = None
        (again,) = session.run(None, dict(np.load(sys.argv[2])))
    said = "right" if np.allclose(y, np.load(sys.argv[3]), atol=1e-4) and np.allclose(y, again, atol=1e-4) else "wrong"
except (FlexNNError, OSError) as error:
    said = f"refused {{type(error).__name__}}: {{error}}"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
os.write(int(sys.argv[4]), said.encode())
"""
LIMITS = "kind = resource.RLIMIT_{}; resource.setrlimit(kind, ({}, resource.getrlimit(kind)[1]))"
CASES: dict[str, tuple[str, str, Mapping[str, str]]] = {
    "no descriptor 0": ("", "<&-", {}),
    "no descriptor 1": ("", ">&-", {}),
    "no descriptors 0 to 2": ("", "<&- >&- 2>&-", {}),
    "no file may grow": (LIMITS.format("FSIZE", "0"), "", {}),
    "no asserts": ("", "", {"PYTHONOPTIMIZE": "2"}),
    "a home that is not there": ("", "", {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": ""}),
    "signals blocked": ("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))", "", {}),
    "children ignored": ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "", {}),
    "pipes ignored": ("signal.signal(signal.SIGPIPE, signal.SIG_DFL)", "", {}),
    "a folder that is gone": ("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')", "", {}),
    "another umask": ("os.umask(0o777)", "", {}),
    "one CPU": ("os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])", "", {}),
    "no program of Python's": ("sys.executable = ''", "", {}),
    "few descriptors": (LIMITS.format("NOFILE", "16"), "", {}),
    "next to no descriptors": (LIMITS.format("NOFILE", "9"), "", {}),
}
"""Code that the process runs first, redirections, and variables of its environment, by name."""
REFUSED = {"no file may grow", "no program of Python's", "next to no descriptors", "another umask"}
"""Cases that may be refused."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("environment")
    found = {"onnx": write_model(folder / "m.onnx"), "artifact": folder / "m.flexnn"}
    flexnn.compile(found["onnx"], found["artifact"])
    with flexnn.Session(found["artifact"], threads=2) as session:
        np.savez(folder / "feed.npz", **feed())
        np.save(folder / "expected.npy", session.run(None, feed())[0])
    return found | {"feed": folder / "feed.npz", "expected": folder / "expected.npy"}


@pytest.mark.parametrize("kind", ["artifact", "onnx"])
@pytest.mark.parametrize("case", CASES)
def test_runs_right_or_says_why(files: dict[str, Path], tmp_path: Path, case: str, kind: str) -> None:
    before, redirections, variables = CASES[case]
    script = SCRIPT.format(before=before, budget=BUDGET)
    reads, writes = os.pipe()
    arguments = [
        sys.executable,
        "-P",
        "-c",
        script,
        *(str(files[name]) for name in (kind, "feed", "expected")),
        str(writes),
    ]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path), **variables}
    command = f"exec {shlex.join(arguments)} {redirections}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env=environment,
        pass_fds=[writes],
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(writes)
    with open(reads, encoding="utf-8") as pipe:
        said = pipe.read()
    assert done.returncode == 0, done.stderr
    assert said == "right" or (case in REFUSED and said.startswith("refused")), (said, done.stderr)
    assert "Traceback" not in done.stderr
    assert "\n" not in said
    for kept in tmp_path.rglob("*.flexnn"):  # what was kept is whole
        with flexnn.Session(kept, threads=2, profile="analytic") as session:
            np.testing.assert_allclose(session.run(None, feed())[0], np.load(files["expected"]), atol=1e-4)
