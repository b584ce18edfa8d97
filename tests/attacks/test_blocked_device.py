"""Attack: the device that holds the weights does not answer for seconds, and the user presses Ctrl-C.

Answer: within 50 ms or so, in a run, in opening, in a change of budget and in compiling; closing the session then does
not wait either. Threads, memory and descriptors are given back when the device answers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import flexnn
from tests.support import faults
from tests.support.sessions import feed, smallest, write_branched_model, write_model


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faults.build(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_model(tmp_path_factory.mktemp("blocked") / "small.onnx")))


@pytest.fixture(scope="module")
def open_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blocked")
    return Path(flexnn.compile(write_branched_model(folder / "open.onnx", 12, batch="n")))


@pytest.mark.alone
@pytest.mark.parametrize("io", ["buffered", "direct"])
@pytest.mark.parametrize("when", ["run", "open", "memory", "run, memory", "drop", "pool"])
def test_ctrl_c(library: Path, artifact: Path, io: str, when: str) -> None:
    """Took 2.8 s, and closing as long, or letting go of what nobody had closed."""
    printed = faults.run(
        library, artifact.parent, "tests.attacks.blocked", artifact, smallest(artifact) + (64 << 10), io, when
    )
    figures = dict(line.split() for line in printed.splitlines())
    assert 0 <= float(figures["interrupt"]) < 0.2
    assert float(figures.get("close", 0)) < 0.2


@pytest.mark.alone
@pytest.mark.parametrize("io", ["buffered", "direct"])
@pytest.mark.parametrize("when", ["run", "open", "memory", "run, memory"])
def test_ctrl_c_with_open_shapes(library: Path, open_artifact: Path, io: str, when: str) -> None:
    """A change of budget took 2.9 s: what it had bound was closed, which waited for the device."""
    with flexnn.Session(open_artifact, threads=2, profile="analytic") as session:
        session.run(None, feed())
        least = session.plan.minimum_memory + (64 << 10)
    printed = faults.run(library, open_artifact.parent, "tests.attacks.blocked", open_artifact, least, io, when)
    figures = dict(line.split() for line in printed.splitlines())
    assert 0 <= float(figures["interrupt"]) < 0.2
    assert float(figures.get("close", 0)) < 0.2


@pytest.mark.alone
def test_ctrl_c_while_compiling(library: Path, tmp_path: Path) -> None:
    """It waited for the disk to have the artifact. Nothing is left of what was compiled."""
    model = write_model(tmp_path / "small.onnx")
    printed = faults.run(library, tmp_path, "tests.attacks.blocked", model, 0, "", "compile")
    assert 0 <= float(printed.split()[1]) < 0.2
