"""Whole models: what the tests here share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import flexnn
from bench.models.catalogue import FULL, SMALL, TRAINED, Model
from bench.models.fetch import FetchError
from tests.support.missing import missing

ROOT = Path(__file__).resolve().parents[2]

QUICK = [pytest.param(m, id=m.name) for m in (*SMALL, *TRAINED)]
ALL = [*QUICK, *(pytest.param(m, id=m.name, marks=pytest.mark.full) for m in FULL)]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A model and its artifact; ``minimum``, ``unlimited``: bytes of the smallest budget and of everything pinned."""

    model: Model
    onnx: Path
    artifact: Path
    minimum: int
    unlimited: int


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiled]:
    """The model of the (indirect) parameter, compiled; gone when the next one comes. Full-size ones are not built here:
    they are skipped where they are not."""
    model: Model = request.param
    if model.kind == "full" and not model.path.exists():
        missing(f"{model.name} is not built: python -m bench.models build {model.name}")
    try:
        path = model.make()
    except FetchError as error:
        missing(f"{model.name} cannot be fetched: {error}")
    target = tmp_path_factory.mktemp("artifact") / f"{model.name}.flexnn"
    flexnn.compile(path, target, shapes=model.shapes)
    with pytest.raises(flexnn.BudgetError) as refusal:
        flexnn.Session(target, memory=1)
    with flexnn.Session(target, threads=2) as session:
        unlimited = session.session_bytes
    yield Compiled(model, path, target, refusal.value.minimum, unlimited)
    target.unlink()
