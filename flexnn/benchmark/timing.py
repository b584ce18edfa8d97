"""Running a plan and timing it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, Protocol

import numpy as np

from flexnn import planning
from flexnn.artifact import Artifact, open_artifact
from flexnn.graph.ir import DTYPES
from flexnn.measure import throttled
from flexnn.measure.parts import measured_machine
from flexnn.median import median, quantile
from flexnn.planning import BudgetError, MachineProfile, Plan, make_plan
from flexnn.planning.types import io_alignment
from flexnn.quick_dataclass import quick_dataclass
from flexnn.run.engine import BoundProgram, Engine, Switches
from flexnn.units import Groups

WARMUP = 2
BLOCK = 5
"""Runs of a turn."""
SEED = 0
ROUNDS = 5
"""Rounds of what is compared."""
SETTLE_S = 0.05
"""Rest before each: threads of another runtime spin for a while after a run."""


class Rounds(Protocol):
    """Something that is timed in rounds."""

    def round(self, count: int) -> None:
        """Open, run ``count`` times, and close."""
        ...


def take_turns(subjects: Sequence[Rounds], repeat: int) -> None:
    """Run each of the subjects ``repeat`` times or a little more, in rounds whose order alternates."""
    rounds = min(ROUNDS, repeat)
    for number in range(rounds):
        for each in subjects[:: 1 if number % 2 == 0 else -1]:
            time.sleep(SETTLE_S)
            each.round(-(-repeat // rounds))


@quick_dataclass(slots=True, frozen=True)
class Timing:
    """A plan's runs. Times in ms, sizes in bytes."""

    name: str
    memory: int
    """Bytes of the session, as its plan accounts for them."""
    p50: float
    p95: float
    predicted: float | None
    """None for a program that is not as its planner left it."""
    stall: float
    bytes_read: int
    pinned_bytes: int
    rounds: list[float] = field(default_factory=list)
    """Median of each round, where runs took turns with those of others: how far they lie apart is the error."""

    def describe(self) -> dict[str, Any]:
        """Return the timing for JSON."""
        return asdict(self)


@quick_dataclass(slots=True)
class Subject:
    """An artifact opened for measuring, with the machine's profile and the loader's throttle in it."""

    artifact: Artifact
    machine: MachineProfile
    switches: Switches
    repeat: int
    groups: Groups = None
    direct_fd: int = -1
    """Descriptor of the artifact opened with O_DIRECT, or -1."""

    @property
    def source(self) -> str:
        """Digest of the ONNX file."""
        return self.artifact.header.source_sha256.hex()

    @property
    def align(self) -> int:
        """Alignment of reads in bytes."""
        return io_alignment(direct=self.switches.direct)

    def plan(self, memory: int | None, machine: MachineProfile | None = None) -> Plan:
        """Return the plan for a budget. Raises BudgetError."""
        setting = planning.Setting(machine or self.machine, self.switches.threads, self.align)
        return make_plan(self.artifact.graph, setting, memory, groups=self.groups)

    def minimum(self) -> int:
        """Return the smallest budget."""
        try:
            return self.plan(1).minimum_memory
        except BudgetError as error:
            return error.minimum

    def time(self, name: str, plan: Plan, *, fresh: bool = False) -> Timing:
        """Time runs of a plan on random inputs; ``fresh``: weights get new memory for each load."""
        running = Running(self, plan, fresh)
        running.round(self.repeat)
        return running.timing(name)

    def running(self, memory: int | None) -> Running:
        """Return what times the plan for a budget."""
        return Running(self, self.plan(memory))

    def whole_bytes(self) -> int:
        """Return the bytes of a session without a limit."""
        return self.plan(None).session_bytes

    def in_turns(self, plans: Mapping[str, Plan]) -> list[Timing]:
        """Time runs of several plans in blocks that take turns, so that a machine that gets slower does so for all."""
        with contextlib.ExitStack() as stack:
            running = {name: Running(self, plan) for name, plan in plans.items()}
            for each in running.values():
                each.open()
                stack.callback(each.close)
            for turn in range(-(-self.repeat // BLOCK)):
                for each in list(running.values())[:: 1 if turn % 2 else -1]:
                    each.block(BLOCK)
            return [each.timing(name) for name, each in running.items()]


class Running:
    """A plan, and the times of its runs so far."""

    def __init__(self, subject: Subject, plan: Plan, fresh: bool = False) -> None:
        graph = subject.artifact.graph
        random = np.random.default_rng(SEED)
        self._buffers = []
        for index in (*graph.inputs, *graph.outputs):
            tensor = graph.tensors[index]
            values = (
                random.standard_normal(tensor.shape, np.float32) if tensor.dtype == "f32" else np.zeros(tensor.shape)
            )
            self._buffers.append(np.ascontiguousarray(values, DTYPES[tensor.dtype]))
        self._plan, self._subject, self._fresh = plan, subject, fresh
        self._times: list[float] = []
        self._rounds: list[float] = []
        self._stalls: list[float] = []
        self._read = 0

    def open(self) -> None:
        """Open the plan in an engine."""
        subject = self._subject
        self._engine = Engine(subject.switches._replace(fresh=self._fresh))
        try:
            self._bound = BoundProgram(self._engine, subject.artifact, self._plan, direct_fd=subject.direct_fd)
        except BaseException:
            self._engine.close()
            raise

    def round(self, count: int) -> None:
        """Open, run and close."""
        self.open()
        try:
            self.block(count)
        finally:
            self.close()
        self._rounds.append(median(self._times[-count:]))

    def block(self, count: int) -> None:
        """Run ``count`` times, after runs that do not count."""
        for number in range(WARMUP + count):
            start = time.perf_counter_ns()
            run = self._bound.run(self._buffers, [self._bound])
            took = time.perf_counter_ns() - start
            if number >= WARMUP:
                self._times.append(took / 1e6)
                self._stalls.append(run["stall_ns"] / 1e6)
                self._read = run["bytes_read"]

    def timing(self, name: str) -> Timing:
        """Return the timing of the runs so far."""
        return Timing(
            name,
            self._plan.session_bytes,
            median(self._times),
            quantile(self._times, 0.95),
            self._plan.predicted_ms,
            median(self._stalls),
            self._read,
            self._plan.pinned_bytes,
            self._rounds,
        )

    def close(self) -> None:
        """Give the engine's memory and threads back."""
        self._engine.close()


@contextlib.contextmanager
def opened(path: str, *, threads: int, io: str, storage: int, repeat: int, groups: Groups = None) -> Iterator[Subject]:
    """Open an artifact; ``storage``: most bytes that the loader reads in a second, 0: no limit."""
    with open_artifact(path) as artifact:
        direct = artifact.open_direct() if io == "direct" else None
        direct_fd = direct.fd if direct is not None else -1
        try:
            arena = make_plan(artifact.graph, planning.Setting(MachineProfile.measure(), threads)).arena_bytes
            machine = measured_machine(artifact, direct_fd, threads, arena)
            if storage:
                machine = throttled(machine, storage)
            switches = Switches(threads, direct_fd >= 0, read_bytes_per_second=storage)
            yield Subject(artifact, machine, switches, repeat, groups, direct_fd)
        finally:
            if direct is not None:
                direct.close()
