"""Opening an artifact for running: the one place that tells bound graphs from models whose shapes are open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flexnn import _core
from flexnn.errors import CompileError
from flexnn.graph.ir import Array

from .model_file import ModelFile
from .options import RunOptions
from .protocol import Run

if TYPE_CHECKING:
    from .open_shapes import OpenShapesRun
    from .sharing import SharedArena


def open_run(path: str, shapes: Mapping[str, tuple[int, ...]], options: RunOptions) -> Run:
    """Open the artifact at ``path`` for running. Raises BudgetError, ArtifactError, CompileError, GraphError,
    SessionError, OSError.
    """
    if options.asked is None:
        return _opened(path, shapes, options)
    from .watched import open_watched  # most budgets are sizes

    return open_watched(lambda memory: _opened(path, shapes, options._replace(memory=memory)), options.asked, path)


def _opened(path: str, shapes: Mapping[str, tuple[int, ...]], options: RunOptions) -> Run:
    _core.cut_code()
    file = ModelFile(path, options.io, shapes)
    try:
        keeps_state = file.keeps_state(options)
        if file.open_model is None:
            from .fixed import FixedRun  # sessions of open shapes do without

            return FixedRun(file, options)
        file.refuse_spill(options.spill)
        if keeps_state:
            from .stateful import StateRun

            file.refuse_groups(options.groups)
            return StateRun(file, file.with_capacity(options))
        from .open_shapes import OpenShapesRun  # binding shapes costs imports that most sessions do without

        return OpenShapesRun(file, options.counting_outputs, look_ahead)
    except BaseException:
        file.close()
        raise


def prepare(kind: str, *, measures: bool = True) -> None:
    """Import what opening a model of this kind needs, "open" or "bound", while its artifact is made; ``measures``:
    whether the session measures the machine.
    """
    from flexnn.artifact import parts  # noqa: F401

    if measures:
        from flexnn.measure import device  # noqa: F401
    if kind == "open":
        from flexnn.graph import passes  # noqa: F401 (there are no templates yet: the first run binds)
        from flexnn.planning import layout  # noqa: F401

        from . import open_shapes  # noqa: F401
    else:
        from . import fixed  # noqa: F401


def open_pooled(path: str, shapes: Mapping[str, tuple[int, ...]], options: RunOptions, shared: SharedArena) -> Run:
    """Open the artifact at ``path`` for running in a pool. Raises as ``open_run`` does."""
    from .pooled_fixed import PooledFixedRun

    _core.cut_code()
    file = ModelFile(path, options.io, shapes)
    try:
        file.refuse_groups(options.groups)
        if file.open_model is None:
            return PooledFixedRun(file, options, shared)
        if file.keeps_state(options):
            raise CompileError(f"{path}: the model keeps state, which sessions of a pool do not: open it alone")
        from .pooled_open import PooledOpenRun

        opened: Run = PooledOpenRun(file, options, shared, look_ahead)
        return opened
    except BaseException:
        file.close()
        raise


def look_ahead(run: OpenShapesRun, inputs: Sequence[Array]) -> int:
    """Return the smallest budget that a refused run needs."""
    from .ahead import smallest_budget  # few runs are refused

    return smallest_budget(run, inputs)
