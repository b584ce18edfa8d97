"""Energy as a made-up sysfs, a made-up power chip and a clock of the test's own tell it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import flexnn
from flexnn import cli
from flexnn.measure import energy
from flexnn.measure.energy import Meter, NotOfferedError, Source, find_source
from tests.support.sessions import write_model

NOTHING = ("no-such-command-here",)


def write(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    return folder


def zone(system: Path, number: str, name: str, energy_uj: int, most: int = 10**9) -> Path:
    return write(
        system / "class" / "powercap" / f"intel-rapl:{number}",
        name=name,
        energy_uj=energy_uj,
        max_energy_range_uj=most,
    )


def sensor(system: Path, number: int, name: str, **files: object) -> Path:
    return write(system / "class" / "hwmon" / f"hwmon{number}", name=name, **files)


def test_nothing_is_offered(tmp_path: Path) -> None:
    sensor(tmp_path, 0, "coretemp", temp1_input=40_000)
    with pytest.raises(NotOfferedError, match="no RAPL counter, no PMIC of a Raspberry Pi 5, no INA sensor"):
        find_source(str(tmp_path), NOTHING)


def test_rapl_sums_packages_and_memory_but_not_their_parts(tmp_path: Path) -> None:
    zones = {
        zone(tmp_path, "0", "package-0", 5_000_000): 2_000_000,
        zone(tmp_path, "0:0", "core", 7): 900_000,  # is in the package
        zone(tmp_path, "0:1", "dram", 100): 300_000,
        zone(tmp_path, "1", "package-1", 6_000_000): 1_000_000,
    }
    source = find_source(str(tmp_path), NOTHING)
    assert source.name == "RAPL (package-0, dram, package-1)"
    assert source.joules is not None
    assert source.joules() == 0
    for folder, more in zones.items():
        path = folder / "energy_uj"
        path.write_text(str(int(path.read_text()) + more))
    assert source.joules() == pytest.approx(3.3)


def test_a_platform_counter_is_all_there_is(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 5)
    zone(tmp_path, "1", "psys", 5)
    assert find_source(str(tmp_path), NOTHING).name == "RAPL (psys)"


def test_counters_begin_again(tmp_path: Path) -> None:
    path = zone(tmp_path, "0", "package-0", 900, most=1000) / "energy_uj"
    source = find_source(str(tmp_path), NOTHING)
    assert source.joules is not None
    for now, total in ((990, 90), (50, 150), (60, 160), (10, 1110)):
        path.write_text(str(now))
        assert source.joules() == pytest.approx(total / 1e6)


def test_counters_that_only_root_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (zone(tmp_path, "0", "package-0", 900) / "energy_uj").unlink()
    (tmp_path / "class" / "powercap" / "intel-rapl:0" / "energy_uj").mkdir()  # as unreadable, also for root
    with pytest.raises(NotOfferedError, match="energy_uj: Is a directory"):
        find_source(str(tmp_path), NOTHING)
    sensor(tmp_path, 0, "ina226", power1_input=1_000_000, curr1_input=1)
    assert find_source(str(tmp_path), NOTHING).name == "INA sensor (hwmon0 channel 1)"


def watts(source: Source) -> float:
    assert source.watts is not None
    return source.watts()


def test_ina_sensors_are_summed(tmp_path: Path) -> None:
    sensor(tmp_path, 0, "ina226", power1_input=2_500_000, curr1_input=500, in1_input=5_000)
    sensor(tmp_path, 1, "ina3221", in1_input=5_000, curr1_input=200, in2_input=3_300, curr2_input=100, in4_input=20)
    sensor(tmp_path, 2, "nvme", power1_input=9)
    assert watts(find_source(str(tmp_path), NOTHING)) == pytest.approx(2.5 + 1.0 + 0.33)


def test_the_channel_that_feeds_the_board_is_all_there_is(tmp_path: Path) -> None:
    files = {"in1_label": "VDD_IN", "in2_label": "VDD_CPU", "curr1_input": 1_000, "curr2_input": 400}
    sensor(tmp_path, 0, "ina3221", in1_input=5_000, in2_input=5_000, **files)
    source = find_source(str(tmp_path), NOTHING)
    assert source.name == "INA sensor (VDD_IN)"
    assert watts(source) == pytest.approx(5.0)


def command(folder: Path, script: str) -> tuple[str, ...]:
    path = folder / "vcgencmd"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path), "pmic_read_adc"


RAILS = """cat <<'END'
 3V7_WL_SW_A current(0)=0.10000000A
   3V3_SYS_A current(1)=0.20000000A
 3V7_WL_SW_V volt(8)=3.70000000V
   3V3_SYS_V volt(9)=3.30000000V
     EXT5V_V volt(24)=5.15000000V
      BATT_V volt(25)=0.00000000V
END"""


def test_the_power_chip_of_a_raspberry_pi(tmp_path: Path) -> None:
    source = find_source(str(tmp_path), command(tmp_path, RAILS))
    assert source.name == "PMIC of the Raspberry Pi"
    assert watts(source) == pytest.approx(0.37 + 0.66)


@pytest.mark.parametrize(
    ("script", "why"), [("echo Command not registered", "no rails"), ("exit 1", "no answer"), ("echo", "no rails")]
)
def test_a_command_without_an_answer(tmp_path: Path, script: str, why: str) -> None:
    with pytest.raises(NotOfferedError, match=why):
        find_source(str(tmp_path), command(tmp_path, script))


def test_text_in_place_of_numbers(tmp_path: Path) -> None:
    sensor(tmp_path, 0, "ina226", power1_input="on", curr1_input="x")
    with pytest.raises(NotOfferedError, match="power1_input: no number"):
        find_source(str(tmp_path), NOTHING)


def test_power_is_summed_up_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 W at 0 s, 20 W at 2 s, 30 W at 3 s: 30 J and 25 J."""
    clock, given = iter([0.0, 2.0, 3.0]), iter([10.0, 20.0, 30.0])
    monkeypatch.setattr(energy.time, "perf_counter", lambda: next(clock))
    meter = Meter(Source("test", None, lambda: next(given)), interval_s=3600)
    meter.start()
    meter._sample()
    used = meter.stop()
    assert (used.joules, used.seconds) == (55.0, 3.0)
    assert used.watts == pytest.approx(55 / 3)


def test_samples_are_taken_meanwhile() -> None:
    """So that no counter turns round unseen."""
    read: list[int] = []

    def joules() -> float:
        read.append(threading.get_ident())
        return float(len(read))

    meter = Meter(Source("test", joules, None), interval_s=0.001)
    meter.start()
    while len(read) < 5:
        time.sleep(0.001)
    assert meter.stop().joules == len(read) - 1
    assert len(set(read)) == 2


def test_a_sensor_that_fails_meanwhile(tmp_path: Path) -> None:
    path = zone(tmp_path, "0", "package-0", 900) / "energy_uj"
    meter = Meter(find_source(str(tmp_path), NOTHING))
    meter.start()
    path.write_text("")
    with pytest.raises(OSError, match="no number"):
        meter.stop()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> str:
    return flexnn.compile(write_model(tmp_path_factory.mktemp("energy") / "small.onnx"))


def with_source(monkeypatch: pytest.MonkeyPatch, find: Callable[[], Source]) -> None:
    monkeypatch.setattr("flexnn.cli.energy.find_source", find)
    monkeypatch.setattr("flexnn.cli.energy.IDLE_S", 0.01)
    monkeypatch.setattr("flexnn.cli.energy.LEAST_S", 0.05)


def test_runs_tell_joules(artifact: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with_source(monkeypatch, lambda: Source("a made-up sensor", None, lambda: 4.0))
    assert cli.main(["run", artifact, "--energy", "--repeat", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["energy"]
    assert found["source"] == "a made-up sensor"
    assert found["watts"] == pytest.approx(4.0)
    assert found["watts_before"] == pytest.approx(4.0)
    assert found["seconds"] >= 0.05
    assert 0 < found["joules_per_run"] < 4.0 * found["seconds"] / 2 + 1e-9
    assert cli.main(["run", artifact, "--energy", "--repeat", "2"]) == 0
    assert "4.00 W while running, 4.00 W before; a made-up sensor)" in capsys.readouterr().out


def test_runs_without_sensors_say_so(
    artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_source(monkeypatch, lambda: find_source(str(tmp_path), NOTHING))
    assert cli.main(["run", artifact, "--energy", "--repeat", "2"]) == 0
    assert "energy   not offered here: no RAPL counter" in capsys.readouterr().out
    assert cli.main(["run", artifact, "--energy", "--repeat", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["energy"]["source"] is None
    assert not os.listdir(tmp_path)
