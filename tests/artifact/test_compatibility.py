"""Artifacts of every released format open and run, or are refused by the line that says what to do."""

from __future__ import annotations

import copy
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn._core import crc32c
from flexnn.artifact import open_artifact
from flexnn.artifact.format import HEADER_BYTES, VERSION
from tests.artifact import schema

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "artifacts"
FILES = sorted(GOLDEN.glob("*.flexnn"))
PINNED = json.loads((GOLDEN / "schema.json").read_text())
MAKE = f"python -P tests/artifact/golden.py {GOLDEN.name}"


def version_of(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def opens(path: Path) -> bool:
    """Whether the file is of today's version; asserts that it is refused by the right line otherwise."""
    if version_of(path) == VERSION:
        return True
    line = (
        f"{path}: format version {version_of(path)}, this FlexNN reads version {VERSION}: compile it again: "
        f"flexnn compile MODEL.onnx -o {path}"
    )
    with pytest.raises(flexnn.ArtifactError) as refused:
        flexnn.Session(path)
    assert str(refused.value) == line
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_golden_artifacts_run_or_are_refused(path: Path) -> None:
    if not opens(path):
        return
    with np.load(path.with_suffix(".npz")) as stored:
        arrays = dict(stored)
    feed = {name.removeprefix("input "): v for name, v in arrays.items() if name.startswith("input ")}
    with flexnn.Session(path, threads=2) as session:
        names = [port.name for port in session.get_outputs()]
        outputs = dict(zip(names, session.run(None, feed), strict=True))
    assert {f"output {name}" for name in outputs} == arrays.keys() - {f"input {name}" for name in feed}
    for name, got in outputs.items():
        want = arrays[f"output {name}"]
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=name)


def test_there_is_a_golden_artifact_of_each_kind_and_version() -> None:
    names = {path.name for path in FILES}
    released = {"graph-1.flexnn", "model-2.flexnn"}  # before kinds, the version said graph or model
    wanted = released | {f"{kind}-{version}.flexnn" for kind in ("graph", "model") for version in range(3, VERSION + 1)}
    assert names == wanted, f"make those of version {VERSION}: {MAKE}"


def test_the_command_line_refuses_an_older_file_in_one_line() -> None:
    path = GOLDEN / "model-2.flexnn"
    for command in ("run", "plan"):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "flexnn", command, str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert not done.stdout
        assert done.stderr.splitlines() == [
            f"error: {path}: format version 2, this FlexNN reads version {VERSION}: compile it again: "
            f"flexnn compile MODEL.onnx -o {path}"
        ]


def resealed(raw: bytes, offset: int, value: int) -> bytes:
    """The file with another number in its header, and the header's checksum right."""
    header = bytearray(raw[: HEADER_BYTES - 4])
    struct.pack_into("<I", header, offset, value)
    return bytes(header) + struct.pack("<I", crc32c(bytes(header))) + raw[HEADER_BYTES:]


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (8, VERSION + 1, rf"format version {VERSION + 1}, .*: a newer FlexNN wrote it: upgrade FlexNN, or compile it"),
        (8, 0, r"format version 0, .* -o '.*/of a user\.flexnn'$"),
        (16, 8, r"panels have 8 channels, this FlexNN computes 16: compile it again: flexnn compile MODEL\.onnx -o "),
        (20, 0, "the header has values that this version does not know"),
        (20, 3, "the header has values that this version does not know"),
        (20, 2, r"the model section must have the parts keys, model, templates, weights"),
        (120, 1, "the header has values that this version does not know"),
    ],
)
def test_headers_of_other_files_say_what_to_do(tmp_path: Path, offset: int, value: int, message: str) -> None:
    path = tmp_path / "of a user.flexnn"
    path.write_bytes(resealed((GOLDEN / f"graph-{VERSION}.flexnn").read_bytes(), offset, value))
    with pytest.raises(flexnn.ArtifactError, match=message) as refused:
        open_artifact(str(path))
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_a_changed_schema_raises_the_version() -> None:
    now = schema.schema()
    changes = schema.broken(PINNED["operators"], now["operators"])
    if PINNED["version"] == VERSION:
        assert not changes, f"raise VERSION in flexnn/artifact/format.py: {'; '.join(changes)}"
    assert (PINNED["version"], PINNED["release"]) == (VERSION, flexnn.__version__), (
        "pin the schema of this version: python -P tests/artifact/schema.py tests/data/artifacts/schema.json"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda o: o["conv"]["attrs"].__setitem__("form", "Int(low=0, high=1)"), ["conv: attribute form is new"]),
        (lambda o: o["conv"]["attrs"].pop("wtype"), ["conv: attribute wtype is gone"]),
        (lambda o: o["unary"]["attrs"]["kind"].remove("tanh"), ["unary: kind tanh is gone"]),
        (lambda o: o["lrn"]["attrs"].__setitem__("size", "Float()"), ["lrn: attribute size was Int(low=1, high="]),
        (lambda o: o["layer_norm"].__setitem__("inputs", [3, 3]), ["layer_norm: took 2 to 3 inputs, takes 3 to 3"]),
        (lambda o: o.pop("pad"), ["pad: is gone"]),
        (lambda o: o["unary"]["attrs"]["kind"].append("celu2"), []),
        (lambda o: o["layer_norm"].__setitem__("inputs", [2, 4]), []),
        (lambda o: o.__setitem__("new", {"attrs": {}, "inputs": [1, 1]}), []),
    ],
)
def test_what_changes_the_schema(change, said) -> None:
    operators = schema.schema()["operators"]
    changed = copy.deepcopy(operators)
    change(changed)
    found = schema.broken(operators, changed)
    assert len(found) == len(said)
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True))
