"""An artifact in a folder of its own, in which floats are rounded and runs show what that does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from flexnn._core import crc32c
from flexnn.artifact.format import HEADER_BYTES, Header
from flexnn.artifact.model_section import StoredModel
from flexnn.artifact.writer import write_artifact
from flexnn.graph.ir import Array, Graph
from flexnn.graph.panels import NR
from flexnn.planned import plan
from flexnn.session import Session

from .layers import Layer, in_form, panels_of
from .wanted import Feed

Outputs = list[list[Array]]
"""Outputs for each feed."""


class Trial:
    """The artifact, whose numbers are those of forms without being stored in them."""

    def __init__(self, contents: Graph | StoredModel, folder: str, memory: int | None) -> None:
        self._path = os.path.join(folder, "trial.flexnn")
        self._memory = memory
        self._folder = folder
        write_artifact(contents, self._path, bytes(32), lasting=False)
        with open(self._path, "rb") as file:
            self._header = Header.unpack(file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size)
            file.seek(self._header.crc_offset)
            self._crcs = np.frombuffer(file.read(4 * self._header.crc_count), "<u4").copy()
        self._forms: dict[int, str] = {}

    def of(self, contents: Graph | StoredModel) -> Trial:
        """Return that of other contents, instead of this one."""
        return Trial(contents, self._folder, self._memory)

    def inputs(self) -> list[tuple[str, tuple[int | str | None, ...], np.dtype[np.generic]]]:
        """Return name, shape and type of each input."""
        with Session(self._path, memory=self._memory) as session:
            return [(i.name, tuple(i.shape), i.numpy_dtype) for i in session.get_inputs()]

    def activation_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return the bytes of activations at these shapes. Raises FlexNNError."""
        return plan(self._path, memory=self._memory, shapes=shapes, profile="analytic").activation_bytes

    def outputs(self, forms: Mapping[int, str], layers: Sequence[Layer], feeds: Sequence[Feed]) -> Outputs:
        """Run with the layers of these numbers in these forms, all others as they are."""
        self._round({at: form for at, form in forms.items() if form != "f32"}, layers)
        with Session(self._path, memory=self._memory) as session:
            return [[np.array(y) for y in session.run(None, dict(feed))] for feed in feeds]

    def _round(self, forms: Mapping[int, str], layers: Sequence[Layer]) -> None:
        changed = [at for at in {*forms, *self._forms} if forms.get(at) != self._forms.get(at)]
        with open(self._path, "r+b") as file:
            for at in changed:
                for weight in layers[at].weights:
                    panels, head = panels_of(weight), NR * (2 if panels_of(weight).slope is not None else 1)
                    size, first = panels.panel_bytes, weight.offset
                    bodies = iter(in_form(panels, forms[at]).widened()) if at in forms else None
                    for index, panel in enumerate(panels):
                        if bodies is not None:
                            body = next(bodies)[1]
                            panel[head : head + body.size] = body.reshape(-1)
                        raw = panel.tobytes()
                        file.seek(first + index * size)
                        file.write(raw)
                        self._crcs[weight.crc_first + index] = crc32c(raw)
            self._header.crcs_crc = crc32c(self._crcs)
            file.seek(self._header.crc_offset)
            file.write(self._crcs.tobytes())
            file.seek(0)
            file.write(self._header.pack())
        self._forms = dict(forms)


def worst_error(made: Outputs, exact: Outputs) -> float:
    """Return the relative L2 of the output that is furthest off, on the feed on which it is; infinite where shapes
    differ. An output that is all zeros on a feed counts with those on all feeds: what is off has no measure there.
    """
    worst = 0.0
    for ours, theirs in zip(zip(*made, strict=True), zip(*exact, strict=True), strict=True):
        squares = [_squares(y, z) for y, z in zip(ours, theirs, strict=True)]
        squares.append((sum(off for off, _ in squares), sum(whole for _, whole in squares)))
        worst = max([worst, *((off / whole) ** 0.5 for off, whole in squares if whole)])
        if squares[-1][0] and not squares[-1][1]:
            return float("inf")
    return worst


def _squares(y: Array, z: Array) -> tuple[float, float]:
    """Return the squares of what ``y`` is off from ``z``, and of ``z``; infinite where they cannot be compared."""
    if y.shape != z.shape:
        return float("inf"), 1.0
    if y.dtype.kind not in "biuf":
        return 0.0, 0.0
    finite = np.isfinite(z)
    if (np.isfinite(y) != finite).any():
        return float("inf"), 1.0
    a, b = y[finite].astype(np.float64), z[finite].astype(np.float64)
    return float(np.square(a - b).sum()), float(np.square(b).sum())
