"""The n-th read, write, open, rename, link, sync, allocation, mapping or thread start fails, once or from then on,
while a model is compiled, opened, run, given another budget and closed: a closed model and an open one, alone and in a
pool, with budgets that are numbers and that follow the system, compiled with and without a budget. A write that fails
takes half of its bytes first: the disk is full, or the user's quota is.

Each time an error says so, or nothing was needed; the artifact is the old one or a whole new one, the budget the old
one or the new one; the session runs and is right as soon as the fault is over; no descriptor is lost. FLEXNN_FAULTS is
the most calls of a kind that fail in a stage: 6, or more for a long test.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

import flexnn
from bench.models import segmentation
from tests.support import faults
from tests.support.decoders import write_grouped
from tests.support.hangs import HANG_SECONDS
from tests.support.sessions import feed, smallest, write_branched_model, write_model

MOST = int(os.environ.get("FLEXNN_FAULTS", "6"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faults.build(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module", params=["closed", "open"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A model, compiled, and a budget in which its weights are streamed."""
    folder = tmp_path_factory.mktemp("faults")
    if request.param == "closed":
        path = write_model(folder / "model.onnx")
        return path, smallest(Path(flexnn.compile(path))) + (64 << 10)
    path = write_branched_model(folder / "model.onnx", 12, batch="n")
    with flexnn.Session(flexnn.compile(path), threads=2) as session:
        session.run(None, feed())
        return path, session.plan.minimum_memory + (64 << 10)


@pytest.fixture(scope="module")
def spilling(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A U-Net, compiled, and its smallest budget with a spill file."""
    folder = tmp_path_factory.mktemp("spill")
    path = Path(segmentation.build("unet", folder, size=256, base=8))
    artifact = flexnn.compile(path, path.with_suffix(".flexnn"))
    return path, flexnn.plan(artifact, threads=2, spill=folder, profile="analytic").minimum_memory


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A decoder, compiled, and a budget in which its weights are streamed."""
    path = write_grouped(tmp_path_factory.mktemp("state") / "decoder.onnx")
    artifact = flexnn.compile(path, path.with_suffix(".flexnn"))
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.Session(artifact, 1, 2, kv_capacity=64, kv="f32")
    return path, refused.value.minimum + (64 << 10)


SPILLED = ("read", "write", "quota", "open", "allocate", "map", "thread")


@pytest.mark.parametrize("kind", SPILLED)
def test_faults_where_activations_are_spilled(library: Path, spilling: tuple[Path, int], kind: str) -> None:
    swept(library, spilling, "spill", kind)


@pytest.mark.parametrize("kind", [*faults.KINDS, "quota"])
def test_faults_where_there_is_state(library: Path, decoder: tuple[Path, int], kind: str) -> None:
    swept(library, decoder, "state", kind)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        *(("session", kind) for kind in (*faults.KINDS, "quota")),
        *(("pool", kind) for kind in ("read", "open", "allocate", "map", "thread")),
    ],
)
def test_faults(library: Path, model: tuple[Path, int], what: str, kind: str) -> None:
    swept(library, model, what, kind)


def swept(library: Path, model: tuple[Path, int], what: str, kind: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    path, least = model
    printed = faults.run(
        library,
        path.parent,
        "tests.faults.sweep",
        what,
        path,
        least,
        kind,
        MOST,
        seed,
        timeout=HANG_SECONDS + 30 * MOST,
    )
    done = json.loads(printed)
    print(what, kind, done)
    assert done["injected"] >= 2
    assert done["raised"] or kind == "thread"
