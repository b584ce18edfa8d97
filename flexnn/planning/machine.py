"""Machine profiles: rates of a machine, and times that were measured on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from flexnn import _core
from flexnn.quick_dataclass import quick_dataclass

from .types import Variant

if TYPE_CHECKING:
    from numpy.typing import NDArray


@quick_dataclass(slots=True, frozen=True)
class MachineProfile:
    """Rates and measured times of the machine that a plan is for."""

    flops_per_second: float
    """Arithmetic rate of one thread; a multiply-add counts twice."""
    bytes_per_second: float
    """Rate from memory to a core."""
    storage_bytes_per_second: float = 1.0e9
    """Rate from storage to memory."""
    request_s: float = 60e-6
    """Time of each load in addition to its bytes, when others are under way beside it."""
    step_s: float = 4e-6
    """Time to hand a step to the threads and to wait for the last of them."""
    compute_speed: float = 1.0
    """Speed of computing while a load is read, as a fraction of its speed alone."""
    load_speed: float = 1.0
    """Speed of a load while steps compute, as a fraction of its speed alone."""
    times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """(fixed, channels) seconds of the variants that were measured with the plan's threads, by ``variant_key``."""
    scales: Mapping[str, float] = field(default_factory=dict)
    """Ratio of measured to analytic time by kernel or operator, for variants that were not measured."""
    latency_s: float = 0.0
    """Time from when a load may start until its bytes begin to come, which passes while others are read."""

    @classmethod
    def measure(cls) -> MachineProfile:
        """Measure compute and memory rates here, in about 2 ms and once in a process; assume the rest."""
        return cls(*_rates())

    def with_storage_of(self, other: MachineProfile) -> MachineProfile:
        """Return the profile with the rates of storage of another, and of storage and kernels at once."""
        names = ("storage_bytes_per_second", "request_s", "latency_s", "compute_speed", "load_speed")
        return replace(self, **{name: getattr(other, name) for name in names})

    def timed(self, op: str, params: NDArray[np.int32], variant: Variant, cold_bytes: int = 0) -> Variant:
        """Return the variant with its measured time, or with a scaled one where it was not measured. ``cold_bytes``:
        those of its weights, if no cache holds them from run to run. Weights of samples, which give scales, are in one.
        """
        known = self.times.get(variant_key(op, params, variant)) if self.times else None
        if known is None:
            scale = self.scales.get(variant.kernel or op, 1.0)
            known = variant.fixed_s * scale, max(variant.channels_s * scale, cold_bytes / self.bytes_per_second)
        return Variant(variant.kernel, variant.tile_block, variant.workspace_bytes, *known)


@cache
def _rates() -> tuple[float, float]:
    return _core.measure_rates()


def load_seconds(machine: MachineProfile, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the time of each load of ``sizes`` bytes, alone, as drafts predict it."""
    return np.asarray(sizes / machine.storage_bytes_per_second + machine.request_s, np.float64)


def variant_key(op: str, params: NDArray[np.int32], variant: Variant) -> str:
    """Return the name of a variant of a node: operator, kernel, block, and a digest of the parameters."""
    from _blake2 import blake2b  # what was never measured needs no names

    return f"{op}.{variant.kernel}.{variant.tile_block}.{blake2b(params.tobytes(), digest_size=8).hexdigest()}"
