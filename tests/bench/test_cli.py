"""The benches' commands: at most ten, one manner, and all of them listed in the documentation."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from bench import ROOT, cli
from bench.summary import geometric_mean, median, quantile

FOLDER = ROOT / "bench"
SINGLE = {path.stem for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text()}
PACKAGES = {path.parent.name for path in FOLDER.glob("*/__main__.py")}
PARTS = sorted(
    f"bench.{path.relative_to(FOLDER).with_suffix('').as_posix().replace('/', '.')}"
    for path in FOLDER.rglob("*.py")
    if re.search(r"^def main\(arguments: ", path.read_text(), re.M)
)


def test_there_are_ten_commands() -> None:
    assert len(SINGLE | PACKAGES) <= 10


def test_the_documentation_names_every_command() -> None:
    text = (ROOT / "docs" / "models.md").read_text()
    assert set(re.findall(r"python -m bench\.(\w+)", text)) == SINGLE | PACKAGES


@pytest.mark.parametrize("name", PARTS)
def test_every_part_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(name)
    with pytest.raises(SystemExit) as end:
        module.main(["--help"])
    assert end.value.code == 0
    usage = re.sub(r"\s+", " ", capsys.readouterr().out)
    prog = name.removeprefix("bench.").replace(".", " ")
    known = {"peers compare": "peers", "kernels single": "kernels", "field trained": "field"}
    assert usage.startswith(f"usage: python -m bench.{known.get(prog, prog)} ")
    if "--json" in usage:
        assert "--json PATH" in usage


@pytest.mark.parametrize(
    ("arguments", "default", "status", "ran"),
    [
        (["a", "x"], None, 0, ["a", "x"]),
        (["b"], "a", 0, ["b"]),
        (["x"], "a", 0, ["a", "x"]),
        ([], "a", 0, ["a"]),
        (["--help"], "a", 0, None),
        ([], None, 2, None),
        (["c"], None, 2, None),
    ],
)
def test_a_command_runs_the_part_that_is_named(
    arguments: list[str],
    default: str | None,
    status: int,
    ran: list[str] | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found: list[list[str]] = []
    for part in "ab":
        module = type(cli)(f"part_{part}")
        module.main = lambda rest, part=part: found.append([part, *rest])  # type: ignore[attr-defined]
        monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    assert cli.dispatch("bench.x", "About.", {"a": "part_a", "b": "part_b"}, default) == status
    assert found == ([ran] if ran else [])
    assert ("usage: python -m bench.x {a,b}" in capsys.readouterr().out) == (ran is None)


def test_rows_go_where_json_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.write_json(None, [1])
    cli.write_json("-", [{"name": "é"}])
    cli.write_json(str(tmp_path / "rows.json"), [2])
    assert json.loads(capsys.readouterr().out) == [{"name": "é"}]
    assert json.loads((tmp_path / "rows.json").read_text()) == [2]
    assert cli.tables("-").stderr
    assert not cli.tables(None).stderr


def test_numbers_that_stand_for_many() -> None:
    np = pytest.importorskip("numpy")
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    assert median(values) == np.median(values)
    for share in (0.0, 0.25, 0.95, 1.0):
        assert quantile(values, share) == pytest.approx(np.percentile(values, 100 * share))
    assert quantile([7.0], 0.95) == 7.0
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
