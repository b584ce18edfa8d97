"""Every example runs as its docstring says. (./demo runs faces.py on its trained model.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image

import flexnn
from tests.support.sessions import write_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLASSES = 7


def run_example(name: str, *arguments: object) -> list[str]:
    """Run an example as a user would; return the lines that it prints."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """A convolution, the mean of each of its channels, and a score per class; height and width are open."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((16, 3, 3, 3)), "m": rng.standard_normal((16, CLASSES))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, "height", "width"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    path = tmp_path / "classifier.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_classify(classifier: Path, tmp_path: Path) -> None:
    artifact = flexnn.compile(classifier, tmp_path / "closed.flexnn", shapes={"x": (1, 3, 32, 48)})
    pixels = np.random.default_rng(1).integers(0, 256, (32, 48, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    lines = run_example("classify.py", artifact, tmp_path / "picture.png")
    x = ((pixels.astype(np.float32) / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)).astype(np.float32)
    with flexnn.Session(artifact) as session:
        (scores,) = session.run(None, {"x": x.transpose(2, 0, 1)[None]})
    best = np.argsort(scores[0])[::-1][:5]
    assert [int(line.split()[1]) for line in lines] == list(best)


def test_classify_has_fifteen_lines() -> None:
    code = (EXAMPLES / "classify.py").read_text().splitlines()
    assert len([line for line in code if line.strip()]) <= 15


def test_rebudget(tmp_path: Path) -> None:
    artifact = flexnn.compile(write_model(tmp_path / "model.onnx"), tmp_path / "model.flexnn")
    lines = run_example("rebudget.py", artifact, "64MiB", "4MiB", "1KiB")
    assert [line.split()[1] for line in lines] == ["holds", "holds", "refused:"]


def test_open_shapes(classifier: Path, tmp_path: Path) -> None:
    artifact = flexnn.compile(classifier, tmp_path / "open.flexnn")
    lines = run_example("open_shapes.py", artifact, "1,3,32,32", "1,3,64,80", "1,3,32,32")
    assert sum(f"gives (1, {CLASSES})" in line for line in lines) == 3
    assert sum("MiB; took" in line for line in lines) == 3


def test_every_example_is_tested() -> None:
    tested = {"faces.py", "classify.py", "rebudget.py", "open_shapes.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
