"""Report on this machine: the CPU and the level chosen for it, memory and its limits, page size, storage.

It reads /proc and /sys only, so it says the same in a container. Facts that a kernel does not expose are None. ``root``
stands for / in tests.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from flexnn import _core
from flexnn.files import unnamed
from flexnn.system.groups import group_limit

PROBE_BYTES = 64 << 20
"""Bytes to read for timing a storage: they take a second on an SD card, and are few compared with a model."""
REQUEST_BYTES = 1 << 20


def examine(path: str, root: Path = Path("/")) -> dict[str, Any]:
    """Return the report as JSON values; ``path`` is a file or folder on the storage to time. Raises OSError where it
    is missing.
    """
    flops, memory_rate = _core.measure_rates()
    found = warnings(root)
    storage = _storage(path, root)
    try:
        rates = read_rates(path)
    except OSError as error:  # full, or not to be written or read: the rest is known all the same
        rates = dict.fromkeys(("direct_mb_per_s", "buffered_mb_per_s"))
        found.append(f"reading from {path} cannot be timed: {error.strerror}")
    return {
        "cpu": _cpu(root)
        | {"gflops_per_thread": round(flops / 1e9, 1), "memory_gb_per_s": round(memory_rate / 1e9, 1)},
        "memory": _memory(root),
        "storage": storage | rates,
        "warnings": found,
    }


def summary(report: dict[str, Any]) -> str:
    """Return the report as text."""
    cpu, memory, storage = report["cpu"], report["memory"], report["storage"]

    def size(value: int | None) -> str:
        return "unknown" if value is None else f"{value / (1 << 20):.0f} MiB"

    def rate(value: float | None) -> str:
        return "not possible" if value is None else f"{value:.0f} MB/s"

    clock = f", {max(cpu['mhz_max'])} MHz at most" if cpu["mhz_max"] else ""
    name = cpu["board"] or cpu["name"] or cpu["machine"]
    governor = ", ".join(cpu["governors"]) or "none"
    lines = [
        f"cpu      {name}: {cpu['usable']} of {cpu['cores']} cores usable{clock}",
        f"kernels  {cpu['isa']} (this build and CPU: {', '.join(cpu['isa_levels'])});"
        f" {cpu['gflops_per_thread']} GFLOP/s a thread, {cpu['memory_gb_per_s']} GB/s from memory",
        f"cores    capacities {', '.join(map(str, cpu['capacities']))}; governor {governor}",
        f"memory   {size(memory['available'])} of {size(memory['total'])} available, control group's limit"
        f" {'none' if memory['limit'] is None else size(memory['limit'])}, swap {size(memory['swap'])}",
        f"pages    {memory['page']} bytes; huge pages: {memory['huge_pages'] or 'unknown'}",
        f"storage  {storage['path']} ({storage['file_system'] or 'unknown'}): past the page cache"
        f" {rate(storage['direct_mb_per_s'])}, buffered {rate(storage['buffered_mb_per_s'])}",
    ]
    return "\n".join([*lines, *(f"warning  {text}" for text in report["warnings"])])


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def examine_cpu(root: Path = Path("/")) -> dict[str, Any]:
    """Return the facts about the CPU, and the level chosen for it."""
    return _cpu(root)


def _cpu(root: Path) -> dict[str, Any]:
    fields = dict(line.split(":", 1) for line in (_read(root / "proc/cpuinfo") or "").splitlines() if ":" in line)
    names = {key.strip(): value.strip() for key, value in fields.items()}
    board = _read(root / "proc/device-tree/model")
    system = root / "sys/devices/system/cpu"
    cores = sorted((p for p in system.glob("cpu[0-9]*")), key=lambda p: int(p.name[3:]))
    return {
        "machine": platform.machine(),
        "board": board.rstrip("\0") if board else None,
        "name": names.get("model name") or names.get("CPU part"),
        "isa": _core.isa_level(),
        "isa_levels": list(_core.isa_levels()),
        "cores": len(cores),
        "usable": len(os.sched_getaffinity(0)),
        "capacities": [_number(core / "cpu_capacity") for core in cores],
        "governors": sorted({g for core in cores if (g := _read(core / "cpufreq/scaling_governor"))}),
        "mhz": [khz // 1000 for core in cores if (khz := _number(core / "cpufreq/scaling_cur_freq"))],
        "mhz_max": [khz // 1000 for core in cores if (khz := _number(core / "cpufreq/cpuinfo_max_freq"))],
    }


def _memory(root: Path) -> dict[str, Any]:
    lines = [line.split() for line in (_read(root / "proc/meminfo") or "").splitlines()]
    sizes = {line[0].rstrip(":"): int(line[1]) << 10 for line in lines if len(line) > 1 and line[1].isdigit()}
    huge = _read(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    return {
        "total": sizes.get("MemTotal"),
        "available": sizes.get("MemAvailable"),
        "swap": sizes.get("SwapTotal"),
        "limit": group_limit(str(root)),
        "page": os.sysconf("SC_PAGESIZE"),
        "huge_pages": next((word.strip("[]") for word in huge.split() if word.startswith("[")), None),
    }


def _storage(path: str, root: Path) -> dict[str, Any]:
    device = os.stat(path).st_dev
    kind = mount = None
    for line in (_read(root / "proc/self/mountinfo") or "").splitlines():
        fields = line.split()
        if f"{os.major(device)}:{os.minor(device)}" in fields[2:3] and "-" in fields:
            mount, kind = fields[4], fields[fields.index("-") + 1]
    return {"path": path, "mount": mount, "file_system": kind}


def read_rates(path: str) -> dict[str, float | None]:
    """Return the MB/s of reads that the page cache does not answer: with O_DIRECT (None if the file system does not
    support it), and buffered. ``path`` is a file, or a folder in which a file is made while measuring.
    """
    if not os.path.isdir(path):
        return _rates(path)
    probe = unnamed(path)  # a process that is killed meanwhile leaves nothing
    try:
        with open(probe.fd, "wb", closefd=False) as file:
            for _ in range(PROBE_BYTES // REQUEST_BYTES):
                file.write(os.urandom(REQUEST_BYTES))  # not zeros: a file system may not store those
            os.fsync(file.fileno())
        return _rates(f"/proc/self/fd/{probe.fd}")
    finally:
        probe.close()


def _rates(path: str) -> dict[str, float | None]:
    return {"direct_mb_per_s": _rate(path, os.O_DIRECT), "buffered_mb_per_s": _rate(path, 0)}


def _rate(path: str, flag: int) -> float | None:
    import mmap

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flag)  # a FIFO must not make us wait
    except OSError:
        if flag:
            return None
        raise
    try:
        size = min(os.fstat(fd).st_size, PROBE_BYTES) // REQUEST_BYTES * REQUEST_BYTES
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(-1, REQUEST_BYTES) as block:  # page-aligned, as O_DIRECT needs
            started = time.perf_counter()
            done = 0
            while done < size and (count := os.preadv(fd, [block], done)):
                done += count
            seconds = time.perf_counter() - started
        return round(done / seconds / 1e6, 1) if done else None
    except OSError:  # some file systems open with O_DIRECT and refuse to read
        if flag:
            return None
        raise
    finally:
        os.close(fd)


def warnings(root: Path = Path("/")) -> list[str]:
    """Return the conditions that make runs slower or times unsteady here, each with its remedy."""
    found = []
    cpu, memory = _cpu(root), _memory(root)
    slow = [g for g in cpu["governors"] if g in ("powersave", "conservative")]
    if slow:
        found.append(f"CPU governor {slow[0]}: times vary; run sudo cpupower frequency-set -g performance")
    throttled = _read(root / "sys/devices/platform/soc/soc:firmware/get_throttled")
    if throttled and throttled not in ("0", "0x0"):
        found.append(f"the board reports throttling ({throttled}): check its cooling and power supply")
    if cpu["isa"] == "scalar":
        found.append("only plain C kernels run on this CPU (or FLEXNN_ISA forces them): several times slower")
    if cpu["usable"] < cpu["cores"]:
        found.append(f"this process may use {cpu['usable']} of {cpu['cores']} CPUs")
    if memory["huge_pages"] == "never":
        found.append("transparent huge pages are off: reads past the page cache (--io direct) are slower")
    if memory["limit"] and memory["available"] and memory["limit"] < memory["available"]:
        found.append(f"a control group limits memory to {memory['limit'] >> 20} MiB: give a budget below it")
    return found
