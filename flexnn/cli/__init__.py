"""The command line: compile, run, plan, bench, chat, serve, doctor, cache.

Results go to stdout, progress and errors to stderr. Exit 0: good; 2: the user's mistake or an infeasible budget, one
line ``error: …``; 1: anything else.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import flexnn
from flexnn import units
from flexnn.benchmark import ABLATIONS
from flexnn.errors import one_line, printable
from flexnn.run.options import IO, KV, PROFILES

from . import files, progress
from . import options as option
from .plan import plan
from .run import run
from .terminal import say, write


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.exit(_fail(f"{message}; see {self.prog} --help", 2))


if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[_Parser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["exec"]:
        from flexnn_exec.launch import main as launch

        return launch(given[1:])
    options = _parser().parse_args(arguments)
    warnings.showwarning = _warn
    if sys.stdout is None:
        return _fail("standard output is closed", 2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names that its encoding lacks are no error
    try:
        command: Callable[[argparse.Namespace], int | None] = options.command
        status = command(options) or 0
        sys.stdout.flush()
        return status
    except (flexnn.SessionError, MemoryError) as error:
        return _fail(one_line(error) or "out of memory", 1)
    except BrokenPipeError as error:
        _forget_output()
        return 0 if error.filename is None else _fail(one_line(error), 2)  # who reads our output has seen enough
    except (ValueError, OSError) as error:
        _forget_output()
        return _fail(one_line(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except Exception as error:  # a defect of ours: still one line, no traceback
        return _fail(f"internal: {type(error).__name__}: {one_line(error)}", 1)


def _warn(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    if sys.stderr is not None:
        print(printable(f"{'note' if category is RuntimeWarning else category.__name__}: {message}"), file=sys.stderr)


def _forget_output() -> None:
    """Drop what standard output does not take, or the interpreter tries to write it again at its end, and complains."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _fail(message: str, status: int) -> int:
    if sys.stderr is not None:  # closed: print would take standard output instead
        print(printable(f"error: {message}"), file=sys.stderr)  # one line, whatever the arguments hold
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="flexnn", description="Run ONNX models inside a memory budget.")
    parser.add_argument("--version", action="version", version=f"flexnn {flexnn.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for add in (_add_compile, _add_doctor, _add_run, _add_plan, _add_bench, _add_text, _add_cache, _add_exec):
        add(commands)
    return parser


def _add_compile(commands: _Commands) -> None:
    sub = commands.add_parser("compile", help="compile an ONNX or GGUF model into an artifact")
    sub.add_argument("model", metavar="MODEL.onnx", nargs="?", help="ONNX or GGUF model")
    sub.add_argument("-o", "--output", metavar="OUT.flexnn", help="path of the artifact (default: beside the model)")
    _add_shape(sub)
    sub.add_argument(
        "--dump",
        metavar="STAGE",
        help="print the model after this stage of compiling, and write an artifact only if -o is given;"
        " list: print the names of the stages; all: print every stage",
    )
    sub.add_argument(
        "--follow-links",
        action="store_true",
        help="let files that hold the model's weights be links, also out of its folder; only for models that you trust",
    )
    sub.add_argument(
        "--memory",
        type=option.size,
        metavar="SIZE",
        help="most memory that compiling may take, like 128MiB (default: no limit); what does not fit is refused",
    )
    _add_forms(sub)
    sub.add_argument("--quiet", action="store_true", help="do not report progress")
    sub.set_defaults(command=_compile)


def _add_forms(sub: argparse.ArgumentParser) -> None:
    """Add what the artifact holds in another form than the model."""
    sub.add_argument(
        "--weights",
        metavar="FORM",
        default="f32",
        help="how large weights are stored: f32 (default), f16, s8, q4, or auto:ERROR, as few bits as keep the worst"
        " output's relative L2 against f32 below ERROR, like auto:1e-2; prints a table of what was chosen",
    )
    sub.add_argument(
        "--precision",
        choices=("f32", "f16"),
        default="f32",
        help="f16: store maps between convolutions in 16 bits, and large weights unless --weights says otherwise: half"
        " their bytes, two to four decimal digits; inputs and outputs stay float32, and sums, but on Arm cores that"
        " compute with 16 bits",
    )
    sub.add_argument(
        "--rows",
        choices=("f32", "s8"),
        help="of a GGUF file: s8 (default) rounds the rows that products with weights of types Q4_0, Q4_1 and Q8_0 read"
        " to 8 bits, as llama.cpp does; f32 rounds nothing",
    )
    sub.add_argument(
        "--calibrate",
        metavar="IN.npz",
        action="append",
        help="input arrays by name to measure the error on (default: seeded noise); may be given several times",
    )
    sub.add_argument(
        "--keep",
        action="append",
        metavar="OUT",
        help="return this output, and leave out what only others need (default: all outputs; repeatable)",
    )
    sub.add_argument(
        "--reduce",
        type=option.reduction,
        action="append",
        default=[],
        metavar="OUT=argmax:AXIS|threshold:X",
        help="replace an output by the positions of its largest elements along an axis, or whether elements are above"
        " X, so that the whole output is never in memory (repeatable)",
    )
    sub.add_argument(
        "--kv-capacity",
        type=option.positive,
        metavar="N",
        help="have sessions keep the keys and values of a decoder as state, of so many tokens if they ask for no other"
        " number",
    )


def _add_text(commands: _Commands) -> None:
    from . import chat

    chat.add_chat(commands.add_parser("chat", help="talk with a language model (GGUF), or have it answer once"))
    chat.add_serve(commands.add_parser("serve", help="serve a language model (GGUF) to clients of OpenAI's API"))


def _add_exec(commands: _Commands) -> None:
    commands.add_parser(
        "exec", help="run a program that uses onnxruntime on FlexNN: flexnn exec --help", add_help=False
    )


def _add_cache(commands: _Commands) -> None:
    from . import cache

    sub = commands.add_parser("cache", help="list or remove the artifacts that opening ONNX files left")
    kinds = sub.add_subparsers(required=True, metavar="list|add|clear", parser_class=_Parser)
    show = kinds.add_parser("list", help="list them, what was used last at the end")
    show.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    show.set_defaults(command=cache.show)
    add = kinds.add_parser("add", help="compile a model and keep its artifact, so that it opens at once later")
    add.add_argument("model", metavar="MODEL.onnx", help="ONNX model")
    _add_shape(add)
    add.set_defaults(command=cache.add)
    clear = kinds.add_parser("clear", help="remove them")
    clear.set_defaults(command=cache.clear)
    for one in (add, clear):
        one.add_argument("--quiet", action="store_true", help="print no progress, nor what was removed")


def _add_doctor(commands: _Commands) -> None:
    sub = commands.add_parser("doctor", help="report this machine's CPU, memory and storage")
    sub.add_argument(
        "path", nargs="?", default=".", metavar="PATH", help="file or folder on the storage to time (default: .)"
    )
    sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    sub.set_defaults(command=_doctor)


def _add_run(commands: _Commands) -> None:
    sub = commands.add_parser("run", help="run a model and report memory and latency")
    _add_model(sub)
    sub.add_argument(
        "--repeat",
        type=option.positive,
        metavar="N",
        help="number of timed runs (default: 10; with --live: until Ctrl-C)",
    )
    sub.add_argument(
        "--warmup", type=option.count, default=2, metavar="N", help="number of runs before the timed ones (default: 2)"
    )
    sub.add_argument("--input", metavar="IN.npz", help="input arrays by name (default: random, the same each time)")
    _add_set(sub)
    sub.add_argument("--output", metavar="OUT.npz", help="save the outputs")
    sub.add_argument(
        "--live", action="store_true", help="show memory, stalls and rate on standard error while the model runs"
    )
    sub.add_argument(
        "--energy", action="store_true", help="measure joules per run, where the system has sensors; takes a second"
    )
    sub.add_argument(
        "--trace", metavar="FILE.json", help="save loads, steps and stalls of the last run, for ui.perfetto.dev"
    )
    _add_session(sub)
    _add_state(sub)
    sub.set_defaults(command=run)


def _add_plan(commands: _Commands) -> None:
    sub = commands.add_parser("plan", help="show what a run would do and cost, without running")
    _add_model(sub)
    sub.add_argument(
        "--html", metavar="FILE.html", help="also write a report with pictures, which a browser shows without network"
    )
    sub.add_argument("--check", action="store_true", help="also validate the plan, independently of the planner")
    _add_set(sub)
    _add_session(sub)
    _add_state(sub)
    sub.add_argument(
        "--runs-per-day", type=option.positive, metavar="N", help="also say what so many runs a day write to --spill"
    )
    sub.set_defaults(command=plan)


def _add_bench(commands: _Commands) -> None:
    sub = commands.add_parser("bench", help="measure latency against memory, or what each part of the design is worth")
    sub.add_argument(
        "what",
        choices=("curve", "ablations"),
        help="curve: latency against memory; ablations: latency without each part of the design",
    )
    _add_model(sub)
    sub.add_argument(
        "--storage",
        type=option.size_per_second,
        default=0,
        metavar="RATE",
        help="limit the rate of reading, for example 40MB/s (default: no limit)",
    )
    sub.add_argument(
        "--repeat", type=option.positive, default=10, metavar="N", help="number of timed runs of each (default: 10)"
    )
    sub.add_argument(
        "--only",
        action="append",
        choices=ABLATIONS,
        metavar="PART",
        help=f"run only this ablation (repeatable; default: all): {', '.join(ABLATIONS)}",
    )
    sub.add_argument("--no-peers", action="store_true", help="do not compare with onnxruntime")
    sub.add_argument(
        "--compare",
        metavar="STORED.json",
        help="compare with the stored output of --json; exit with status 1 if this run is slower",
    )
    sub.add_argument(
        "--tolerance",
        type=option.fraction,
        default=0.1,
        metavar="FRACTION",
        help="slowdown that counts as a regression (default: 0.1)",
    )
    _add_set(sub)
    sub.add_argument("--draw", metavar="FILE", help="draw the curve as .svg or .png (needs matplotlib)")
    sub.set_defaults(command=_bench)


def _add_model(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "model", metavar="MODEL", help="artifact (.flexnn), or ONNX model (.onnx), which is compiled first"
    )
    sub.add_argument(
        "--memory",
        type=option.memory,
        metavar="SIZE",
        help="memory budget: bytes, a size like 64MiB, a part like 50%% of the memory that this process may take, or"
        " auto: all of it but a reserve, followed while it changes (default: no limit)",
    )
    sub.add_argument(
        "--threads", type=option.threads, metavar="N", help="number of compute threads (default: the usable CPUs)"
    )
    _add_shape(sub)
    sub.add_argument(
        "--io", choices=IO, default=IO[0], help="read weights through the page cache or past it (default: buffered)"
    )
    sub.add_argument(
        "--profile",
        choices=PROFILES,
        help="measure (default): time kernels and storage on first use and keep the times; analytic: estimate times",
    )
    sub.add_argument(
        "--groups",
        type=option.groups,
        metavar="off|auto|K",
        help="split each layer of independent nodes into K groups and run the nodes of a group at the same time (needs"
        " all weights to stay in memory); auto: the K that is predicted to be fastest (default: off)",
    )
    sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def _add_session(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--reuse-outputs",
        action="store_true",
        help="let each run overwrite the outputs of the run before, so that the budget holds them only once",
    )
    sub.add_argument(
        "--deterministic",
        action="store_true",
        help="choose kernels by rule, so that outputs are equal bit for bit whatever the threads, the budget and times",
    )
    sub.add_argument(
        "--spill",
        metavar="DIR",
        help="let activations be written to a file in DIR, without a name, and read back (fixed shapes; default: off)",
    )


def _add_state(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--kv-capacity",
        type=option.positive,
        metavar="N",
        help="keep the keys and values of a decoder as state, of so many tokens (default: as the artifact says)",
    )
    sub.add_argument("--kv", choices=KV, default=KV[0], help=option.KV_HELP)


def _add_set(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        type=option.setting,
        metavar="NAME=NUMBER",
        help="number, or numbers with commas, of an input; one number fills the input's shape (repeatable)",
    )


def _add_shape(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--shape",
        action="append",
        default=[],
        type=option.shape,
        metavar="NAME=1,3,224,224",
        help="shape of an open input (repeatable)",
    )


def _compile(options: argparse.Namespace) -> None:
    if options.dump == "list":
        from flexnn.graph.dump import stages

        say("\n".join(stages()))
        return
    if options.model is None:
        raise flexnn.CompileError("MODEL.onnx is missing: see flexnn compile --help")
    shapes = dict(options.shape)
    if options.dump:
        from flexnn.compiler import dump_stage

        dump_stage(
            options.model,
            options.dump,
            write,
            shapes,
            keep=options.keep,
            reduce=dict(options.reduce),
            follow_links=options.follow_links,
        )
        if options.output is None:
            return
    said: list[str] = []
    with progress.shown(quiet=options.quiet) as report:
        path = flexnn.compile(
            options.model,
            options.output,
            shapes=shapes,
            memory=options.memory,
            weights=options.weights,
            precision=options.precision,
            rows=options.rows,
            calibrate=[files.load_arrays(name) for name in options.calibrate] if options.calibrate else None,
            keep=options.keep,
            reduce=dict(options.reduce),
            tell=said.append,
            progress=report,
            follow_links=options.follow_links,
            kv_capacity=options.kv_capacity,
        )
    for text in said:
        say(text, sys.stderr if options.dump else sys.stdout)
    say(f"{path}  {units.format_bytes(os.path.getsize(path))}", sys.stderr if options.dump else sys.stdout)


def _bench(options: argparse.Namespace) -> int:
    from flexnn.benchmark import command  # costs memory that other commands promise not to take

    return command.run(options)


def _doctor(options: argparse.Namespace) -> None:
    from flexnn import doctor

    report = doctor.examine(options.path)
    if options.json:
        print(json.dumps(report))
    else:
        say(doctor.summary(report))
