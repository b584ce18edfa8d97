"""Judges counted branches: of the engine's C (gcov's data) and of the artifact's reader (coverage.py's JSON).

    branches.py BUILD_DIR READER.json [--list]

A branch is one side of a condition, as gcc makes them without optimisation, or a jump in Python. One of a header counts
once, whichever file includes it. branches_left.txt names each branch that need not be taken, with its reason. Exit 1 if
less is taken than LEAST says, or if a branch is not taken that the file does not name. --list: says which are named and
taken, too.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LEFT = ROOT / ".ci/branches_left.txt"
LEAST = {"engine": 95.0, "loader": 98.0, "reader": 98.0}
"""Percent of branches that tests take."""
LOADER = ("engine/loader.c", "engine/read.c")
Place = tuple[str, str, str]
"""A file, a function, and the text of a line in it: line numbers would change too often."""


class Counted:
    """Branches by file, function and line: how often each was taken."""

    def __init__(self) -> None:
        self.taken: dict[tuple[str, str, int], list[int]] = {}
        self._texts: dict[str, list[str]] = {}

    def add(self, file: str, function: str, line: int, counts: list[int]) -> None:
        """Add how often each branch of a line was taken."""
        known = self.taken.setdefault((file, function, line), [])
        known.extend([0] * (len(counts) - len(known)))
        for i, count in enumerate(counts):
            known[i] += count

    def text(self, file: str, line: int) -> str:
        """Return a line of a file."""
        lines = self._texts.setdefault(file, (ROOT / file).read_text(encoding="utf-8").splitlines())
        return lines[line - 1].strip()

    def missed(self) -> dict[Place, tuple[int, int, int]]:
        """Return the line, the number of branches that were not taken, and that of all, by place."""
        found: dict[Place, tuple[int, int, int]] = {}
        for (file, function, line), counts in sorted(self.taken.items()):
            if not all(counts):
                place = file, function, self.text(file, line)
                _, missed, every = found.get(place, (line, 0, 0))
                found[place] = line, missed + sum(not count for count in counts), every + len(counts)
        return found


def engine_branches(build: Path) -> Counted:
    """Read what gcov knows of the engine, of all programs that were built in a folder."""
    counted = Counted()
    data = [str(path) for path in sorted(build.resolve().rglob("*.gcda")) if "flexnn_engine.dir" in str(path)]
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(data):  # each in a folder of its own: files of one name would be written over
            apart = Path(folder) / str(number)
            apart.mkdir()
            command = ["gcov", "--json-format", "--branch-probabilities", path]
            subprocess.run(command, cwd=apart, check=True, stdout=subprocess.DEVNULL)
            for made in apart.glob("*.gcov.json.gz"):
                take(counted, json.loads(gzip.decompress(made.read_bytes())))
    return counted


def take(counted: Counted, told: dict[str, Any]) -> None:
    """Add one file of gcov's."""
    for file in told["files"]:
        path = Path(told["current_working_directory"], file["file"]).resolve()
        if not path.is_relative_to(ROOT / "engine"):
            continue
        for line in file["lines"]:
            if line["branches"] and "function_name" in line:
                counts = [branch["count"] for branch in line["branches"]]
                counted.add(str(path.relative_to(ROOT)), line["function_name"], line["line_number"], counts)


def reader_branches(report: Path) -> Counted:
    """Read what coverage.py found."""
    counted = Counted()
    for name, file in json.loads(report.read_text(encoding="utf-8"))["files"].items():
        path = "flexnn" + name.rpartition("/flexnn")[2]
        if not path.startswith("flexnn/artifact/"):
            continue
        for function, region in file["functions"].items():
            for arcs, count in ((region["executed_branches"], 1), (region["missing_branches"], 0)):
                lines: dict[int, list[int]] = collections.defaultdict(list)
                for start, _ in arcs:
                    lines[abs(start)].append(count)
                for line, counts in lines.items():
                    key = path, function or "(file)", line
                    counted.taken.setdefault(key, []).extend(counts)
    return counted


def left() -> dict[Place, tuple[int, str]]:
    """Return how many branches of each place need not be taken, and why."""
    found: dict[Place, tuple[int, str]] = {}
    reason = ""
    for text in LEFT.read_text(encoding="utf-8").splitlines():
        if text.startswith("# "):
            reason = text[2:]
        elif text:
            match = re.fullmatch(r"(\S+) (\S+) (\d+): (.*)", text)
            if match is None:
                sys.exit(f"{LEFT.name}: not FILE FUNCTION NUMBER: LINE: {text}")
            file, function, number, line = match.groups()
            found[file, function, line] = int(number), reason
    return found


def judge(counted: Counted, rooms: dict[str, tuple[str, ...]], *, tells_all: bool) -> bool:
    """Print percentages and what is missing; return whether that is good."""
    good = True
    for room, files in rooms.items():
        counts = [count for (file, *_), taken in counted.taken.items() if file.startswith(files) for count in taken]
        percent = 100 * sum(count > 0 for count in counts) / max(len(counts), 1)
        is_enough = percent >= LEAST[room]
        good &= is_enough
        print(f"{room}: {percent:.2f} % of {len(counts)} branches{'' if is_enough else f', not {LEAST[room]} %'}")
    named, missed = left(), counted.missed()
    for place, (line, count, every) in missed.items():
        allowed = named.get(place, (0, ""))[0]
        if count > allowed or tells_all:
            print(f"{place[0]}:{line}: {place[1]}: {count} of {every}, {allowed} named: {place[2]}")
        good &= count <= allowed
    for place, (count, _) in named.items():
        if tells_all and place not in missed and place[0].startswith(tuple(sum(rooms.values(), ()))):
            print(f"named and taken: {' '.join(place[:2])} {count}: {place[2]}")
    return good


def main() -> int:
    """Judge what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="folder of the builds that count")
    parser.add_argument("reader", type=Path, nargs="?", help="coverage.py's JSON")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    good = judge(engine_branches(options.build), {"engine": ("engine/",), "loader": LOADER}, tells_all=options.list)
    if options.reader:
        good &= judge(reader_branches(options.reader), {"reader": ("flexnn/artifact/",)}, tells_all=options.list)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
