"""Decoding and prompts without a limit: tokens a second with one thread and two, beside llama.cpp.

    python -m bench.peers text --llama PYTHON

Every figure is the median of rounds in which runtimes and numbers of threads take turns, each in a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cli import cli, table, tables, write_json
from bench.summary import median
from bench.text.decoding import MODEL, artifact_of, inside, ours, prompt_of, theirs

PROMPTS = (64, 512)
SECONDS_MAX = 60


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.peers text", __doc__, threads=(1, 2))
    parser.add_argument("--weights", nargs="+", default=["own"], metavar="FORM", help="forms of weights (own)")
    parser.add_argument("--model", type=Path, default=MODEL, metavar="FILE.gguf")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="tokens of each text (128)")
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=PROMPTS, metavar="N", help="tokens of prompts (64 512)"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each (3)")
    parser.add_argument("--llama", metavar="PYTHON", help="interpreter that has llama-cpp-python")
    options = parser.parse_args(arguments)
    commands = {}
    for threads in options.threads or (1, 2):
        for count in options.prompts:
            context = count + options.tokens + 1
            for weights in options.weights:
                path = artifact_of(options.model, None if weights == "own" else weights)
                how = path, threads, context, options.tokens, SECONDS_MAX, count
                commands[f"flexnn {weights}", threads, count] = ours("free", *how)
            if options.llama:
                ids = prompt_of(count)
                their = theirs(options.llama, options.model, threads, context, options.tokens, SECONDS_MAX, ids)
                commands["llama.cpp", threads, count] = their
    found: dict[Any, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for key, command in commands.items():
            found.setdefault(key, []).append(inside(command, SECONDS_MAX) or {})
    made = []
    grid = table("tokens a second without a limit", "runtime", "threads", "prompt", "prompt/s", "decoded/s", "p50 ms")
    for (name, threads, count), takes in found.items():
        row = {"runtime": name, "threads": threads, "prompt": count}
        row["prefill"] = count / median([take["prefill_s"] for take in takes])
        row["p50_ms"] = median([median(take["times_s"]) for take in takes]) * 1e3
        row["decode"] = median([len(take["times_s"]) / sum(take["times_s"]) for take in takes])
        made.append(row)
        grid.add_row(name, str(threads), str(count), *(f"{row[k]:.1f}" for k in ("prefill", "decode", "p50_ms")))
    write_json(options.json, made)
    tables(options.json).print(grid)
    return 0
