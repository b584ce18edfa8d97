"""The promise over 1,000 tokens: peak beyond the budget, and whether tokens get slower than the state grows.

    python -m bench.budgets tokens

Each budget in a process of its own. Beyond: the peak of resident memory less what the process took before the session
opened, less the budget. The last tokens may take 1.15 times as long as those around the 100th, and the time in which
memory gives the keys and values between them; its rate is measured in the same process, over 64 MiB. Both are measured
in turns when the text is done, from states that were saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.cli import cli, table, tables, write_json
from bench.process import ALLOWANCE, MIB
from bench.text.decoding import MODEL, PROMPT, artifact_of, finished, ours

BUDGETS = (60, 70, 80, 100, 120)
CAPACITY, TOKENS = 1024, 1000
SECONDS = 200


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets tokens", __doc__, threads=2)
    parser.add_argument("--budget", type=int, nargs="+", metavar="MIB", default=BUDGETS)
    parser.add_argument("--model", type=Path, default=MODEL, metavar="FILE.gguf")
    options = parser.parse_args(arguments)
    path, made = artifact_of(options.model, None), []
    for budget in options.budget:
        command = ours("long", path, options.threads, CAPACITY, TOKENS, SECONDS, len(PROMPT), budget * MIB)
        made.append({"budget": budget} | finished(command, SECONDS))
    write_json(options.json, made)
    columns = "MiB", "beyond MiB", "tokens/s", "ms at 100", "at 1,000", "allowed", "beyond capacity"
    grid = table("1,000 tokens, capacity 1,024", *columns)
    is_kept = True
    for row in made:
        is_kept &= row["beyond"] <= ALLOWANCE and row["late_ms"] <= row["allowed_ms"] and row["is_state_kept"]
        figures = [row["beyond"] / MIB, *(row[k] for k in ("tokens_per_s", "early_ms", "late_ms", "allowed_ms"))]
        grid.add_row(str(row["budget"]), *(f"{figure:.2f}" for figure in figures), row["refused"][:40])
    tables(options.json).print(grid)
    return 0 if is_kept else 1
