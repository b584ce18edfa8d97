"""The command ``flexnn``: ``exec`` runs without FlexNN's command line, which costs a program memory and time."""

from __future__ import annotations

import sys


def main() -> int:
    """Run one command; return the exit status."""
    if sys.argv[1:2] == ["exec"]:
        from .launch import main as launch

        return launch(sys.argv[2:])
    from flexnn.cli import main as command

    return command()
