"""The command line as its users misuse it: one line ``error: …``, exit 2, nothing half written."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn.cli import main
from tests.support.hangs import HANG_SECONDS
from tests.support.sessions import feed, smallest, write_branched_model, write_model, write_wide_model

COMMAND = [sys.executable, "-P", "-m", "flexnn"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("cli") / "small.onnx")


@pytest.fixture(scope="module")
def artifact(model: Path) -> Path:
    return Path(flexnn.compile(model))


def flexnn_cli(*arguments: object, folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=folder, text=True, timeout=HANG_SECONDS, check=False, **options
    )


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One line that says what is wrong."""
    assert done.returncode == 2, done
    assert not done.stdout, done.stdout
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["bogus"], "bogus"),
        (["run"], "MODEL"),
        (["run", "missing.flexnn"], "missing.flexnn: No such file"),
        (["run", "missing.onnx"], "missing.onnx: No such file"),
        (["run", "{folder}"], "not a regular file"),
        (["run", "/dev/zero"], "not a regular file"),
        (["compile", "/dev/zero"], "not a regular file"),  # was read for ever
        (["compile", "{folder}"], "not a regular file"),
        (["compile", "{artifact}"], "name another"),
        (["compile", "{model}", "-o", "{model}"], "overwrite the model"),
        (["compile", "{model}", "-o", "missing/a.flexnn"], "missing: no such folder"),
        (["compile", "{model}", "-o", ""], "no such folder"),
        (["compile", "{model}", "-o", "{folder}"], "not a regular file"),
        (["compile", "{model}", "-o", "/dev/null"], "/dev/null: not a regular file"),  # root replaced the device
        (["compile", "{model}", "--shape", "z=1,2"], "no input 'z'"),
        (["compile", "{model}", "--shape", "=1"], "not a shape"),
        (["run", "{artifact}", "--shape", "x=1,128,8,8"], "fixed when it was compiled"),
        (["run", "{artifact}", "--memory", "0"], "size out of range"),
        (["run", "{artifact}", "--memory", "12XB"], "not a size"),
        (["run", "{artifact}", "--memory", "48"], "48 alone means bytes: write 48MiB"),
        (["run", "{artifact}", "--memory", "1M"], "inputs and outputs"),
        (["run", "{artifact}", "--memory", "1M"], "reuse_outputs would save 0.04MiB"),
        (["run", "{artifact}", "--set", "z=1"], "no input 'z'; the inputs are x"),
        (["plan", "{artifact}", "--set", "z=1"], "no input 'z'; the inputs are x"),
        (["run", "{artifact}", "--set", "x=one"], "write NAME=NUMBER"),
        (["run", "{artifact}", "--set", "x=1,2"], "which 2 numbers do not fill"),
        (["run", __file__], "not a .flexnn artifact, and not an ONNX model"),
        (["compile", __file__], "text, not an ONNX model"),
        (["plan", "{artifact}", "--memory", "9" * 400], "size out of range"),  # was a traceback
        (["plan", "{artifact}", "--threads", "65"], "at most 64 threads"),  # was planned
        (["run", "{artifact}", "--threads", "65"], "at most 64 threads"),
        (["run", "{artifact}", "--repeat", "0"], "not a positive number"),
        (["run", "{artifact}", "--io", "mapped"], "mapped"),
        (["run", "{artifact}", "--output", "missing/o.npz"], "missing: no such folder"),
        (["run", "{artifact}", "--output", "{folder}"], "Is a directory"),
        (["run", "{artifact}", "--input", "missing.npz"], "missing.npz: No such file"),
        (["run", "{artifact}", "--input", "two\nlines"], "two\\nlines: No such file"),  # was in two lines
    ],
)
def test_misuse(model: Path, artifact: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
    filled = [a.format(model=model, artifact=artifact, folder=tmp_path) for a in arguments]
    refused(flexnn_cli(*filled, folder=tmp_path), words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["text", "empty", "cut", "npy", "pickle", "name", "type", "head", "fifo"])
def test_input_files(artifact: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, **feed())
    if damage == "text":
        path.write_text("junk")
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:2000])  # was "internal: BadZipFile"
    elif damage == "npy":
        with open(path, "wb") as file:
            np.save(file, feed()["x"])
    elif damage == "pickle":
        np.savez(path, x=np.array([{}], object))
    elif damage == "name":
        np.savez(path, z=feed()["x"])
    elif damage == "head":  # was "Unable to allocate 3.64 TiB", as if memory were short
        head = {"descr": "<f4", "fortran_order": False, "shape": (10**12,)}
        with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, head)
    elif damage == "fifo":  # waited for somebody who writes
        path.unlink()
        os.mkfifo(path)
    else:
        np.savez(path, x=feed()["x"].astype(np.float64))
    done = flexnn_cli("run", artifact, "--input", path, folder=tmp_path)
    refused(done, "input" if damage in ("name", "type") else "in.npz: not an .npz file of arrays")


def test_input_that_unpacks_to_more_than_memory_is_refused_before(artifact: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "in.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w") as member:
            np.lib.format.write_array(member, np.zeros(1 << 20, np.float32))
        archive.filelist[0].file_size = 1 << 50  # what the file's directory says
    done = flexnn_cli("run", artifact, "--input", "in.npz", folder=tmp_path)
    refused(done, "in.npz: its arrays take ")


def test_input_and_output(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **feed())
    done = flexnn_cli("run", artifact, "--input", "in.npz", "--output", "out", "--repeat", 1, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with flexnn.Session(artifact) as session, np.load(tmp_path / "out") as saved:
        (y,) = session.run(None, feed())
        np.testing.assert_allclose(saved["y"], y, rtol=0, atol=1e-4 * np.abs(y).max())
    assert sorted(os.listdir(tmp_path)) == ["in.npz", "out"]


def test_a_trace_that_there_will_not_be_is_refused_before_the_run(tmp_path: Path) -> None:
    """It was exit 1, after all runs."""
    write_branched_model(tmp_path / "m.onnx", 3, batch="n")
    open_artifact = flexnn.compile(tmp_path / "m.onnx")
    done = flexnn_cli("run", open_artifact, "--trace", "t.json", "--repeat", 10**9, folder=tmp_path)
    refused(done, "--trace", "open shapes")
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize("name", ["file", "allow_pickle", "a/b"])
def test_outputs_of_any_name(tmp_path: Path, name: str) -> None:
    """np.savez takes some names for its own parameters'."""
    path = write_model(tmp_path / "m.onnx", output=name)
    done = flexnn_cli("run", flexnn.compile(path), "--output", "o.npz", "--repeat", 1, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "o.npz") as saved:
        assert saved.files == [name]


def test_output_into_a_pipe_does_not_replace_it(artifact: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    done = flexnn_cli("run", artifact, "--output", pipe, "--repeat", 1, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    reader.join(HANG_SECONDS)
    assert pipe.is_fifo()
    assert read[0].startswith(b"PK")


def test_output_into_a_device(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Was "internal: argument out of range", as the device says that it has places."""
    assert main(["run", str(artifact), "--repeat", "1", "--output", "/dev/null"]) == 0, capsys.readouterr()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_standard_output_that_cannot_be_written(artifact: Path, tmp_path: Path, command: str) -> None:
    with open("/dev/full", "w") as full:
        refused_full = flexnn_cli(command, artifact, "--json", folder=tmp_path, stdout=full)
    closed = flexnn_cli(command, artifact, folder=tmp_path, stdout=None, preexec_fn=lambda: os.close(1))
    reading, writing = os.pipe()
    os.close(reading)
    broken = flexnn_cli(command, artifact, folder=tmp_path, stdout=writing)
    os.close(writing)
    for done, words in ((refused_full, "No space left"), (closed, "closed")):
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
        assert words in done.stderr
    assert (broken.returncode, broken.stderr) == (0, "")  # whoever read it has seen enough


def test_errors_do_not_go_to_standard_output(tmp_path: Path) -> None:
    """A closed standard error made print choose standard output."""
    done = flexnn_cli("plan", "missing", folder=tmp_path, stderr=None, preexec_fn=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (2, "")


def test_full_disk(model: Path, artifact: Path, tmp_path: Path) -> None:
    """A limit on the size of files: what is written whole or not at all stays as it was."""
    import resource

    def limit(most: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    for most, *arguments in (
        (20_000, "compile", model, "-o", "old"),
        (20_000, "run", artifact, "--output", "old", "--repeat", 1),
        (1_000, "run", artifact, "--trace", "old", "--repeat", 1),
    ):
        (tmp_path / "old").write_text("old")
        done = flexnn_cli(*arguments, folder=tmp_path, preexec_fn=functools.partial(limit, most))
        assert done.returncode == 2, done
        assert done.stderr == "error: old: File too large\n"
        assert (tmp_path / "old").read_text() == "old"
        assert os.listdir(tmp_path) == ["old"]


# ---- an ONNX file is compiled on the way ----


def cached(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_onnx_files_run_and_leave_an_artifact(model: Path, tmp_path: Path) -> None:
    (tmp_path / "-x.onnx").write_bytes(model.read_bytes())  # was taken for an option
    left = tmp_path / "cache" / "flexnn" / f"session-{'0f' * 16}"  # of a process that was killed
    left.mkdir(parents=True)
    (left / "model.flexnn").write_bytes(b"x")
    done = flexnn_cli("run", "--repeat", 1, "--", "-x.onnx", folder=tmp_path, env=cached(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "cache" / "flexnn").iterdir()] == ["artifacts"]


@pytest.mark.parametrize("cache", ["/dev/null", "/proc"])
def test_unusable_cache(model: Path, tmp_path: Path, cache: str) -> None:
    """It falls back to a folder among the temporary files, and says so."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache, "TMPDIR": str(tmp_path)}
    done = flexnn_cli("run", model, "--repeat", 1, folder=tmp_path, env=environment)
    assert done.returncode == 0, done
    instead = tmp_path / f"flexnn-{os.geteuid()}"
    assert re.fullmatch(rf"note: {cache}/flexnn: .*; using {instead} instead \(.*\)\n", done.stderr), done.stderr
    assert instead.stat().st_mode & 0o077 == 0
    assert os.listdir(instead / "artifacts")


def test_no_usable_folder_at_all(model: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": "/dev/null", "TMPDIR": "/proc"}
    done = flexnn_cli("run", model, folder=tmp_path, env=environment)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: /proc/")


def test_no_home(artifact: Path, tmp_path: Path) -> None:
    done = flexnn_cli("plan", artifact, "--json", folder=tmp_path, env={})
    assert json.loads(done.stdout)["feasible"], done.stderr


OPENS = """
import sys
import numpy, flexnn
def rss(name):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name))
before = rss("VmRSS:")
with flexnn.Session(sys.argv[1], memory=int(sys.argv[2]), threads=2) as session:
    feed = {i.name: numpy.zeros(i.shape, i.numpy_dtype) for i in session.get_inputs()}
    for _ in range(3):
        kept = session.run(None, feed)
print(rss("VmHWM:") - before)
"""


def test_onnx_files_keep_to_the_budget(model: Path, artifact: Path, tmp_path: Path) -> None:
    """The compiler is another process, and starting it must not cost this one its budget."""
    budget = smallest(artifact)
    command = [sys.executable, "-P", "-c", OPENS, str(model), str(budget)]
    done = subprocess.run(
        command, env=cached(tmp_path), capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    assert int(done.stdout) <= budget + (1 << 20)


def test_outputs_held_from_run_to_run_are_in_the_budget(tmp_path: Path) -> None:
    """``y = session.run(…)`` in a loop holds the last outputs while the next ones are made: was 8 MiB over."""
    artifact = flexnn.compile(write_wide_model(tmp_path / "wide.onnx"))
    budget = smallest(Path(artifact))
    command = [sys.executable, "-P", "-c", OPENS, artifact, str(budget)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_SECONDS)
    assert int(done.stdout) <= budget + (1 << 20)


def _holds(process: int, path: Path) -> bool:
    """Whether a process has a file open."""
    files = f"/proc/{process}/fd"
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # closed, or ended, meanwhile
        return any(os.path.realpath(f"{files}/{fd}") == os.path.realpath(path) for fd in os.listdir(files))
    return False


@pytest.mark.alone
def test_ctrl_c_while_running(artifact: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", str(artifact), "--repeat", "1000000"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not _holds(process.pid, artifact):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, out, errors) == (130, "", "error: interrupted\n")
