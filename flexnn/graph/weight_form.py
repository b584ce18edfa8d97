"""The forms that weights are stored in, as the C core declares them (kernels/include/flexnn/weight_form.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flexnn import _core


@dataclass(frozen=True, slots=True)
class PanelLayout:
    """Offsets in bytes of a panel's parts from its start; each part ends where the next begins, or zeros do."""

    scales: int
    minimum: int
    weights: int
    end: int
    """Bytes of the panel."""


@dataclass(frozen=True, slots=True)
class WeightForm:
    """A form: a weight with a scale is an integer, one without is a float."""

    name: str
    bits: int
    """Bits of a weight."""
    block: int
    """Weights of an output channel that share a scale and a minimum; 0: all of them."""
    scales: int
    """Bytes of a scale; 0: the form has none."""
    minimum: int
    """Bytes of a minimum, which is added after scaling; 0: the form has none."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of a stored weight."""
        return np.dtype(f"{'i' if self.scales else 'f'}{self.bits // 8}")

    def layout(self, weights: int, *, slopes: bool = False) -> PanelLayout:
        """Return the layout of a panel of ``weights`` weights; ``slopes``: it holds a PRelu's slopes."""
        return PanelLayout(*_core.panel_layout(self.name, slopes, weights))


FORMS = {name: WeightForm(name, *fields) for name, fields in _core.WEIGHT_FORMS.items()}
"""Forms by name."""
