"""Every example runs as its docstring says. (./demo runs faces.py on its trained model.)"""

from __future__ import annotations

import signal
import subprocess
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image, ImageDraw, ImageFont

import flexnn
from bench.models.fetch import fetch
from bench.models.subjects import SUBJECTS
from tests.support.hangs import HANG_SECONDS
from tests.support.sessions import write_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLASSES = 7


def trained(name: str) -> Path:
    """A trained model, fetched if it is not there."""
    return next(subject for subject in SUBJECTS if subject.name == name).fetch()


def run_example(name: str, *arguments: object) -> list[str]:
    """Run an example as a user would; return the lines that it prints."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def write_classifier(path: Path) -> Path:
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
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    return write_classifier(tmp_path / "classifier.onnx")


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


def memory(lines: list[str]) -> float:
    """MiB that an example says it took."""
    (line,) = [line for line in lines if line.startswith("memory")]
    return float(line.split()[1])


def page(path: Path, texts: list[str]) -> Path:
    picture = Image.new("RGB", (640, 40 + 90 * len(texts)), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(32)
    for i, text in enumerate(texts):
        pen.text((40, 40 + 90 * i), text, fill="black", font=font)
    picture.save(path)
    return path


def test_ocr_reads_a_page(tmp_path: Path) -> None:
    texts = ["A budget in bytes", "read from 128 pages", "inside 48 MiB"]
    models = [trained(name) for name in ("ppocr_v4_det", "ppocr_v4_rec")]
    lines = run_example("ocr.py", *models, page(tmp_path / "page.png", texts), "--memory", "48MiB")
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("line")] == texts
    assert memory(lines) <= 49


def test_voice_finds_speech(tmp_path: Path) -> None:
    rate, random = 16_000, np.random.default_rng(0)
    t = np.arange(3 * rate) / rate
    loud = [np.exp(-(((130 * k - 600) / 500) ** 2)) for k in range(1, 25)]  # harmonics, loudest where a vowel is
    voice = sum(a * np.sin(2 * np.pi * (k + 1) * (130 * t + 8 * np.sin(6 * np.pi * t))) for k, a in enumerate(loud))
    sound = np.where((t >= 1) & (t < 2), 0.2 * voice * (0.6 + 0.4 * np.sin(8 * np.pi * t)), 0)
    sound += 0.001 * random.standard_normal(len(t))
    with wave.open(str(tmp_path / "s.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((sound.clip(-1, 1) * 32767).astype("<i2").tobytes())
    lines = run_example("voice.py", trained("silero_vad_v6"), tmp_path / "s.wav", "--memory", "8MiB")
    assert memory(lines) <= 9
    spans = [line.split() for line in lines if line.startswith("speech")]
    assert len(lines) == len(spans) + 2
    for span in spans:
        assert span[1] == "none" or 0.9 <= float(span[2]) < float(span[4]) <= 2.3


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("faces") / "centerface.flexnn"
    return flexnn.compile(trained("centerface"), target, shapes={"input.1": (1, 3, 256, 256)})


def test_camera_follows_the_budget(faces: str, tmp_path: Path) -> None:
    budget = tmp_path / "budget"
    budget.write_text("64MiB\n")
    command = [sys.executable, str(EXAMPLES / "camera.py"), faces, str(fetch("astronaut")[0])]
    command += ["--budget", str(budget), "--frames", "100000"]
    least = flexnn.plan(faces).minimum_memory
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said: list[str] = []

        def until(found: Callable[[str], bool]) -> str:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if found(line):
                    return line
            raise AssertionError("".join(said[-5:]))

        high = until(lambda line: line.startswith("frame   3"))
        assert "1 faces" in high
        for text, answer in (
            (f"{least}", f"budget   {least}"),
            ("1MiB", "budget   stays"),
            ("64MiB", "budget   64MiB"),
        ):
            written = tmp_path / "new"
            written.write_text(text)
            written.rename(budget)
            until(lambda line, answer=answer: line.startswith(answer))
            after = until(lambda line: line.startswith("frame"))
            assert "1 faces" in after
            if text == f"{least}":
                low = float(after.split()[-3])
        process.send_signal(signal.SIGINT)
        assert "stopped" in process.stdout.read()
    assert low <= float(high.split()[-3]) - 4
    assert process.returncode == 0


def test_models_share_a_container(faces: str) -> None:
    models = [faces, *(trained(name) for name in ("ppocr_v4_rec", "silero_vad_v6"))]
    lines = run_example("container.py", *models, "--total", "128MiB")
    assert len([line for line in lines if line.startswith("model")]) == 3
    assert any(line.startswith("pool") and "3 models" in line for line in lines)
    assert memory(lines) <= 128


def test_every_example_is_tested() -> None:
    tested = {"faces.py", "classify.py", "rebudget.py", "open_shapes.py", "score_pictures.py"}
    tested |= {"ocr.py", "voice.py", "camera.py", "container.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
