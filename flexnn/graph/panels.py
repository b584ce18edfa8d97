"""Facts of panels that every session needs, as the C core knows them (kernels/include/flexnn/ops.h)."""

from __future__ import annotations

from flexnn import _core

NR = _core.NR
"""Output channels of a panel."""


def is_narrow(cout: int, cin_group: int, group: int) -> bool:
    """Whether a convolution's panels are those of narrow groups."""
    return _core.conv_is_narrow(cin_group * group, cout, group)


def conv_cin_panel(cout: int, cin_group: int, group: int) -> int:
    """Most input channels that any panel of a convolution touches; of narrow groups, that any output channel sees."""
    return _core.conv_cin_panel(cin_group * group, cout, group)
