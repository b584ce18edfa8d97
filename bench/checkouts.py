"""Revisions of FlexNN, each built and installed into a virtual environment of its own under bench/.cache/regress."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from bench import CACHE, ROOT
from bench.models.catalogue import Model

WORKING_TREE = "."
WORKER = ROOT / "bench" / "peers" / "worker.py"
BUILT_FROM = ["CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "flexnn", "kernels", "engine", "planner"]
"""What a revision is built from, as far as it has it: older ones hold the engine and the planner in flexnn/_core."""


class BuildError(RuntimeError):
    """A revision that git does not know, or that does not install."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """An installed revision."""

    label: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def worker(self, *arguments: object) -> str:
        """What bench/peers/worker.py prints under this checkout."""
        command = [str(self.python), str(WORKER), *map(str, arguments)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}  # what each measured of the machine
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{self.label}: {done.stderr.strip()}")
        return done.stdout

    def artifact(self, model: Model) -> Path:
        """The model compiled by this checkout, once."""
        path = model.make()
        target = self.folder / f"{model.name}.flexnn"
        if not target.exists() or target.stat().st_mtime < path.stat().st_mtime:
            self.worker("compile", path, target, json.dumps(model.shapes))
        return target


def source(revision: str) -> bytes:
    """A tar archive of the revision's package; ``.`` is the working tree: its files that git knows, as they are."""
    if revision != WORKING_TREE:
        held = subprocess.run(["git", "ls-tree", "--name-only", revision], cwd=ROOT, capture_output=True, check=False)
        parts = [part for part in BUILT_FROM if part in held.stdout.decode().split("\n")]
        command = ["git", "archive", "--format=tar", revision, *parts]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        if done.returncode:
            raise BuildError(f"{revision}: {done.stderr.decode().strip()}")
        return done.stdout
    listed = subprocess.run(["git", "ls-files", "-z", *BUILT_FROM], cwd=ROOT, capture_output=True, check=True).stdout
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in sorted(filter(None, listed.decode().split("\0"))):
            if (ROOT / name).exists():
                entry = tarfile.TarInfo(name)
                data = (ROOT / name).read_bytes()
                entry.size, entry.mode = len(data), (ROOT / name).stat().st_mode & 0o777
                tar.addfile(entry, io.BytesIO(data))
    return archive.getvalue()


def digest(archive: bytes) -> str:
    """Of the files' names, modes and contents; git's archives also hold the commit's name and time."""
    total = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in sorted((m for m in tar if m.isfile()), key=lambda m: m.name):
            content = tar.extractfile(entry)
            assert content
            is_executable = bool(entry.mode & 0o100)
            total.update(f"{entry.name}\0{is_executable}\0{entry.size}\0".encode() + content.read())
    return total.hexdigest()[:16]


def extras(tree: Path) -> list[str]:
    """The names of what the package can be installed with."""
    return list(tomllib.loads((tree / "pyproject.toml").read_text())["project"].get("optional-dependencies", {}))


def install(revision: str) -> Checkout:
    """The revision, built; kept by the digest of its source."""
    archive = source(revision)
    checkout = Checkout(revision, CACHE / "regress" / digest(archive))
    done = checkout.folder / "installed"
    if done.exists():
        return checkout
    shutil.rmtree(checkout.folder, ignore_errors=True)
    tree = checkout.folder / "source"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(tree, filter="data")
    subprocess.run([sys.executable, "-m", "venv", str(checkout.folder / "venv")], check=True)
    wanted = f"{tree}[compile]" if "compile" in extras(tree) else str(tree)
    command = [str(checkout.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted]
    report = subprocess.run(command, capture_output=True, text=True, check=False)
    if report.returncode:
        raise BuildError(f"{revision}: {report.stderr.strip()}")
    done.touch()
    return checkout
