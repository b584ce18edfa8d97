"""Sessions of onnxruntime beside which the trained models run: its defaults but for the number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime

from bench.peers.runtimes import bound_model


def onnx_source(path: Path, bound: Mapping[str, tuple[int, ...]] | None = None) -> str | bytes:
    """Return what ``peer_session`` opens: the file, or its bytes with the shapes ``bound``."""
    return bound_model(path, dict(bound)) if bound else str(path)


def peer_session(source: str | bytes, threads: int) -> Any:
    """Return an opened InferenceSession."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
