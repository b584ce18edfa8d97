"""The machine that a plan is for: its rates, and the times that were measured on it."""

from __future__ import annotations

from _blake2 import blake2b
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from flexnn import _core

from .types import Variant


@dataclass(slots=True, frozen=True)
class MachineProfile:
    """Rates of the machine a plan is for."""

    flops_per_second: float
    """Of one thread, multiply-add counted twice."""
    bytes_per_second: float
    """Memory to a core."""
    storage_bytes_per_second: float = 1.0e9
    request_s: float = 60e-6
    """Each read, beside its bytes."""
    step_s: float = 4e-6
    """Each step: handing it to the threads and waiting for the last."""
    compute_speed: float = 1.0
    """Speed of computing while a load is read, of that alone."""
    load_speed: float = 1.0
    """Speed of a load while steps compute, of that alone."""
    times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """(fixed, channels) seconds of the variants that were measured with the plan's threads, by ``variant_key``."""
    scales: Mapping[str, float] = field(default_factory=dict)
    """Measured over analytic time, by kernel or operator: for the variants that were not measured."""

    @classmethod
    def measure(cls, isa: str | None = None) -> MachineProfile:
        """Measures compute and memory rates here, in about 2 ms. The rest is assumed."""
        flops, memory = _core.measure_rates(isa)
        return cls(flops, memory)

    def timed(self, op: str, params: NDArray[np.int32], variant: Variant) -> Variant:
        """A variant to compute with its measured time, where it has one."""
        known = self.times.get(variant_key(op, params, variant))
        if known is None:
            scale = self.scales.get(variant.kernel or op, 1.0)
            known = variant.fixed_s * scale, variant.channels_s * scale
        return replace(variant, fixed_s=known[0], channels_s=known[1])


def load_seconds(machine: MachineProfile, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of loads of these bytes, each alone, as drafts predict them."""
    return np.asarray(sizes / machine.storage_bytes_per_second + machine.request_s, np.float64)


def variant_key(op: str, params: NDArray[np.int32], variant: Variant) -> str:
    """Names a variant to compute a node: operator, kernel, block, and a digest of the parameters."""
    return f"{op}.{variant.kernel}.{variant.tile_block}.{blake2b(params.tobytes(), digest_size=8).hexdigest()}"
