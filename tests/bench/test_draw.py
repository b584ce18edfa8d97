"""Every table of docs/measurements can be drawn, and is listed with its command; a table that cannot be is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.draw import MEASUREMENTS, draw, main, read_table

TABLES = sorted(MEASUREMENTS.glob("*.csv"))


def test_every_table_is_listed_and_used() -> None:
    listed = set(re.findall(r"\]\((\S+\.csv)\)", (MEASUREMENTS / "README.md").read_text()))
    records = "".join(path.read_text() for path in (MEASUREMENTS.parent / "decisions").glob("*.md"))
    used = set(re.findall(r"measurements/(\S+\.csv)\)", records))
    assert listed == used == {path.name for path in TABLES}


def test_every_table_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for path in TABLES:
        draw(read_table(path), path.stem).savefig(tmp_path / f"{path.stem}.svg")
        assert (tmp_path / f"{path.stem}.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs a row"),
        ("model,time_ms\n", "needs a row"),
        ("model,time\na,1\n", "ends in one of"),
        ("model,time_ms\na,fast\n", r"t\.csv:2: time_ms is 'fast'"),
        ("model,time_ms\na,1\nb,1,2\n", r"t\.csv:3: 3 cells, 2 columns"),
    ],
)
def test_a_malformed_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "t.csv")


def test_a_name_that_no_table_has_is_one_line() -> None:
    with pytest.raises(SystemExit, match=r"^error: no table 'nothing' in .*measurements"):
        main(["nothing"])
