"""Memory of a model with control flow by the ways in which its programs may share it (Wang et al.): planned, not run.

    python -m bench.planner branches                     a light detector and, if it fires, one of two heavy ones
    python -m bench.planner branches m.onnx --shape x=1,512   any model that branches

Without a budget, and at the smallest one; MiB of all arenas.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.models.detector import SIDE, detector
from bench.process import MIB
from flexnn.artifact import open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.graph.bind import known_shape
from flexnn.graph.ir import DTYPES
from flexnn.planning import MachineProfile, Setting
from flexnn.run.region_plan import plan_regions
from flexnn.run.segments import BoundSegments
from flexnn.units import parse_shape

THREADS = 2


def strategies(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, dict[str, int]]:
    """Bytes by strategy, without a budget and at the smallest one, and the number of programs."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        made = flexnn.compile(path, Path(folder) / "m.flexnn")
        with open_artifact(str(made)) as artifact:
            if not isinstance(artifact.contents, StoredModel):
                raise SystemExit(f"error: {path} neither branches nor has open shapes")
            ports = artifact.contents.model.graph.inputs
            sizes = {port.name: shapes.get(port.name) or known_shape(port) for port in ports}
            feeds = {port.name: np.ones(sizes[port.name], DTYPES[str(port.dtype)]) for port in ports}
            memory, setting = None, Setting(MachineProfile.measure(), THREADS)
            for label in ("no limit", "smallest"):
                plan = plan_regions(BoundSegments(artifact.contents, memory, setting), feeds)
                found[label] = plan.memory_by_strategy() | {"programs": len(plan.parts)}
                memory = plan.describe()["minimum_memory"]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.planner branches", __doc__)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--shape", type=parse_shape, action="append", default=[], metavar="NAME=1,3,224,224")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path, shapes = options.model, dict(options.shape)
        if path is None:
            path, shapes = Path(folder) / "detector.onnx", {"x": (1, 3, SIDE, SIDE)}
            onnx.save(detector(), path)
        rows = strategies(path, shapes)
    write_json(options.json, rows)
    grid = table(None, "budget", *next(iter(rows.values())))
    for label, row in rows.items():
        grid.add_row(label, *(str(n) if name == "programs" else f"{n / MIB:.2f}" for name, n in row.items()))
    tables(options.json).print(grid)
    return 0
