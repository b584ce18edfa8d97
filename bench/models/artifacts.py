"""Artifacts that FlexNN compiles from the models, kept until the model or the compiler changes."""

from __future__ import annotations

from pathlib import Path

from bench import ARTIFACTS
from bench.models.inputs import Shapes


def artifact_of(path: Path) -> Path:
    """Where the ONNX file's artifact lies, once ``artifact`` made it."""
    return ARTIFACTS / f"{path.stem}.flexnn"


def artifact(path: Path, shapes: Shapes) -> Path:
    """The ONNX file's artifact, compiled anew unless it is newer than the file and the compiler."""
    import flexnn

    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    target = artifact_of(path)
    sources = [path, *Path(flexnn.__file__).parent.rglob("*.py"), *Path(flexnn.__file__).parent.rglob("*.so")]
    if not target.exists() or target.stat().st_mtime < max(s.stat().st_mtime for s in sources):
        flexnn.compile(path, target, shapes=shapes)
    return target
