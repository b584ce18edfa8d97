"""Faults of the device that activations are spilled to: a write that fails, at once or in the middle; a device that is
full or over its quota while a run goes on; power that is lost in a write; bytes that come back as others; reads that
fail. Each ends with one line that names the spill file, or nothing was needed; the session runs on and is right.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

import flexnn
from bench.models.segmentation import build
from tests.support import faults
from tests.support.hangs import HANG_SECONDS

MOST = int(os.environ.get("FLEXNN_FAULTS", "6"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faults.build(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    flexnn.compile(build("unet", folder, size=128, base=8), folder / "model.flexnn")
    return folder / "model.flexnn"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("store", "EIO"),
        ("store", "ENOSPC"),
        ("store", "EDQUOT"),
        ("store", "EINTR"),
        ("tear", "torn"),
        ("read", "EIO"),
        ("flip", "flipped"),
    ],
)
def test_faults(library: Path, artifact: Path, kind: str, code: str, threads: int, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    given = (artifact, tmp_path, kind, code, MOST, seed, threads)
    done = json.loads(faults.run(library, tmp_path, "tests.faults.spills", *given, timeout=HANG_SECONDS + 30 * MOST))
    print(kind, code, done)
    assert done["calls"] > 0
    assert bool(done["raised"]) == (code != "EINTR")
