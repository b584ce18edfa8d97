"""Loops of compiled aarch64 code, and what llvm-mca says of them.

llvm-mca simulates one loop body on a core's scheduling model with every load a hit in L1: what comes out is the limit
that the instructions themselves set. LLVM 19 has no models of Cortex-A72 and -A76 of their own: it takes the A57's for
the one, and the Neoverse N1 is the A76's twin, as the Neoverse V1 is the X1's.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

TOOL = "llvm-mca-19"
ITERATIONS = 200


@dataclass(frozen=True, slots=True)
class Core:
    """``fmla_per_cycle``: four-lane multiply-adds that the real core can start in a cycle."""

    mcpu: str
    fmla_per_cycle: int


CORES = {"A72": Core("cortex-a72", 1), "A76": Core("neoverse-n1", 2), "X1": Core("neoverse-v1", 4)}

LABEL = re.compile(r"^([.\w$]+):")
BRANCH = re.compile(r"^(?:b\.?(?:eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|any|none|first)?|cbn?z|tbn?z)\s")
FMLA = re.compile(r"^fmla\s")
STACK = re.compile(r"\[sp\b|\bx29\b")


@dataclass(frozen=True, slots=True)
class Loop:
    """``code``: instructions from the label to the branch back, no other loop inside."""

    function: str
    code: tuple[str, ...]

    @property
    def fmla(self) -> int:
        return sum(1 for line in self.code if FMLA.match(line))

    @property
    def stack_accesses(self) -> int:
        """Loads and stores beside the stack pointer: spilt registers, and arrays that found no room in any."""
        return sum(1 for line in self.code if STACK.search(line))


def innermost_loops(assembly: str) -> list[Loop]:
    """The innermost loops of gcc's output (``-S``), in order."""
    loops = []
    function, code, labels = "", list[str](), dict[str, int]()
    innermost_from = 0  # where the last loop ended: one that starts before it has that loop inside
    for raw in assembly.splitlines():
        line = re.sub(r"\s+", " ", raw.split("//")[0]).strip()
        if label := LABEL.match(line):
            if not label[1].startswith("."):
                function, code, labels, innermost_from = label[1], [], {}, 0
            labels[label[1]] = len(code)
        elif line and not line.startswith((".", "#")):
            code.append(line)
            start = labels.get(line.split()[-1]) if BRANCH.match(line) else None
            if start is not None and start >= innermost_from:
                loops.append(Loop(function, tuple(code[start:])))
                innermost_from = len(code)
    return loops


def cycles(loop: Loop, core: Core) -> float:
    """Cycles that one pass through the loop takes on ``core``, in the long run."""
    # Where a branch goes is nothing to llvm-mca: it takes the body as repeated.
    source = "\n".join(re.sub(r"[.\w$]+$", ".", line) if BRANCH.match(line) else line for line in loop.code)
    command = [TOOL, "-mtriple=aarch64-linux-gnu", f"-mcpu={core.mcpu}", f"-iterations={ITERATIONS}"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    total = re.search(r"^Total Cycles:\s+(\d+)", done.stdout, re.M)
    assert total, done.stdout + done.stderr
    return int(total[1]) / ITERATIONS


def utilisation(loop: Loop, core: Core) -> float:
    """The loop's multiply-adds per cycle over those that the core can start: 1 is the peak."""
    return loop.fmla / cycles(loop, core) / core.fmla_per_cycle
