"""Draw a table of docs/measurements as a picture.

    python -m bench.draw                                the names of all tables
    python -m bench.draw 0016-over-bound                draws into 0016-over-bound.svg, or the file of --out

Columns whose names end in a unit (``_ms``, ``_mib``, ``_ratio`` …) are values, and each unit gets axes of its own. The
first column and all others are labels. Where the first column holds numbers, values are lines over it; else bars.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import ROOT
from bench.cli import cli

MEASUREMENTS = ROOT / "docs" / "measurements"
UNITS = {"gb_per_s": "GB/s", "gflops": "GFLOP/s", "kib": "KiB", "mib": "MiB", "mb": "MB", "ms": "ms", "us": "µs"}
UNITS |= {"percent": "%", "ratio": "ratio", "error": "relative error"}


@dataclass(slots=True)
class Table:
    """Rows of labels, and the values in columns: NaN where a cell is empty."""

    first: str  # the first column's name
    labels: list[list[str]]
    values: dict[str, list[float]]


def unit_of(column: str) -> str:
    """Return the key of UNITS that the column's name ends in, or "": the column holds labels."""
    return next((unit for unit in UNITS if column.endswith("_" + unit)), "")


def read_table(path: Path) -> Table:
    """Read a table. Raises ValueError with one line that names the file and the line, OSError."""
    if not path.exists():
        raise ValueError(f"no table {path.stem!r} in {path.parent}; python -m bench.draw lists them")
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file)) or [[]]
    kept = [i for i, column in enumerate(head) if i == 0 or not unit_of(column)]
    if not rows or kept == [*range(len(head))]:
        raise ValueError(f"{path}: needs a row, and a column whose name ends in one of _{', _'.join(UNITS)}")
    table = Table(head[0], [], {column: [] for i, column in enumerate(head) if i not in kept})
    for line, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise ValueError(f"{path}:{line}: {len(row)} cells, {len(head)} columns")
        table.labels.append([row[i] for i in kept])
        for column, values in table.values.items():
            cell = row[head.index(column)]
            try:
                values.append(float(cell or "nan"))
            except ValueError:
                raise ValueError(f"{path}:{line}: {column} is {cell!r}, not a number") from None
    return table


def draw(table: Table, title: str) -> Any:
    """Return a matplotlib figure of the table. Raises ModuleNotFoundError without matplotlib."""
    from matplotlib.figure import Figure

    units = list(dict.fromkeys(map(unit_of, table.values)))
    is_line = all(label[0].replace(".", "", 1).isdigit() for label in table.labels)
    most = max(sum(unit_of(column) == unit for column in table.values) for unit in units)
    height = 4.8 if is_line else 1.6 + 0.16 * len(table.labels) * (most + 1)
    figure = Figure(figsize=(6.4 * len(units), height), layout="constrained")
    figure.suptitle(title)
    for axes, unit in zip(figure.subplots(1, len(units), squeeze=False)[0], units, strict=True):
        chosen = [column for column in table.values if unit_of(column) == unit]
        series = {c.removesuffix("_" + unit).replace("_", " "): table.values[c] for c in chosen}
        (_lines if is_line else _bars)(axes, table, series)
        axis = "y" if is_line else "x"
        axes.set(**{axis + "label": UNITS[unit], axis + "scale": "log" if unit == "error" else "linear"})
        axes.legend(fontsize="small")
    return figure


def _lines(axes: Any, table: Table, series: dict[str, list[float]]) -> None:
    x = [float(label[0]) for label in table.labels]
    for kind in dict.fromkeys(tuple(label[1:]) for label in table.labels):
        rows = [i for i, label in enumerate(table.labels) if tuple(label[1:]) == kind]
        for name, values in series.items():
            axes.plot([x[i] for i in rows], [values[i] for i in rows], marker="o", label=", ".join((name, *kind)))
    axes.set(xlabel=table.first.replace("_", " "), xscale="log" if max(x) >= 10 * min(x) > 0 else "linear")


def _bars(axes: Any, table: Table, series: dict[str, list[float]]) -> None:
    width = 0.8 / len(series)
    for i, (name, values) in enumerate(series.items()):
        axes.barh([row + i * width for row in range(len(values))], values, width, label=name)
    axes.set_yticks([row + 0.4 - width / 2 for row in range(len(table.labels))], map(", ".join, table.labels))
    axes.invert_yaxis()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = cli("bench.draw", __doc__, is_json=False)
    parser.add_argument("name", nargs="?", help="the table's name; without it, all names are listed")
    parser.add_argument("--out", type=Path, help="the picture, .svg, .png or .pdf (default: NAME.svg)")
    options = parser.parse_args(arguments)
    if options.name is None:
        print("\n".join(sorted(path.stem for path in MEASUREMENTS.glob("*.csv"))))
        return
    path = MEASUREMENTS / f"{options.name}.csv"
    try:
        draw(read_table(path), path.stem).savefig(options.out or f"{path.stem}.svg")
    except ModuleNotFoundError:
        sys.exit("error: drawing needs matplotlib: pip install 'flexnn[plot]'")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
