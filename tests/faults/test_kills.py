"""SIGKILL before and after each system call of compiling, of keeping a profile, of a session of an ONNX file, of one
that spills activations, and of keeping a state.

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

import flexnn
from bench.models import segmentation
from tests.support.decoders import write_grouped
from tests.support.faults import ROOT
from tests.support.hangs import HANG_SECONDS
from tests.support.sessions import write_branched_model, write_wide_model

MOST = int(os.environ.get("FLEXNN_KILLS", "12").replace("all", str(1 << 30)))
START = (
    "import runpy, sys; sys.path.append({root!r}); runpy.run_module('tests.faults.kills', run_name='__main__', "
    "alter_sys=True)"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A closed model, one of open shapes, another one, and the artifacts of one that can spill and of a decoder."""
    folder = tmp_path_factory.mktemp("models")
    unet = segmentation.build("unet", folder, size=128, base=8)
    return {
        "closed": write_branched_model(folder / "closed.onnx", 2),
        "open": write_branched_model(folder / "open.onnx", 2, batch="n"),
        "other": write_wide_model(folder / "other.onnx"),
        "spilling": Path(flexnn.compile(unet, folder / "unet.flexnn")),
        "decoder": Path(flexnn.compile(write_grouped(folder / "decoder.onnx"), folder / "decoder.flexnn")),
    }


@pytest.mark.parametrize("names", ["nameless", "named"])
@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("artifact", "closed"),
        ("artifact", "open"),
        ("profile", "closed"),
        ("session", "closed"),
        ("spill", "spilling"),
        ("state", "decoder"),
    ],
)
def test_kills(tmp_path: Path, models: dict[str, Path], what: str, kind: str, names: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    arguments = [str(tmp_path / "folder"), str(models[kind]), str(models["other"]), what, names, str(MOST), str(seed)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", START.format(root=str(ROOT)), *arguments],
        env={**os.environ, "FLEXNN_PROFILE": "analytic", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS + min(MOST, 20_000) / 2,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    told = json.loads(done.stdout.splitlines()[-1])
    if "skip" in told:
        pytest.skip(told["skip"])  # containers may forbid ptrace
    print(told)
    assert told["killed"] > min(MOST, told["stops"]) // 3
