"""Compiling turns an ONNX model into an artifact. Only compiling needs onnx.

onnx, hashlib and subprocess are imported lazily: they cost more memory than the rest of ``import flexnn``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flexnn.errors import CompileError, printable
from flexnn.garbage import Uncollected
from flexnn.graph.ir import GraphError
from flexnn.model_files import Progress, check_places, check_regular, checked_precision, checked_rows, is_gguf, sha256
from flexnn.units import parse_bytes

if TYPE_CHECKING:
    from flexnn.artifact.model_section import StoredModel
    from flexnn.graph.beside import Beside
    from flexnn.graph.ir import Graph, Weight
    from flexnn.graph.model import Model
    from flexnn.graph.sources import ModelSource
    from flexnn.narrowing import Wanted

ONNX_LACKS = "the onnx package: pip install 'flexnn[compile]'"
_EXTRA = ("onnx", "google", "ml_dtypes")
"""Packages that come with the extra ``compile``."""
_Observer = Callable[[str, "Model | Graph | StoredModel | GraphError"], None]


def compile(  # noqa: A001 (a public name)
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    memory: str | int | None = None,
    weights: str = "f32",
    precision: str = "f32",
    calibrate: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    keep: Sequence[str] | None = None,
    reduce: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    rows: str | None = None,
    follow_links: bool = False,
    kv_capacity: int | None = None,
    tell: Callable[[str], object] | None = None,
) -> str:
    """Compile the ONNX file ``model`` to ``output``; return the path of the output.

    By default the output is beside the model and ends in ``.flexnn``. ``shapes`` binds open inputs, by name. Weights
    are streamed, so most models take few MiB beside the graph. ``memory`` (bytes, or text like ``"128MiB"``) limits
    what compiling adds to the process: what would not fit is refused before it is made, with a budget that takes it;
    the artifact is the same. Only a complete artifact replaces a file at ``output``.
    ``weights`` says in which form large weights of products are stored: ``f32``, ``f16``, ``s8`` (8 bits), ``q4`` (4
    bits), or ``auto:1e-2``: as few bits as keep the error below 1e-2. Weights that the model has in blocks take a form
    that is named where they are smaller in it; an error leaves them. The error is the relative L2 of the worst output
    against f32 on the worst of the inputs ``calibrate``, arrays by input name or several such, or else of seeded noise
    (of several sizes where shapes are open); narrowing stops at half of it. ``tell`` is called with a table, which the
    artifact keeps. ``precision="f16"`` keeps maps between convolutions, and large weights unless ``weights`` says
    otherwise, in 16 bits: 2 to 4 digits. Sums, inputs and outputs stay float32. Numbers beyond 65,504 fail a run.
    ``keep`` names the outputs that sessions return; what only others need is left out. ``reduce`` replaces outputs, by
    name, so that the whole one is never in memory: ``"argmax:AXIS"`` by the positions of the largest elements along an
    axis, ``"threshold:X"`` by whether each element is above X.
    ``rows`` is for language models in GGUF files: by default, or with ``s8``, products with weights of types Q4_0, Q4_1
    and Q8_0 round the rows that they read to 8 bits, 32 numbers with one scale, as llama.cpp does; not with ``f32``.
    ``kv_capacity`` has sessions keep state of so many tokens unless they ask for others; models without are refused.
    ``follow_links`` lets files that hold the model's weights be links, also out of its folder, as those in caches of
    model hubs are: a model that you do not trust could so read any file.
    Raises CompileError, OSError, or GraphError for what is not supported. A RuntimeWarning names layers left to numpy.
    """
    source = os.fsdecode(model)
    target = os.fsdecode(output) if output is not None else os.path.splitext(source)[0] + ".flexnn"
    wanted = _wanted("f16" if (weights, checked_precision(precision)) == ("f32", "f16") else weights, calibrate)
    compile_to(
        source,
        target,
        shapes or {},
        progress,
        follow_links=follow_links,
        kv_capacity=kv_capacity,
        memory=None if memory is None else parse_bytes(memory),
        wanted=wanted,
        precision=precision,
        rows=checked_rows(source, rows),
        tell=tell,
        keep=keep,
        reduce=reduce,
        warn=_warn,
    )
    return target


def _warn(left: str) -> None:
    """Warn of layers that are left to numpy."""
    import warnings

    warnings.warn(printable(left), RuntimeWarning, stacklevel=4)


def compile_to(
    source: str,
    target: str,
    shapes: Mapping[str, tuple[int, ...]],
    progress: Progress | None = None,
    *,
    follow_links: bool = False,
    kv_capacity: int | None = None,
    digest: bytes | None = None,
    memory: int | None = None,
    lasting: bool = True,
    wanted: Wanted | None = None,
    precision: str = "f32",
    rows: str | None = None,
    tell: Callable[[str], object] | None = None,
    keep: Sequence[str] | None = None,
    reduce: Mapping[str, str] | None = None,
    warn: Callable[[str], object] | None = None,
) -> list[str]:
    """Compile the file ``source``, whose SHA-256 may be known, to ``target``; return the names of the files beside it
    that hold weights; ``memory``: most bytes that the process may grow by; ``lasting``: whether to wait until the disk
    has it; ``wanted``: other forms of weights than those of the model, of which ``tell`` is told; ``keep``,
    ``reduce``, ``precision``, ``rows`` and ``kv_capacity``: as for ``compile``; ``warn`` is told of layers that are
    left to numpy. Raises as ``compile`` does.
    """
    from flexnn.graph.allowance import allowed

    check_places(source, target)
    if os.path.exists(target) and os.path.samefile(source, target):
        raise CompileError(f"{target}: the artifact would overwrite the model; name another file with -o")
    externals: list[str] = []
    with allowed(memory) as budget:
        model = _load(source, follow_links=follow_links, externals=externals, rows=rows)
        reduce_outputs = _reduced(model, shapes, keep, reduce)
        if wanted is None:
            reduce_outputs()
        with Uncollected(len(model.graph.nodes)):
            contents = _contents(model, dict(shapes), precision="f32" if wanted else precision)
        if wanted is not None:
            from flexnn.narrowing import narrowed

            left, folder = None if budget is None else max(budget.left, 1), os.path.dirname(os.path.abspath(target))
            said = narrowed(contents, wanted, partial(_contents_again, model), folder, left, progress)
            model.about = model.about._replace(weights=said)
            if tell is not None:
                tell(said)
            reduce_outputs()  # now, as errors are those of whole outputs
            contents = _contents_again(model, precision)
        if kv_capacity is not None:
            from flexnn.artifact.kept_state import keep_state

            keep_state(contents, kv_capacity, source)
        if budget is not None:
            budget.check("the model")
        with Uncollected(len(model.graph.nodes)):
            _write(contents, target, digest or sha256(source, progress), progress, lasting)
        of_numpy = str(getattr(contents, "left", ""))  # a bound graph leaves none
        if warn is not None and of_numpy:
            warn(of_numpy)
    return externals


class First(NamedTuple):
    """An artifact that is made for somebody who waits."""

    externals: list[str]
    """Names of the files beside the model that hold weights."""
    rest: Callable[[str], None] | None
    """Writer of the artifact with all that was left out, to a path; None: nothing was left out."""


def compile_first(
    source: str,
    target: str,
    shapes: Mapping[str, tuple[int, ...]],
    progress: Progress | None,
    digest: bytes | Callable[[], bytes],
    told: Callable[[str], None],
    beside: Beside | None = None,
) -> First:
    """Compile as ``compile_to`` does, but leave out what first runs can do without: the templates of a model with open
    shapes. If ``digest`` is a function, it is called for the file's SHA-256 when all else is done. ``told`` is called
    with "open" or "bound" when it is known which the model is; a process ``beside`` may have read it.
    """
    from flexnn.graph.ledger import counting

    check_places(source, target)
    externals: list[str] = []
    later: list[Callable[[], None]] = []

    def observe(stage: str, made: Model | Graph | StoredModel | GraphError) -> None:
        if stage in ("open", "bound"):
            told(stage)

    contents = _contents(_load(source, externals=externals, beside=beside), dict(shapes), observe, later=later)
    unused: list[ModelSource] = []
    if later:
        from flexnn.graph.model_sources import unused_sources

        unused = unused_sources(contents.model)  # type: ignore[union-attr]
    _write(contents, target, digest, progress, lasting=False)

    def rest(path: str) -> None:
        for constant in unused:
            constant.used = False  # writing read them, which says nothing
        with counting(sum(weight.nbytes for weight in contents.weights)):
            later[0]()
        _write(contents, path, digest, None, lasting=False)

    return First(externals, rest if later else None)


def _write(
    contents: Graph | StoredModel,
    target: str,
    digest: bytes | Callable[[], bytes],
    progress: Progress | None,
    lasting: bool,
) -> None:
    from flexnn.artifact.writer import write_artifact

    total = sum(weight.nbytes for weight in contents.weights)
    done = 0

    def report(weight: Weight) -> None:
        nonlocal done
        done += weight.nbytes
        if progress:
            progress(printable(weight.name), done, total)

    write_artifact(contents, target, digest, report, lasting=lasting)


def dump_stage(
    model: str | os.PathLike[str],
    stage: str,
    write: Callable[[str], object],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    keep: Sequence[str] | None = None,
    reduce: Mapping[str, str] | None = None,
    follow_links: bool = False,
) -> None:
    """Hand ``write`` the text of one stage of compiling ``model`` (flexnn/graph/dump.py names them), or of all.

    Raises as ``compile`` does, and CompileError where this model has no such stage.
    """
    from flexnn.graph.dump import stages

    source, names = os.fsdecode(model), stages()
    if stage not in (*names, "all"):
        raise CompileError(f"no stage {stage!r}; the stages are {', '.join(names)}, all")
    check_regular(source)
    loaded = _load(source, follow_links=follow_links)
    _reduced(loaded, shapes or {}, keep, reduce)()
    with contextlib.suppress(_Reached):
        _contents(loaded, dict(shapes or {}), _Dump(source, stage, write).stage)


class _Reached(Exception):  # noqa: N818 (no error)
    """The stage that was asked for is written, so compiling can stop."""


class _Dump:
    """Writer of stages as compiling reaches them."""

    def __init__(self, source: str, wanted: str, write: Callable[[str], object]) -> None:
        from flexnn.graph.dump import namer

        self._source, self._wanted, self._write = source, wanted, write
        self._unique = namer()
        self._lacking = ""

    def stage(self, name: str, made: Model | Graph | StoredModel | GraphError) -> None:
        """Called with each stage; with the reason, where a model is not bound before it runs."""
        if isinstance(made, GraphError):
            self._lacking = f"no stages between imported and packed: the model is bound when it runs: {made}"
            if self._wanted == "all":
                self._write(f"== {self._lacking}\n")
            return
        unique = self._unique(name)
        if self._wanted == "all":
            self._write(f"== {unique}\n{_text(made, unique)}")
        elif self._wanted == unique:
            self._write(_text(made, unique))
            raise _Reached
        elif self._lacking and name == "packed":
            raise CompileError(f"{self._source}: {self._lacking}")


def _text(made: Model | Graph | StoredModel, stage: str) -> str:
    from flexnn.graph.dump import dump, dump_model, dump_weights
    from flexnn.graph.ir import Graph
    from flexnn.graph.model import Model

    if isinstance(made, Model):
        return dump_model(made)
    if isinstance(made, Graph):
        return dump(made) + (dump_weights(made.weights) if stage == "packed" else "")
    return dump_model(made.model) + dump_weights(made.weights)


def _wanted(weights: str, calibrate: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> Wanted | None:
    """Return the wishes for the weights; None: there are none. Raises ValueError."""
    if weights == "f32" and calibrate is None:
        return None
    from flexnn.narrowing import parse_wanted

    wanted = parse_wanted(weights, calibrate)
    return None if wanted.form == "f32" else wanted


def _reduced(
    model: Model,
    shapes: Mapping[str, tuple[int, ...]],
    keep: Sequence[str] | None,
    reduce: Mapping[str, str] | None,
) -> Callable[[], None]:
    """Leave out outputs that are not to be kept, and check reductions of the others at these shapes; return what makes
    them. Raises GraphError, ValueError.
    """
    if keep is not None:
        from flexnn.graph.kept_outputs import keep_outputs

        keep_outputs(model, keep)
    if not reduce:
        return lambda: None
    from flexnn.graph import bind_shapes
    from flexnn.graph.reductions import check_reductions, parse_reduction, reduce_outputs

    bind_shapes(model, shapes)  # sizes say how many positions an axis has
    reductions = {name: parse_reduction(text) for name, text in reduce.items()}
    check_reductions(model, reductions)
    return partial(reduce_outputs, model, reductions)


def _contents_again(model: Model, precision: str = "f32") -> Graph | StoredModel:
    """Return the contents of a model whose shapes were bound before. Constants count as unused at first: those that
    only panels are made of are not stored beside them.
    """
    from flexnn.artifact.model_section import constants_of, source_of

    for constant in constants_of(model):
        source_of(constant).used = False
    return _contents(model, {}, precision=precision)


def _load(
    source: str,
    *,
    follow_links: bool = False,
    externals: list[str] | None = None,
    rows: str | None = None,
    beside: Beside | None = None,
) -> Model:
    """Read the model; ``externals`` gets the names of files beside ``source``. Raises CompileError if onnx is not
    installed.
    """
    if is_gguf(source):
        from flexnn.llm.decoder import load_gguf

        return load_gguf(source, rows)
    from flexnn.graph import load_model

    try:
        model = load_model(source, follow_links=follow_links, beside=beside)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _EXTRA:
            raise
        raise CompileError(f"compiling needs {ONNX_LACKS}") from None
    if externals is not None:
        externals += model.externals
    return model


def _contents(
    model: Model,
    shapes: dict[str, tuple[int, ...]],
    observer: _Observer | None = None,
    *,
    later: list[Callable[[], None]] | None = None,
    precision: str = "f32",
) -> Graph | StoredModel:
    """Return the contents of the artifact: a bound graph, or the model if its shapes or its control flow are open.

    ``observer`` is called with each stage; ``precision`` is as for ``compile``. If ``later`` is given, it gets what can
    be left for later, if anything can: the call adds that to the contents.
    """
    import numpy as np

    from flexnn.artifact.about_weight import about_weight
    from flexnn.graph import bind_shapes
    from flexnn.graph.bind import bind_model
    from flexnn.graph.ledger import counting
    from flexnn.graph.model import stated_bytes
    from flexnn.graph.passes import run_passes
    from flexnn.graph.unchanged import read_from_outside

    observer = observer or (lambda name, made: None)
    read_from_outside(model)
    bind_shapes(model, shapes)
    observer("imported", model)
    model.precision = precision
    contents: Graph | StoredModel
    with np.errstate(all="ignore"), counting(stated_bytes(model)) as ledger:  # constants may be no numbers
        try:
            graph = bind_model(model)
            observer("bound", graph)
            contents = run_passes(graph, observer, precision=precision)
        except GraphError as error:
            if ledger.refusal:
                raise GraphError(ledger.refusal) from None
            observer("open", error)
            from flexnn.open_contents import open_contents  # only where shapes are open

            contents = open_contents(model, error, later)
    observer("packed", contents)
    said = about_weight(model.about)
    if said is not None:
        contents.weights.append(said)
    return contents
