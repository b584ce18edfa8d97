"""The kept costs: a file that nobody trusts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flexnn import files
from flexnn.measure import cache
from flexnn.planning import MachineProfile

KEY = "1 0123456789abcdef0123 rest of the key"
KEPT = cache.Kept(
    MachineProfile(1e11, 1e10, 2e9, 1e-5, 1e-6, 0.9, 0.8, {"conv.direct.0.a": (1e-6, 1e-3)}, {"dwconv": 0.5}),
    77,
    frozenset({"conv", "storage"}),
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def file() -> Path:
    (path,) = Path(files.cache_folder()).iterdir()
    return path


def test_it_comes_back_whole() -> None:
    assert cache.load(KEY) is None
    cache.store(KEY, KEPT)
    assert cache.load(KEY) == KEPT
    assert cache.load(KEY + " of another machine") is None
    cache.store(KEY, cache.Kept(KEPT.machine, 78))
    assert cache.load(KEY) == cache.Kept(KEPT.machine, 78)
    assert file().suffix == ".json"  # and no temporary is left beside it


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", "other"),
        ("arena_bytes", "77"),
        ("flops_per_second", 0),
        ("flops_per_second", "fast"),
        ("storage_bytes_per_second", -1.0),
        ("storage_bytes_per_second", None),
        ("request_s", 1e9),
        ("compute_speed", 0.0),
        ("load_speed", 2.0),
        ("load_speed", True),
        ("times", {"a": [1.0]}),
        ("times", {"a": [-1.0, 1.0]}),
        ("times", {"a": [1e300, 1.0]}),
        ("times", 7),
        ("scales", {"a": 0.0}),
        ("scales", [1, 2]),
        ("tried", "storage"),
        ("tried", [1, 2]),
        ("tried", [["storage"]]),
        ("tried", ["x"] * (cache.VARIANTS_MAX + 1)),
    ],
)
def test_wrong_values_are_not_believed(field: str, value: Any) -> None:
    cache.store(KEY, KEPT)
    found = json.loads(file().read_text())
    assert field in found
    file().write_text(json.dumps(found | {field: value}))
    assert cache.load(KEY) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"key": NaN}', "[" * 100_000, "\x00" * 99, "1" * 9999])
def test_damaged_files_are_not_believed(text: str) -> None:
    cache.store(KEY, KEPT)
    file().write_text(text)
    assert cache.load(KEY) is None
    cache.store(KEY, KEPT)
    assert cache.load(KEY) == KEPT


def test_nan_and_huge_files_are_not_believed() -> None:
    cache.store(KEY, KEPT)
    text = file().read_text()
    file().write_text(text.replace("1e-05", "NaN"))
    assert cache.load(KEY) is None
    file().write_text(text + " " * cache.FILE_BYTES_MAX)
    assert cache.load(KEY) is None


def test_a_folder_that_cannot_be_made_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file")
    for name in ("XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path / "taken"))
    with pytest.warns(RuntimeWarning, match="Not a directory; using"):
        cache.store(KEY, KEPT)
    assert cache.load(KEY) is None
    assert (tmp_path / "taken").read_text() == "a file"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="Not a directory; using"):
        cache.store(KEY, KEPT)
    assert cache.load(KEY) == KEPT


def test_a_failed_write_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store(KEY, KEPT)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.store(KEY, cache.Kept(KEPT.machine, 99))
    assert cache.load(KEY) == KEPT
    assert len(list(Path(files.cache_folder()).iterdir())) == 1


def keys(count: int) -> list[str]:
    return [f"1 {number:016x}0123 rest of the key" for number in range(count)]


def test_profiles_are_bounded_and_the_least_used_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "KEPT_MAX", 3)
    for age, key in enumerate(keys(3)):
        cache.store(key, KEPT)
        path = max(Path(files.cache_folder()).iterdir(), key=lambda p: p.stat().st_mtime_ns)
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.load(keys(1)[0]) == KEPT  # so it was used last
    cache.store(KEY, KEPT)
    assert [cache.load(key) is not None for key in (*keys(3), KEY)] == [True, False, True, True]


def test_bytes_of_profiles_are_bounded_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = keys(2)
    cache.store(first, KEPT)
    monkeypatch.setattr(cache, "KEPT_BYTES_MAX", file().stat().st_size + 9)
    cache.store(second, KEPT)
    assert cache.load(first) is None
    monkeypatch.setattr(cache, "KEPT_BYTES_MAX", 9)
    cache.store(first, KEPT)
    assert cache.load(second) is None
    assert cache.load(first) == KEPT


def test_only_profiles_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "KEPT_MAX", 0)
    cache.store(KEY, KEPT)
    folder = Path(files.cache_folder())
    others = [folder / name for name in ("0123456789abcdef.json", "0123456789abcdef-0123456g.json", "artifacts")]
    for other in others:
        other.write_text("not a profile")
    linked = folder / "0123456789abcdef-01234567.json"
    linked.symlink_to(others[0])
    cache.store(keys(1)[0], KEPT)
    assert cache.load(KEY) is None
    assert all(other.exists() for other in (*others, linked))
