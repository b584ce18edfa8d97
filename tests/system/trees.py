"""Made-up /proc and /sys of machines whose memory is limited."""

from __future__ import annotations

from pathlib import Path

MIB = 1 << 20
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


class Machine:
    """A folder that stands for / ."""

    def __init__(self, root: Path, groups: str, available: int, *, resident: int = 0) -> None:
        self.root = root
        self.write("proc/self/cgroup", groups)
        self.set_available(available)
        self.write("proc/self/statm", f"{resident // 4096 + 100} {resident // 4096} 0 0 0 0 0")
        self.write("proc/pressure/memory", PRESSURE.format(0))

    def write(self, name: str, text: object) -> None:
        """Write a file in place: readers keep theirs open."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}")

    def set_available(self, available: int) -> None:
        self.write("proc/meminfo", f"MemTotal: {4096 << 10} kB\nMemAvailable: {available >> 10} kB\n")

    def set_v1(self, name: str, limit: int, usage: int, cached: int = 0) -> None:
        folder = f"sys/fs/cgroup/memory{name}"
        self.write(f"{folder}/memory.limit_in_bytes", limit)
        self.write(f"{folder}/memory.usage_in_bytes", usage)
        self.write(f"{folder}/memory.failcnt", 0)
        self.write(f"{folder}/memory.stat", f"inactive_file 7\ntotal_inactive_file {cached}\ntotal_active_file 0\n")

    def set_v2(self, name: str, limit: int | str, usage: int, cached: int = 0, high: int | str = "max") -> None:
        folder = f"sys/fs/cgroup{name}"
        self.write(f"{folder}/memory.max", limit)
        self.write(f"{folder}/memory.high", high)
        self.write(f"{folder}/memory.current", usage)
        self.write(f"{folder}/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
        self.write(f"{folder}/memory.pressure", PRESSURE.format(0))
        self.write(f"{folder}/memory.stat", f"anon 5\ninactive_file {cached}\nactive_file {2 * cached}\n")
