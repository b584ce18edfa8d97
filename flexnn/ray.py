"""Batch scoring with Ray Data: workers that each hold a session, as many on a node as its memory has room for.

    scored = flexnn.ray.score(ray.data.read_images("pictures/"), "model.flexnn", memory="48MiB", prepare=prepare)

Progress, retries and errors are Ray's. Ray is imported only when it is used (``pip install flexnn[ray]``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flexnn.graph.ir import GraphError
from flexnn.planned import plan
from flexnn.session import NodeArg, Session
from flexnn.units import parse_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

Batch: TypeAlias = "dict[str, NDArray[Any]]"
"""Columns of some rows."""


class Scorer:
    """A worker: it holds a session, and maps batches of rows to batches of outputs.

    Args:
        model: Artifact or ONNX file; it must be at this path on each node.
        memory: Budget of the session.
        threads: Compute threads of the session.
        prepare: Function that makes the model's inputs of a batch, a row of each for each row; None: the columns of
            the inputs' names are the inputs.
        outputs: Names of the outputs to keep; None: all.
        keep: Columns of the batch that go with the outputs.
        options: Further options of Session.
    """

    def __init__(
        self,
        model: str,
        memory: str | int | None = None,
        threads: int = 1,
        *,
        prepare: Callable[[Batch], Mapping[str, Any]] | None = None,
        outputs: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._session = Session(model, memory, threads, **dict(options or {}))
        self._prepare, self._keep = prepare, tuple(keep)
        self._inputs = self._session.get_inputs()
        ports = {port.name: port for port in self._session.get_outputs()}
        self._outputs = [ports[name] for name in (outputs or ports)]
        self._rows = _rows_of(self._inputs)

    def __call__(self, batch: Batch) -> Batch:
        """Return the outputs for a batch. Raises ValueError where an input is missing or does not fit."""
        made = batch if self._prepare is None else self._prepare(batch)
        feed = {port.name: _input(made, port) for port in self._inputs}
        count = len(next(iter(feed.values()))) if feed else 0
        if any(len(array) != count for array in feed.values()):
            raise ValueError(f"inputs have {', '.join(f'{len(a)} rows of {n!r}' for n, a in feed.items())}")
        columns = self._scored(feed, count)
        return {name: batch[name] for name in self._keep} | columns

    def _scored(self, feed: Batch, count: int) -> Batch:
        names = [port.name for port in self._outputs]
        if self._rows is None or self._rows == count:
            return dict(zip(names, self._session.run(names, feed), strict=True))
        rows = self._rows
        columns: Batch = {}
        for first in range(0, count, rows):
            part = {name: _padded(array[first : first + rows], rows) for name, array in feed.items()}
            for name, array in zip(names, self._session.run(names, part), strict=True):
                if name not in columns:
                    columns[name] = np.empty((count, *array.shape[1:]), array.dtype)
                columns[name][first : first + rows] = array[: count - first]
        return columns


def _rows_of(inputs: Sequence[NodeArg]) -> int | None:
    """Return the rows of a run where the model fixes them; None: any number. Raises ValueError."""
    fixed = {port.shape[0] for port in inputs if port.shape and isinstance(port.shape[0], int)}
    if len(fixed) > 1 or any(not port.shape for port in inputs):
        shapes = ", ".join(f"{port.name!r} {port.shape}" for port in inputs)
        raise ValueError(f"the first dimension of each input must be the rows; the model's are {shapes}")
    return int(fixed.pop()) if fixed else None


def _input(made: Mapping[str, Any], port: NodeArg) -> NDArray[Any]:
    if port.name not in made:
        raise ValueError(f"input {port.name!r} is missing; the batch has {', '.join(map(repr, made))}")
    return np.asarray(made[port.name])


def _padded(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return rows, the last one repeated where some are missing."""
    return array if len(array) == rows else np.concatenate([array, np.repeat(array[-1:], rows - len(array), axis=0)])


def worker_bytes(
    model: str | os.PathLike[str],
    memory: str | int | None = None,
    threads: int = 1,
    *,
    beside: str | int = 0,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Return the bytes that Ray reserves for a worker: what its session takes by its plan, or its budget where shapes
    are open and only runs know, and ``beside``.

    Raises:
        BudgetError: The budget is too small; ``.minimum`` is the smallest that works.
        GraphError: Shapes are open, and there is no budget.
    """
    planned = {name: value for name, value in (options or {}).items() if name not in ("trace", "progress")}
    try:
        own = plan(model, memory=memory, threads=threads, **planned).session_bytes
    except GraphError:
        if memory is None:
            raise
        own = parse_bytes(memory)
    return own + (parse_bytes(beside) if beside else 0)


def score(
    dataset: Any,
    model: str | os.PathLike[str],
    *,
    memory: str | int | None = None,
    threads: int = 1,
    prepare: Callable[[Batch], Mapping[str, Any]] | None = None,
    outputs: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    batch_size: int = 16,
    workers: int | tuple[int, int] | None = None,
    beside: str | int = 0,
    options: Mapping[str, Any] | None = None,
    **ray_options: Any,
) -> Any:
    """Return a dataset of the model's outputs for the rows of ``dataset``, computed by workers that Ray starts.

    Ray reserves for each worker ``threads`` CPUs and the memory that its session takes by its plan
    (``worker_bytes``), so it packs as many on a node as fit. A worker that dies is started again, and its batches are
    computed again.

    Args:
        dataset: A ``ray.data.Dataset``.
        model: Artifact or ONNX file; it must be at this path on each node.
        memory: Budget of each session; None: no limit.
        threads: Compute threads of each session.
        prepare: Function that makes the model's inputs of a batch, a row of each for each row; None: the columns of
            the inputs' names are the inputs.
        outputs: Names of the outputs to keep; None: all.
        keep: Columns that go with the outputs.
        batch_size: Rows of a batch. A model whose first dimension is fixed computes them in parts of that size.
        workers: Number of workers, or the least and the most; None: from one to as many as fit.
        beside: Bytes that the process of a worker takes beside its session: Python, libraries, batches.
        options: Further options of Session.
        **ray_options: Further options of ``Dataset.map_batches``.

    Raises:
        BudgetError: The budget is too small; ``.minimum`` is the smallest that works, in bytes.
        ImportError: Ray is not installed.
    """
    try:
        from ray.data import ActorPoolStrategy
    except ImportError as error:
        raise ImportError(f"flexnn.ray needs Ray Data: pip install flexnn[ray] ({error})") from None
    path = os.path.abspath(os.fsdecode(model))
    given = {"prepare": prepare, "outputs": outputs, "keep": tuple(keep), "options": options}
    least, most = workers if isinstance(workers, tuple) else (workers or 1, workers)
    return dataset.map_batches(
        Scorer,
        fn_constructor_args=(path, memory, threads),
        fn_constructor_kwargs=given,
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        batch_size=batch_size,
        num_cpus=threads,
        memory=worker_bytes(path, memory, threads, beside=beside, options=options),
        **ray_options,
    )
