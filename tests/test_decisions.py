"""Decisions are short, have one form, and are all in the index."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("0*.md"))
LINES_MAX, WIDTH_MAX = 40, 120
FORM = r"# {number}\. .+\n\nStatus: .+\n\nDate: \d{{4}}-\d\d-\d\d\n\n"
SECTIONS = ["Context", "Decision", "Rejected", "Measured by"]


def test_records_have_one_form() -> None:
    assert len(RECORDS) > 30
    for path in RECORDS:
        text = path.read_text()
        assert re.match(FORM.format(number=path.name[:4]), text), path.name
        assert re.findall(r"^## (.+)$", text, re.M) == SECTIONS, path.name
        lines = text.splitlines()
        assert len(lines) <= LINES_MAX, f"{path.name} has {len(lines)} lines"
        assert max(map(len, lines)) <= WIDTH_MAX, f"{path.name} has a line of {max(map(len, lines))} columns"


def test_the_index_lists_every_record_by_its_title() -> None:
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| ([^|]+) \|", (FOLDER / "README.md").read_text(), re.M)
    titles = [(path.name[:4], path.name, path.read_text().splitlines()[0][8:]) for path in RECORDS]
    assert rows == titles
