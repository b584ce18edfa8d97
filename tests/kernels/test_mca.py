"""The NEON kernels' inner loops, as the build compiles them, on llvm-mca's models of the boards' cores.

What this cannot show: caches and memory, and in-order cores (A53, A55), whose stalls llvm-mca does not model.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from loops import CORES, TOOL, Core, Loop, cycles, innermost_loops, utilisation

ROOT = Path(__file__).resolve().parents[2]
COMPILER = "aarch64-linux-gnu-gcc"
LANES = 4

# Of the multiply-add peak, by rows of the tile. Full tiles are what a layer's time goes to: they are asked for 98 / 96
# / 95 % on A72 / A76 / X1, and reach 99.8 / 99.8 / 99.6 %. A tile of R rows has 4·R sums, and each multiply-add that
# the core starts per cycle needs 4 of them (its latency): fewer rows cannot fill a wider core.
FLOORS = {
    5: {"A72": 0.995, "A76": 0.995, "X1": 0.990},
    4: {"A72": 0.995, "A76": 0.995, "X1": 0.990},
    3: {"A72": 0.995, "A76": 0.990, "X1": 0.740},
    2: {"A72": 0.990, "A76": 0.990, "X1": 0.490},
    1: {"A72": 0.930, "A76": 0.490, "X1": 0.245},
}
AIMS = {"A72": 0.98, "A76": 0.96, "X1": 0.95}
# Channels that are left over after the last four, one at a time.
FLOORS_REST = {"A72": 0.990, "A76": 0.990, "X1": 0.980}
KERNELS = ("tile", "wino")


def beside_python(tool: str) -> str | None:
    """A program of the system or of this interpreter's virtual environment."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(tool, path=folders)


def need(*tools: str) -> None:
    """Skips where a tool is missing; where CI is set, fails."""
    missing = [tool for tool in tools if not beside_python(tool)]
    if missing:
        reason = f"missing: {', '.join(missing)}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """CMake's compile command for every file of kernels/neon, by its name: the build's own flags."""
    need(COMPILER, TOOL, "cmake", "ninja")
    build = tmp_path_factory.mktemp("neon")
    configure = [str(beside_python("cmake")), "-S", str(ROOT / "kernels"), "-B", str(build), "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={beside_python('ninja')}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    configure += [f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'wheels' / 'aarch64-gcc.cmake'}"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    entries = json.loads((build / "compile_commands.json").read_text())
    return {Path(e["file"]).name: e for e in entries if Path(e["file"]).parent.name == "neon"}


@functools.cache
def assembly(command: str, folder: str) -> str:
    arguments = shlex.split(command)
    arguments[arguments.index("-o") + 1] = "-"
    arguments[arguments.index("-c")] = "-S"
    return subprocess.run(arguments, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout


def compiled(entry: dict[str, str]) -> list[Loop]:
    return innermost_loops(assembly(entry["command"], entry["directory"]))


@pytest.fixture(scope="session")
def gemm(commands: dict[str, dict[str, str]]) -> dict[str, dict[int, Loop]]:
    """gemm.c: function → multiply-adds in the body → loop."""
    functions: dict[str, dict[int, Loop]] = {}
    for loop in compiled(commands["gemm.c"]):
        if loop.fmla:
            functions.setdefault(loop.function, {})[loop.fmla] = loop
    return functions


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", FLOORS)
def test_gemm_loops_are_multiply_adds(gemm: dict[str, dict[int, Loop]], kernel: str, rows: int) -> None:
    loops = gemm[f"{kernel}_{rows}"]
    vectors = 4 * rows  # a panel of 16 channels is four vectors
    assert sorted(loops) == [vectors, LANES * vectors], "one channel and four channels at a time, nothing else"
    four, one = loops[LANES * vectors], loops[vectors]
    loads = [line for line in four.code if line.startswith("ld")]
    assert four.stack_accesses == one.stack_accesses == 0
    assert len(four.code) <= four.fmla + len(loads) + 4 + rows, "registers copied around"
    reached = {name: utilisation(four, core) for name, core in CORES.items()}
    print(f"{kernel}_{rows}", {name: f"{value:.2%}" for name, value in reached.items()})
    assert all(value >= FLOORS[rows][name] for name, value in reached.items()), reached
    if rows >= LANES:
        rest = {name: utilisation(one, core) for name, core in CORES.items()}
        assert all(value >= FLOORS_REST[name] for name, value in rest.items()), rest


def test_full_tiles_are_held_to_the_aims() -> None:
    assert all(FLOORS[rows][name] >= AIMS[name] for rows in (4, 5) for name in CORES)


@pytest.mark.parametrize(
    ("function", "stack_max"),
    [
        # F(4,3) holds 36 values of a tile at once, and there are 32 registers.
        ("inputs_4", 24),
        ("weights_4", 0),
        ("inputs_2", 0),
    ],
)
def test_winograd_transforms_stay_in_registers(
    commands: dict[str, dict[str, str]], function: str, stack_max: int
) -> None:
    """The loop over whole vectors; the longer one is for channels that are left over."""
    loops = [loop for loop in compiled(commands["winograd.c"]) if loop.function == function]
    assert min(loops, key=lambda loop: len(loop.code)).stack_accesses <= stack_max


@pytest.mark.parametrize(("kernel", "floor"), [("strip_8_3_1", 0.98), ("strip_8_5_1", 0.98)])
def test_depthwise_strips_are_multiply_adds(commands: dict[str, dict[str, str]], kernel: str, floor: float) -> None:
    """Eight pixels of a row at a time; X1 would need sixteen."""
    loop = next(loop for loop in compiled(commands["dwconv.c"]) if loop.function == kernel and loop.fmla)
    assert loop.stack_accesses == 0
    reached = {name: utilisation(loop, CORES[name]) for name in ("A72", "A76")}
    assert all(value >= floor for value in reached.values()), reached


@pytest.mark.parametrize("kernel", ["strip_8_1", "strip_7_1"])
def test_strips_of_narrow_groups_are_multiply_adds(commands: dict[str, dict[str, str]], kernel: str) -> None:
    """Groups of 4 and 8: three taps of four channels. Seven sums are one too few for a core of two multiply-adds."""
    pixels = int(kernel.split("_")[1])
    wanted = pixels * 3 * LANES
    loops = [loop for loop in compiled(commands["gconv.c"]) if loop.function == kernel and loop.fmla == wanted]
    assert loops
    for loop in loops:
        assert loop.stack_accesses == 0
        assert utilisation(loop, CORES["A72"]) >= 0.98
        assert utilisation(loop, CORES["A76"]) >= (0.98 if pixels == 8 else 0.85)


GOOD = [f"fmla v{n}.4s, v30.4s, v31.s[0]" for n in range(16)]


def loop_of(body: list[str]) -> Loop:
    text = ["f:", "mov x1, 0", ".L3:", *body, "subs x0, x0, 1", "bne .L3", "ret"]
    (loop,) = innermost_loops("\n".join(text))
    return loop


def test_the_gate_sees_spills() -> None:
    assert loop_of(GOOD).stack_accesses == 0
    assert loop_of([*GOOD, "str q0, [sp, 32]", "ldp q1, q2, [x29, 64]"]).stack_accesses == 2


def test_the_gate_sees_only_innermost_loops() -> None:
    nest = ["f:", ".L1:", "nop", ".L2:", *GOOD, "cbnz x0, .L2", "b.ne .L1", "b .L4", ".L4:", "ret"]
    found = innermost_loops("\n".join([*nest, "g:", ".L5:", "cbz x1, .L5"]))
    assert [(loop.function, loop.fmla, len(loop.code)) for loop in found] == [("f", 16, 17), ("g", 0, 1)]


@pytest.mark.parametrize("core", CORES.values(), ids=CORES)
def test_the_gate_sees_chains(core: Core) -> None:
    """A single sum waits for itself: one multiply-add in the latency of one, at best the issue rate's inverse."""
    need(TOOL)
    assert utilisation(loop_of(GOOD), core) > 0.95
    chain = loop_of(["fmul v0.4s, v0.4s, v1.4s", *["fmla v0.4s, v1.4s, v2.4s"] * 4])
    assert utilisation(chain, core) < 0.6
    assert cycles(chain, core) > 8
