"""Artifacts that a copy of the session's process makes: the program's own files, handlers and settings stay its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flexnn
from flexnn import forking
from tests.support.hangs import HANG_SECONDS
from tests.support.sessions import write_branched_model, write_model

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import flexnn
from flexnn import forking, kept_artifacts
model = sys.argv[1]
ways, spawned, fork = [], kept_artifacts.spawned, os.fork
def noted(*given, **options):
    ways.append("new")
    return spawned(*given, **options)
def forked():
    ways.append("copy")
    return fork()
kept_artifacts.spawned, os.fork = noted, forked
def opened(**options):
    with flexnn.Session(model, threads=1, profile="analytic", **options) as session:
        return session.get_outputs()
"""


def run(script: str, model: Path, *arguments: str, **environment: str) -> list[str]:
    """Return the lines that a program prints; what it makes lies beside the model."""
    env = {**os.environ, forking.FORK: "1", "XDG_CACHE_HOME": str(model.parent / "cache"), **environment}
    command = [sys.executable, "-P", "-c", HEAD + script, str(model), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(params=["bound", "open"])
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "m.onnx"
    if request.param == "open":
        return write_branched_model(path, 3, batch="n")
    return Path(write_model(path))


def test_a_copy_makes_what_the_compiler_makes(model: Path) -> None:
    assert run("opened(); print(*ways)", model, FLEXNN_LATER="0")[-1] == "copy"
    (made,) = (model.parent / "cache" / "flexnn" / "artifacts").glob("*.flexnn")
    wanted = flexnn.compile(model, model.parent / "wanted.flexnn")
    assert made.read_bytes() == Path(wanted).read_bytes()


FALLBACKS = {
    "another thread": ("threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", "new"),
    "much memory": ("forking.RESIDENT_MAX = 1 << 20", "new"),
    "other threads": ("sys.modules['gevent'] = os", "new"),
    "asked for": ("os.environ[forking.FORK] = '0'", "new"),
    "a pool of threads": ("forking._libraries = lambda: {'/usr/lib/libgomp.so.1'}", "new"),
    "no process": ("def none(): raise BlockingIOError(11, 'none')\nos.fork = none", "new"),
    "an exception": ("import flexnn.maker as m\nm.main = lambda asked: 1 / 0", "copy new"),
    "a signal": ("import flexnn.maker as m\nm.main = lambda asked: os.kill(os.getpid(), 9)", "copy new"),
    "a defect": ("import flexnn.keeping as k\ndef keep(*a): raise RuntimeError('odd')\nk.keep = keep", "copy new"),
    "no memory": ("import flexnn.keeping as k\ndef keep(*a): raise MemoryError\nk.keep = keep", "copy new"),
    "nothing said": ("import flexnn.maker as m\nm.main = lambda asked: 0", "copy new"),
}
"""Programs of which no copy is made, or whose copies fail, and the processes that make the artifact."""


@pytest.mark.parametrize("why", FALLBACKS)
def test_a_new_process_makes_what_no_copy_does(tmp_path: Path, why: str) -> None:
    before, ways = FALLBACKS[why]
    path = Path(write_model(tmp_path / "m.onnx"))
    assert run(f"{before}\nopened(); print(*ways)", path)[-1] == ways


def test_what_is_wrong_with_a_model_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\0" * 99)
    said = run("try: opened()\nexcept flexnn.CompileError as error: print(error, *ways)", path)[-1]
    assert "not an ONNX model" in said
    assert said.split()[-1] == "copy"


HELD = """
def noted_by(what):
    def note(*given):
        if os.getpid() != own:
            os.write(log, what)
    return note
own = os.getpid()
for number in (signal.SIGTERM, signal.SIGCHLD):  # the second comes when the process ends that reads the model
    signal.signal(number, noted_by(b"handled\\n"))
class Ends:
    def __del__(self):
        os.write(log, b"ended %d\\n" % (os.getpid() == own))
log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
cycle = [Ends()]
cycle.append(cycle)
del cycle
file = open(sys.argv[2], "a")
file.write("pending\\n")
out, sys.stdout = sys.stdout, open(sys.argv[2], "a")
print("printed")
import atexit, warnings
atexit.register(lambda: os.write(log, b"exit\\n"))
warnings.simplefilter("error")
np.seterr(all="raise")
sys.settrace(noted_by(b"traced\\n"))
opened()
sys.settrace(None)
del file
sys.stdout, _ = out, sys.stdout.close()
print(*ways)
"""


def test_what_the_program_has_open_stays_its_own(model: Path) -> None:
    log = model.parent / "log"
    said = run(HELD, model, str(log), FLEXNN_LATER="0")
    assert said[-1].startswith("copy")
    assert "new" not in said[-1]
    assert sorted(log.read_text().split()) == ["1", "ended", "exit", "pending", "printed"]


BLAS = """
import ctypes
def threads():
    libraries = [ctypes.CDLL(path) for path in forking._libraries() if "openblas" in path]
    asked = [name.replace("set", "get") for name in forking._SINGLE]
    return [getattr(library, name)() for library in libraries for name in asked if hasattr(library, name)]
def work():
    print(*threads(), flush=True)
    return int(not np.allclose(np.ones((500, 500)) @ np.ones((500, 500)), 500))
before = threads()
status, said = kept_artifacts._said(lambda writes: forking.copied(work, writes, None), None)
print(status, said.split() == [b"1"] * len(before), before == threads())
"""


def test_products_take_one_thread(tmp_path: Path) -> None:
    """OpenBLAS's others waited for work on CPUs that the process beside and the session wanted."""
    assert run(BLAS, tmp_path / "m.onnx") == ["0 True True"]


THREADS = """
np.ones((500, 500)) @ np.ones((500, 500))
def work():
    print(len(os.listdir("/proc/self/task")), flush=True)
    return 0
print(*kept_artifacts._said(lambda writes: forking.copied(work, writes, None), None))
"""


def test_no_thread_begins_in_a_copy(tmp_path: Path) -> None:
    """OpenBLAS was told to take one thread by a function that first began all others again: they looked for work for
    30 ms, on a CPU that the process beside wanted.
    """
    assert run(THREADS, tmp_path / "m.onnx") == ["0 b'1\\n'"]


PIPE = """
reads, writes = os.pipe()
seen = []
def heard(kind):
    os.close(writes)
    seen.append(os.read(reads, 1))
with kept_artifacts.compiled(model, {}, heard=heard):
    print(seen, *ways)
"""


def test_a_copy_holds_no_descriptors_of_the_program(model: Path) -> None:
    """Who reads from a pipe would wait for its end until the copy ends."""
    assert run(PIPE, model)[-1].split()[:2] == ["[b'']", "copy"]


INTERRUPTED = """
def heard(kind):
    signal.raise_signal(signal.SIGINT)
try:
    with kept_artifacts.compiled(model, {}, heard=heard):
        pass
except KeyboardInterrupt:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("ended", *ways)
opened()
"""


def test_a_copy_ends_with_an_interrupt(model: Path) -> None:
    assert run(INTERRUPTED, model)[0] == "ended copy"
