"""Texts of a model about itself come through the artifact, bounded, and no plan knows of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest

import flexnn
from flexnn.artifact import ArtifactError, open_artifact
from flexnn.artifact.about_weight import about_weight, load_about
from flexnn.graph.about import About
from flexnn.graph.ir import GraphError
from flexnn.graph.labels import Labels
from flexnn.graph.onnx_file import ABOUT_BYTES_MAX
from tests.support.sessions import write_branched_model, write_model

ENTRIES = {"alphabet": "".join(map(chr, range(0x4E00, 0x4E00 + 6000))), "empty": "", "q\n": 'a "b" \x1b[2J'}


def saying(path: Path, kind: str, entries: dict[str, str]) -> Path:
    """A model that says all that one can say."""
    if kind == "graph":
        write_model(path)
    else:
        write_branched_model(path, 2, batch="n")
    model = onnx.load(path)
    model.producer_name, model.domain, model.model_version = "maker", "org.example", 7
    model.doc_string, model.graph.doc_string, model.graph.name = "what it is", "what its graph is", "net"
    onnx.helper.set_model_props(model, entries)
    onnx.save(model, path)
    return path


def attributes(about: object) -> dict[str, object]:
    return {name: getattr(about, name) for name in About._fields if name not in ("labels", "weights")}


@pytest.mark.parametrize("kind", ["graph", "model"])
def test_sessions_say_what_onnxruntime_says(tmp_path: Path, kind: str) -> None:
    path = saying(tmp_path / "m.onnx", kind, ENTRIES)
    with flexnn.Session(path) as session:
        found = session.get_modelmeta()
    assert attributes(found) == attributes(onnxruntime.InferenceSession(path).get_modelmeta())
    with pytest.raises(flexnn.SessionError, match="closed"):
        session.get_modelmeta()


@pytest.mark.parametrize("kind", ["graph", "model"])
def test_plans_do_not_know_of_it(tmp_path: Path, kind: str) -> None:
    paths = [saying(tmp_path / f"{count}.onnx", kind, {"k": "v" * count}) for count in (1, 900_000)]
    plans = [flexnn.plan(path, shapes={} if kind == "graph" else {"x": (2, 128, 10, 10)}) for path in paths]
    assert plans[0].session_bytes == plans[1].session_bytes
    assert plans[0].minimum_memory == plans[1].minimum_memory


def test_a_model_that_says_nothing(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx")
    model = onnx.load(path)
    model.producer_name = model.graph.name = ""
    model.graph.name = "g"
    onnx.save(model, path)
    flexnn.compile(path)
    with open_artifact(str(path.with_suffix(".flexnn"))) as artifact:
        assert artifact.about() == About(graph_name="g")
    assert about_weight(About()) is None


def test_what_is_too_long_is_left_out(tmp_path: Path) -> None:
    path = saying(tmp_path / "m.onnx", "graph", {"a": "x", "long": "y" * ABOUT_BYTES_MAX, "z": "zz"})
    with flexnn.Session(path) as session:
        assert session.get_modelmeta().custom_metadata_map == {"a": "x", "z": "zz"}


def test_more_than_a_reader_takes_is_refused() -> None:
    with pytest.raises(GraphError, match="texts that the model knows"):
        about_weight(About(graph_description="ü" * (2 << 20)))  # six bytes each


def test_what_is_no_text(tmp_path: Path) -> None:
    path = saying(tmp_path / "m.onnx", "graph", {"key": "valuevalue"})
    path.write_bytes(path.read_bytes().replace(b"valuevalue", b"value\xff\xfe\xfd12"))
    with flexnn.Session(path) as session:
        assert set(session.get_modelmeta().custom_metadata_map) <= {"key"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": "1"}, "not a number"),
        ({"domain": 3}, "not text"),
        ({"custom_metadata_map": {"a": 1}}, "not text"),
        ({"custom_metadata_map": []}, "not text"),
        ({"more": 1}, "must have the parts"),
    ],
)
def test_forged_texts_are_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        load_about(json.dumps({k: v for k, v in About()._asdict().items() if k != "labels"} | changed).encode())


def test_other_bytes_are_refused() -> None:
    with pytest.raises(ArtifactError, match="not JSON"):
        load_about(b"\xff")
    with pytest.raises(ArtifactError, match="of memory"):
        load_about(b"[" * (6 << 20))


@pytest.mark.parametrize(
    "row",
    [["texts", []], ["texts", [1]], ["mappings", [1.5]], ["mappings", ["a", 1]], ["other", ["a"]], ["texts"], 3, {}],
)
def test_labels_that_are_none_are_refused(row: Any) -> None:
    weight = about_weight(About(labels={"y": Labels("texts", ["a"])}))
    assert weight is not None
    assert weight.source is not None
    parts = json.loads(weight.source.load().tobytes())
    assert load_about(json.dumps(parts).encode(), has_labels=True).labels["y"].names == ["a"]
    for labels in ({"y": row}, [row]):
        with pytest.raises(ArtifactError, match="labels of"):
            load_about(json.dumps(parts | {"labels": labels}).encode(), has_labels=True)
