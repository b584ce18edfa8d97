"""Random loops that pick elements by numbers of the turn, against onnxruntime, without a limit and in little memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import flexnn
from flexnn.regions import segment
from tests.support.random_turns import TurnMaker
from tests.support.regions import check_runs, is_taped

BLOCK = 20
BLOCKS = [*range(8), *(pytest.param(block, marks=pytest.mark.long) for block in range(8, 30))]


def check_seed(folder: Path, seed: int) -> bool:
    """Compare a model with onnxruntime; return whether the engine walks its loops."""
    rng = np.random.default_rng(seed)
    maker = TurnMaker(rng)
    path = folder / f"{seed}.onnx"
    path.write_bytes(maker.model().SerializeToString())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    reference = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = [maker.feed(rng) for _ in range(3)]
    wanted = [reference.run(None, feed) for feed in feeds]
    artifact = flexnn.compile(path)
    check_runs(artifact, feeds, wanted, None)
    memory = 1
    while True:
        try:
            check_runs(artifact, feeds, wanted, memory)
            return is_taped(path, feeds[0])
        except flexnn.BudgetError as error:
            assert error.minimum > memory
            memory = error.minimum


@pytest.mark.parametrize("block", BLOCKS)
def test_random_turns(tmp_path: Path, block: int) -> None:
    native = 0
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        try:
            native += check_seed(tmp_path, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert native > BLOCK // 4


def test_numbers_that_vary_more_than_recordings_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks that only count forget recordings as runs do."""
    monkeypatch.setattr(segment, "ASKED_ALONE", 0)
    check_seed(tmp_path, 406)
