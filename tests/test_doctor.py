"""flexnn doctor: what it reads from /proc and /sys of made-up machines, and what it says of this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flexnn import doctor
from flexnn.system.groups import group_limit

PI = {
    "proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd0b\n",
    "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
    "proc/meminfo": "MemTotal:  4000 kB\nMemAvailable: 3000 kB\nSwapTotal: 0 kB\n",
    "proc/self/cgroup": "0::/user.slice/flexnn\n",
    "sys/fs/cgroup/user.slice/memory.max": "1048576",
    "sys/fs/cgroup/user.slice/flexnn/memory.max": "max",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1500000",
    "sys/devices/system/cpu/cpu0/cpu_capacity": "446",
    "sys/devices/system/cpu/cpu1/cpu_capacity": "1024",
    "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]",
    "sys/devices/platform/soc/soc:firmware/get_throttled": "0x50005",
}


def machine(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_reads_a_board(tmp_path: Path) -> None:
    report = doctor.examine(str(tmp_path), machine(tmp_path / "root", PI))
    cpu, memory = report["cpu"], report["memory"]
    assert (cpu["board"], cpu["cores"], cpu["capacities"]) == ("Raspberry Pi 5 Model B Rev 1.0", 2, [446, 1024])
    assert (cpu["governors"], cpu["mhz"], cpu["mhz_max"]) == (["powersave"], [1500], [])
    assert (memory["total"], memory["available"], memory["swap"]) == (4000 << 10, 3000 << 10, 0)
    assert (memory["limit"], memory["huge_pages"]) == (1 << 20, "never")
    text = "\n".join(report["warnings"])
    for part in ("governor powersave", "throttling (0x50005)", "huge pages are off", "limits memory to 1 MiB"):
        assert part in text
    assert "Raspberry Pi 5" in doctor.summary(report)


def test_reads_a_machine_that_says_nothing(tmp_path: Path) -> None:
    report = doctor.examine(str(tmp_path), tmp_path / "nothing")
    assert report["memory"]["limit"] is None
    assert report["cpu"]["capacities"] == []
    assert doctor.summary(report)


@pytest.mark.parametrize(
    ("lines", "files", "limit"),
    [
        ("4:memory:/a/b", {"memory/a/memory.limit_in_bytes": "4096", "memory/a/b/memory.limit_in_bytes": "8192"}, 4096),
        ("4:cpu,memory:/a", {"memory/a/memory.limit_in_bytes": "12"}, 12),
        ("4:memory:/", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("4:cpu:/a\n0::/c", {"c/memory.max": "77"}, 77),
        ("0::/../../x", {"x/memory.max": "5"}, 5),
        ("nonsense\n:::", {}, None),
    ],
)
def test_control_groups(tmp_path: Path, lines: str, files: dict[str, str], limit: int | None) -> None:
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()} | {"proc/self/cgroup": lines}
    assert group_limit(str(machine(tmp_path, files))) == limit


def test_times_a_file_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(3 << 20))
    rates = doctor.read_rates(str(file))
    assert rates["buffered_mb_per_s"] is not None
    assert rates["buffered_mb_per_s"] > 0
    doctor.read_rates(str(tmp_path))
    assert list(tmp_path.iterdir()) == [file]


def test_storage_that_cannot_be_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest was not reported either, and a FIFO waited for its other end."""
    os.mkfifo(tmp_path / "fifo")

    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(doctor, "unnamed", full)
    for path, why in ((tmp_path / "fifo", "seek"), (tmp_path, "No space left")):
        report = doctor.examine(str(path))
        assert report["storage"]["buffered_mb_per_s"] is None
        assert why in report["warnings"][-1]
        assert "not possible" in doctor.summary(report)


def test_command(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "flexnn", "doctor", str(tmp_path), "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert report["cpu"]["isa"] in report["cpu"]["isa_levels"]
    missing = subprocess.run([*command[:-2], str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert missing.stderr.startswith("error: ")
    assert missing.stderr.count("\n") == 1
