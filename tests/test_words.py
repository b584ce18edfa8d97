"""Words: one meaning each, and sentences that say what they are about (docs/architecture.md, Vocabulary)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("flexnn", "bench", "examples", "tests")
PYTHON = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
C_FILES = sorted(path for folder in ("kernels", "engine", "planner") for path in (ROOT / folder).rglob("*.[ch]"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

NOUNLESS = re.compile(r"(Of|As|As of|What|In which|By which|From which|How many|So many|Into so many|Where|That)\b")
"""Beginnings of a docstring that name nothing."""


def _refuse(found: list[str]) -> None:
    assert not found, "\n" + "\n".join(found)


def banned_words() -> dict[str, str]:
    """Words that the vocabulary refuses, each with the word to use: backticked words of the table's last column."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    vocabulary = page[page.index("## Vocabulary") :]
    vocabulary = vocabulary[: vocabulary.index("\n## ", 4)] if "\n## " in vocabulary[4:] else vocabulary
    banned = {}
    for row in re.findall(r"^\|(.+)\|$", vocabulary, re.M)[2:]:
        cells = [cell.strip() for cell in row.split("|")]
        for word in re.findall(r"`([^`]+)`", cells[-1]):
            banned[word] = cells[0].strip("* ")
    return banned


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of modules, classes, functions and attributes."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for place, statement in enumerate(body):
            value = statement.value if isinstance(statement, ast.Expr) else None
            if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
                continue
            if place == 0 or isinstance(body[place - 1], ast.Assign | ast.AnnAssign):
                yield value.lineno, value.value


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what people read in a file: comments and strings of Python, comments of C, pages as they are."""
    text = path.read_text()
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield token.start[0], token.string
    elif path.suffix in (".c", ".h"):
        for comment in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.S):
            yield text.count("\n", 0, comment.start()) + 1, comment[0]
    else:
        yield from enumerate(text.splitlines(), 1)


def test_docstrings_have_a_noun() -> None:
    found = []
    for path in PYTHON:
        for line, text in docstrings(path):
            if NOUNLESS.match(text.strip()):
                found.append(f"{path.relative_to(ROOT)}:{line} {text.strip().splitlines()[0][:80]}")
    _refuse(found)


def test_banned_words() -> None:
    banned = banned_words()
    assert len(banned) >= 8, "the vocabulary's table was not found"
    pattern = re.compile(rf"(?<![\w`])({'|'.join(map(re.escape, banned))})(?![\w`])", re.I)
    found = []
    for path in [*PYTHON, *C_FILES, *PAGES]:
        if path == Path(__file__).resolve() or "decisions" in path.relative_to(ROOT).parts:
            continue
        for line, text in prose(path):
            for match in pattern.finditer(text):
                found.append(f"{path.relative_to(ROOT)}:{line} {match[0]!r}: say {banned[match[0].lower()]!r}")
    _refuse(found)


def test_the_checks_see_what_they_look_for(tmp_path: Path) -> None:
    """A nounless docstring, an attribute's docstring and a comment are found in a file that has one of each."""
    path = tmp_path / "bad.py"
    path.write_text('x = 1\n"""Of a thing."""\n\n\ndef f():\n    """As of a session."""  # a scratch comment\n')
    assert [line for line, text in docstrings(path) if NOUNLESS.match(text)] == [2, 6]
    assert (6, "# a scratch comment") in list(prose(path))
