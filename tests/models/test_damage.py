"""Damaged files end in a clear error or a correct run: a sample of ``python -m bench.fuzz``'s mutations."""

from __future__ import annotations

import os

from missing import missing
from rich.console import Console

from bench.catalogue import CATALOGUE
from bench.fetch_models import FetchError
from bench.fuzz import GOOD, TARGETS, fuzz
from bench.peers import artifact

COUNT = 140


def test_damaged_files() -> None:
    for name, kind in TARGETS:
        try:
            path = CATALOGUE[name].make()
        except FetchError as error:
            missing(f"{name} cannot be fetched: {error}")
        if kind != "onnx":
            artifact(path, CATALOGUE[name].shapes)
    answers = fuzz(list(range(COUNT)), seed=0, processes=len(os.sched_getaffinity(0)), console=Console(stderr=True))
    assert len(answers) == COUNT
    bad = {n: a for n, a in answers.items() if a.outcome not in GOOD}
    assert not bad, "\n".join(f"python -m bench.fuzz --only {n}: {a.outcome}: {a.detail}" for n, a in bad.items())
