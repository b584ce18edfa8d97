"""The NEON kernels' inner loops, as the wheels' clang and Debian's gcc compile them, on llvm-mca's models of the
boards' cores; those for in-order cores (A53, A55), which llvm-mca does not model well, by counting.

What this cannot show: caches and memory.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.loops import CORES, TOOL, Core, Loop, cycles, cycles_in_order, innermost_loops, utilisation, waits
from tests.support.missing import missing

ROOT = Path(__file__).resolve().parents[2]
COMPILERS = ("gcc", "clang")
WHEEL_TARGET = "aarch64-linux-gnu.2.17"
LANES = 4

# Of the multiply-add peak, by rows of the tile. Full tiles are what a layer's time goes to: they are asked for 98 / 96
# / 95 % on A72 / A76 / X1, and reach 99.8 / 99.8 / 99.6 %. A tile of R rows has 4·R sums, and each multiply-add that
# the core starts per cycle needs 4 of them (its latency): fewer rows cannot fill a wider core.
FLOORS = {
    5: {"A72": 0.995, "A76": 0.995, "X1": 0.990},
    4: {"A72": 0.995, "A76": 0.995, "X1": 0.990},
    3: {"A72": 0.995, "A76": 0.990, "X1": 0.740},
    2: {"A72": 0.990, "A76": 0.990, "X1": 0.490},
    1: {"A72": 0.790, "A76": 0.490, "X1": 0.245},
}
AIMS = {"A72": 0.98, "A76": 0.96, "X1": 0.95}
# Channels that are left over after the last four, one at a time.
FLOORS_REST = {"A72": 0.990, "A76": 0.990, "X1": 0.980}
KERNELS = ("tile", "stepped", "wino")


def beside_python(tool: str) -> str | None:
    """A program of the system or of this interpreter's virtual environment."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(tool, path=folders)


def need(*tools: str) -> None:
    """Skips where a tool is missing; where CI is set, fails."""
    absent = [tool for tool in tools if not beside_python(tool)]
    if absent:
        missing(f"missing: {', '.join(absent)}")


def toolchain(compiler: str) -> list[str]:
    """CMake's settings that make it compile for aarch64 as the wheels are (clang), or as Debian's machines do (gcc)."""
    wheels = ROOT / "wheels"
    if compiler == "gcc":
        need("aarch64-linux-gnu-gcc")
        return [f"-DCMAKE_TOOLCHAIN_FILE={wheels / 'aarch64-gcc.cmake'}"]
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        need("ziglang of PyPI")
    zig = Path(found.origin).parent / "zig"  # type: ignore[union-attr, arg-type]
    return [
        f"-DCMAKE_TOOLCHAIN_FILE={wheels / 'zig.cmake'}",
        f"-DFLEXNN_ZIG={zig}",
        f"-DFLEXNN_ZIG_TARGET={WHEEL_TARGET}",
    ]


@pytest.fixture(scope="session", params=COMPILERS)
def commands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """CMake's compile command for every file of the NEON levels, as "level/name": the build's own flags."""
    need(TOOL, "cmake", "ninja")
    build = tmp_path_factory.mktemp(request.param)
    configure = [str(beside_python("cmake")), "-S", str(ROOT / "kernels"), "-B", str(build), "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={beside_python('ninja')}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    subprocess.run(configure + toolchain(request.param), check=True, stdout=subprocess.DEVNULL)
    entries = json.loads((build / "compile_commands.json").read_text())
    levels = {f"flexnn_{level}.dir": level for level in ("neon", "neon_inorder", "neon_dot", "neon_fp16", "neon_i8mm")}
    named = {}
    for entry in entries:
        for folder in levels.keys() & set(Path(entry["output"]).parts):
            named[f"{levels[folder]}/{Path(entry['file']).name}"] = entry
    return named


@functools.cache
def assembly(command: str, folder: str) -> str:
    arguments = shlex.split(command)
    output = Path(folder) / "assembly.s"
    arguments[arguments.index("-o") + 1] = str(output)
    arguments[arguments.index("-c")] = "-S"
    subprocess.run(arguments, cwd=folder, stderr=subprocess.DEVNULL, check=True)
    return output.read_text()


def compiled(entry: dict[str, str]) -> list[Loop]:
    return innermost_loops(assembly(entry["command"], entry["directory"]))


@pytest.fixture(scope="session")
def gemm(commands: dict[str, dict[str, str]]) -> dict[str, dict[int, Loop]]:
    """The loops of level neon's gemm.c: function → multiply-adds in the body → loop."""
    return by_size(compiled(commands["neon/gemm.c"]))


@pytest.fixture(scope="session")
def gemm_in_order(commands: dict[str, dict[str, str]]) -> dict[str, dict[int, Loop]]:
    return by_size(compiled(commands["neon_inorder/gemm.c"]))


def by_size(loops: list[Loop]) -> dict[str, dict[int, Loop]]:
    functions: dict[str, dict[int, Loop]] = {}
    for loop in loops:
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


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("rows", "floor"), [(5, 0.77), (4, 0.74), (3, 0.69), (2, 0.60)])
def test_in_order_cores_start_multiply_adds(
    gemm: dict[str, dict[int, Loop]],
    gemm_in_order: dict[str, dict[int, Loop]],
    kernel: str,
    rows: int,
    floor: float,
) -> None:
    """Eight channels of a tile: each of its 32 + 2 rows vectors costs a cycle (ins), the rest pairs. neon's own tile
    of 5 rows reaches 0.65 by the same count."""
    size = 8 * 4 * rows
    loop = gemm_in_order[f"{kernel}_{rows}"][size]
    assert loop.stack_accesses == 0
    assert not [line for line in loop.code if line.startswith(("ldp q", "ldr q"))]
    reached = size / cycles_in_order(loop)
    before = LANES * 4 * rows / cycles_in_order(gemm[f"{kernel}_{rows}"][LANES * 4 * rows])
    print(f"{kernel}_{rows}", f"{reached:.1%}, of neon's {before:.1%}")
    assert reached >= floor
    assert reached >= before * 1.1
    if rows == max(FLOORS):
        to_join, to_use = waits(loop)
        assert to_join >= 2, "half a vector that arrives just before it is joined stops the core"
        assert to_use >= 3


# Cycles of an A72 for four channels of a tile, by llvm-mca, and loads and stores of spilt registers: F(4,3) holds 36
# values of a tile at once, and there are 32 registers.
TRANSFORMS = {
    "inputs_4": (310, {"gcc": 24, "clang": 44}),
    "weights_4": (170, {"gcc": 0, "clang": 0}),
    "inputs_2": (98, {"gcc": 0, "clang": 0}),
    "weights_2": (90, {"gcc": 0, "clang": 0}),
}


@pytest.mark.parametrize("function", TRANSFORMS)
def test_winograd_transforms_stay_in_registers(commands: dict[str, dict[str, str]], function: str) -> None:
    """The loop over whole vectors. Those for channels that are left over are longer (gcc), or move a few numbers each
    (clang)."""
    compiler = "clang" if "zig" in commands["neon/winograd.c"]["command"] else "gcc"
    loops = [loop for loop in compiled(commands["neon/winograd.c"]) if loop.function == function]
    whole = min((loop for loop in loops if len(loop.code) > 60), key=lambda loop: len(loop.code))
    taken = cycles(whole, CORES["A72"])
    print(function, f"{taken:.0f} cycles, {whole.stack_accesses} at the stack")
    cycles_max, stack_max = TRANSFORMS[function]
    assert whole.stack_accesses <= stack_max[compiler]
    assert taken <= cycles_max


@pytest.mark.parametrize(("kernel", "floor"), [("strip_8_3_1", 0.98), ("strip_8_5_1", 0.98)])
def test_depthwise_strips_are_multiply_adds(commands: dict[str, dict[str, str]], kernel: str, floor: float) -> None:
    """Eight pixels of a row at a time; X1 would need sixteen."""
    loop = next(loop for loop in compiled(commands["neon/dwconv.c"]) if loop.function == kernel and loop.fmla)
    assert loop.stack_accesses == 0
    reached = {name: utilisation(loop, CORES[name]) for name in ("A72", "A76")}
    assert all(value >= floor for value in reached.values()), reached


@pytest.mark.parametrize("kernel", ["strip_8_1", "strip_7_1"])
def test_strips_of_narrow_groups_are_multiply_adds(commands: dict[str, dict[str, str]], kernel: str) -> None:
    """Groups of 4 and 8: three taps of four channels. Seven sums are one too few for a core of two multiply-adds."""
    pixels = int(kernel.split("_")[1])
    wanted = pixels * 3 * LANES
    loops = [loop for loop in compiled(commands["neon/gconv.c"]) if loop.function == kernel and loop.fmla == wanted]
    assert loops
    for loop in loops:
        assert loop.spilt_vectors == 0
        assert utilisation(loop, CORES["A72"]) >= 0.98
        assert utilisation(loop, CORES["A76"]) >= (0.98 if pixels == 8 else 0.85)


@pytest.mark.parametrize("kernel", ["strip_8_1", "strip_8_2"])
def test_strips_of_groups_of_two_are_mostly_multiply_adds(commands: dict[str, dict[str, str]], kernel: str) -> None:
    """Three taps of two channels; beside the multiply-adds only six permutations of weights for a row of taps. The
    longer loop is that of channels that are left over."""
    loops = [loop for loop in compiled(commands["neon/gconv.c"]) if loop.function == kernel and loop.fmla == 8 * 3 * 2]
    loop = min(loops, key=lambda loop: len(loop.code))
    assert loop.spilt_vectors == 0
    reached = {name: utilisation(loop, core) for name, core in CORES.items()}
    assert all(reached[name] >= floor for name, floor in {"A72": 0.93, "A76": 0.87, "X1": 0.86}.items()), reached


# Products of bytes that an instruction makes, and the share of the core's peak that the longest loop must reach.
BYTE_PRODUCTS = {"smull": 8, "smull2": 8, "smlal2": 8, "sdot": 16, "usmmla": 32}
BYTE_LOOPS = {"neon": ("A72", 8, 0.90), "neon_dot": ("A76", 32, 0.95), "neon_i8mm": ("X1", 128, 0.95)}


@pytest.mark.parametrize("level", BYTE_LOOPS)
def test_products_of_bytes_reach_the_peak(commands: dict[str, dict[str, str]], level: str) -> None:
    core, peak, floor = BYTE_LOOPS[level]
    loops = compiled(commands[f"{level}/conv_u8.c"])
    made = [sum(BYTE_PRODUCTS.get(line.split()[0], 0) for line in loop.code) for loop in loops]
    products, loop = max(zip(made, loops, strict=True), key=lambda pair: pair[0])
    reached = products / cycles(loop, CORES[core]) / peak
    print(level, f"{reached:.1%}")
    assert loop.spilt_vectors == 0
    assert reached >= floor


def check_dots(loops: list[Loop], limits: dict[str, tuple[int, int, int]], entry: dict[str, str]) -> None:
    """Cycles of an A76 by llvm-mca, cycles in order by counting, and vectors at the stack are at most a compiler's."""
    most = limits["clang" if "zig" in entry["command"] else "gcc"]
    for loop in loops:
        taken = cycles(loop, CORES["A76"]), cycles_in_order(loop), loop.spilt_vectors
        print(loop.function, *taken)
        assert all(found <= limit for found, limit in zip(taken, most, strict=True))


# Of a block of 512 weights and a row's digits, whatever the weights' form: cycles of an A76 by llvm-mca, cycles in
# order by counting, and vectors at the stack.
DIGITS_FORMS, DIGITS_PRODUCTS = 8, 96
DIGITS = {"gcc": (120, 225, 0), "clang": (112, 240, 2)}


def test_digits_of_a_row_stay_in_registers(commands: dict[str, dict[str, str]]) -> None:
    entry = commands["neon_dot/rounded.c"]
    loops = [loop for loop in compiled(entry) if sum(line.startswith("sdot") for line in loop.code) == DIGITS_PRODUCTS]
    assert len(loops) == DIGITS_FORMS
    check_dots(loops, DIGITS, entry)


# Of four rows that are rounded, and a vector of a panel's block, alike.
ROUNDED_FORMS, ROUNDED_PRODUCTS = 7, 32
ROUNDED = {"gcc": (45, 76, 3), "clang": (42, 96, 1)}


def test_rounded_rows_stay_in_registers(commands: dict[str, dict[str, str]]) -> None:
    """The longer loops of as many products are all vectors of a block, of one row (clang)."""
    entry = commands["neon_dot/rounded.c"]
    loops = [loop for loop in compiled(entry) if sum(line.startswith("sdot") for line in loop.code) == ROUNDED_PRODUCTS]
    check_dots(sorted(loops, key=lambda loop: len(loop.code))[:ROUNDED_FORMS], ROUNDED, entry)


# Of the sums of halves that a core of two multiply-adds a cycle, of eight each, can make. The longer loop takes eight
# channels of a tile, the shorter one those that are left over. In order, by counting, as floats above.
HALF_FLOORS = {7: 0.99, 6: 0.99, 5: 0.99, 4: 0.99, 3: 0.74, 2: 0.49, 1: 0.24}
HALF_FLOOR_IN_ORDER = 0.69


@pytest.mark.parametrize("rows", HALF_FLOORS)
def test_sums_of_halves_are_multiply_adds(commands: dict[str, dict[str, str]], rows: int) -> None:
    loop = by_size(compiled(commands["neon_fp16/gemm_f16.c"]))[f"tile_{rows}"][8 * 2 * rows]
    assert loop.stack_accesses == 0
    reached = utilisation(loop, CORES["A76"])
    print(f"tile_{rows}", f"{reached:.1%}")
    assert reached >= HALF_FLOORS[rows]
    if rows == max(HALF_FLOORS):
        assert loop.fmla / cycles_in_order(loop) >= HALF_FLOOR_IN_ORDER


GOOD = [f"fmla v{n}.4s, v30.4s, v31.s[0]" for n in range(16)]


def loop_of(body: list[str]) -> Loop:
    text = ["f:", "mov x29, sp", ".L3:", *body, "subs x0, x0, 1", "bne .L3", "ret"]
    (loop,) = innermost_loops("\n".join(text))
    return loop


def test_the_gate_sees_spills() -> None:
    assert loop_of(GOOD).stack_accesses == 0
    loop = loop_of([*GOOD, "str q0, [sp, 32]", "ldp q1, q2, [x29, 64]", "ldr x2, [sp, 8]"])
    assert (loop.stack_accesses, loop.spilt_vectors) == (3, 2)
    without_frame = innermost_loops("\n".join(["f:", ".L1:", "ldr q0, [x29]", "b.ne .L1"]))
    assert without_frame[0].stack_accesses == 0


def test_the_gate_sees_only_innermost_loops() -> None:
    nest = ["f:", ".L1:", "nop", ".L2:", *GOOD, "cbnz x0, .L2", "b.ne .L1", "b .L4", ".L4:", "ret"]
    found = innermost_loops("\n".join([*nest, "g:", ".L5:", "cbz x1, .L5"]))
    assert [(loop.function, loop.fmla, len(loop.code)) for loop in found] == [("f", 16, 17), ("g", 0, 1)]


def test_the_count_sees_what_cannot_start_together() -> None:
    """Sixteen multiply-adds and the branch; a wide load takes two cycles alone, a narrow one starts beside."""
    count = cycles_in_order(loop_of(GOOD))
    assert count == 17
    assert cycles_in_order(loop_of([*GOOD[:8], "ldr q0, [x1]", *GOOD[8:]])) == count + 2
    assert cycles_in_order(loop_of([*GOOD[:8], "ldr d0, [x1]", *GOOD[8:]])) == count
    late = ["ldr x3, [x1]", "ldr d9, [x1]", "nop", "ins v9.d[1], x3", "fmla v1.4s, v9.4s, v31.s[0]"]
    assert waits(loop_of([*late, *GOOD])) == (1, 1)


@pytest.mark.parametrize("core", CORES.values(), ids=CORES)
def test_the_gate_sees_chains(core: Core) -> None:
    """A single sum waits for itself: one multiply-add in the latency of one, at best the issue rate's inverse."""
    need(TOOL)
    assert utilisation(loop_of(GOOD), core) > 0.95
    chain = loop_of(["fmul v0.4s, v0.4s, v1.4s", *["fmla v0.4s, v1.4s, v2.4s"] * 4])
    assert utilisation(chain, core) < 0.6
    assert cycles(chain, core) > 8
