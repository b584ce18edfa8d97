"""Models that each break one rule of the ONNX standard: compile refuses each, naming node and rule, and takes its twin.

    python -m bench.field broken                what does not, and how many of each rule are refused
    python -m bench.field broken --peers        beside it how many onnxruntime refuses, of those whose twins it takes
    python -m bench.field broken --show TEXT    the answers of cases whose name has this text in it

Exit 1 if a model is taken or a twin is not, or if an answer does not name node and rule.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
from rich.table import Table

import flexnn
from bench.broken.breaks import Case, general
from bench.broken.special import special
from bench.broken.twins import TWINS
from bench.cli import cli, tables


def cases() -> Iterator[Case]:
    """All cases; every general rule also on a model with an open dimension, where it is compiled in another way."""
    for twin in TWINS:
        yield from general(twin)
    for twin in TWINS[::6]:
        yield from general(twin, is_open=True)
    yield from special()


def compiled(model: onnx.ModelProto, folder: Path) -> str:
    """Return what compiling says; "" if it succeeds."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        flexnn.compile(path)
    except (flexnn.GraphError, flexnn.CompileError) as error:
        return str(error).removeprefix(f"{path}: ") or "no words"
    return ""


def wrong(case: Case, answer: str) -> str:
    """Return the fault of the answer to the broken model; "" if it has none."""
    if not answer:
        return "taken"
    if case.node not in answer or case.says not in answer or "\n" in answer:
        return f"unclear: {answer!r} does not say {case.node!r} and {case.says!r} in one line"
    return ""


def _taken(model: onnx.ModelProto) -> bool:
    """Return whether onnxruntime takes a model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.field broken", __doc__, is_json=False)
    parser.add_argument("--peers", action="store_true", help="also ask onnxruntime")
    parser.add_argument("--show", metavar="TEXT", help="print the answers of cases whose name has this text in it")
    options = parser.parse_args(arguments)
    counts: dict[str, Counter[str]] = {}
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            answer, twin = (compiled(model, Path(folder)) for model in (case.broken, case.twin))
            if options.show is not None and options.show in case.name:
                print(f"{case.name}\n    {answer}")
            found = [wrong(case, answer), twin and f"the twin is refused: {twin}"]
            failures += [f"{case.name}: {text}" for text in found if text]
            row = counts.setdefault(case.rule, Counter())
            row.update(models=1, refused=bool(answer), clear=not found[0], twins=not twin)
            if options.peers:
                row["onnxruntime"] += _taken(case.twin) and not _taken(case.broken)
    columns = ["models", "refused", "clear", "twins", *(["onnxruntime"] if options.peers else [])]
    table = Table("rule", *columns)
    total = sum(counts.values(), Counter())
    for rule, row in [*counts.items(), ("all", total)]:
        table.add_row(rule, *(str(row[name]) for name in columns))
    for text in failures:
        print(text)
    tables(None).print(table)
    return 1 if failures else 0
