"""A process that has made an artifact stays, and makes those of a program's further models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flexnn
from flexnn import staying
from tests.support.hangs import HANG_SECONDS
from tests.support.sessions import write_branched_model, write_model

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import flexnn
from flexnn import forking, keeping, kept_artifacts, maker, staying
folder = sys.argv[1]
ways, spawned, fork, keep = [], kept_artifacts.spawned, os.fork, keeping.keep
own = os.getpid()
def noted(*given, **options):
    ways.append("new")
    return spawned(*given, **options)
def forked():
    if os.getpid() == own:
        ways.append("copy")
    return fork()
kept_artifacts.spawned, os.fork = noted, forked
def opened(name):
    with flexnn.Session(name, threads=1, profile="analytic") as session:
        return session.get_outputs()
def log(text):
    with open(f"{folder}/log", "a") as file:
        file.write(f"{text}\\n")
def logged():
    try:
        return open(f"{folder}/log").read().split()
    except FileNotFoundError:
        return []
def wait(condition):
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
def is_gone(process):
    try:
        return open(f"/proc/{process}/stat").read().rpartition(") ")[2][0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # before it is opened, or before it is read
        return True
def second(act):
    def kept(model, *given):
        log(os.getpid())
        if model.endswith("b.onnx"):
            act()
        return keep(model, *given)
    keeping.keep = kept
os.chdir(folder)
staying.SECONDS = 600
"""
"""Notes which processes this one starts; ``second`` has who makes the second model do something before."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate("abc"):
        write_branched_model(tmp_path / f"{name}.onnx", 3 + number, batch="n")
    return tmp_path


def run(script: str, folder: Path, **environment: str) -> list[str]:
    """Return the last line that a program prints, as words."""
    env = {
        **os.environ,
        "FLEXNN_FORK": "1",
        "FLEXNN_LATER": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        **environment,
    }
    command = [sys.executable, "-P", "-c", HEAD + script, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_it_makes_what_the_compiler_makes(tmp_path: Path) -> None:
    for name in "abc":
        write_model(tmp_path / f"{name}.onnx", name)
    assert run("for name in 'abc': opened(name + '.onnx')\nprint(*ways)", tmp_path) == ["copy"]
    made = {path.read_bytes() for path in (tmp_path / "cache/flexnn/artifacts").glob("*.flexnn")}
    wanted = [flexnn.compile(tmp_path / f"{name}.onnx", tmp_path / f"{name}.flexnn") for name in "abc"]
    assert made == {Path(path).read_bytes() for path in wanted}
    assert len(made) == 3


def test_open_shapes_too(folder: Path) -> None:
    assert run("for name in 'abc': opened(name + '.onnx')\nprint(*ways)", folder) == ["copy"]


def test_the_last_copy_stays(folder: Path) -> None:
    """It has imported what its model needs, which the one before has not."""
    script = "second(lambda: None)\nfor name in 'abc': opened(name + '.onnx')\nprint(len(set(logged())), *ways)"
    assert run(script, folder) == ["3", "copy"]


SLOW = """
load = maker._load
goes_on = maker._goes_on
def slow():
    time.sleep(0.5)
    log("loaded")
    load()
def on():
    went = goes_on()
    if went:
        log("went")
    return went
maker._load, maker._goes_on = slow, on
opened("a.onnx")
wait(lambda: len(logged()) > 1)
print(*logged())
"""


def test_it_is_copied_when_its_imports_are_done(tmp_path: Path) -> None:
    """A copy waited for ever for a module that another thread of the process had been importing: so did the program."""
    write_model(tmp_path / "a.onnx", "a")
    assert run(SLOW, tmp_path) == ["loaded", "went"]


ELSEWHERE = """
opened("a.onnx")
os.mkdir("inner")
os.rename("b.onnx", "inner/b.onnx")
os.chdir("inner")
os.environ["XDG_CACHE_HOME"] = folder + "/other"
opened("b.onnx")
print(*ways, *os.listdir(folder + "/other/flexnn"))
"""


def test_it_follows_folder_and_environment(folder: Path) -> None:
    assert sorted(run(ELSEWHERE, folder)) == ["artifacts", "copy"]


ANEW = {
    "off": ("os.environ['FLEXNN_LATER'] = '0'", "copy copy"),
    "no copies": ("os.environ['FLEXNN_FORK'] = '0'", "copy new"),
    "another user": ("staying.who = lambda: [-1]", "copy copy"),
    "much memory": ("", "copy copy"),
    "another call": ("staying._staying.lock.acquire()", "copy copy"),
    "full": ("real = os.write\ndef write(fd, b): raise OSError(28, 'full')\nos.write = write", "copy copy"),
}
"""Acts of a program between two models, and the processes that make these."""


@pytest.mark.parametrize("why", ANEW)
def test_another_process_begins(folder: Path, why: str) -> None:
    between, ways = ANEW[why]
    before = "maker.RESIDENT_MAX = 1" if why == "much memory" else ""
    assert run(f"{before}\nopened('a.onnx')\n{between}\nopened('b.onnx')\nprint(*ways)", folder) == ways.split()


def test_it_does_not_stay_for_long(folder: Path) -> None:
    script = """
staying.SECONDS = 0.05
stay = staying.stay
def noted(*given):
    log(os.getpid())
    stay(*given)
staying.stay = noted
opened("a.onnx")
wait(logged)
wait(lambda: all(is_gone(int(process)) for process in logged()))
opened("b.onnx")
print(*ways)
"""
    assert run(script, folder) == ["copy", "copy"]


def test_it_ends_with_the_program(folder: Path) -> None:
    script = """
stay = staying.stay
def noted(*given):
    log(os.getpid())
    stay(*given)
staying.stay, staying.SECONDS = noted, 600
opened("a.onnx")
wait(logged)
"""
    run(script, folder)
    run("wait(lambda: is_gone(int(logged()[0])))", folder)


FAILS = {
    "a signal": "lambda: os.kill(os.getpid(), 9)",
    "an exception": "lambda: 1 / 0",
    "an end": "lambda: os._exit(7)",
    "silence": "lambda: os._exit(0)",
}


@pytest.mark.parametrize("why", FAILS)
def test_what_fails_is_done_again(folder: Path, why: str) -> None:
    script = f"second({FAILS[why]})\nopened('a.onnx')\nopened('b.onnx')\nopened('c.onnx')\nprint(*ways)"
    assert run(script, folder)[:3] == ["copy", "copy", "new"]


def test_what_is_wrong_with_a_model_is_said_once(folder: Path) -> None:
    (folder / "b.onnx").write_bytes(b"\0" * 99)
    script = """
opened("a.onnx")
try:
    opened("b.onnx")
except flexnn.CompileError as error:
    print("ONNX" in str(error))
opened("c.onnx")
print(*ways)
"""
    assert run(script, folder) == ["True", "copy"]


def test_an_interrupt_ends_it(folder: Path) -> None:
    script = """
second(lambda: (print("bound", flush=True), time.sleep(600)))
opened("a.onnx")
def heard(kind):
    signal.raise_signal(signal.SIGINT)
try:
    with kept_artifacts.compiled("b.onnx", {}, heard=heard):
        pass
except KeyboardInterrupt:
    wait(lambda: is_gone(int(logged()[-1])))
    keeping.keep = keep
    opened("b.onnx")
    print(*ways)
"""
    assert run(script, folder) == ["copy", "copy"]


def test_a_fork_of_the_program_begins_its_own(folder: Path) -> None:
    script = """
opened("a.onnx")
child = fork()
if not child:
    own = os.getpid()
    ways.clear()
    opened("b.onnx")
    print(*ways, flush=True)
    os._exit(0)
os.waitpid(child, 0)
opened("c.onnx")
print(*ways)
"""
    assert run(script, folder) == ["copy", "copy"]


def test_a_program_with_threads_asks_it_too(folder: Path) -> None:
    """No copy can be made of it any more."""
    script = """
opened("a.onnx")
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
opened("b.onnx")
print(*ways)
"""
    assert run(script, folder) == ["copy"]


def test_a_new_process_stays_too(folder: Path) -> None:
    script = """
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
for name in "abc":
    opened(name + ".onnx")
print(*ways)
"""
    assert run(script, folder) == ["new"]


@pytest.mark.parametrize("most", [256 << 20, 1])
def test_who_completes_an_artifact_is_not_asked(folder: Path, most: int) -> None:
    """The next call would wait for its end."""
    script = f"""
maker.RESIDENT_MAX = {most}
def pipes(seconds):
    found = [os.path.realpath(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd")]
    log(sum("pipe:" in path for path in found))
maker.time = type(sys)("time")
maker.time.sleep = pipes
opened("a.onnx")
wait(logged)
print(*logged())
"""
    assert run(script, folder) == ["0"]


def test_descriptors_are_given_back(folder: Path) -> None:
    script = """
def open_files():
    return len(os.listdir("/proc/self/fd"))
opened("a.onnx")
before = open_files()
staying.who = lambda: [-1]
for name in "bc":
    opened(name + ".onnx")
print(open_files() - before, *ways)
"""
    assert run(script, folder) == ["0", "copy", "copy"]


def test_who_asks_first_says_so() -> None:
    assert staying.ask({}, None) == ""
