"""``flexnn.ray``: workers that hold sessions, on a cluster of two nodes that are processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import flexnn
import flexnn.ray as scoring
from tests.support.hangs import HANG_SECONDS
from tests.support.missing import missing
from tests.support.sessions import CHANNELS, SIDE, smallest, write_branched_model

ROOT = Path(__file__).resolve().parents[1]
ROWS = 40


@pytest.fixture(scope="module", params=[1, 4, "n"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return flexnn.compile(write_branched_model(tmp_path_factory.mktemp("m") / "m.onnx", 6, batch=request.param))


def columns(count: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((count, CHANNELS, SIDE, SIDE)).astype(np.float32)
    return {"x": x, "id": np.arange(count)}


def expected(artifact: str, x: np.ndarray) -> np.ndarray:
    """Outputs row by row, as a model of any number of rows computes them."""
    with flexnn.Session(artifact, threads=1) as session:
        rows = session.get_inputs()[0].shape[0]
        size = rows if isinstance(rows, int) else 1
        parts = [np.concatenate([x[i : i + 1]] * size) for i in range(len(x))]
        return np.concatenate([session.run(None, {"x": part})[0][:1] for part in parts])


# ---- without Ray ----


@pytest.mark.parametrize("count", [1, 4, 7])
def test_a_worker_maps_batches(artifact: str, count: int) -> None:
    batch = columns(count)
    found = scoring.Scorer(artifact, "32MiB", keep=["id"])(batch)
    assert list(found) == ["id", "y"]
    np.testing.assert_array_equal(found["id"], batch["id"])
    np.testing.assert_allclose(found["y"], expected(artifact, batch["x"]), 1e-4, 1e-4)
    named = scoring.Scorer(artifact, prepare=lambda batch: {"x": 2 * batch["x"]}, outputs=["y"])(batch)
    np.testing.assert_allclose(named["y"], expected(artifact, 2 * batch["x"]), 1e-4, 1e-4)


def test_what_does_not_fit_is_said(artifact: str) -> None:
    worker = scoring.Scorer(artifact)
    with pytest.raises(ValueError, match="input 'x' is missing; the batch has 'id'"):
        worker({"id": np.arange(3)})
    with pytest.raises(ValueError, match="the model takes float32"):
        worker({"x": np.zeros((3, 2), np.float32)})
    with pytest.raises(flexnn.BudgetError):
        scoring.Scorer(artifact, "1MiB")({"x": columns(4)["x"]})


def test_memory_is_what_the_plan_says(tmp_path: Path) -> None:
    closed = flexnn.compile(write_branched_model(tmp_path / "c.onnx", 6))
    opened = flexnn.compile(write_branched_model(tmp_path / "o.onnx", 6, batch="n"))
    least = smallest(Path(closed), threads=1)
    assert scoring.worker_bytes(closed) == flexnn.plan(closed, threads=1).session_bytes
    assert scoring.worker_bytes(closed, least) == flexnn.plan(closed, memory=least, threads=1).session_bytes <= least
    assert scoring.worker_bytes(opened, "8MiB", beside="2MiB") == 10 << 20
    with pytest.raises(flexnn.BudgetError):
        scoring.worker_bytes(closed, least - 1)
    with pytest.raises(flexnn.GraphError):
        scoring.worker_bytes(opened)


def test_without_ray_the_error_names_the_extra(tmp_path: Path) -> None:
    shadow = tmp_path / "ray"
    shadow.mkdir()
    (shadow / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')\n")
    code = "import flexnn.ray\ntry: flexnn.ray.score(None, 'm')\nexcept ImportError as error: print(error)"
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "flexnn.ray needs Ray Data: pip install flexnn[ray]" in done.stdout


# ---- on a cluster ----

NODE = {"num_cpus": 2, "memory": 300 << 20, "object_store_memory": 80 << 20}
"""A node, with memory for one worker."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a program that uses a cluster of two nodes."""
    if find_spec("ray") is None:
        missing("Ray is not installed")
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    try:
        started.add_node(**NODE)
        yield os.environ | {"RAY_ADDRESS": started.address, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    finally:
        started.shutdown()


def driver(cluster: dict[str, str], folder: Path, *arguments: object) -> str:
    """Standard output of a program that uses the cluster."""
    command = [sys.executable, "-P", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=cluster, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(cluster: dict[str, str], tmp_path: Path) -> None:
    artifact = flexnn.compile(write_branched_model(tmp_path / "m.onnx", 6))
    x, notes = columns(ROWS)["x"], tmp_path / "notes"
    notes.mkdir()
    np.savez(tmp_path / "rows.npz", x=x)
    driver(cluster, notes, ROOT / "tests/support/scoring.py", artifact, notes, ROWS, tmp_path / "rows.npz")
    with np.load(tmp_path / "rows.npz") as found:
        np.testing.assert_array_equal(found["id"], np.arange(ROWS))
        np.testing.assert_allclose(found["y"], expected(artifact, x), 1e-4, 1e-4)
        seen = {path.name for path in notes.iterdir()}
        assert "died" in seen
        assert len(found["nodes"]) == 2
        assert seen - {"died"} <= set(found["nodes"])


@pytest.mark.slow
def test_the_example_scores_a_folder_of_pictures(cluster: dict[str, str], tmp_path: Path) -> None:
    from tests.examples.test_examples import CLASSES, write_classifier

    model = write_classifier(tmp_path / "classifier.onnx")
    artifact = flexnn.compile(model, tmp_path / "m.flexnn", shapes={"x": (1, 3, 32, 48)})
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(1)
    for i in range(12):
        Image.fromarray(rng.integers(0, 256, (32, 48, 3), np.uint8)).save(folder / f"{i:02}.png")
    said = driver(cluster, tmp_path, ROOT / "examples" / "score_pictures.py", artifact, folder, "--workers", 1)
    lines = [line for line in said.splitlines() if "class" in line]
    assert [Path(line.split("  ")[0]).name for line in lines] == [f"{i:02}.png" for i in range(12)]
    with flexnn.Session(artifact) as session:
        pixels = np.asarray(Image.open(folder / "03.png"), np.float32)
        x = ((pixels / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)).astype(np.float32)
        (scores,) = session.run(None, {"x": x.transpose(2, 0, 1)[None]})
    assert scores.shape == (1, CLASSES)
    assert f"class {scores.argmax()}" in lines[3]
