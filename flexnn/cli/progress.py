"""Progress of compiling on standard error: a bar where rich is installed, else a line for each tenth."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TextIO

from flexnn import units
from flexnn.model_files import Progress

_STAGES = "reading the model", "packing weights"
"""Texts for reports without a name, and with that of a weight."""


@contextlib.contextmanager
def shown(*, quiet: bool, file: TextIO | None = None) -> Iterator[Progress | None]:
    """Return the function to which ``flexnn.compile`` reports its progress; None if nobody would see it. ``file``: the
    terminal, if it is not standard error.
    """
    file = file or sys.stderr
    if quiet or file is None or not file.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn
        from rich.progress import Progress as Bar
    except ModuleNotFoundError:
        yield _Lines(file).report
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Bar(*columns, console=Console(file=file), transient=True) as bar:
        task = bar.add_task(_STAGES[0], total=None)

        def report(name: str, done: int, total: int) -> None:
            bar.update(task, description=_STAGES[bool(name)], completed=done, total=total)

        yield report


class _Lines:
    def __init__(self, file: TextIO) -> None:
        self._file, self._told = file, (False, 0)

    def report(self, name: str, done: int, total: int) -> None:
        """Print a line whenever another tenth is done."""
        now = bool(name), done * 10 // total
        if now[1] and now != self._told:
            self._told = now
            told = f"{_STAGES[now[0]]}: {units.format_bytes(done)} of {units.format_bytes(total)}"
            print(told, file=self._file, flush=True)
