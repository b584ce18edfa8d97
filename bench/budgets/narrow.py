"""Narrow weights and activations in budgets: time beside no limit, smallest budgets and artifacts beside float32's.

    python -m bench.budgets narrow                       ViT-B/16 and ResNet-152 in 10 MiB, weights in s8
    python -m bench.budgets narrow resnet152 --weights q4 --memory 12MiB --seconds 5
    python -m bench.budgets narrow narrow                quantised models: their smallest budgets alone

Weights come past the page cache (``--io buffered``: through it). Sessions without a limit and in the budget run in
turns in one process; "ratio" is the median over the rounds. "floats": the smallest budget of the model in float32; "of
bits": bytes of the artifact over the bits of its parameters in this form.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import flexnn
from bench import ARTIFACTS
from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import CATALOGUE, Model, chosen
from bench.process import MIB
from bench.rounds import in_turns, ratio

DEFAULT = ["vit_b16", "resnet152"]
BITS = {"f32": 32, "f16": 16, "s8": 8, "q4": 4.5}
"""Bits of a weight in each form, with the scales of a block."""


def least(path: Path, options: Namespace) -> int:
    """Return the smallest budget of an artifact."""
    return flexnn.plan(path, threads=options.threads, io=options.io).minimum_memory


def parameters(path: Path) -> int:
    """Return the number of elements of a model's constants."""
    import onnx

    tensors = onnx.load(path, load_external_data=False).graph.initializer
    return sum(_elements(tensor.dims) for tensor in tensors)


def _elements(dims: Sequence[int]) -> int:
    count = 1
    for size in dims:
        count *= size
    return count


def of_weights(model: Model, options: Namespace) -> dict[str, Any]:
    """Return the figures of a model in float32 whose weights are narrowed."""
    path = model.make()
    whole, form = artifact(path, model.shapes), options.weights
    narrow = ARTIFACTS / f"{path.stem}_{form}.flexnn"
    flexnn.compile(path, narrow, shapes=model.shapes, weights=form)
    row: dict[str, Any] = {"least": least(narrow, options), "floats": least(whole, options)}
    row["of_bits"] = narrow.stat().st_size / (parameters(path) * BITS[form] / 8)
    how = {"threads": options.threads, "io": options.io}
    with flexnn.Session(narrow, **how) as own, flexnn.Session(narrow, memory=options.memory, **how) as tight:
        feed = model.feed(0)
        runs = {"no_limit": partial(own.run, None, feed), "in_budget": partial(tight.run, None, feed)}
        for run in (*runs.values(), *runs.values()):
            run()
        taken = in_turns(runs, options.seconds)
        row |= {name: timed.row() for name, timed in taken.items()}
        row["ratio"] = ratio(taken["in_budget"], taken["no_limit"])
        row["bound_ms"], row["bytes_read"] = tight.plan.bound_ms, tight.last_run["bytes_read"]
    return row


def of_bytes(model: Model, options: Namespace) -> dict[str, Any]:
    """Return the smallest budgets of a quantised model and of what it was made of."""
    plain = CATALOGUE[model.name.rpartition("_")[0]]
    made = [least(artifact(each.make(), model.shapes), options) for each in (model, plain)]
    return {"least": made[0], "floats": made[1]}


def cells(name: str, row: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    sizes = [f"{row['least'] / MIB:.2f}", f"{row['floats'] / MIB:.2f}", f"{row['least'] / row['floats']:.2f}"]
    if "ratio" not in row:
        return [name, *sizes]
    times = [f"{row[key]['p50']:.1f}" for key in ("no_limit", "in_budget")]
    more = [*times, f"{row['ratio']:.3f}", f"{row['bound_ms']:.1f}", f"{row['bytes_read'] / MIB:.1f}"]
    return [name, *sizes, *more, f"{row['of_bits']:.3f}"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets narrow", __doc__, models=DEFAULT, threads=2)
    parser.add_argument("--weights", choices=BITS, default="s8", help="form of the weights (s8)")
    parser.add_argument("--memory", default="10MiB", help="the budget (10MiB)")
    parser.add_argument("--io", choices=("buffered", "direct"), default="direct")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each comparison (4)")
    options = parser.parse_args(arguments)
    rows = {
        model.name: (of_bytes if model.kind == "narrow" else of_weights)(model, options)
        for model in chosen(options.names, DEFAULT)
    }
    write_json(options.json, rows)
    columns = "least", "floats", "/ floats", "no limit", "in budget", "ratio", "bound", "read", "of bits"
    grid = table(f"{options.weights} in {options.memory}; MiB, ms", "model", *columns)
    for name, row in rows.items():
        grid.add_row(*cells(name, row))
    tables(options.json).print(grid)
    return 0
