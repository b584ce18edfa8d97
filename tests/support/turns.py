"""Turns between the workers of pytest-xdist: a test marked ``alone`` runs while no other test of this run does."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

FOLDER = "FLEXNN_TEST_TURNS"
"""Environment variable: where the locks of this run are. Workers inherit it."""


def prepare(config: pytest.Config) -> None:
    """Make the folder of locks where tests will run in several processes."""
    if config.getoption("numprocesses", None) and FOLDER not in os.environ:
        os.environ[FOLDER] = folder = tempfile.mkdtemp(prefix="flexnn-turns-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Hold a place among the tests that run: one of many, or the only one.

    Whoever comes passes the door first. A test that wants to be alone keeps the door shut while it waits for the others
    to end, so they cannot overtake it for ever.
    """
    folder = os.environ.get(FOLDER)
    if folder is None:
        yield
        return
    with open(f"{folder}/door", "w") as door, open(f"{folder}/room", "w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
