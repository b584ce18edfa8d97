"""Attack: a model names a file outside its folder as the place of its weights, directly or through links.

Answer: refused, unless the caller asks for links to be followed; the refusal names the switch. ``./weights.bin`` is no
attack, and nor is a model hub's cache, in which every file is a link.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn.graph.onnx_file import open_external
from tests.graph.test_onnx_file import external, weights

SWITCH = "--follow-links"


def compiles(model: str, **options: bool) -> None:
    x = np.ones((1, 4), np.float32)
    with flexnn.Session(flexnn.compile(model, **options)) as session:
        (port,) = session.get_inputs()
        shape = [dim if isinstance(dim, int) else 1 for dim in port.shape]
        y = session.run(None, {port.name: np.broadcast_to(x, shape)})[0]
    np.testing.assert_allclose(y, np.broadcast_to(np.maximum(x @ weights(4, 4), 0), y.shape), rtol=1e-5)


@pytest.mark.parametrize("location", ["data.bin", "./data.bin", "././data.bin"])
def test_files_beside_the_model(tmp_path: Path, location: str) -> None:
    """Refused: ``./``."""
    compiles(external(tmp_path, location, data=weights(4, 4).tobytes()))


def hub(tmp_path: Path) -> str:
    """A model as a hub's cache holds it: both files are links to files with the names of their digests."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1234"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    model = Path(external(tmp_path, "data.bin", data=weights(4, 4).tobytes()))
    for name, blob in (("model.onnx", "0f0f"), ("data.bin", "1e1e")):
        (model.parent / name).rename(blobs / blob)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    return str(snapshot / "model.onnx")


def test_a_hub_by_an_explicit_switch(tmp_path: Path) -> None:
    model = hub(tmp_path)
    with pytest.raises(flexnn.GraphError, match=SWITCH):
        flexnn.compile(model)
    compiles(model, follow_links=True)


def test_the_switch_of_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "flexnn", "compile", hub(tmp_path), "-o", str(tmp_path / "a.flexnn")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert SWITCH in done.stderr
    subprocess.run([*command, SWITCH], capture_output=True, check=True)


@pytest.mark.parametrize("follow_links", [False, True])
@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", "a\\..\\..\\secret.bin", ""]
)
def test_paths_out_of_the_folder_are_refused_always(tmp_path: Path, location: str, follow_links: bool) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\0" * 64)
    with pytest.raises(flexnn.GraphError, match="below the model's folder"):
        flexnn.compile(external(tmp_path, location), follow_links=follow_links)


def test_devices_and_fifos_are_refused_always(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("fifo", "device"):
        with pytest.raises(flexnn.GraphError, match="regular file"):
            open_external(str(tmp_path), name, "it", follow_links=True)
    with pytest.raises(flexnn.GraphError, match="No such file"):
        open_external(str(tmp_path), "gone", "it", follow_links=True)


def test_three_gib_of_zeros_are_refused_at_once(tmp_path: Path) -> None:
    """Were hashed for 10 s before they were looked at."""
    path = tmp_path / "zeros.onnx"
    path.touch()
    os.truncate(path, 3 << 30)
    before = bytes_read()
    with pytest.raises(flexnn.GraphError, match="malformed"):
        flexnn.compile(path)
    assert bytes_read() - before < 64 << 20


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])
