"""``flexnn cache``: artifacts that opening ONNX files left in the user's cache folder."""

from __future__ import annotations

import argparse
import contextlib
import json
import time

from flexnn import keeping, kept_artifacts, units

from . import progress
from .terminal import say


def add(options: argparse.Namespace) -> None:
    """Compile a model, unless an artifact of it is kept, and print the artifact's path."""
    with progress.shown(quiet=options.quiet) as report:
        say(keeping.keep(options.model, dict(options.shape), report))


def show(options: argparse.Namespace) -> None:
    """Print what is kept, what was used last at the end."""
    with contextlib.closing(kept_artifacts.open_folder()) as opened:
        found, most = keeping.kept(opened), keeping.most_bytes(opened)
    total = sum(one.nbytes for one in found)
    if options.json:
        artifacts = [one._asdict() for one in found]
        print(json.dumps({"folder": kept_artifacts.folder(), "bytes": total, "most": most, "artifacts": artifacts}))
        return
    for one in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.used))
        say(f"{units.format_bytes(one.nbytes):>10}  {used}  {one.name}  {one.model or '?'}")
    say(f"{units.format_bytes(total):>10}  of at most {units.format_bytes(most)} in {kept_artifacts.folder()}")


def clear(options: argparse.Namespace) -> None:
    """Remove what is kept."""
    with contextlib.closing(kept_artifacts.open_folder()) as opened:
        removed = keeping.clear(opened)
    if not options.quiet:
        say(f"removed {len(removed)} artifacts, {units.format_bytes(sum(one.nbytes for one in removed))}")
