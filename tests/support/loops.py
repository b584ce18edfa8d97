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
FRAME = re.compile(r"^(?:mov|add) x29, sp\b")


@dataclass(frozen=True, slots=True)
class Loop:
    """``code``: instructions from the label to the branch back, no other loop inside; ``has_frame``: x29 is the
    function's frame pointer there, not a register like the others."""

    function: str
    code: tuple[str, ...]
    has_frame: bool

    @property
    def fmla(self) -> int:
        return sum(1 for line in self.code if FMLA.match(line))

    @property
    def stack_accesses(self) -> int:
        """Loads and stores beside the stack pointer: spilt registers, and arrays that found no room in any."""
        return len(self._at_stack())

    @property
    def spilt_vectors(self) -> int:
        """Those that move vectors; a pointer that is fetched from the stack costs little."""
        return sum(1 for line in self._at_stack() if re.match(r"^\w+ [vqd]\d", line))

    def _at_stack(self) -> list[str]:
        at_stack = re.compile(r"\[sp\b|\bx29\b" if self.has_frame else r"\[sp\b")
        return [line for line in self.code if at_stack.search(line)]


def innermost_loops(assembly: str) -> list[Loop]:
    """The innermost loops of gcc's or clang's output (``-S``), in order."""
    loops = []
    function, code, labels, has_frame = "", list[str](), dict[str, int](), False
    innermost_from = 0  # where the last loop ended: one that starts before it has that loop inside
    for raw in assembly.splitlines():
        line = re.sub(r"\s+", " ", raw.split("//")[0]).strip()
        if label := LABEL.match(line):
            if not label[1].startswith("."):
                function, code, labels, innermost_from, has_frame = label[1], [], {}, 0, False
            labels[label[1]] = len(code)
        elif line and not line.startswith((".", "#")):
            code.append(line)
            has_frame = has_frame or bool(FRAME.match(line))
            start = labels.get(line.split()[-1]) if BRANCH.match(line) else None
            if start is not None and start >= innermost_from:
                loops.append(Loop(function, tuple(code[start:]), has_frame))
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


IN_ORDER_VECTOR = re.compile(r"^(?:fmla|fmul|fadd|ins|mov|dup|movi) v")
LOAD = re.compile(r"^ld")
WIDE_LOAD = re.compile(r"^(?:ldr|ldp|ld1|ldur|ld1r) (?:\{? ?v|q)|^ldp ")


def starts_in_order(code: tuple[str, ...]) -> list[int]:
    """The cycle in which a Cortex-A53 starts each instruction, and that in which it is through: llvm-mca does not judge
    such cores, so this counts.

    Two neighbours start together unless both are vector arithmetic (ins and copies included) or both are loads; loads
    of 128 bits take two cycles, with nothing beside them. Operands are taken to have arrived: ``waits`` tells.
    """
    starts, cycle = list[int](), 0
    while len(starts) < len(code):
        here, *after = code[len(starts) : len(starts) + 2]
        starts.append(cycle)
        if WIDE_LOAD.match(here):
            cycle += 4 if here.startswith("ldp q") else 2
            continue
        cycle += 1
        clash = any(kind.match(here) and kind.match(after[0]) for kind in (IN_ORDER_VECTOR, LOAD)) if after else True
        if not clash and not WIDE_LOAD.match(after[0]):
            starts.append(cycle - 1)
    return [*starts, cycle]


def cycles_in_order(loop: Loop) -> int:
    """Cycles that one pass takes a Cortex-A53 at least."""
    return starts_in_order(loop.code)[-1]


def waits(loop: Loop) -> tuple[int, int]:
    """Fewest cycles from a load of half a vector (ldr d, ldr x) to the ins that joins it to the other half, and from
    there to the multiply-add that reads it."""
    code = loop.code * 2
    starts = starts_in_order(code)
    loaded, joined = list[int](), list[int]()
    for at in range(len(loop.code), len(code)):
        if (ins := re.match(r"^(?:ins|mov) v(\d+)\.d\[1\], (x\d+)", code[at])) is not None:
            halves = re.compile(rf"^ldr (?:d{ins[1]}|{ins[2]}),")
            last = max(n for n in range(at) if halves.match(code[n]))
            loaded.append(starts[at] - starts[last])
        read = re.match(r"^fmla v\d+\.4s, v(\d+)\.4s, v(\d+)\.s", code[at])
        for name in read.groups() if read else ():
            made = [n for n in range(at) if code[n].startswith((f"ins v{name}.d[1]", f"mov v{name}.d[1]"))]
            if made:
                joined.append(starts[at] - starts[made[-1]])
    return min(loaded), min(joined)
