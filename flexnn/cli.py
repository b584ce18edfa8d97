"""The command line (DESIGN §6): compile, run, plan.

Results go to stdout, progress and errors to stderr. Exit 0: good; 2: the user's mistake or an infeasible budget, one
line ``error: …``; 1: anything else.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np

import flexnn
from flexnn import _core, units
from flexnn.artifact import Artifact, open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.compiler import compiled
from flexnn.graph import bind_shapes
from flexnn.graph.ir import ALL_DTYPES
from flexnn.graph.model import Port, open_hint
from flexnn.measure import kept_machine
from flexnn.plan import Machine, Plan, Planners
from flexnn.plan.check import check_plan
from flexnn.plan.explain import Explanation, explain
from flexnn.plan.overhead import overhead_for
from flexnn.session import (
    PROFILES,
    THREADS_MAX,
    check_groups_of_regions,
    default_profile,
    default_threads,
    io_align,
)

if TYPE_CHECKING:
    from flexnn.region_plan import RegionPlan

NS_PER_MS = 1e6
INPUT_SEED = 0
ABLATIONS = (
    "without preloading",
    "without static memory",
    "without both",
    "direct kernels only",
    "layer by layer",
    "fixed slices",
)
"""Explained in flexnn/bench/ablations.py."""
TARGETS = ("any", "aarch64", "x86_64")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.exit(_fail(f"{message}; see {self.prog} --help", 2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    if sys.stdout is None:
        return _fail("standard output is closed", 2)
    try:
        command: Callable[[argparse.Namespace], int | None] = options.command
        status = command(options) or 0
        sys.stdout.flush()
        return status
    except (flexnn.SessionError, MemoryError) as error:
        return _fail(str(error) or "out of memory", 1)
    except (ValueError, OSError) as error:
        _forget_output()
        return _fail(_one_line(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except Exception as error:  # a defect of ours: still one line, no traceback
        return _fail(f"internal: {type(error).__name__}: {_one_line(error)}", 1)


def _forget_output() -> None:
    """Lets go of what standard output does not take: the interpreter would try once more, and complain, at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _fail(message: str, status: int) -> int:
    if sys.stderr is not None:  # closed: print would take standard output instead
        print(f"error: {message}", file=sys.stderr)
    return status


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="flexnn", description="Runs ONNX models inside a memory budget.")
    parser.add_argument("--version", action="version", version=f"flexnn {flexnn.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    sub = commands.add_parser("compile", help="compile an ONNX model into an artifact")
    sub.add_argument("model", metavar="MODEL.onnx")
    sub.add_argument("-o", "--output", metavar="OUT.flexnn", help="default: beside the model")
    _add_shape(sub)
    sub.add_argument(
        "--target",
        choices=TARGETS,
        default="any",
        help="where it will run; one artifact serves all, so the bytes are equal",
    )
    sub.add_argument("--quiet", action="store_true", help="no progress bar")
    sub.set_defaults(command=_compile)

    sub = commands.add_parser("doctor", help="what of this machine decides how models run")
    sub.add_argument("path", nargs="?", default=".", metavar="PATH", help="whose storage to time: a file or folder (.)")
    sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    sub.set_defaults(command=_doctor)

    sub = commands.add_parser("run", help="run a model and report memory and latency")
    _add_model(sub)
    sub.add_argument("--repeat", type=_positive, default=10, metavar="N", help="timed runs (10)")
    sub.add_argument("--warmup", type=_count, default=2, metavar="N", help="runs before them (2)")
    sub.add_argument("--input", metavar="IN.npz", help="arrays by input name; default: seeded random")
    sub.add_argument("--output", metavar="OUT.npz", help="save the outputs")
    sub.add_argument("--trace", metavar="FILE.json", help="save the last run for ui.perfetto.dev: loads, steps, stalls")
    _add_reuse(sub)
    sub.set_defaults(command=_run)

    sub = commands.add_parser("plan", help="what a run would do and cost, without running")
    _add_model(sub)
    sub.add_argument("--check", action="store_true", help="validate the plan independently")
    _add_reuse(sub)
    sub.set_defaults(command=_plan)
    sub = commands.add_parser("bench", help="latency against memory; what each part of the design is worth")
    sub.add_argument("what", choices=("curve", "ablations"))
    _add_model(sub)
    sub.add_argument("--storage", type=_size_per_second, default=0, metavar="RATE", help="read no faster: like 40MB/s")
    sub.add_argument("--repeat", type=_positive, default=10, metavar="N", help="timed runs of each (10)")
    sub.add_argument("--only", action="append", choices=ABLATIONS, metavar="PART", help=f"of {', '.join(ABLATIONS)}")
    sub.add_argument("--no-peers", action="store_true", help="not onnxruntime, which an .onnx MODEL is compared with")
    sub.add_argument("--compare", metavar="STORED.json", help="what --json printed before: exit 1 if this is slower")
    sub.add_argument("--tolerance", type=_share, default=0.1, metavar="SHARE", help="by more than this (0.1)")
    sub.add_argument("--draw", metavar="FILE", help="draw the curve as .svg or .png (needs matplotlib)")
    sub.set_defaults(command=_bench)
    return parser


def _add_model(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("model", metavar="MODEL", help=".onnx or .flexnn")
    sub.add_argument("--memory", type=_size, metavar="SIZE", help="budget: bytes, or like 64MiB; default: no limit")
    sub.add_argument("--threads", type=_threads, metavar="N", help="compute threads; default: the CPUs there are")
    _add_shape(sub)
    sub.add_argument("--io", choices=("buffered", "direct"), default="buffered", help="how weights are read")
    sub.add_argument(
        "--profile", choices=PROFILES, help="times of kernels and storage measured when first opened here, or analytic"
    )
    sub.add_argument(
        "--groups",
        type=_groups,
        metavar="off|auto|K",
        help="independent nodes run at the same time, where all weights are pinned: each layer of them in K groups, or"
        " as is predicted to be the fastest (off)",
    )
    sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def _add_reuse(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--reuse-outputs", action="store_true", help="each run overwrites the outputs of the last: counted once"
    )


def _add_shape(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--shape", action="append", default=[], type=_shape, metavar="NAME=1,3,224,224", help="bind a dynamic input"
    )


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


_size = _argument(units.parse_bytes)
_size_per_second = _argument(lambda text: units.parse_bytes(text.removesuffix("/s")))
_shape = _argument(units.parse_shape)
_groups = _argument(units.parse_groups)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _threads(text: str) -> int:
    if _positive(text) > THREADS_MAX:
        raise argparse.ArgumentTypeError(f"{text} threads are more than {THREADS_MAX}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share like 0.1")
    return share


def _count(text: str) -> int:
    return 0 if text == "0" else _positive(text)


# ---- compile ----


def _compile(options: argparse.Namespace) -> None:
    shapes = dict(options.shape)
    if options.quiet or sys.stderr is None or not sys.stderr.isatty():
        path = flexnn.compile(options.model, options.output, shapes=shapes)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("reading the model", total=None)

            def report(name: str, done: int, total: int) -> None:
                bar.update(task, description="packing weights", completed=done, total=total)

            path = flexnn.compile(options.model, options.output, shapes=shapes, progress=report)
    print(f"{path}  {units.format_bytes(os.path.getsize(path))}")


# ---- run ----


def _run(options: argparse.Namespace) -> None:
    for path in (options.output, options.trace):
        if path is not None:
            _check_output(path)
    with compiled(options.model, dict(options.shape)) as artifact:
        shapes = dict(options.shape) if artifact == options.model else {}
        report, outputs = _measure(artifact, options, shapes)
    if options.output is not None:
        _save(options.output, outputs)
    if options.json:
        print(json.dumps(report))
        return
    latency = report["latency_ms"]
    added = report["peak_rss"] - report["baseline_rss"]
    budget = "no limit" if report["memory_budget"] is None else units.format_bytes(report["memory_budget"])
    print(f"memory   {units.format_bytes(added)} added to the process (budget {budget})")
    print(f"latency  p50 {latency['p50']:.2f} ms, p95 {latency['p95']:.2f} ms over {latency['runs']} runs")
    read = units.format_bytes(report["bytes_read_per_run"])
    print(f"reading  {read} per run, {report['stall_ms']:.2f} ms waited for")


def _measure(
    path: str, options: argparse.Namespace, shapes: dict[str, tuple[int, ...]]
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    feed = _load_inputs(options.input) if options.input else None
    generator = np.random.default_rng(INPUT_SEED)
    baseline = _peak_rss()
    start = time.perf_counter_ns()
    with flexnn.Session(
        path,
        memory=options.memory,
        threads=options.threads,
        io=options.io,
        shapes=shapes,
        profile=options.profile,
        groups=options.groups,
        progress=_tell,
        trace=options.trace is not None,
        reuse_outputs=options.reuse_outputs,
    ) as session:
        open_ms = (time.perf_counter_ns() - start) / NS_PER_MS
        if feed is None:
            feed = {i.name: _random_input(generator, i) for i in session.get_inputs()}
        for _ in range(options.warmup):
            session.run(None, feed)
        latencies, stalls, read = [], [], 0
        for _ in range(options.repeat):
            start = time.perf_counter_ns()
            outputs = session.run(None, feed)
            latencies.append((time.perf_counter_ns() - start) / NS_PER_MS)
            stalls.append(session.last_run["stall_ns"] / NS_PER_MS)
            read = session.last_run["bytes_read"]
        peak = _peak_rss()
        if options.trace is not None:
            with open(options.trace, "w", encoding="utf-8") as file:
                json.dump(session.trace_events(), file)
        plan = session.plan
        latencies.sort()
        report = {
            "memory_budget": session.memory,
            "arena_bytes": plan.arena_bytes,
            "session_bytes": session.session_bytes,
            "baseline_rss": baseline,
            "peak_rss": peak,
            "latency_ms": {
                "p50": _quantile(latencies, 0.5),
                "p95": _quantile(latencies, 0.95),
                "min": latencies[0],
                "runs": len(latencies),
            },
            "open_ms": open_ms,
            "plan_ms": plan.plan_ms,
            "predicted_ms": plan.predicted_ms,
            "bound_ms": plan.bound_ms,
            "bytes_read_per_run": read,
            "pinned_bytes": plan.pinned_bytes,
            "stall_ms": _quantile(sorted(stalls), 0.5),
            "threads": session.threads,
            "groups": plan.groups,
            "barriers": plan.barriers,
            "isa": _core.isa_level(),
        }
        names = [output.name for output in session.get_outputs()]
    return report, dict(zip(names, outputs, strict=True))


def _tell(what: str) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        print(what, file=sys.stderr)


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))]


def _random_input(generator: np.random.Generator, argument: flexnn.NodeArg) -> np.ndarray[Any, Any]:
    dtype = argument.numpy_dtype
    shape = [d for d in argument.shape if isinstance(d, int)]
    if len(shape) < len(argument.shape):
        raise ValueError(f"input {argument.name!r}: {open_hint(Port(argument.name, None, tuple(argument.shape)))}")
    return _random(generator, tuple(shape), dtype)


def _random(generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.kind == "f":
        return generator.standard_normal(shape, np.float32).astype(dtype, copy=False)
    return generator.integers(0, 2, shape).astype(dtype)  # small: may be indices


def _load_inputs(path: str) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, MemoryError):
        raise
    except Exception:  # a damaged file makes numpy and zipfile raise nearly anything
        raise ValueError(f"{path}: not an .npz file of arrays, or damaged") from None


def _check_output(path: str) -> None:
    """Before the run, which would be for nothing."""
    folder = os.path.dirname(path) or "."
    if not path or not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such folder for the outputs", folder if path else "''")
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def _save(path: str, outputs: dict[str, np.ndarray[Any, Any]]) -> None:
    """All or nothing, except for what is no regular file (a pipe, /dev/null): that is written to, not replaced."""
    special = os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)
    temporary = path if special else f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb" if special else "xb") as file:
            _write_npz(file, outputs)
        if not special:
            os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        if not special and os.path.exists(temporary):
            os.unlink(temporary)


def _write_npz(file: BinaryIO, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """np.savez for any names: it takes those like ``file`` for its own parameters."""
    import zipfile

    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _peak_rss() -> int:
    """VmHWM of this process, in bytes."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


# ---- bench ----


def _bench(options: argparse.Namespace) -> int:
    from flexnn.bench import command  # costs memory that other commands promise not to take

    return command.run(options)


# ---- plan ----


def _plan(options: argparse.Namespace) -> None:
    with compiled(options.model, dict(options.shape)) as path, open_artifact(path) as artifact:
        try:
            if isinstance(artifact.contents, StoredModel):
                if path == options.model:
                    bind_shapes(artifact.contents.model, dict(options.shape))
                check_groups_of_regions(options.groups, path)
                regions = _region_plan(artifact, artifact.contents, options)
                told, text = regions.describe(), regions.summary()
            else:
                plan, why = _graph_plan(artifact, options)
                told, text = plan.describe() | why.describe(), f"{plan.summary()}\n{why.summary(plan)}"
        except flexnn.BudgetError as error:
            if options.json:
                print(json.dumps({"feasible": False, "minimum_memory": error.minimum}))
            raise
    if options.json:
        print(json.dumps({"feasible": True, **told}))
    else:
        print(text)
        if options.check:
            print("check    no two live tensors overlap, at any interleaving of loads and steps")


def _graph_plan(artifact: Artifact, options: argparse.Namespace) -> tuple[Plan, Explanation]:
    threads, align = options.threads or default_threads(), io_align(options.io)
    machine = _known_machine(artifact, options)
    overhead = overhead_for(reuse_outputs=options.reuse_outputs)
    planners = Planners(
        artifact.graph, threads=threads, io_align=align, machine=machine, overhead=overhead, groups=options.groups
    )
    plan = planners.plan(options.memory)
    if options.check:
        check_plan(plan.graph, plan.program)
    return plan, explain(planners, plan, machine)


def _known_machine(artifact: Artifact, options: argparse.Namespace) -> Machine:
    kept = None
    if default_profile(options.profile) == "measure":
        kept = kept_machine(artifact, options.threads or default_threads(), direct=options.io == "direct")
    return kept or Machine.measure()


def _region_plan(artifact: Artifact, contents: StoredModel, options: argparse.Namespace) -> RegionPlan:
    from flexnn.graph.bind import known_shape
    from flexnn.programs import Programs
    from flexnn.region_plan import plan_regions

    threads = options.threads or default_threads()
    generator = np.random.default_rng(INPUT_SEED)
    ports = contents.model.graph.inputs
    feeds = {p.name: _random(generator, known_shape(p), ALL_DTYPES[str(p.dtype)]) for p in ports}
    align = io_align(options.io)
    machine = _known_machine(artifact, options)
    programs = Programs(artifact, options.memory, threads, align, machine, reuse_outputs=options.reuse_outputs)
    plan = plan_regions(programs, feeds)
    if options.check:
        for part in plan.parts:
            check_plan(part.plan.graph, part.plan.program)
    return plan


def _doctor(options: argparse.Namespace) -> None:
    from flexnn import doctor

    report = doctor.examine(options.path)
    print(json.dumps(report) if options.json else doctor.summary(report))
