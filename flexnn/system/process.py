"""Facts that the system tells of this process."""

from __future__ import annotations


def resident() -> tuple[int, int]:
    """Return the resident bytes of this process, now (VmRSS) and at most (VmHWM)."""
    found = {"VmRSS:": 0, "VmHWM:": 0}
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            name, _, rest = line.partition("\t")
            if name in found:
                found[name] = int(rest.split()[0]) << 10
    return found["VmRSS:"], found["VmHWM:"]
