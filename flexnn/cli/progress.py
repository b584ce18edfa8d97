"""Progress of compiling on standard error: a bar where rich is installed, else a line for each tenth."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from flexnn import units
from flexnn.compiler import Progress


@contextlib.contextmanager
def shown(*, quiet: bool) -> Iterator[Progress | None]:
    """Return the function to which ``flexnn.compile`` reports its progress; None if nobody would see it."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn
        from rich.progress import Progress as Bar
    except ModuleNotFoundError:
        yield _Lines().report
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading the model", total=None)

        def report(name: str, done: int, total: int) -> None:
            bar.update(task, description="packing weights", completed=done, total=total)

        yield report


class _Lines:
    def __init__(self) -> None:
        self._tenths = 0

    def report(self, name: str, done: int, total: int) -> None:
        """Print a line whenever another tenth is done."""
        if done * 10 // total > self._tenths:
            self._tenths = done * 10 // total
            print(f"packing weights: {units.format_bytes(done)} of {units.format_bytes(total)}", file=sys.stderr)
