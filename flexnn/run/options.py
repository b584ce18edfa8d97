"""Options of a run: those of users, checked and with defaults, and those that only tests and benches change."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable
from contextlib import closing
from typing import Literal, NamedTuple, get_args

from flexnn import _core
from flexnn.graph.state import CAPACITY, KV_CAPACITY_MAX
from flexnn.planning import MachineProfile, Plan, Setting
from flexnn.planning.overhead import overhead_for, with_measuring
from flexnn.units import Groups, asks_system, parse_bytes, parse_groups

from .engine import Switches

Profile = Literal["measure", "analytic"]
"""Ways to know the machine's times; the first is the default."""
Io = Literal["buffered", "direct"]
"""Ways to read weights; the first is the default."""
GivenGroups = int | Literal["auto", "off"] | None
"""Groups as a caller names them."""
Kv = Literal["f16", "f32", "s8"]
"""Types of keys and values in state; the first is the default."""
PROFILES, IO, KV = get_args(Profile), get_args(Io), get_args(Kv)


def default_threads() -> int:
    """Return the number of CPUs that this process may use, a part of one counted as one."""
    return min(math.ceil(_core.usable_cpus()), _core.MAX_THREADS)


def default_profile(profile: str | None) -> str:
    """Return ``profile``, or the environment's FLEXNN_PROFILE, or "measure". Raises ValueError for another name."""
    name = profile or os.environ.get("FLEXNN_PROFILE") or PROFILES[0]
    if name not in PROFILES:
        raise ValueError(f"profile is {name!r}; it must be {' or '.join(map(repr, PROFILES))}")
    return name


def no_progress(_: str) -> None:
    """Ignore the text."""


class RunOptions(NamedTuple):
    """Options of a run, as ``run_options`` checks them."""

    memory: int | None
    """Budget in bytes; None: no limit."""
    threads: int
    """Number of compute threads."""
    io: str
    """One of ``IO``."""
    profile: str
    """One of ``PROFILES``."""
    groups: Groups
    reuse_outputs: bool
    """Whether a run may overwrite the arrays that the run before returned."""
    progress: Callable[[str], None]
    """Function that is told what takes a while."""
    trace: bool
    """Whether runs are recorded."""
    own_outputs: bool = True
    """Whether runs return arrays of the session's, or are always given some."""
    asked: str | None = None
    """Text of a budget that is asked of the system; None: it is a size."""
    deterministic: bool = False
    """Whether kernels are chosen by rule, so that outputs do not depend on times, threads or budget."""
    kv_capacity: int | None = None
    """Rows of the state for keys and values; None: the model has no state, or the usual number."""
    kv: str = "f16"
    """Type of keys and values in the state."""
    cross_capacity: int = CAPACITY
    """Rows of an encoder's output that cross-attention has room for."""
    all_logits: bool = False
    """Whether a run with state returns logits of all its tokens, not of the last alone."""
    spill: str | None = None
    """Folder of the spill file; None: no activation is spilled."""
    poison: bool = False
    """Whether memory that must not be read is filled with NaN (tests)."""
    jitter_seed: int = 0
    """Seed of random pauses of all threads; 0: none (tests)."""
    read_bytes_per_second: int = 0
    """Most bytes that the loader reads in a second, which plans take into account; 0: no limit (tests, benches)."""
    prefetches: bool = True
    """Whether the loader reads ahead for the next segment while one runs (benches)."""
    rewrite: Callable[[Plan], Plan] | None = None
    """Function that changes the plan of each segment before it is bound (benches)."""

    @property
    def measures(self) -> bool:
        """Whether the machine is measured, and runs are watched."""
        return self.profile == "measure"

    @property
    def output_sets(self) -> int:
        """Number of sets of outputs that a budget counts."""
        return 0 if not self.own_outputs else 1 if self.reuse_outputs else 2

    @property
    def counting_outputs(self) -> RunOptions:
        """These options for open shapes, with which outputs are values among others: they count once at least."""
        return self if self.own_outputs else self._replace(own_outputs=True, reuse_outputs=True)

    def throttled(self, machine: MachineProfile) -> MachineProfile:
        """Return ``machine`` with the limit on reading; without one, itself."""
        if not self.read_bytes_per_second:
            return machine
        from flexnn.measure import throttled  # few sessions are

        return throttled(machine, self.read_bytes_per_second)

    def setting(self, machine: MachineProfile, io_align: int, *, measuring: bool = False) -> Setting:
        """Return the setting of plans for ``machine``, throttled already, whose reads are aligned to ``io_align``.
        ``measuring``: the session measures the machine.
        """
        overhead = overhead_for(self.output_sets)
        if measuring:
            overhead = with_measuring(overhead)
        return Setting(machine, self.threads, io_align, overhead, self.deterministic, self.spill is not None)

    def switches(self, *, direct: bool) -> Switches:
        """Return the engine's switches; ``direct``: whether reads go past the page cache."""
        return Switches(self.threads, direct, self.poison, self.jitter_seed, self.read_bytes_per_second)


def run_options(
    memory: str | int | None = None,
    threads: int | None = None,
    *,
    io: str = IO[0],
    profile: str | None = None,
    groups: str | int | None = None,
    reuse_outputs: bool = False,
    own_outputs: bool = True,
    progress: Callable[[str], None] | None = None,
    trace: bool = False,
    deterministic: bool = False,
    kv_capacity: int | None = None,
    kv: str = "f16",
    cross_capacity: int = CAPACITY,
    all_logits: bool = False,
    spill: str | os.PathLike[str] | None = None,
) -> RunOptions:
    """Return the options that a user gave, checked. Raises ValueError, or TypeError for threads that are no integer."""
    if io not in IO:
        raise ValueError(f"io is {io!r}; it must be {' or '.join(map(repr, IO))}")
    checked_profile, checked_groups = default_profile(profile), parse_groups(groups)
    count = default_threads() if threads is None else operator.index(threads)
    if not 1 <= count <= _core.MAX_THREADS:
        raise ValueError(f"threads is {threads}; it must be from 1 to {_core.MAX_THREADS}")
    if kv not in KV:
        raise ValueError(f"kv is {kv!r}; it must be {' or '.join(map(repr, KV))}")
    if kv_capacity is not None and not 1 <= operator.index(kv_capacity) <= KV_CAPACITY_MAX:
        raise ValueError(f"kv_capacity is {kv_capacity}; it must be from 1 to {KV_CAPACITY_MAX}")
    if not 1 <= operator.index(cross_capacity) <= KV_CAPACITY_MAX:
        raise ValueError(f"cross_capacity is {cross_capacity}; it must be from 1 to {KV_CAPACITY_MAX}")
    return RunOptions(
        memory=None if memory is None else budget(memory),
        threads=count,
        io=io,
        profile=checked_profile,
        groups=checked_groups,
        reuse_outputs=reuse_outputs,
        own_outputs=own_outputs,
        progress=progress or no_progress,
        trace=trace,
        asked=memory if isinstance(memory, str) and asks_system(memory) else None,
        deterministic=deterministic,
        kv_capacity=kv_capacity,
        kv=kv,
        cross_capacity=cross_capacity,
        all_logits=all_logits,
        spill=None if spill is None else os.fsdecode(spill),
    )


def budget(memory: str | int, held: int = 0) -> int:
    """Return the bytes of a budget, of what holds so many bytes already. Raises ValueError."""
    if not asks_system(memory):
        return parse_bytes(memory)
    from flexnn.system.asked import find  # most budgets are sizes
    from flexnn.system.limits import Limits

    with closing(Limits()) as limits:
        return find(str(memory), limits, held).memory
