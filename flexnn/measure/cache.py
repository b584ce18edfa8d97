"""Measured profiles in the user's cache folder, one file for an artifact on a CPU and a storage device, and one of the
rates of each device, which other artifacts on it begin with; beside them what was decided for budgets
(run/known_plans.py).

The folder is the user's alone, and a file counts only where it is a plain one of this user's, of bounded size. Numbers
are checked for their range: they can make plans slower, never wrong. A file is replaced whole (flexnn/files.py). If it
cannot be read or written, measuring is repeated. Files and their bytes are bounded; what was used longest ago goes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from flexnn import _core
from flexnn._core import _core as extension
from flexnn.artifact import Artifact
from flexnn.planning import MachineProfile

FILE_BYTES_MAX = 1 << 20
VARIANTS_MAX = 1 << 12
MARKS_MAX = 5 * VARIANTS_MAX
"""Most marks that begin or part values: what is read takes about 100 bytes for each, inside the session's budget."""
_MARKS = (b",", b"[", b"{")
KEPT_MAX, KEPT_BYTES_MAX = 512, 32 << 20
"""Most profiles that are kept, and most bytes of them; the one that was stored last stays in any case."""
VERSION = 8
DAY_S = 86_400
LARGE_BYTES = 32 << 20
"""Bytes of a file above which the CPU's cache does not hold it between runs."""
_RANGES = {
    "flops_per_second": (1e6, 1e16),
    "bytes_per_second": (1e6, 1e14),
    "storage_bytes_per_second": (1e3, 1e13),
    "request_s": (0.0, 10.0),
    "latency_s": (0.0, 10.0),
    "step_s": (0.0, 1.0),
    "compute_speed": (0.01, 1.0),
    "load_speed": (0.01, 1.0),
}
STORAGE = "storage"
"""Name of the rates of the storage among operators and kernels."""
_SECONDS_MAX = 1e5
_SCALE_MAX = 1e4
_ARENA_MAX = 1 << 46


class Kept(NamedTuple):
    """A measured profile."""

    machine: MachineProfile
    arena_bytes: int
    """Bytes of the arena that it was measured in: a larger one can measure more."""
    tried: frozenset[str] = frozenset()
    """Names of what was measured of an artifact with open shapes, or could not be (``Parts``)."""


def key_of(artifact: Artifact, threads: int, direct: bool) -> str:
    """Return a text of all that times depend on: artifact, storage, CPU, instruction-set level, threads, build."""
    header = artifact.header
    model = f"{header.source_sha256.hex()} {header.graph_crc:08x}{header.crcs_crc:08x}"
    return _key(model, artifact.fd, threads, "direct" if direct else "buffered")


def device_key_of(artifact: Artifact, threads: int, direct: bool) -> str:
    """Return a text of all that the rates of storage depend on, the day included: what was measured while the device
    was busy is not believed for ever.
    """
    size = "large" if os.fstat(artifact.fd).st_size > LARGE_BYTES else "small"
    state = "direct" if direct else size if cache_holds(artifact.fd) else "read"
    return _key(f"{0:016x} day{int(time.time() // DAY_S)}", artifact.fd, threads, state)


def _key(subject: str, fd: int, threads: int, state: str) -> str:
    build = os.stat(extension.__file__).st_mtime_ns
    cpus = len(os.sched_getaffinity(0))
    return f"{VERSION} {subject} {build} {_cpu()} x{cpus} {_core.isa_level()} t{threads} {state} {os.fstat(fd).st_dev}"


def cache_holds(fd: int) -> bool:
    """Return whether the page cache can hold all of a file."""
    return _cache_room() >= os.fstat(fd).st_size


def load(key: str) -> Kept | None:
    """Return the profile under ``key``; None if there is none that can be used."""
    try:
        found = read(key)
        return None if found is None else _decode(found)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def read(key: str) -> dict[str, Any] | None:
    """Return what is kept under ``key``; None if that cannot be. Raises OSError, ValueError or RecursionError."""
    import json  # importing flexnn does without

    from flexnn.files import cache_folder, own_folder, read_own

    with contextlib.closing(own_folder(cache_folder())) as opened:
        raw = read_own(opened.fd, _name(key), FILE_BYTES_MAX)
        with contextlib.suppress(OSError):
            os.utime(_name(key), dir_fd=opened.fd, follow_symlinks=False)  # it was used
    if sum(raw.count(mark) for mark in _MARKS) > MARKS_MAX or b"\\" in raw or not raw.isascii():
        return None
    found = json.loads(raw)
    return found if isinstance(found, dict) and found.get("key") == key else None


def store(key: str, kept: Kept) -> None:
    """Write the profile under ``key`` if the folder can be written; of too many times, the last ones."""
    machine = asdict(kept.machine)
    for name in ("times", "scales"):
        machine[name] = dict(list(machine[name].items())[-VARIANTS_MAX:])
    write(key, {"arena_bytes": kept.arena_bytes, "tried": sorted(kept.tried)[:VARIANTS_MAX]} | machine)


def write(key: str, found: dict[str, Any]) -> None:
    """Keep an object for JSON under ``key`` if the folder can be written."""
    import json

    from flexnn.files import cache_folder, own_folder, replacing_in

    text = json.dumps({"key": key} | found)
    with (
        contextlib.suppress(OSError),
        contextlib.closing(own_folder(cache_folder(), make=True)) as opened,
    ):
        with replacing_in(opened.fd, _name(key), 0o600, lasting=False) as file:
            file.write(text.encode())
        _drop_old(opened.fd, _name(key))


def _drop_old(folder: int, newest: str) -> None:
    """Remove profiles used longest ago from an open folder, of its first entries, until the others are few enough. Age,
    size and name of files are held, and these only where one goes: the memory is in a session's budget.
    """
    from flexnn.files import ENTRIES_MAX, is_own

    def own() -> Iterator[tuple[int, int, str]]:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(ENTRIES_MAX), entries, strict=False):
                status = entry.stat(follow_symlinks=False) if _is_name(entry.name) else None
                if status is not None and is_own(status):
                    yield status.st_mtime_ns, status.st_size, entry.name

    count = total = 0
    for _, size, _ in own():
        count, total = count + 1, total + size
    if count <= KEPT_MAX and total <= KEPT_BYTES_MAX:
        return
    for _, size, name in sorted(own()):
        if name != newest:
            os.unlink(name, dir_fd=folder)
            count, total = count - 1, total - size
        if count <= KEPT_MAX and total <= KEPT_BYTES_MAX:
            return


def _name(key: str) -> str:
    return f"{key.split()[1][:16]}-{_core.crc32c(key.encode()):08x}.json"


def _is_name(name: str) -> bool:
    """Return whether ``_name`` makes such names."""
    model, _, rest = name.partition("-")
    number = rest.removesuffix(".json")
    return len(model) == 16 and len(number) == 8 == len(rest) - 5 and not (model + number).strip("0123456789abcdef")


def _decode(found: dict[str, Any]) -> Kept | None:
    arena_bytes = int(_number(found["arena_bytes"], 0, _ARENA_MAX))
    rates = {name: _number(found[name], *limits) for name, limits in _RANGES.items()}
    times, scales, tried = found["times"], found["scales"], found["tried"]
    if not isinstance(times, dict) or not isinstance(scales, dict) or not isinstance(tried, list):
        return None
    if max(len(times), len(scales), len(tried)) > VARIANTS_MAX or not all(isinstance(name, str) for name in tried):
        return None
    machine = MachineProfile(
        **rates,
        times={
            str(key): (_number(a, 0.0, _SECONDS_MAX), _number(b, 0.0, _SECONDS_MAX)) for key, (a, b) in times.items()
        },
        scales={str(name): _number(scale, 1 / _SCALE_MAX, _SCALE_MAX) for name, scale in scales.items()},
    )
    return Kept(machine, arena_bytes, frozenset(tried))


def _number(value: object, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:  # no NaN either
        raise ValueError(value)
    return float(value)


def _cpu() -> str:
    """Return the name of the first CPU from /proc/cpuinfo."""
    wanted = ("model name", "CPU implementer", "CPU part", "CPU revision", "Hardware")
    parts: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() in wanted:
                parts.setdefault(name.strip(), "-".join(value.split()))
    return "/".join(parts.values()) or "unknown"


def _cache_room() -> int:
    """Return the bytes that the page cache may grow by: available memory, or less under a control group's limit."""
    room = 1 << 62
    try:
        with open("/proc/meminfo") as lines:
            room = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            with open(f"/sys/fs/cgroup/{limit}") as whole, open(f"/sys/fs/cgroup/{used}") as part:
                room = min(room, int(whole.read()) - int(part.read()))
        except (OSError, ValueError):
            pass
    return room
