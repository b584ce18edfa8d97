"""The choice of forms. By error: each layer's error is measured where its weights alone are in 8 bits, and other forms
are as much worse as their rounding is. Layers are narrowed in the order of bytes saved for what the square of the error
grows by, since errors of layers add up as squares; how far is measured. Weights that the model has in blocks are
narrowed by form only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import numpy as np

from flexnn.artifact.model_section import StoredModel, source_of
from flexnn.errors import CompileError, FlexNNError
from flexnn.graph.ir import Graph
from flexnn.quick_dataclass import quick_dataclass

from .layers import FORMS, Layer, layers_of, weigh
from .noise import noise
from .table import table
from .trial import Trial, worst_error
from .wanted import Feed, Wanted

PART = 0.5
"""Part of the error that was asked for at which narrowing stops: other inputs may be worse than those measured on."""
BLOCKS_GAIN = 0.5
"""Blocks of 32 take 6 % more bytes than a scale for each channel: where s8 is asked for, a layer has them if they leave
at most this part of its rounding.
"""
LEAST = 1e-9
"""Error below which a layer's counts as this: no less than what the order of sums changes."""
FILLED = (1.0, 0.5, 0.25)
"""Parts of what the error leaves that further steps may take by prediction, until a measurement agrees."""
Report = Callable[[str, int, int], None]


@quick_dataclass(slots=True)
class _Step:
    """A layer's way from one form to the next smaller one that is worth it."""

    layer: int
    form: str
    saved: int
    error: float
    """Growth of the square of the error."""


def narrowed(
    contents: Graph | StoredModel,
    wanted: Wanted,
    again: Callable[[], Graph | StoredModel],
    folder: str,
    memory: int | None = None,
    report: Report | None = None,
) -> str:
    """Mark the model's constants with the forms that are chosen for them; return the text of what was chosen.

    ``again`` makes contents with the forms that constants are marked with. Artifacts for measuring are made in
    ``folder``. Raises CompileError where errors cannot be measured.
    """
    report = report or (lambda name, done, whole: None)
    layers = _weighed(contents, wanted, report)
    with tempfile.TemporaryDirectory(prefix=".flexnn-trial-", dir=folder) as place:
        trial = Trial(contents, place, memory)
        feeds = list(wanted.feeds) or noise(contents, trial)
        if wanted.form:
            forms = {at: _fixed_form(layer, wanted.form) for at, layer in enumerate(layers)}
            _mark(layers, forms)
            error = _measured(trial, again, feeds)
        else:
            forms, error = _by_error(trial, layers, feeds, wanted.error, report)
            _mark(layers, forms)
    return table(contents.weights, layers, forms, wanted, error, feeds)


def _weighed(contents: Graph | StoredModel, wanted: Wanted, report: Report) -> list[Layer]:
    """The layers with their figures. That numbers were read for these says nothing of what the artifact must hold."""
    layers = layers_of(contents.weights, with_blocks=bool(wanted.form))
    sources = [source_of(constant) for constant in contents.constants] if isinstance(contents, StoredModel) else []
    unused = [source for source in sources if not source.used]
    for at, layer in enumerate(layers):
        report(f"rounding {layer.name}", at, len(layers))
        weigh(layer, FORMS if not wanted.form else _forms_of(wanted.form))
    for source in unused:
        source.used = False
    return layers


def _mark(layers: list[Layer], forms: dict[int, str]) -> None:
    for at, layer in enumerate(layers):
        form = forms.get(at, layer.own)
        layer.source.form = form if form != layer.own or form == "f32" else ""


def _forms_of(form: str) -> tuple[str, ...]:
    return {"s8": ("s8", "s8b"), "q4": ("q4", "s8"), "f16": ("f16",)}.get(form, ())


def _fixed_form(layer: Layer, form: str) -> str:
    """The form asked for, or of more bits where it does not fit; the layer's own where that is one of them, or where
    none is smaller.
    """
    if layer.own in _forms_of(form):
        return layer.own
    in_blocks = layer.rounding.get("s8b")
    if form == "s8" and in_blocks is not None and in_blocks <= BLOCKS_GAIN * layer.rounding.get("s8", np.inf):
        return "s8b"
    return next((each for each in (form, "s8") if each in layer.rounding), layer.own)


def _measured(trial: Trial, again: Callable[[], Graph | StoredModel], feeds: list[Feed]) -> float | None:
    """The error of a choice that stands, and that constants are marked with; None where the model does not run on
    these inputs.
    """
    try:
        exact = trial.outputs({}, [], feeds)
        return worst_error(trial.of(again()).outputs({}, [], feeds), exact)
    except (FlexNNError, ValueError):
        return None


def _by_error(
    trial: Trial, layers: list[Layer], feeds: list[Feed], most: float, report: Report
) -> tuple[dict[int, str], float]:
    """The forms, and the error that was measured with them: at most PART of ``most``."""
    try:
        exact = trial.outputs({}, layers, feeds)
    except (FlexNNError, ValueError) as reason:
        raise CompileError(f"the model does not run on the inputs for calibration: {reason}") from None

    def error_of(forms: dict[int, str]) -> float:
        return worst_error(trial.outputs(forms, layers, feeds), exact)

    for at, layer in enumerate(layers):
        report(f"measuring {layer.name}", at, len(layers))
        form = next((each for each in ("s8", "s8b", "f16") if each in layer.rounding), None)
        if form is not None:
            own = error_of({at: form}) / (layer.rounding[form] or 1.0) * layer.rounding.get("s8", layer.rounding[form])
            layer.error = max(own, LEAST)
    steps = _steps(layers)
    forms, error = _narrowest(steps, error_of, most * PART)
    return _filled(steps, forms, error, error_of, most * PART)


def _steps(layers: list[Layer]) -> list[_Step]:
    """All steps, those that save most bytes for their error first."""
    steps = []
    for at, layer in enumerate(layers):
        steps += _hull(at, layer)
    return sorted(steps, key=lambda step: step.saved / step.error, reverse=True)


def _hull(at: int, layer: Layer) -> list[_Step]:
    """Steps of a layer, each to the form that saves most bytes for its error from there on."""
    scale = layer.rounding.get("s8") or next(iter(layer.rounding.values()), 0.0)
    squares = {form: (layer.error * off / (scale or 1.0)) ** 2 + LEAST**2 for form, off in layer.rounding.items()}
    steps: list[_Step] = []
    form, error = "f32", 0.0
    while True:
        further = [
            _Step(at, to, layer.nbytes[form] - layer.nbytes[to], squares[to] - error)
            for to in squares
            if layer.nbytes[to] < layer.nbytes[form] and squares[to] > error
        ]
        if not further:
            return steps
        best = max(further, key=lambda step: step.saved / step.error)
        steps.append(best)
        form, error = best.form, squares[best.form]


def _narrowest(
    steps: list[_Step], error_of: Callable[[dict[int, str]], float], most: float
) -> tuple[dict[int, str], float]:
    """The most steps whose measured error is at most ``most``: the predicted number of them, then halving."""

    def forms_after(count: int) -> dict[int, str]:
        return {step.layer: step.form for step in steps[:count]}

    low, high, best = 0, len(steps), 0.0
    sums = np.cumsum([step.error for step in steps])
    tried = int(np.searchsorted(sums, most**2, side="right"))
    while low < high:
        tried = min(max(tried, low + 1), high)
        error = error_of(forms_after(tried))
        if error <= most:
            low, best = tried, error
            square = float(sums[tried - 1]) * (most / max(error, LEAST)) ** 2
            tried = min(int(np.searchsorted(sums, square, side="right")), (low + high + 1) // 2 + (high - low) // 4)
        else:
            high = tried - 1
            tried = (low + high + 1) // 2
    return forms_after(low), best


def _filled(
    steps: list[_Step],
    forms: dict[int, str],
    error: float,
    error_of: Callable[[dict[int, str]], float],
    most: float,
) -> tuple[dict[int, str], float]:
    """The forms and their error, with further steps behind the one that was too much, if a measurement agrees."""
    behind = steps[sum(_is_taken(step, forms, steps) for step in steps) :]
    for part in FILLED:
        more, left, skipped = dict(forms), (most**2 - error**2) * part, set()
        for step in behind:
            if step.layer in skipped or step.error > left:
                skipped.add(step.layer)
            else:
                more[step.layer], left = step.form, left - step.error
        if more != forms and (found := error_of(more)) <= most:
            return more, found
    return forms, error


def _is_taken(step: _Step, forms: dict[int, str], steps: list[_Step]) -> bool:
    """Whether a layer is at this step or behind it."""
    own = [each.form for each in steps if each.layer == step.layer]
    return step.layer in forms and own.index(step.form) <= own.index(forms[step.layer])
