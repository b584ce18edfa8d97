"""Prompt-lookup drafts: tokens a pass and tokens a second inside budgets, with drafts and without them.

    python -m bench.budgets drafts

Two prompts whose answers repeat them: a summary, and code to edit. Texts with and without drafts must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cli import cli, table, tables, write_json
from bench.process import MIB
from bench.text.decoding import MODEL, artifact_of
from flexnn.llm.language import LanguageModel
from flexnn.planning import BudgetError

BUDGETS = (40, 60, 80)
CAPACITY = 512
CODE = '''def area(width, height):
    """Return the area of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("sizes are not negative")
    return width * height


def perimeter(width, height):
    """Return the perimeter of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("sizes are not negative")
    return 2 * (width + height)
'''
STORY = (
    "The tower is 324 metres tall, about the same height as an 81-storey building, and the tallest structure in Paris. "
    "Its base is square, measuring 125 metres on each side. It was the first structure in the world to surpass both "
    "the 200-metre and 300-metre mark in height. Excluding transmitters, it is the second tallest structure in France."
)
PROMPTS = {
    "summary": f"Summarise this text in its own words:\n{STORY}",
    "code": f"Rename width to w in this code and give all of it back:\n{CODE}",
}


def row_of(options: Any, path: Path, budget: int, name: str, *, drafts: bool) -> dict[str, Any]:
    """Return the figures of one answer."""
    how = {"memory": budget * MIB, "threads": (options.threads or [2])[0], "io": "direct", "kv": options.kv}
    row: dict[str, Any] = {"budget": budget, "prompt": name, "drafts": drafts}
    try:
        with LanguageModel(options.model, artifact=path, capacity=CAPACITY, drafts=drafts, **how) as model:
            has_rows = model.decoder.has_all_rows
            text = "".join(model.answer(model.chat_tokens([{"role": "user", "content": PROMPTS[name]}]), tokens=96))
            speed = model.speed
            row |= {"text": text, "tokens": speed.tokens, "passes": speed.passes, "has_rows": has_rows}
            return row | {"tokens_per_s": speed.tokens / speed.seconds, "pinned": model.session.plan.pinned_bytes}
    except BudgetError as error:
        return row | {"minimum": error.minimum}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets drafts", __doc__, threads=(2,))
    parser.add_argument("--budget", type=int, nargs="+", metavar="MIB", default=BUDGETS)
    parser.add_argument("--model", type=Path, default=MODEL, metavar="FILE.gguf")
    parser.add_argument("--kv", default="f16", help="type of the state (f16)")
    options = parser.parse_args(arguments)
    path, made, are_same = artifact_of(options.model, None), [], True
    grid = table("prompt-lookup drafts", "MiB", "prompt", "drafts", "tokens a pass", "tokens/s", "pinned MiB", "text")
    for budget in options.budget:
        for name in PROMPTS:
            pair = [row_of(options, path, budget, name, drafts=drafts) for drafts in (False, True)]
            are_same &= pair[0].get("text") == pair[1].get("text")
            made += pair
            for row in pair:
                first = (str(budget), name, "yes" if row["drafts"] else "no")
                if "minimum" in row:
                    grid.add_row(*first, "", "", "", f"needs {row['minimum'] / MIB:.1f} MiB")
                    continue
                figures = row["tokens"] / row["passes"], row["tokens_per_s"], row["pinned"] / MIB
                told = "" if row["has_rows"] == row["drafts"] else "no room for logits of drafts"
                grid.add_row(*first, *(f"{figure:.2f}" for figure in figures), told)
    write_json(options.json, made)
    tables(options.json).print(grid)
    return 0 if are_same else 1
