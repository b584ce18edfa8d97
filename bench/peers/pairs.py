"""An encoder and a decoder beside onnxruntime, which reads all tokens of an answer again for each.

    python -m bench.peers pairs FOLDER

The folder has encoder.onnx, decoder.onnx (without a past) and tokenizer.json.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

import flexnn
from bench.cli import cli

TEXTS = (
    "Run the unit tests in the payments module and fix the failing assertion about rounding of currencies.",
    "The user asked to refactor the authentication middleware so that tokens are refreshed in the background.",
    "Searched the repository for uses of the deprecated logging function and replaced them with structured logs.",
    "Deploy the new version of the web service to the staging cluster and check its health endpoint.",
    "Write documentation for the configuration file, with examples for each option and its default.",
    "Investigate why the nightly build takes forty minutes, and cache the dependencies between jobs.",
    "Add a dark mode to the settings page.",
    "Rename the variable.",
    "Read README.md, then edit src/main.py to add a command line flag --verbose, then run pytest -q and commit.",
    "translate English to German: The house is wonderful.",
)
START, END, MOST = 0, 1, 24


def theirs(encoder: Any, decoder: Any, feed: dict[str, Any]) -> Iterator[int]:
    """Tokens by onnxruntime."""
    (hidden,), text = encoder.run(None, feed), [START]
    given = {"encoder_hidden_states": hidden, "encoder_attention_mask": feed["attention_mask"]}
    while len(text) <= MOST:
        (logits,) = decoder.run(None, {"input_ids": np.array([text]), **given})
        text.append(int(logits[0, -1].argmax()))
        if text[-1] == END:
            return
        yield text[-1]


def timed(tokens: Iterator[int]) -> tuple[list[int], list[float]]:
    """The tokens, and the ms of each but the first, which waits for the encoder."""
    found, times, start = [], [], time.perf_counter()
    for token in tokens:
        found.append(token)
        times.append(1e3 * (time.perf_counter() - start))
        start = time.perf_counter()
    return found, times[1:]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.peers pairs", __doc__, threads=(1,))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--memory", metavar="SIZE", help="budget of both (no limit)")
    parser.add_argument("--kv", default="f16", help="type of the state (f16)")
    options = parser.parse_args(arguments)
    for threads in options.threads or (1,):
        compare(options.folder, threads, {"memory": options.memory, "kv": options.kv})
    return 0


def compare(folder: Path, threads: int, limits: dict[str, Any]) -> None:
    """Print the answers of both, and their times."""
    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads = threads
    files = [str(folder / f"{name}.onnx") for name in ("encoder", "decoder")]
    sessions = [onnxruntime.InferenceSession(file, how) for file in files]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    sizes: dict[str, Any] = {"capacity": 64, "rows": 512, "threads": threads}
    with flexnn.EncoderDecoder(*files, start=[START], ends=[END], **sizes, **limits) as pair:
        same, times = 0, [list[float](), list[float]()]
        for text in TEXTS:
            ids = np.array([tokenizer.encode(text).ids])
            feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            (a, their_ms), (b, our_ms) = timed(theirs(*sessions, feed)), timed(pair.tokens(feed, most=MOST))
            same += a == b
            times[0].extend(their_ms)
            times[1].extend(our_ms)
            print(f"{tokenizer.decode(a)!r} {tokenizer.decode(b)!r}")
    medians = [statistics.median(each) for each in times]
    print(f"{same} of {len(TEXTS)} answers alike, {threads} threads")
    print(f"ms a token: onnxruntime {medians[0]:.2f}, FlexNN {medians[1]:.2f}")
