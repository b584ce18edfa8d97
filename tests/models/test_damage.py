"""Damaged files end in a clear error or a correct run: a sample of ``python -m bench.faults files``'s mutations."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from bench.faults.files import GOOD, fuzz, make_targets
from bench.models.fetch import FetchError
from tests.support.missing import missing

COUNT = 150


def test_damaged_files(tmp_path: Path) -> None:
    try:
        make_targets(tmp_path)
    except FetchError as error:
        missing(f"a model cannot be fetched: {error}")
    processes = len(os.sched_getaffinity(0))
    answers = fuzz(list(range(COUNT)), 0, processes, tmp_path, Console(stderr=True))
    assert len(answers) == COUNT
    bad = {n: a for n, a in answers.items() if a.outcome not in GOOD}
    assert not bad, "\n".join(
        f"python -m bench.faults files --only {n}: {a.outcome}: {a.detail}" for n, a in bad.items()
    )
