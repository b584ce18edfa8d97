"""Classifiers whose labels are texts, and scores as mappings, as scikit-learn's are exported, against onnxruntime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.artifact.about_weight import about_weight
from flexnn.graph.labels import Labels, Mappings, Words
from flexnn.ort import InferenceSession
from tests.graph.test_classic import numbers, trees
from tests.support.hangs import HANG_SECONDS

FEATURES = 6
TEXTS = ["ham", "spam", "größer"]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": (
        "LinearClassifier",
        {"coefficients": numbers(18), "intercepts": numbers(3), "post_transform": "SOFTMAX"},
    ),
    "trees": ("TreeEnsembleClassifier", trees(5, 3, "class", 3)),
}


def classifier(kind: str, labels: list[str] | list[int], rows: int | str = "n") -> onnx.ModelProto:
    """A classifier with its labels behind an Identity and its scores behind a ZipMap."""
    operator, attrs = KINDS[kind]
    are_texts = isinstance(labels[0], str)
    own = "classlabels_ints" if operator == "LinearClassifier" else "classlabels_int64s"
    attrs = attrs | {"classlabels_strings" if are_texts else own: labels}
    zipped = {"classlabels_strings" if are_texts else "classlabels_int64s": labels}
    nodes = [
        helper.make_node(operator, ["x"], ["best", "scores"], domain="ai.onnx.ml", **attrs),
        helper.make_node("Identity", ["best"], ["label"]),
        helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", **zipped),
    ]
    key = TensorProto.STRING if are_texts else TensorProto.INT64
    score = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    mapping = helper.make_sequence_type_proto(helper.make_map_type_proto(key, score))
    outputs = [
        helper.make_tensor_value_info("label", key, [rows]),
        helper.make_value_info("probabilities", mapping),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, FEATURES])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], outputs), opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("labels", [TEXTS, [7, 3, 11]])
@pytest.mark.parametrize("rows", [9, "n"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_onnxruntimes(kind: str, rows: int | str, labels: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path = tmp_path / "m.onnx"
    path.write_bytes(classifier(kind, labels, rows).SerializeToString())
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal((9, FEATURES)).astype(np.float32)
    want_labels, want = theirs.run(None, {"x": x})
    with flexnn.Session(flexnn.compile(path)) as session:
        assert [port.type for port in session.get_outputs()] == [port.type for port in theirs.get_outputs()]
        assert [port.shape for port in session.get_outputs()] == [port.shape for port in theirs.get_outputs()]
        assert [port.numpy_dtype for port in session.get_outputs()] == [np.int64, np.float32]
        for _ in range(3):  # runs that repeat another give labels, too
            got_labels, got = session.run(None, {"x": x})
            assert (got_labels.dtype, got_labels.tolist()) == (want_labels.dtype, want_labels.tolist())
            assert len(got) == len(want)
            for mine, other in zip(got, want, strict=True):
                assert mine == pytest.approx(other, abs=1e-6)
        assert session.run(["probabilities"], {"x": x})[0][2] == got[2]
        np.testing.assert_array_equal(np.asarray(got)[:, 0], [row[labels[0]] for row in got])
        assert isinstance(got[2:5], Mappings)
        assert got[2:5] == list(got)[2:5]
    outputs = InferenceSession(str(path)).run(None, {"x": x})
    assert isinstance(outputs[1], list)
    assert outputs[1] == list(got)


def test_labels_that_nodes_read_are_refused(tmp_path: Path) -> None:
    model = classifier("linear", TEXTS)
    model.graph.node.append(helper.make_node("Cast", ["best"], ["number"], to=TensorProto.FLOAT))
    model.graph.output.append(helper.make_tensor_value_info("number", TensorProto.FLOAT, None))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(flexnn.FlexNNError, match="has labels, which only callers may read"):
        flexnn.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize("labels", [TEXTS, [7, 3, 11]])
def test_run_saves_labels_and_scores(labels: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(classifier("trees", labels).SerializeToString())
    x = np.random.default_rng(0).standard_normal((4, FEATURES)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    command = [sys.executable, "-P", "-m", "flexnn", "run", "m.onnx", "--input", "in.npz", "--output", "o.npz"]
    subprocess.run([*command, "--repeat", "1"], cwd=tmp_path, check=True, timeout=HANG_SECONDS)
    best, rows = flexnn.Session(tmp_path / "m.onnx").run(None, {"x": x})
    with np.load(tmp_path / "o.npz") as saved:
        assert saved["label"].tolist() == best.tolist()
        names = saved["probabilities.labels"].tolist()
        assert [dict(zip(names, row, strict=True)) for row in saved["probabilities"].tolist()] == list(rows)


def zipped(labels: list[str], shape: list[int | str], *, behind: str = "") -> onnx.ModelProto:
    """A ZipMap of an input, or of what an operator makes of one."""
    nodes = [helper.make_node(behind, ["x"], ["scores"])] if behind else []
    scores = "scores" if behind else "x"
    nodes.append(helper.make_node("ZipMap", [scores], ["y"], domain="ai.onnx.ml", classlabels_strings=labels))
    score = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    mapping = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, score))
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_value_info("y", mapping)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("behind", ["", "Softmax"])
@pytest.mark.parametrize("columns", [3, 4])
def test_each_score_has_a_label(columns: int, behind: str, tmp_path: Path) -> None:
    """Two rows of three scores were three of two; onnxruntime refuses them when it runs."""
    x = np.arange(2 * columns, dtype=np.float32).reshape(2, columns)
    for shape in ([2, columns], ["n", columns], ["n", "scores"]):
        (tmp_path / "m.onnx").write_bytes(zipped(TEXTS[:2], shape, behind=behind).SerializeToString())
        with pytest.raises(flexnn.FlexNNError, match=r"labels for scores|does not reshape"):  # noqa: SIM117
            with flexnn.Session(flexnn.compile(tmp_path / "m.onnx")) as session:
                session.run(None, {"x": x})


@pytest.mark.parametrize("shape", [(3,), (5, 3), (0, 3)])
def test_rows_of_scores(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    (tmp_path / "m.onnx").write_bytes(zipped(TEXTS, ["n", 3][-len(shape) :]).SerializeToString())
    theirs = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    with flexnn.Session(flexnn.compile(tmp_path / "m.onnx")) as session:
        assert list(session.run(None, {"x": x})[0]) == theirs.run(None, {"x": x})[0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"number": Labels("texts", ["a", "b"])}, "a number is none of 2 labels"),
        ({"scores": Labels("texts", ["a"])}, "'scores' has texts as labels, which are none of f32"),
        ({"scores": Labels("mappings", ["a", "b"])}, r"scores of shape \[2, 3\] have 2 labels"),
        ({"number": Labels("mappings", ["a"])}, "'number' has mappings as labels"),
        ({"scores": Labels("words", ["a"])}, "'scores' has words as labels"),
        ({"x": Labels("words", ["a"])}, "'x' has words as labels"),
        ({"i": Labels("mappings", ["a"])}, "'i' has mappings as labels"),
    ],
)
def test_forged_labels(
    labels: dict[str, Labels], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels in an artifact that do not fit its values: they gave an IndexError, or rows of other scores."""
    monkeypatch.setattr(
        "flexnn.artifact.about_weight.about_weight", lambda about: about_weight(about._replace(labels=labels))
    )
    nodes = [helper.make_node("Identity", ["i"], ["number"]), helper.make_node("Relu", ["x"], ["scores"])]
    kinds = {"i": TensorProto.INT64, "x": TensorProto.FLOAT, "number": TensorProto.INT64, "scores": TensorProto.FLOAT}
    ports = [helper.make_tensor_value_info(name, kind, ["n", 3]) for name, kind in kinds.items()]
    graph = helper.make_graph(nodes, "g", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    artifact = flexnn.compile(tmp_path / "m.onnx")
    feed = {"i": np.array([[0, 1, 5]] * 2), "x": np.ones((2, 3), np.float32)}
    with pytest.raises(flexnn.FlexNNError, match=message), flexnn.Session(artifact) as session:
        session.run(None, feed)


def test_places_of_anything_that_can_be_printed() -> None:
    words = Words({"x": Labels("words", ["7", "größer", "[1]", "ham"])})
    given = ["ham", "größer".encode(), 7, np.str_("ham"), None, b"\xff", "7"]
    for more, wanted in (([], []), ([[1]], [2])):  # a list has no hash
        x = np.empty(len(given) + len(more), object)
        x[:] = [*given, *more]
        places = words.places({"x": x})["x"]
        assert (places.dtype, places.tolist()) == (np.int64, [3, 1, 0, 3, 4, 4, 0, *wanted])
    assert words.places({"x": np.array([["ham", "x"], ["7", "ham"]])})["x"].tolist() == [[3, 4], [0, 3]]
    assert words.places({"x": np.empty((0, 2), object)})["x"].shape == (0, 2)
