"""Greedy text of a language model in float32 beside onnxruntime, which gets its past by hand: equal, and how fast.

    python -m bench.peers greedy

Both run the same ONNX file, made of a GGUF file's weights (bench/text/as_onnx.py). For each prompt they write one after
the other; the state is of float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import flexnn
from bench import MODELS
from bench.cli import cli, table, tables, write_json
from bench.summary import median
from bench.text.as_onnx import as_onnx
from bench.text.decoding import MODEL
from flexnn.llm.gguf_file import open_gguf
from flexnn.llm.tokens import Tokens

PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain in two sentences how a refrigerator works.",
    "List three fruits and their colours.",
    "def fibonacci(n):",
)
Written = tuple[list[int], list[float]]


class Theirs:
    """onnxruntime, with its past in this caller's hands."""

    def __init__(self, path: Path, threads: int) -> None:
        how = onnxruntime.SessionOptions()
        how.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(path), how)
        self._ports = [port for port in self._session.get_inputs() if port.name.startswith("past")]
        self._past: list[np.ndarray[Any, Any]] = []
        self.reset()

    def reset(self) -> None:
        """Forget the past."""
        shapes = [[d if isinstance(d, int) else 0 for d in port.shape] for port in self._ports]
        self._past = [np.zeros(shape, np.float32) for shape in shapes]

    def __call__(self, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the logits of the last token."""
        length = self._past[0].shape[2]
        feed = dict(zip([port.name for port in self._ports], self._past, strict=True))
        feed |= {"input_ids": ids, "position_ids": np.arange(length, length + ids.shape[1])[None]}
        logits, *self._past = self._session.run(None, feed)
        row: np.ndarray[Any, Any] = logits[0, -1]
        return row


def written(step: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]], prompt: list[int], count: int) -> Written:
    """Return greedy tokens, and the ms of each."""
    logits, text, times = step(np.array([prompt])), list[int](), list[float]()
    for _ in range(count):
        start = time.perf_counter()
        text.append(int(logits.argmax()))
        logits = step(np.array([text[-1:]]))
        times.append(1e3 * (time.perf_counter() - start))
    return text, times


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.peers greedy", __doc__, threads=(1, 2))
    parser.add_argument("--model", type=Path, default=MODEL, metavar="FILE.gguf")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="tokens of each text (128)")
    options = parser.parse_args(arguments)
    opened = open_gguf(str(options.model))
    tokens = Tokens(opened)
    opened.file.close()
    path = as_onnx(options.model, MODELS / f"{options.model.stem}_f32.onnx")
    artifact = path.with_suffix(".flexnn")
    if not artifact.exists() or artifact.stat().st_mtime < path.stat().st_mtime:
        flexnn.compile(path, artifact)
    made = []
    for threads in options.threads or (1, 2):
        theirs, same, times = Theirs(path, threads), 0, [list[float](), list[float]()]
        with flexnn.Session(artifact, threads=threads, kv_capacity=1024, kv="f32", reuse_outputs=True) as session:

            def ours(ids: np.ndarray[Any, Any], session: flexnn.Session = session) -> np.ndarray[Any, Any]:
                row: np.ndarray[Any, Any] = session.run(None, {"input_ids": ids})[0][0, -1]
                return row

            for prompt in PROMPTS:
                theirs.reset()
                session.reset()
                ids = tokens.cut(prompt)
                texts = [written(step, ids, options.tokens) for step in (theirs, ours)]
                same += texts[0][0] == texts[1][0]
                for each, (_, found) in zip(times, texts, strict=True):
                    each.extend(found)
        row = {"threads": threads, "same": same, "onnxruntime_ms": median(times[0]), "flexnn_ms": median(times[1])}
        made.append(row | {"ratio": row["flexnn_ms"] / row["onnxruntime_ms"]})
    write_json(options.json, made)
    title = f"greedy text, {len(PROMPTS)} prompts, {options.tokens} tokens each; ms a token"
    grid = table(title, "threads", "texts alike", "onnxruntime", "flexnn", "ratio")
    for row in made:
        figures = (f"{row[name]:.2f}" for name in ("onnxruntime_ms", "flexnn_ms", "ratio"))
        grid.add_row(str(row["threads"]), f"{row['same']} of {len(PROMPTS)}", *figures)
    tables(options.json).print(grid)
    return 0 if all(row["same"] == len(PROMPTS) for row in made) else 1
