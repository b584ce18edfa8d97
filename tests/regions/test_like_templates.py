"""Templates that an artifact tells by another one: they give what their own nodes would, which no run reads."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn.artifact.stored_source import StoredSource
from flexnn.graph.ir import GraphError
from flexnn.graph.late import LateSizes
from flexnn.graph.like_template import LIKE, Like, LikeTemplate
from flexnn.graph.likeness import likeness, skeleton
from flexnn.graph.template_reader import CheckedTemplate
from flexnn.planning.refit import Refit
from flexnn.regions import Recorder
from flexnn.regions.template_reader import StoredTemplate, load_templates
from tests.regions.test_likeness import gated
from tests.regions.test_stored_templates import stored_of
from tests.support.regions import check_run, compiled, numbers, opened

BATCHES = 3, 1, 8, 2


def told(path: str) -> list[tuple[StoredTemplate, LikeTemplate]]:
    """Return the templates of an artifact that its first one tells."""
    stored, raw = stored_of(path)
    found = load_templates(raw, Recorder(stored.model).region, stored.constants, stored.model.opset)
    each = list({id(one): one for kept in found.values() for one in kept if isinstance(one, StoredTemplate)}.values())
    each[0].read = each[0]._read()
    made = [(one, one._told()) for one in each if one.like is not None]
    return [(one, read.template) for one, read in made if read is not None and isinstance(read.template, LikeTemplate)]


def test_what_is_told_is_what_would_be_read(tmp_path: Path) -> None:
    """Sizes, parameters, outputs and likeness are those of the template with its nodes."""
    found = told(compiled(tmp_path, gated()))
    assert found
    for stored, template in found:
        whole = template.complete
        given = stored.replay.traced
        for change in 0, 1, 3:
            sizes = template.numbers([given[0] + change, given[1], *(8 * change + size for size in given[2:])])
            if sizes is None:
                continue
            graph = whole.at(sizes)
            assert template.outputs(sizes) == whole.outputs(sizes)
            for own, other in zip(template.extents(sizes), whole.extents(sizes), strict=True):
                assert own.tolist() == other.tolist()
            assert np.array_equal(template.params(sizes), whole.params(sizes))  # type: ignore[arg-type]
            base = template.base.at(template.base.numbers(template.base.replay.traced))  # type: ignore[arg-type]
            alike = likeness(*(skeleton(each, lambda weight: (weight.kind, weight.nbytes)) for each in (graph, base)))
            assert alike is not None
            assert alike.order.tolist() == template.likeness.order.tolist()
            assert alike.also.tolist() == template.likeness.also.tolist()


def test_a_first_batch_reads_no_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of opening serves it: a session reads no second body, and makes no graph."""
    made: list[str] = []
    read, at = StoredTemplate._read, CheckedTemplate.at
    monkeypatch.setattr(StoredTemplate, "_read", lambda stored: made.append("read") or read(stored))
    monkeypatch.setattr(CheckedTemplate, "at", lambda template, sizes: made.append("graph") or at(template, sizes))
    model = gated()
    with opened(tmp_path, model) as session:
        made.clear()
        for batch in BATCHES:
            check_run(session, model, {"x": numbers(batch, 3, 40, 56)})
    assert made == []


def test_where_no_plan_serves_its_own_nodes_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = gated()
    own = Refit.at
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": numbers(1, 3, 40, 56)})
        monkeypatch.setattr(Refit, "at", lambda refit, sizes, alike=None: None)
        check_run(session, model, {"x": numbers(3, 3, 40, 56)})
        monkeypatch.setattr(Refit, "at", own)
        check_run(session, model, {"x": numbers(5, 3, 40, 56)})
        least = session.session_bytes
        session.memory = 2 * least
        check_run(session, model, {"x": numbers(3, 3, 40, 56)})
        session.memory = None
        check_run(session, model, {"x": numbers(4, 3, 40, 56)})


def test_a_template_with_other_constants_is_not_told(tmp_path: Path) -> None:
    """Constants of one type that are small look alike to a plan, but each template makes its own."""
    _, template = told(compiled(tmp_path, gated()))[0]
    whole, base = template.complete, template.base
    assert Like.of(whole, base, template.likeness) is not None
    at = next(i for i, tensor in enumerate(base.tensors) if tensor[3] < 0 and i not in base.inputs)
    name, shape, dtype, root, offset, strides, _ = base.tensors[at]
    base.tensors[at] = name, shape, dtype, root, offset, strides, 0
    assert Like.of(whole, base, template.likeness) is None


def test_a_template_with_fewer_numbers_is_told_where_no_constant_needs_more(tmp_path: Path) -> None:
    """The first template may have a longer trail: a batch of one has views that larger ones have not."""
    stored, _ = told(compiled(tmp_path, gated()))[0]
    assert stored.first is not None
    first = stored.first.read
    assert first is not None
    replay = first.template.replay
    first.template.replay = replace(replay, words=np.append(replay.words, np.ones(1000, np.int64)))
    assert stored._told() is not None
    for index, is_told in ((len(stored.replay.words) - 1, True), (len(stored.replay.words), False)):
        first.late["made"] = LateSizes(np.array([0, index]), np.dtype(np.int64))
        assert (stored._told() is not None) == is_told


def test_a_session_reads_what_is_told_when_it_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Like] = []
    read = Like.read

    def counted(*parts: Any) -> Like:
        made.append(read(*parts))
        return made[-1]

    monkeypatch.setattr(Like, "read", counted)
    model = gated()
    with opened(tmp_path, model) as session:
        assert len(made) == 1
        for batch in BATCHES:
            check_run(session, model, {"x": numbers(batch, 3, 40, 56)})
    assert len(made) == 1


def test_other_nodes_than_those_it_is_told_by_are_refused(tmp_path: Path) -> None:
    _, template = told(compiled(tmp_path, gated()))[0]
    whole = template.complete
    whole.nodes.pop()
    template._complete = None
    template._read = lambda: whole
    with pytest.raises(GraphError, match="other nodes"):
        _ = template.complete


@pytest.mark.parametrize("number", range(len(LIKE)))
def test_malformed_arrays_are_refused(number: int, tmp_path: Path) -> None:
    stored, template = told(compiled(tmp_path, gated()))[0]
    assert stored.like is not None
    for wrong in (np.zeros(0, np.float32), stored.like[number].astype(np.float64), stored.like[number] - (1 << 20)):
        arrays = list(stored.like)
        arrays[number] = wrong
        if wrong.dtype == stored.like[number].dtype and (LIKE[number] in ("widths", "packed") or not wrong.size):
            continue  # any numbers: the core looks at them
        with pytest.raises((ValueError, IndexError)):
            Like.read(arrays, stored.replay, template.base)


def test_sessions_run_what_hostile_arrays_tell_or_refuse_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = gated()
    path = compiled(tmp_path, model)
    _, raw = stored_of(path)
    stored, _ = told(path)[0]
    assert stored.like is not None
    places = [raw.index(array.tobytes()) for array in stored.like if array.nbytes > 8]
    sizes = [array.nbytes for array in stored.like if array.nbytes > 8]
    load, rng, ran = StoredSource.load, random.Random(0), 0
    for _ in range(60):
        which = rng.randrange(len(places))
        at = places[which] + 4 * rng.randrange(sizes[which] // 4)
        word = rng.choice((0, 1, -1, 2, 7, 64, 1 << 16, (1 << 31) - 1, rng.randrange(64)))
        hostile = raw[:at] + word.to_bytes(4, "little", signed=True) + raw[at + 4 :]

        def loaded(source: StoredSource, hostile: bytes = hostile) -> Any:
            return np.frombuffer(hostile, np.uint8) if source.weight.name == "templates" else load(source)

        monkeypatch.setattr(StoredSource, "load", loaded)
        with flexnn.Session(path) as session:
            try:
                session.run(None, {"x": numbers(3, 3, 40, 56)})
                ran += 1
            except flexnn.FlexNNError:
                pass
    assert ran > 5
