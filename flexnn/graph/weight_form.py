"""The forms that weights are stored in, as the C core declares them (kernels/include/flexnn/weight_form.h)."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexnn import _core
from flexnn.quick_dataclass import quick_dataclass


@quick_dataclass(frozen=True, slots=True)
class PanelLayout:
    """Offsets in bytes of a panel's parts from its start; each part ends where the next begins, or zeros do."""

    scales: int
    minimum: int
    weights: int
    end: int
    """Bytes of the panel."""


@quick_dataclass(frozen=True, slots=True)
class WeightForm:
    """A form: a weight with a scale is an integer, one without is a float."""

    name: str
    bits: int
    """Bits of a weight."""
    block: int
    """Weights of an output channel that share a scale and a minimum; 0: all of them."""
    scales: int
    """Bytes of a scale, 1 of double blocks; 0: the form has none."""
    minimum: int
    """Bytes of a minimum, which is added after scaling; 0: the form has none."""
    shared: int
    """Weights of an output channel whose scales, and whose minima, are integers times one factor; 0: none are."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of a stored weight; of less than 8 bits, that of GROUP of them."""
        if self.bits < 8:
            return np.dtype(np.uint32)
        return np.dtype(f"{'i' if self.scales else 'f'}{self.bits // 8}")

    def fits(self, taps: int, cin_panel: int, cin_block: int) -> bool:
        """Whether a panel of these sizes may have the form."""
        return _core.form_fits(self.name, taps, cin_panel, cin_block)

    def layout(self, weights: int, *, slopes: bool = False) -> PanelLayout:
        """Return the layout of a panel of ``weights`` weights; ``slopes``: it holds a PRelu's slopes."""
        return PanelLayout(*_core.panel_layout(self.name, slopes, weights))


GROUP = 8
"""Weights of a channel that share 32 bits, of 4 bits."""


def groups_of(bits: int) -> int:
    """Groups of the lower 4 bits of integers that share 32 upper bits; 1 where there are none."""
    return 4 // (bits - 4) if 4 < bits < 8 else 1


FORMS = {name: WeightForm(name, *fields) for name, fields in _core.WEIGHT_FORMS.items()}
"""Forms by name."""
