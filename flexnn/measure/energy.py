"""Energy that the system measures: RAPL counters of x86 processors (powercap), the power chip of a Raspberry Pi 5, and
INA sensors (hwmon). It is that of the whole processor or board, not of one process.
"""

from __future__ import annotations

import glob
import os
import re
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

INTERVAL_S = 0.1
"""Time between samples: power is summed up over them, and no counter turns round in between."""
INA = re.compile(r"ina\d")
"""Beginning of the names of INA sensors."""
WHOLE_BOARD = ("VDD_IN", "POM_5V_IN")
"""Labels of the channel of a board that feeds all others."""
PMIC_COMMAND = ("vcgencmd", "pmic_read_adc")
_PMIC = re.compile(r"(\w+)_([AV]) (?:current|volt)\(\d+\)=([0-9.]+)[AV]")


class NotOfferedError(Exception):
    """A system that does not say what energy it takes, or not to this user."""


class Source(NamedTuple):
    """A way to know energy or power."""

    name: str
    joules: Callable[[], float] | None
    """Function that returns joules since some moment; it is called often enough that no counter turns round unseen."""
    watts: Callable[[], float] | None
    """Function that returns the power now, where the system has no counter."""


class Used(NamedTuple):
    """Energy of a while."""

    joules: float
    seconds: float

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds if self.seconds else 0.0


def find_source(system: str = "/sys", command: tuple[str, ...] = PMIC_COMMAND) -> Source:
    """Return the best source of this system. Raises NotOfferedError."""
    reasons: list[str] = []
    finds: tuple[Callable[[], Source | None], ...] = (
        lambda: _rapl(system),
        lambda: _pmic(command),
        lambda: _ina(system),
    )
    for find in finds:
        try:
            source = find()
        except OSError as error:
            reasons.append(f"{error.filename}: {error.strerror}")
            continue
        if source is not None:
            return source
    raise NotOfferedError("; ".join(reasons) or "no RAPL counter, no PMIC of a Raspberry Pi 5, no INA sensor")


class Meter:
    """Meter of the energy between ``start`` and ``stop``; a thread takes samples meanwhile."""

    def __init__(self, source: Source, interval_s: float = INTERVAL_S) -> None:
        self.source, self._interval_s = source, interval_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: OSError | None = None
        self._begun = self._at = self._first = self._last = self._joules = 0.0

    def start(self) -> None:
        """Begin. Raises OSError where the sensor cannot be read."""
        self._ended.clear()
        self._failed, self._joules = None, 0.0
        self._begun = self._at = time.perf_counter()
        self._first = self._last = self._read()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> Used:
        """End; return what was used since ``start``. Raises OSError where the sensor could not be read."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._failed is None:
            self._sample()
        if self._failed is not None:
            raise self._failed
        return Used(self._joules, self._at - self._begun)

    def _read(self) -> float:
        read = self.source.joules or self.source.watts
        assert read is not None
        return read()

    def _watch(self) -> None:
        while self._failed is None and not self._ended.wait(self._interval_s):
            self._sample()

    def _sample(self) -> None:
        try:
            found, now = self._read(), time.perf_counter()
        except OSError as error:
            self._failed = error
            return
        if self.source.joules is not None:
            self._joules = found - self._first
        else:
            self._joules += (found + self._last) / 2 * (now - self._at)
        self._last, self._at = found, now


def _text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read().strip()


def _whole(path: str) -> int:
    text = _text(path)
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise OSError(0, "no number", path)
    return int(text)


class _Counter:
    """Counter of a powercap zone that begins again at 0 after its range."""

    def __init__(self, zone: str) -> None:
        self._path = os.path.join(zone, "energy_uj")
        self._range = _whole(os.path.join(zone, "max_energy_range_uj"))
        self._last, self._total = _whole(self._path), 0

    def joules(self) -> float:
        """Return the joules since this counter was made."""
        now = _whole(self._path)
        self._total += now - self._last if now >= self._last else now - self._last + self._range
        self._last = now
        return self._total / 1e6


def _rapl(system: str) -> Source | None:
    """Counters of the platform where there is one, else of the processors and their memory."""
    folder = os.path.join(system, "class", "powercap")
    zones = {zone: _text(os.path.join(zone, "name")) for zone in sorted(glob.glob(f"{folder}/intel-rapl:*"))}
    whole = [zone for zone, name in zones.items() if name == "psys"]
    parts = [zone for zone, name in zones.items() if name.startswith("package") or name == "dram"]
    chosen = whole[:1] or parts
    if not chosen:
        return None
    counters = [_Counter(zone) for zone in chosen]
    names = ", ".join(zones[zone] for zone in chosen)
    return Source(f"RAPL ({names})", lambda: sum(counter.joules() for counter in counters), None)


def _pmic(command: tuple[str, ...]) -> Source | None:
    """The sum over the rails of a Raspberry Pi 5's power chip: what it feeds, its own losses not counted."""
    import shutil
    import subprocess

    program = shutil.which(command[0])
    if program is None:
        return None

    def watts() -> float:
        try:
            done = subprocess.run(
                [program, *command[1:]], capture_output=True, text=True, errors="replace", timeout=5, check=True
            )
        except subprocess.SubprocessError:
            raise OSError(0, "no answer", program) from None
        rails: dict[str, dict[str, float]] = {}
        for rail, kind, value in _PMIC.findall(done.stdout):
            rails.setdefault(rail, {})[kind] = float(value)
        found = [rail["A"] * rail["V"] for rail in rails.values() if len(rail) == 2]
        if not found:
            raise OSError(0, "its answer has no rails with current and voltage", program)
        return sum(found)

    watts()
    return Source("PMIC of the Raspberry Pi", None, watts)


def _ina(system: str) -> Source | None:
    """The channel that feeds a board where one is labelled so, else the sum over all channels."""
    channels: dict[str, tuple[str, ...]] = {}
    for sensor in sorted(glob.glob(os.path.join(system, "class", "hwmon", "hwmon*"))):
        if not os.path.exists(f"{sensor}/name") or not INA.match(_text(f"{sensor}/name")):
            continue
        for current in sorted(glob.glob(f"{sensor}/curr*_input")):
            number = re.sub(r"\D", "", os.path.basename(current))
            label = f"{sensor}/in{number}_label"
            name = _text(label) if os.path.exists(label) else f"{os.path.basename(sensor)} channel {number}"
            power, volts = f"{sensor}/power{number}_input", f"{sensor}/in{number}_input"
            if os.path.exists(power):
                channels[name] = (power,)
            elif os.path.exists(volts):
                channels[name] = (volts, current)
    chosen = next(([name] for name in WHOLE_BOARD if name in channels), list(channels))
    if not chosen:
        return None

    def watts() -> float:
        total = 0.0
        for name in chosen:
            product = 1.0
            for path in channels[name]:
                product *= _whole(path)
            total += product / 1e6  # microwatts, or millivolts times milliamperes
        return total

    watts()
    return Source(f"INA sensor ({', '.join(chosen)})", None, watts)
