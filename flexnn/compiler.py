"""Compiling: an ONNX model into an artifact. The only entry that needs onnx, which it imports when called.

So it does hashlib, subprocess and tempfile: 5.6 MB together, twice of what the rest of ``import flexnn`` costs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping

Progress = Callable[[str, int, int], None]
"""Called with what was just done, bytes done and bytes in all."""

_READ_BYTES = 1 << 20


class CompileError(ValueError):
    """A model that does not compile; the message is one line saying what, where and what would help."""


def compile(  # noqa: A001 (the name DESIGN fixes)
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    progress: Progress | None = None,
) -> str:
    """Compiles the ONNX file ``model`` to ``output`` (default: beside it, ``.flexnn``); returns the output's path.

    ``shapes`` binds dynamic inputs, by name. Weights are streamed: peak memory is about the largest of them. Raises
    CompileError, GraphError (unsupported operator, attribute or shape; nothing is written) or OSError; a file that was
    at ``output`` is replaced only by a complete new one.
    """
    try:
        from flexnn.graph import load_onnx
    except ModuleNotFoundError as error:
        raise CompileError(f"compiling needs the package {error.name}: pip install {error.name}") from None
    from flexnn.artifact import write_artifact

    source = os.fspath(model)
    target = os.fspath(output) if output is not None else os.path.splitext(source)[0] + ".flexnn"
    if os.path.exists(target) and os.path.samefile(source, target):
        raise CompileError(f"{target}: the artifact would overwrite the model; name another with -o")
    digest = _sha256(source)
    graph = load_onnx(source, dict(shapes or {}))
    total = sum(weight.nbytes for weight in graph.weights)
    done = 0

    def report(weight: object) -> None:
        nonlocal done
        done += weight.nbytes  # type: ignore[attr-defined]
        if progress:
            progress(weight.name, done, total)  # type: ignore[attr-defined]

    write_artifact(graph, target, digest, report)
    return target


def _sha256(path: str) -> bytes:
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.digest()


@contextlib.contextmanager
def compiled(model: str, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Path of an artifact of ``model`` for as long as the context lasts: ``model`` itself, unless it is an ``.onnx``.

    An ONNX file is compiled by a process of its own, so that onnx and what it allocates never become part of this one,
    into the user's cache directory (not /tmp, which may be memory).
    """
    if not model.lower().endswith(".onnx"):
        if shapes:
            raise CompileError(f"{model}: shapes are bound when the model is compiled; give --shape to compile")
        yield model
        return
    import subprocess
    import tempfile

    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "flexnn")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="session-") as scratch:
        target = os.path.join(scratch, "model.flexnn")
        arguments = [sys.executable, "-P", "-m", "flexnn", "compile", model, "-o", target, "--quiet"]
        for name, dims in shapes.items():
            arguments += ["--shape", f"{name}={','.join(map(str, dims))}"]
        process = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if process.returncode:
            lines = process.stderr.strip().splitlines() or [f"compiling ended with status {process.returncode}"]
            raise CompileError(lines[-1].removeprefix("error: "))
        yield target
