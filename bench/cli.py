"""The one manner of the commands: names of models, ``--threads``, ``--repeat`` and ``--json PATH``."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench import WIDTH

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STDOUT = "-"
"""The PATH of ``--json`` that is standard output; tables go to stderr then."""
KINDS = "small, full, trained, classics, all"


def cli(
    prog: str,
    about: str | None,
    *,
    models: Sequence[str] | None = None,
    threads: int | Sequence[int] | None = None,
    repeat: int | None = None,
    is_json: bool = True,
) -> argparse.ArgumentParser:
    """The parser of ``python -m PROG`` with the options that commands share, as far as it has them.

    Args:
        prog: the command, and its part where it has parts.
        about: its module's docstring, shown whole by ``--help``.
        models: the models taken where none is named; None: it takes no names of models.
        threads: the default of ``--threads``; several: the option may be repeated.
        repeat: the default of ``--repeat``.
        is_json: whether it has ``--json``.
    """
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=about, formatter_class=formatter)
    if models is not None:
        add_models(parser, models)
    if isinstance(threads, int):
        parser.add_argument("--threads", type=int, default=threads, metavar="N", help=f"compute threads ({threads})")
    elif threads is not None:
        every = " and ".join(map(str, threads))
        parser.add_argument("--threads", type=int, action="append", metavar="N", help=f"may be repeated ({every})")
    if repeat is not None:
        parser.add_argument("--repeat", type=int, default=repeat, metavar="N", help=f"timed runs of each ({repeat})")
    if is_json:
        parser.add_argument("--json", metavar="PATH", help="write the rows there; -: standard output, tables to stderr")
    return parser


def add_models(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Names of models, after the positional arguments that the parser has."""
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models, or {KINDS}; default: {' '.join(default)}")


def table(title: str | None, *columns: str, left: int = 1) -> Table:
    """A table whose first columns are text, the rest numbers: ``left`` of them."""
    from rich.table import Table  # fetching models needs no more than Python

    made = Table(title=title)
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < left else "right")
    return made


def tables(path: str | None, width: int = WIDTH) -> Console:
    """Where tables go, by what ``--json`` says."""
    from rich.console import Console

    return Console(width=width, stderr=path == STDOUT)


def write_json(path: str | None, rows: Any) -> None:
    """Writes the rows where ``--json`` says, if it was given."""
    if path is None:
        return
    text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    if path == STDOUT:
        sys.stdout.write(text)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def dispatch(prog: str, about: str | None, parts: Mapping[str, str], default: str | None = None) -> int:
    """Runs the part of a command that the first argument names; ``default``: the part where it names none.

    ``parts``: each part's module, imported when it is run; its ``main`` takes the arguments that are left.
    """
    arguments = sys.argv[1:]
    is_named = bool(arguments) and arguments[0] in parts
    is_help = bool(arguments) and arguments[0] in ("-h", "--help")
    if not is_named and (default is None or is_help):
        names = ",".join(parts)
        print(f"usage: python -m {prog} {{{names}}} …{f'  (default: {default})' if default else ''}\n")
        print((about or "").strip())
        return 0 if is_help else 2
    name = arguments.pop(0) if is_named else str(default)
    main: Callable[[Sequence[str]], int | None] = importlib.import_module(parts[name]).main
    return main(arguments) or 0
