"""Damaged headers, sections, templates, ONNX and GGUF files, guided by the coverage of the Python code that reads them.

    python -m bench.faults guided header --seconds 60
    python -m bench.faults guided graph --seconds 600 --corpus FOLDER

Each target gets bytes, which atheris (libFuzzer for Python) changes: ``header`` 128 bytes, ``graph`` and ``model`` the
JSON of an artifact's first section, ``templates`` the bytes of an open model's templates, ``onnx`` and ``gguf`` a
model, ``state`` a session's state. A checksum is none of its business: these are made right. Any exception that is not
one of FlexNN's own, an input that takes over 10 s of CPU or 600 s, or 2 GiB of memory, is wrong; libFuzzer then writes
the input to a file and ends with a status of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.cli import cli
from bench.process import module

Target = Callable[[bytes], None]
SECONDS_MAX = 10.0
"""Most seconds of CPU of an input. libFuzzer's own limit runs on while the machine is busy or stands still, so it is
wide.
"""
LIMITS = ("-timeout=600", "-rss_limit_mb=2048", "-max_len=65536")


READERS = (
    "flexnn.artifact", "flexnn.graph.attributes", "flexnn.graph.onnx_file", "flexnn.graph.operators",
    "flexnn.graph.template_reader", "flexnn.regions.template_reader", "flexnn.llm.gguf_file", "flexnn.llm.families",
    "flexnn.llm.decoder", "flexnn.llm.weights", "flexnn.run.state_file",
)  # fmt: skip
"""Modules that are watched; instrumenting takes seconds for each."""


def make(folder: Path) -> None:
    """Compile a closed and an open small model; in a process of its own, so that nothing is imported here."""
    import flexnn
    from bench.faults.mutants import write_layers
    from bench.models.tiny import control

    flexnn.compile(write_layers(folder / "layers.onnx"), folder / "layers.flexnn")
    (folder / "control.onnx").write_bytes(control())
    flexnn.compile(folder / "control.onnx", folder / "control.flexnn")


def _section(artifact: Path) -> bytes:
    from flexnn.artifact.format import HEADER_BYTES, Header

    content = artifact.read_bytes()
    header = Header.unpack(content[:HEADER_BYTES], len(content))
    return content[header.graph_offset : header.graph_offset + header.graph_bytes]


def header(_: Path) -> tuple[Target, list[bytes]]:
    """Sealed headers are taken or refused."""
    from flexnn._core import crc32c
    from flexnn.artifact.format import HEADER_BYTES, PAGE, Header

    size = 5 * PAGE
    good = Header(16, 1, size, HEADER_BYTES, 1000, 1128, 3, PAGE, 4 * PAGE, bytes(32), 1, 2).pack()

    def read(data: bytes) -> None:
        Header.unpack(data, size)
        body = data[: HEADER_BYTES - 4].ljust(HEADER_BYTES - 4, b"\0")
        Header.unpack(body + crc32c(body).to_bytes(4, "little"), size)

    return read, [good]


def graph(folder: Path) -> tuple[Target, list[bytes]]:
    """The graph of a closed model, with the reader's deep checks."""
    from flexnn.artifact.reader import check_graph
    from flexnn.artifact.section import load_graph

    return lambda data: check_graph(load_graph(data)), [_section(folder / "layers.flexnn")]


def model(folder: Path) -> tuple[Target, list[bytes]]:
    """An open model."""
    from flexnn.artifact.model_section import load_stored

    return lambda data: load_stored(data) and None, [_section(folder / "control.flexnn")]


def templates(folder: Path) -> tuple[Target, list[bytes]]:
    """Templates of an open model; each is loaded."""
    from flexnn.artifact import open_artifact
    from flexnn.regions.region import Region
    from flexnn.regions.template_reader import load_templates

    artifact = open_artifact(str(folder / "control.flexnn"))
    stored = artifact.contents
    region = Region(stored.model.graph)

    def read(data: bytes) -> None:
        for found in load_templates(data, region, stored.constants, stored.model.opset).values():
            for template in found:
                template.loaded({})

    return read, [stored.template_source.load().tobytes()]


def onnx(folder: Path) -> tuple[Target, list[bytes]]:
    """The walk over an ONNX file's protobuf, and what onnx makes of what is left."""
    from flexnn.graph.onnx_file import open_onnx

    path = folder / "model.onnx"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        open_onnx(str(path)).file.close()

    return read, [(folder / f"{name}.onnx").read_bytes() for name in ("layers", "control")]


def gguf(folder: Path) -> tuple[Target, list[bytes]]:
    """The head of a GGUF file, and the decoder that is made of it."""
    from bench.faults.subjects import write_gguf
    from flexnn.llm.decoder import load_gguf

    path = folder / "model.gguf"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        load_gguf(str(path))

    return read, [write_gguf(folder / "good.gguf").read_bytes()]


def state(folder: Path) -> tuple[Target, list[bytes]]:
    """A file of a session's state: what it holds is taken whole, or the states stay as they were."""
    import numpy as np

    import flexnn
    from flexnn._core import crc32c
    from flexnn.run.state_file import checked, save

    path, model = str(folder / "state"), bytes(32)
    states = [np.zeros((1, 2, 8, 4), np.float16) for _ in range(3)]
    save(path, model, [(states, 5)])
    good = Path(path).read_bytes()
    head = len(good) - 3 * 2 * 5 * 4 * 2 - 4

    def read(data: bytes) -> None:
        for content in (data, _sealed(data, head, crc32c)):
            for array in states:
                array.fill(7)
            Path(path).write_bytes(content)
            try:
                with checked(path, model, [states]) as file:
                    assert all(0 <= length <= 8 for length in file.read())
            except flexnn.StateError:
                assert all((array == 7).all() for array in states)

    return read, [good]


def _sealed(data: bytes, head: int, crc32c: Callable[[bytes], int]) -> bytes:
    """Return a state's file with the checksums of its head, of ``head`` bytes, and of its rows."""
    first, rows = data[: head - 4], data[head:-4]
    return b"".join((first, crc32c(first).to_bytes(4, "little"), rows, crc32c(rows).to_bytes(4, "little")))


class SlowError(BaseException):
    """An input took too much CPU."""


def slow(*_: object) -> None:
    """End an input that takes too much CPU."""
    raise SlowError


TARGETS = {
    "header": header,
    "graph": graph,
    "model": model,
    "templates": templates,
    "onnx": onnx,
    "gguf": gguf,
    "state": state,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.faults guided", __doc__, is_json=False)
    parser.add_argument("target", choices=list(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time; it is printed")
    parser.add_argument("--corpus", type=Path, help="folder of inputs that are kept from one time to the next")
    parser.add_argument("--only", type=Path, help="one input, from this file")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.make is not None:
        make(options.make)
        return 0
    import atheris  # it is not in the extras of tests: large, and only for this

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        module("bench.faults.guided", options.target, "--make", folder)
        with atheris.instrument_imports(include=list(READERS)):
            import flexnn

            target, seeds = TARGETS[options.target](Path(folder))
        if options.only is not None:
            target(options.only.read_bytes())
            return 0
        corpus = options.corpus or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        corpus.mkdir(parents=True, exist_ok=True)
        for i, seed in enumerate(seeds):
            (corpus / f"seed{i}").write_bytes(seed)

        def one(data: bytes) -> None:
            signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
            with contextlib.suppress(flexnn.FlexNNError):
                target(data)
            signal.setitimer(signal.ITIMER_PROF, 0)

        signal.signal(signal.SIGPROF, slow)

        limits = [*LIMITS, f"-max_total_time={options.seconds}", f"-seed={options.seed}", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *limits, os.fspath(corpus)], one)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
