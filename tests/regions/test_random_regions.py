"""Random models with If, Loop and Scan in each other, against onnxruntime, at no limit and at the smallest budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import flexnn
from tests.support.random_regions import Maker
from tests.support.regions import check_runs

BLOCK = 10
REFUSALS_MAX = 12
"""Most refusals of two runs: stacks of loops that Python walks once asked for one row more, 491 times."""
BLOCKS = [*range(10), *(pytest.param(block, marks=pytest.mark.long) for block in range(10, 26))]


def check_seed(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    maker = Maker(rng)
    model = maker.model()
    path = folder / f"{seed}.onnx"
    path.write_bytes(model.SerializeToString())
    feeds = [maker.feed(rng) for _ in range(2)]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # some graphs crash it
    reference = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = [reference.run(None, feed) for feed in feeds]
    artifact = flexnn.compile(path)
    check_runs(artifact, feeds, wanted, None)
    memory = 1
    for _ in range(REFUSALS_MAX):  # what later programs need is known when they are met
        try:
            check_runs(artifact, feeds, wanted, memory)
            return
        except flexnn.BudgetError as error:
            assert error.minimum > memory
            memory = error.minimum
    pytest.fail(f"{REFUSALS_MAX} refusals, one after the other")


@pytest.mark.parametrize("block", BLOCKS)
def test_random_regions(tmp_path: Path, block: int) -> None:
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        try:
            check_seed(tmp_path, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
