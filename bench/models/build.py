"""Builds the classic CNNs and transformers with seeded random weights into bench/.cache/models; skips those whose
recipe is there.

python -m bench.models build                 all thirteen, about 2.4 GB
python -m bench.models build --small         thin, shallow variants for tests: NAME_small.onnx
python -m bench.models build vgg19 resnet152
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench import MODELS
from bench.cli import cli
from bench.models import transformers, zoo
from bench.models.net import Net

BUILT = {**zoo.ZOO, **transformers.TRANSFORMERS}


def make(name: str, small: bool = False) -> Net:
    """The named network; ``small``: its thin, shallow variant, named with ``_small``."""
    return (zoo if name in zoo.ZOO else transformers).make(name, small)


def build(name: str, small: bool = False, folder: Path = MODELS) -> Path:
    """Makes sure that the named network lies in ``folder``; its path. The recipe's hash and size lie beside it."""
    net = make(name, small)
    path = folder / f"{net.name}.onnx"
    note = path.with_suffix(".recipe")
    folder.mkdir(parents=True, exist_ok=True)
    recipe = net.recipe()
    if path.is_file() and note.is_file() and note.read_text() == f"{recipe} {path.stat().st_size}\n":
        return path
    if not small and net.parameters != BUILT[name].parameters:
        raise AssertionError(f"{name}: {net.parameters} parameters, published are {BUILT[name].parameters}")
    net.write(path)
    note.write_text(f"{recipe} {path.stat().st_size}\n")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.models build", __doc__, is_json=False)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*BUILT, []], help="default: all")
    parser.add_argument("--small", action="store_true", help="build the thin, shallow variants instead")
    options = parser.parse_args(arguments)
    for name in options.names or BUILT:
        print(build(name, options.small))
    return 0
