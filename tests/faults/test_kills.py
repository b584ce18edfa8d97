"""SIGKILL before and after each system call of compiling, of keeping a profile, and of a session of an ONNX file.

Each time the file is the old one or a whole new one, the next try works, and it sweeps what the killed one left.
FLEXNN_KILLS is the most kills of each: 12, or more for a long test; ``all``: at every call. Seeds are printed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.faults import ROOT
from tests.support.sessions import write_branched_model, write_wide_model

MOST = int(os.environ.get("FLEXNN_KILLS", "12").replace("all", str(1 << 30)))
START = (
    "import runpy, sys; sys.path.append({root!r}); runpy.run_module('tests.faults.kills', run_name='__main__', "
    "alter_sys=True)"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A closed model, one of open shapes, and another one."""
    folder = tmp_path_factory.mktemp("models")
    closed, opened = write_branched_model(folder / "closed.onnx", 2), folder / "open.onnx"
    return closed, write_branched_model(opened, 2, batch="n"), write_wide_model(folder / "other.onnx")


@pytest.mark.parametrize("names", ["nameless", "named"])
@pytest.mark.parametrize(
    ("what", "kind"), [("artifact", "closed"), ("artifact", "open"), ("profile", "closed"), ("session", "closed")]
)
def test_kills(tmp_path: Path, models: tuple[Path, Path, Path], what: str, kind: str, names: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    model = models[kind == "open"]
    arguments = [str(tmp_path / "folder"), str(model), str(models[2]), what, names, str(MOST), str(seed)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", START.format(root=str(ROOT)), *arguments],
        env={**os.environ, "FLEXNN_PROFILE": "analytic", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120 + min(MOST, 20_000) / 2,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    told = json.loads(done.stdout.splitlines()[-1])
    if "skip" in told:
        pytest.skip(told["skip"])  # containers may forbid ptrace
    print(told)
    assert told["killed"] > min(MOST, told["stops"]) // 3
