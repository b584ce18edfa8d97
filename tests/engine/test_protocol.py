"""The protocol of caller, workers and readers (engine/protocol.c), proved: the checker of tests/engine/protocol
explores the engine's own code, spin the states of the loader, and both find the mistakes that are planted here.

LONG=1 allows one switch more between threads, some minutes.
"""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.hangs import HANG_SECONDS
from tests.support.missing import missing

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "engine" / "protocol"
PARTS = ("protocol", "loader", "workers", "sharing", "run", "recording", "tape", "sync", "touches", "arena")
"""Parts of the engine: all that waits, wakes, or changes what threads share."""
OWN = ("checker", "model", "system", "world", "scenarios")
"""The checker and what it explores."""
WRAPPED = (
    "pthread_mutex_init",
    "pthread_mutex_destroy",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_cond_init",
    "pthread_cond_destroy",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_broadcast",
    "pthread_create",
    "pthread_join",
    "pthread_detach",
    "pthread_setname_np",
    "sched_getcpu",
    "clock_gettime",
    "getrusage",
    "aligned_alloc",
    "free",
)
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-U_FORTIFY_SOURCE", *(f"-I{ROOT / folder}" for folder in (
    "engine", "engine/include", "kernels/include"))]  # fmt: skip


def tool(name: str) -> str:
    """Return the path of a tool. Without it the test is skipped, but in CI it fails."""
    return shutil.which(name) or missing(f"there is no {name}")


def compiled(source: Path, target: Path, *flags: str) -> Path:
    subprocess.run([tool("gcc"), *FLAGS, *flags, "-c", source, "-o", target], check=True)
    return target


def linked(objects: list[Path], target: Path) -> Path:
    wraps = [f"-Wl,--wrap={name}" for name in WRAPPED]
    subprocess.run([tool("gcc"), *objects, *wraps, "-o", target, "-lpthread"], check=True)
    return target


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checker, its scenarios, and the parts of the engine as they are."""
    folder = tmp_path_factory.mktemp("protocol")
    strict = ("-O2", "-Wall", "-Wextra", "-Werror")
    made = {name: compiled(FOLDER / f"{name}.c", folder / f"{name}.o", *strict) for name in OWN}
    for name in PARTS:
        made[name] = compiled(ROOT / "engine" / f"{name}.c", folder / f"{name}.o", "-O1", "-fsanitize=thread")
    return made


def test_every_order_of_the_engines_code_is_good(objects, tmp_path):
    program = linked(list(objects.values()), tmp_path / "protocol")
    options = ["--long"] if os.environ.get("LONG") else []
    outcome = subprocess.run([program, *options], capture_output=True, text=True)
    print(outcome.stdout)
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    assert len(outcome.stdout.splitlines()) >= 25


class Mistake(NamedTuple):
    """A planted mistake: what a part says, what it says instead, the scenario that finds it, and what that reports."""

    name: str
    part: str
    right: str
    wrong: str
    scenario: str
    report: str


MISTAKES = [
    Mistake("lost wake-up: a sleeper looks before it says so", "sync",
            "    atomic_fetch_add(&e->sleepers, 1);\n    while (!ready(arg)) {",
            "    const int was = ready(arg);\n    atomic_fetch_add(&e->sleepers, 1);\n    while (!was) {",
            "stream", "nobody can go on"),
    Mistake("lost wake-up: the step that a load waits for wakes nobody", "protocol",
            "+ count >= atomic_load(&e->steps_wanted)", "+ count > atomic_load(&e->steps_wanted)",
            "stream", "nobody can go on"),
    Mistake("lost wake-up: the last load came before the caller counted", "protocol",
            "n->seen || fx_has_loads(n);", "n->seen || fx_loader_rests(n->e);", "stream", "nobody can go on"),
    Mistake("memory order: a counter of loads that publishes nothing", "protocol",
            "atomic_fetch_add(&e->loads_done, 1);",
            "atomic_fetch_add_explicit(&e->loads_done, 1, memory_order_relaxed);", "stream", "race: written, and read"),
    Mistake("memory order: a turn that is known before it is written", "protocol",
            "atomic_store(&e->turns_known, known + 1);",
            "atomic_store_explicit(&e->turns_known, known + 1, memory_order_relaxed);", "stream", "race"),
    Mistake("memory order: a store that may pass the look for sleepers", "protocol",
            "atomic_store(&e->command, FX_COMMAND_STOP);",
            "atomic_store_explicit(&e->command, FX_COMMAND_STOP, memory_order_release);", "stream",
            "nobody can go on"),
    Mistake("counter off by one: a load begins a step early", "protocol",
            "if (atomic_load(&e->steps_done) < steps) {", "if (atomic_load(&e->steps_done) < steps - 1) {",
            "stream", "FAILED"),
    Mistake("a load into a place that another load still fills", "protocol",
            "(!l->next_at && meets_begun(", "(!l->next_at && 0 && meets_begun(", "readers", "FAILED"),
    Mistake("double retire: two readers retire at the same time", "protocol",
            "return !e->loading.is_retiring && (e->loading.is_retiring = 1);", "return e->loading.is_retiring = 1;",
            "readers", "FAILED"),
    Mistake("an error that is swallowed", "protocol",
            "if (error.status != FX_OK) {\n        error.is_load", "if (0) {\n        error.is_load",
            "failure", "number_at(place) == expected"),
    Mistake("help after cancel: a failure that every reader slept through", "protocol",
            "if (!--l->helpers && ", "if (!--l->helpers && 0 && ", "help_again", "nobody can go on"),
    Mistake("re-budget in flight: a rest that is not waited for", "loader",
            "while (e->has_loader && !fx_loader_rests(e)) {", "while (0) {", "rebudget", "FAILED"),
    Mistake("re-budget in flight: one reader rests for all", "protocol",
            "++l->resting == l->threads && state", "++l->resting && state", "rebudget", "FAILED"),
    Mistake("the loads of the wrong branch are kept", "protocol",
            "e->ahead[0].bound != b)", "0)", "branches", "FAILED"),
    Mistake("what a loop holds is written over, as a branch went elsewhere the last time", "recording",
            "r->spoils[program] & unsure)", "0)", "held", "FAILED"),
    Mistake("a job that is taken back counts units that nobody does", "protocol",
            "    workers->wanted -= (uint32_t)left;\n", "    (void)left;\n", "withdrawn", "nobody can go on"),
    Mistake("a unit that two threads take", "protocol",
            "} while (!atomic_compare_exchange_weak(&workers->ticket, &ticket, next));",
            "} while (0);\n    atomic_store(&workers->ticket, next);", "workers", "FAILED"),
    Mistake("an engine that every reader frees", "protocol",
            "    return is_last;", "    return 1;", "abandoned", "FAILED"),
    Mistake("a rest that does not wait for a worker that reads", "protocol",
            "state == FX_LOADER_DRAINING && !l->helpers)", "state == FX_LOADER_DRAINING)", "spare_rebudget", "FAILED"),
    Mistake("a rest that nobody reports, as a worker was the last to read", "protocol",
            "if (!--l->helpers && ", "if (!--l->helpers && 0 && ", "spare_rebudget", "nobody can go on"),
    Mistake("rows that are read back from the wrong file", "protocol",
            "is_spilled ? p->spill : p->file", "p->file", "spill", "FAILED"),
    Mistake("rows that are checked by the checksums of the wrong file", "loader",
            "fx_load_is_spilled(load) ? b->spill_crcs", "0 ? b->spill_crcs", "spill", "FAILED"),
    Mistake("rows that are read back before they are stored", "protocol",
            "    if (wait > 0 || turn->repeats)\n        return turn->steps + wait;",
            "    if (wait > 0 || turn->repeats)\n        return turn->steps;", "spill_cancel", "FAILED"),
    Mistake("a row that cannot be stored, and nobody says so", "protocol",
            "    if (status != FX_OK)\n        atomic_compare", "    if (0)\n        atomic_compare",
            "spill_full", "FAILED"),
    Mistake("two threads leave a request each, and one is lost", "protocol",
            "atomic_fetch_sub(&l->left, 1);", "atomic_store(&l->left, 0);", "spare_missing", "nobody can go on"),
    Mistake("whole chunks that the thread which read them does not check", "loader",
            "    if (is_read)\n        check_whole(e, request);\n", "", "spare", "is_checked"),
    Mistake("whole chunks that a reader does not check, as a worker left them", "loader",
            "    check_whole(e, request);\n    pause_until", "    pause_until", "spare_missing", "is_checked"),
    Mistake("whole chunks that are checked before they are read", "loader",
            "    const int is_read = fx_read_cached(",
            "    check_whole(e, request);\n    const int is_read = fx_read_cached(", "spare", "FAILED"),
]  # fmt: skip


def outcome_of(mistake: Mistake, objects: dict[str, Path], folder: Path) -> str:
    """Return what the scenario reports of the engine with a mistake."""
    source = (ROOT / "engine" / f"{mistake.part}.c").read_text()
    assert source.count(mistake.right) == 1, mistake.name
    folder.mkdir()
    changed = folder / f"{mistake.part}.c"
    changed.write_text(source.replace(mistake.right, mistake.wrong))
    parts = objects | {mistake.part: compiled(changed, folder / "changed.o", "-O1", "-fsanitize=thread", "-w")}
    program = linked(list(parts.values()), folder / "protocol")
    return subprocess.run([program, mistake.scenario], capture_output=True, text=True, timeout=HANG_SECONDS).stderr


def test_the_checker_finds_every_planted_mistake(objects, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda i: outcome_of(MISTAKES[i], objects, tmp_path / str(i)), range(len(MISTAKES))))
    missed = [
        (m.name, report[-300:]) for m, report in zip(MISTAKES, reports, strict=True)
        if "FAILED" not in report or m.report not in report
    ]  # fmt: skip
    assert not missed


def spun(model: str, folder: Path) -> str:
    """Return what spin says of a model: both claims, then assertions and deadlocks."""
    (folder / "loader.pml").write_text(model)
    subprocess.run([tool("spin"), "-a", "loader.pml"], cwd=folder, check=True, capture_output=True)
    for program, flags in {"claims": [], "deadlocks": ["-DNOCLAIM"]}.items():
        subprocess.run([tool("gcc"), "-O1", "-w", *flags, "-o", program, "pan.c"], cwd=folder, check=True)
    said = ""
    for command in (["./claims", "-a", "-f", "-N", "rests"], ["./claims", "-a", "-f", "-N", "ends"], ["./deadlocks"]):
        said += subprocess.run([*command, "-m100000"], cwd=folder, capture_output=True, text=True).stdout
    return said


def test_the_loaders_states(tmp_path):
    said = spun((FOLDER / "loader.pml").read_text(), tmp_path)
    assert said.count("errors: 0") == 3, said[-2000:]
    assert "max search depth too small" not in said


@pytest.mark.parametrize(("right", "wrong"), [
    ("resting == READERS && loader == draining && helpers", "loader == draining && helpers"),
    ("loader == draining && helpers == 0 -> settle()\n", "loader == draining -> settle()\n"),
    ("       :: loader == draining && resting == READERS && helpers == 0 -> settle()\n", "       :: false -> skip\n"),
    ("    command = pause;\n    (RESTS)", "    command = pause"),
    ("(begun < LOADS - 1 || is_stored))", "true)"),
    ("retired = 0; is_stored = false;", "retired = 0;"),
])  # fmt: skip
def test_spin_finds_mistakes_in_the_loaders_states(right, wrong, tmp_path):
    """A reader rests for all; it does not wait for who helps; nobody rests after a helper's read failed; a rest that is
    not waited for; rows that are read back before they are stored, in the first run and in a later one.
    """
    model = (FOLDER / "loader.pml").read_text()
    assert model.count(right) == 1
    assert spun(model.replace(right, wrong), tmp_path).count("errors: 0") < 3
