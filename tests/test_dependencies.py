"""numpy alone opens and runs artifacts; compiling names the extra that it needs; rich is a nicety."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from flexnn.artifact.format import VERSION
from tests.support.sessions import write_model

GOLDEN = Path(__file__).resolve().parent / "data" / "artifacts"
ARTIFACTS = [GOLDEN / f"{kind}-{VERSION}.flexnn" for kind in ("graph", "model")]
COMPILING = "compiling needs the onnx package: pip install 'flexnn[compile]'"


def without(folder: Path, *packages: str) -> dict[str, str]:
    """An environment in which these packages are not installed, as far as imports can tell."""
    shadow = folder / "without"
    shadow.mkdir()
    for name in packages:
        missing = f"raise ModuleNotFoundError('No module named {name}', name={name!r})\n"
        (shadow / f"{name}.py").write_text(missing)
    path = os.pathsep.join(filter(None, [str(shadow), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache")}


def python(*arguments: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    env = without(tmp_path, "onnx", "rich", "google")
    for name in ("onnx", "rich"):
        assert f"No module named {name}" in python("-c", f"import {name}", env=env).stderr
    return env


def test_the_package_requires_numpy_only() -> None:
    required = [line for line in metadata.requires("flexnn") or [] if "extra ==" not in line]
    assert [re.split(r"\W", line)[0] for line in required] == ["numpy"]
    assert any(re.match(r"onnx\b.*extra == ['\"]compile['\"]", line) for line in metadata.requires("flexnn") or [])


def test_the_version_is_that_of_the_package() -> None:
    import flexnn

    assert metadata.version("flexnn") == flexnn.__version__


@pytest.mark.parametrize("artifact", ARTIFACTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("command", [("run", "--repeat", "1"), ("plan",), ("doctor",)], ids=lambda c: c[0])
def test_artifacts_need_neither_onnx_nor_rich(bare: dict[str, str], artifact: Path, command: tuple[str, ...]) -> None:
    name, *options = command
    if artifact.stem.startswith("model") and name != "doctor":
        options.append("--shape=ids=3")
    done = python("-m", "flexnn", name, artifact, *options, env=bare)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", [("compile",), ("compile", "--dump", "bound"), ("run",), ("plan",)])
def test_an_onnx_file_names_the_extra(bare: dict[str, str], tmp_path: Path, command: tuple[str, ...]) -> None:
    done = python("-m", "flexnn", *command, write_model(tmp_path / "m.onnx"), env=bare)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {COMPILING}\n")


@pytest.mark.parametrize("call", ["flexnn.compile(path)", "flexnn.Session(path)"])
def test_the_api_names_the_extra(bare: dict[str, str], tmp_path: Path, call: str) -> None:
    path = str(write_model(tmp_path / "m.onnx"))
    code = f"import flexnn\npath = {path!r}\ntry: {call}\nexcept flexnn.CompileError as error: print(error)"
    assert python("-c", code, env=bare).stdout == f"{COMPILING}\n"


def test_the_backend_names_the_extra(bare: dict[str, str]) -> None:
    done = python("-c", "import flexnn.backend", env=bare)
    said = "ModuleNotFoundError: flexnn.backend needs the onnx package: pip install 'flexnn[compile]'"
    assert done.stderr.splitlines()[-1] == said


@pytest.mark.parametrize("lacking", ["rich", "nothing"])
def test_progress_is_shown_to_a_terminal(tmp_path: Path, lacking: str) -> None:
    path = write_model(tmp_path / "m.onnx")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "flexnn", "compile", str(path)]
    done = subprocess.run(command, env=without(tmp_path, lacking), stdout=subprocess.PIPE, stderr=theirs, check=False)
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 4096)
        except OSError:  # the terminal is gone
            break
    os.close(ours)
    assert done.returncode == 0, said
    assert done.stdout.startswith(str(path.with_suffix(".flexnn")).encode())
    if lacking == "rich":
        lines = said.decode().splitlines()
        assert lines
        assert all(re.fullmatch(r"(reading the model|packing weights): \S+ of \S+", line) for line in lines), lines
        assert lines[0].startswith("reading")
        assert lines[-1].startswith("packing")
