"""Attack: arguments of the command line, the environment, and files that it reads, are hostile.

Answer: one line that says what is wrong, in which nothing acts on a terminal, in bounded time and memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn.cli import main
from flexnn.cli.files import load_arrays
from tests.support.sessions import write_branched_model, write_model

EVIL = "\x1b[2J\n\x9b31m"
"""Clears the screen, and begins a line in red."""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> str:
    return flexnn.compile(write_model(tmp_path_factory.mktemp("model") / "small.onnx"))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> str:
    return flexnn.compile(write_branched_model(tmp_path_factory.mktemp("open") / "open.onnx", 3, batch="n"))


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what the command line says about its arguments: one harmless line."""
    try:
        status = main(arguments)
    except SystemExit as error:
        status = int(error.code or 0)
    told = capsys.readouterr()
    assert status == 2
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert told.err.strip().isprintable()
    assert "internal" not in told.err
    return told.err


@pytest.mark.parametrize("number", ["9" * 25, "9" * 5000, "0", "-1", "²", "१", "1e3", "", EVIL])
def test_numbers(artifact: str, capsys: pytest.CaptureFixture[str], number: str) -> None:
    """The first one was an internal error."""
    for option in ("--repeat", "--threads", "--kv-capacity"):
        refused(["run", artifact, f"{option}={number}"], capsys)
    refused(["plan", artifact, "--spill", ".", f"--runs-per-day={number}"], capsys)


@pytest.mark.parametrize(
    "arguments", [["compile"], ["compile", "--rows=s8"], ["compile", "--dump=all"], ["chat", "--prompt=x"], ["run"]]
)
def test_a_fifo_in_place_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Some waited for somebody who writes."""
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in refused([*arguments, str(tmp_path / "fifo")], capsys)


def test_unknown_arguments(artifact: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Took two lines."""
    for arguments in (["run", artifact, EVIL], ["run", artifact, f"--no{EVIL}"], [EVIL], ["cache", EVIL]):
        assert "\\x1b[2J" in refused(arguments, capsys)


@pytest.mark.parametrize(
    "arguments", [["--", f"nosuch{EVIL}"], [f"--{EVIL}"], ["--memory", EVIL, "--", "true"], ["-m", f"no{EVIL}"]]
)
def test_exec(arguments: list[str]) -> None:
    """Was printed raw."""
    command = [sys.executable, "-P", "-m", "flexnn", "exec", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.strip().isprintable()


def test_a_note(tmp_path: Path) -> None:
    """Took two lines."""
    environment = os.environ | {"XDG_CACHE_HOME": "/proc/none", "TMPDIR": f"{tmp_path}/{EVIL}"}
    os.mkdir(environment["TMPDIR"])
    command = [sys.executable, "-P", "-m", "flexnn", "cache", "list"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert done.stderr.startswith("note: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.strip().isprintable()


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("extra", [[], ["--set", "x=1"]])
def test_shapes_that_memory_does_not_hold(
    opened: str, capsys: pytest.CaptureFixture[str], command: str, extra: list[str]
) -> None:
    """Inputs were made first: 64 GiB of random numbers."""
    arguments = [command, opened, "--profile", "analytic", "--shape", "x=2000000,128,8,8", *extra]
    assert "takes 62500.00MiB, and at most half of the free memory" in refused(arguments, capsys)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/stdin"])
def test_a_measurement_without_end(artifact: str, capsys: pytest.CaptureFixture[str], device: str) -> None:
    """Took 5 GiB in ten seconds."""
    said = refused(["bench", "curve", artifact, "--no-peers", "--repeat", "1", "--compare", device], capsys)
    assert "not a file of flexnn bench" in said


def test_members_that_are_no_arrays(tmp_path: Path) -> None:
    """Were read whole, twice: 1.8 GiB for a file of 0.9 MB."""
    path = tmp_path / "in.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(100 << 20))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"not an \.npz file of arrays"):
        load_arrays(str(path))
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    np.savez(path, x=np.ones(3))
    assert load_arrays(str(path))["x"].tolist() == [1, 1, 1]
