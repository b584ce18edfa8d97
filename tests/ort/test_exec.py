"""``flexnn exec``: programs that import onnxruntime run on FlexNN, and so do the processes that they start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.sessions import write_model

APP = """
import sys
from importlib.metadata import version
import onnxruntime
from onnxruntime import InferenceSession
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
import numpy as np

def work(path):
    session = InferenceSession(path)
    feed = {i.name: np.ones(i.shape, np.float32) for i in session.get_inputs()}
    return onnxruntime.get_build_info()[:6], float(session.run(None, feed)[0].sum())

if __name__ == "__main__":
    assert version("onnxruntime") == onnxruntime.__version__
    print(__name__, sys.argv[1:], work(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "m.onnx")
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def launched(folder: Path, *arguments: object, status: int = 0, **env: str) -> tuple[str, str]:
    """Standard output and standard error of ``flexnn exec``."""
    command = [sys.executable, "-P", "-m", "flexnn", "exec", *map(str, arguments)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **env}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def test_a_file_runs_and_the_end_line_says_what_it_took(folder: Path) -> None:
    out, err = launched(folder, "--memory", "64MiB", "--", "app.py", "m.onnx", "--an-option")
    assert re.fullmatch(r"__main__ \['m.onnx', '--an-option'\] \('FlexNN', .*\)\n", out)
    assert "64.00MiB promised to this process, its sessions took at most" in err
    assert re.search(r"m\.onnx: 1 runs in \S+ s, opened in", err)


@pytest.mark.parametrize("kind", ["module", "package", "folder", "archive"])
def test_other_kinds_of_programs(folder: Path, kind: str) -> None:
    inner = folder / "pack"
    inner.mkdir()
    (inner / "__main__.py").write_text(APP)
    (inner / "__init__.py").touch()
    with zipfile.ZipFile(folder / "app.zip", "w") as archive:
        archive.writestr("__main__.py", APP)
    program = {"module": ["-m", "app"], "package": ["-m", "pack"], "folder": ["pack"], "archive": ["app.zip"]}[kind]
    out, _ = launched(folder, *program, "m.onnx", PYTHONPATH=str(folder))
    assert out.startswith("__main__ ['m.onnx'] ('FlexNN'")


def test_other_commands_pass_it_on(folder: Path) -> None:
    (folder / "run.sh").write_text(f"#!/bin/sh\nexec {sys.executable} app.py m.onnx\n")
    (folder / "run.sh").chmod(0o755)
    out, err = launched(folder, "--memory=64MiB", "./run.sh")
    assert "('FlexNN'" in out
    assert "64.00MiB promised" in err


POOL = """
import multiprocessing, os, subprocess, sys
from app import work

if __name__ == "__main__":
    wanted = work("m.onnx")
    for method in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(work, ["m.onnx"]) == [wanted], method
    command = [sys.executable, "-c", "import app; print(app.work('m.onnx'))"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == str(wanted)
    print("all stood in")
"""


def test_worker_processes_stand_in(folder: Path) -> None:
    (folder / "pool.py").write_text(POOL)
    out, _ = launched(folder, "--memory", "64MiB", "pool.py", PYTHONPATH=str(folder))
    assert out == "all stood in\n"


FORKED = """
import os, sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession("m.onnx")
feed = {i.name: np.ones(i.shape, np.float32) for i in session.get_inputs()}
before = session.run(None, feed)[0]
pid = os.fork()
assert np.array_equal(session.run(None, feed)[0], before)
if pid:
    assert os.waitpid(pid, 0)[1] == 0
    print("both ran")
"""


def test_a_session_of_before_a_fork(folder: Path) -> None:
    (folder / "forked.py").write_text(FORKED)
    out, err = launched(folder, "forked.py")
    assert out == "both ran\n"
    assert err.count("flexnn exec: process") == 2


def unsupported(folder: Path) -> None:
    """Replace the model by one that FlexNN does not run, but onnxruntime does."""
    node = helper.make_node("StringNormalizer", ["s"], ["t"])
    info = [helper.make_tensor_value_info(name, TensorProto.STRING, [1]) for name in "st"]
    graph = helper.make_graph([node], "strings", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")


OPENS = """
import onnxruntime, numpy
try:
    session = onnxruntime.InferenceSession("m.onnx")
except Exception:
    print("went on without the model")
else:
    print(session.run(None, {"s": numpy.array(["a"], object)}))
"""


def test_a_refusal_ends_the_program(folder: Path) -> None:
    unsupported(folder)
    (folder / "opens.py").write_text(OPENS)
    out, err = launched(folder, "opens.py", status=2)
    assert out == ""
    assert "--fallback would hand it to onnxruntime" in err
    assert "FlexNN did not run it" in err
    (folder / "threads.py").write_text(
        f"import threading\nthreading.Thread(target=lambda: exec({OPENS!r})).start()\nthreading.Event().wait(600)\n"
    )
    assert launched(folder, "threads.py", status=2)[0] == ""


def test_fallback_hands_it_to_onnxruntime(folder: Path) -> None:
    unsupported(folder)
    (folder / "opens.py").write_text(OPENS)
    out, err = launched(folder, "--fallback", "opens.py")
    assert out.startswith("[array(['a']")
    assert "onnxruntime runs it, OUTSIDE THE BUDGET" in err
    assert "onnxruntime ran it, outside the budget" in err


def test_a_budget_that_is_too_small_names_the_smallest(folder: Path) -> None:
    _, err = launched(folder, "--memory", "1MiB", "app.py", "m.onnx", status=2)
    smallest = re.search(r"\((\d+) bytes\)", err)
    assert smallest
    launched(folder, "--memory", smallest[1], "app.py", "m.onnx")


def test_onnxruntime_need_not_be_installed(folder: Path) -> None:
    packages = folder / "packages"
    packages.mkdir()
    own = Path(sys.prefix) / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    others = [Path(entry) for entry in sys.path if Path(entry).name == "site-packages"]
    for source in (path for entry in (own, *others) for path in entry.iterdir()):
        if not source.name.startswith("onnxruntime") and not (packages / source.name).exists():
            (packages / source.name).symlink_to(source)
    code = f"import sys; sys.path.append({str(packages)!r}); sys.argv[1:1] = ['exec']; "
    code += "from flexnn_exec.entry import main; sys.exit(main())"
    command = [sys.executable, "-P", "-S", "-c", code, "app.py", "m.onnx"]
    environment = {**os.environ, "PYTHONPATH": str(packages), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "('FlexNN'" in done.stdout


def test_modules_of_an_installed_onnxruntime_pass_through(folder: Path) -> None:
    (folder / "app.py").write_text("import onnxruntime.quantization as q\nprint(q.QuantType.QInt8)\n")
    out, _ = launched(folder, "app.py")
    assert out.startswith("QInt8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "PROGRAM is missing"),
        (["--memory"], "needs a size"),
        (["--memory", "lots", "app.py"], "not a size: 'lots'"),
        (["--memory", "9" * 400, "app.py"], "size out of range: "),  # was a traceback in the program
        (["--memory", "0MiB", "app.py"], "size out of range: "),
        (["--nope", "app.py"], "unknown option --nope"),
        (["none.py"], "none.py: no such file or command"),
        (["-m", "no_such_module"], "no module that can be run"),
    ],
)
def test_mistakes(folder: Path, arguments: list[str], message: str) -> None:
    assert message in launched(folder, *arguments, status=2)[1]


def test_help(folder: Path) -> None:
    assert launched(folder, "--help")[0].startswith("usage: flexnn exec")


def test_status_and_tracebacks_are_the_programs(folder: Path) -> None:
    (folder / "ends.py").write_text("import sys\nsys.exit(7)\n")
    launched(folder, "ends.py", status=7)
    (folder / "raises.py").write_text("1 / 0\n")
    assert "ZeroDivisionError" in launched(folder, "raises.py", status=1)[1]


def test_the_launcher_imports_nothing_of_flexnn(folder: Path) -> None:
    listing = "[m for m in sys.modules if m.split('.')[0] in ('flexnn', 'numpy')]"
    (folder / "app.py").write_text(f"import sys\nprint({listing})\n")
    code = "from flexnn_exec.entry import main; main()"
    command = [sys.executable, "-P", "-c", code, "exec", "--memory", "64MiB", "app.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


IMPORTS = """
import sys
import onnxruntime, onnxruntime.capi.onnxruntime_validation
ours = lambda: [m for m in sys.modules if m.split('.')[0] in ('flexnn', 'numpy', 'email')]
print(ours(), hasattr(onnxruntime, '__wrapped__'), onnxruntime.__file__.endswith('__init__.py'), ours())
onnxruntime.get_device = lambda: 'mine'
print(onnxruntime.__version__ > '1', 'InferenceSession' in dir(onnxruntime), onnxruntime.get_device())
from onnxruntime import *
print(InferenceSession is onnxruntime.InferenceSession, hasattr(onnxruntime, 'no_such_name'), 'flexnn' in sys.modules)
"""


def test_flexnn_is_imported_when_a_name_is_asked_for(folder: Path) -> None:
    """Programs that import onnxruntime and do not use it pay neither for FlexNN nor for finding a version."""
    (folder / "app.py").write_text(IMPORTS)
    out, _ = launched(folder, "app.py", FLEXNN_MEMORY="64MiB")
    assert out.splitlines()[1:] == ["True True mine", "True False True"]
    code = "from flexnn_exec.entry import main; main()"
    command = [sys.executable, "-P", "-c", code, "exec", "app.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "[] False True []"


RSS = """
import resource, numpy, onnxruntime
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_clone_beside_the_program_is_not_taken_for_flexnn(folder: Path) -> None:
    """Its folder of that name holds sources, not the compiled core."""
    (folder / "flexnn").mkdir()
    (folder / "flexnn/__init__.py").write_text("raise ImportError('sources')")
    entry = "from flexnn_exec.entry import main; main()"
    command = [sys.executable, "-c", entry, "exec", "--memory", "64MiB", "--", "app.py", "m.onnx"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "('FlexNN', " in done.stdout


def test_the_launcher_adds_little_memory(folder: Path) -> None:
    (folder / "app.py").write_text(RSS)
    (folder / "plain.py").write_text(RSS.replace(", onnxruntime", ""))
    code = "from flexnn_exec.entry import main; main()"
    plain, exec_ = [sys.executable, "-P", "plain.py"], [sys.executable, "-P", "-c", code, "exec", "app.py"]

    def taken(command: list[str]) -> int:
        done = (subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True) for _ in range(3))
        return min(int(one.stdout) for one in done)

    assert taken(exec_) - taken(plain) <= 5000
