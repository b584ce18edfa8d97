"""Every model there is to test and measure: the built ones, large and small, the trained and the quantised ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bench import MODELS
from bench.models.build import build
from bench.models.fetch import FILES, fetch
from bench.models.inputs import input_shapes, random_feed
from bench.models.narrow import SOURCES, make
from bench.models.segmentation import NETS
from bench.models.segmentation import build as build_segmentation
from bench.models.transformers import TRANSFORMERS
from bench.models.zoo import ZOO


@dataclass(frozen=True, slots=True)
class Model:
    """``kind``: "small", "full" (published size, random weights), "trained", "narrow" (quantised) or
    "segmentation" (built, activations that outweigh weights).
    """

    name: str
    kind: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes for ``--shape``."""
    scale: float = 1.0
    """Standard deviation of random inputs."""
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Range of each integer input: its first number, and the number behind its last."""

    @property
    def path(self) -> Path:
        return MODELS / f"{self.name}.onnx"

    def make(self) -> Path:
        """Makes sure that the file is there, and current."""
        if self.kind == "trained":
            return fetch(self.name)[0]
        if self.kind == "narrow":
            name, _, form = self.name.rpartition("_")
            return make(next(source for source in SOURCES if source.name == name), form)
        if self.kind == "segmentation":
            return build_segmentation(self.name)
        return build(self.name.removesuffix("_small"), self.kind == "small")

    def feed(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random inputs; the file must be there."""
        return random_feed(input_shapes(self.path, self.shapes), seed, self.scale, self.ranges)


def _transformers(small: bool) -> list[Model]:
    tail, kind = ("_small", "small") if small else ("", "full")
    return [
        Model(name + tail, kind, entry.shapes(small), ranges=entry.ranges(small))
        for name, entry in TRANSFORMERS.items()
    ]


SMALL = [*(Model(f"{name}_small", "small") for name in ZOO), *_transformers(small=True)]
FULL = [*(Model(name, "full") for name in ZOO), *_transformers(small=False)]
TRAINED = [
    Model(f.name, "trained", f.shapes, f.scale) for f in FILES if f.path.parent == MODELS and f.path.suffix == ".onnx"
]
NARROW = [Model(f"{s.name}_{form}", "narrow", dict(s.shapes)) for s in SOURCES for form in s.forms]
SEGMENTATION = [Model(name, "segmentation") for name in NETS]
CATALOGUE = {model.name: model for model in (*SMALL, *FULL, *TRAINED, *NARROW, *SEGMENTATION)}
CLASSICS = [name for name in ZOO if name != "resnext50_split"]
"""The eight whose geometric mean is compared."""


def chosen(names: list[str], default: list[str]) -> list[Model]:
    """Models by name, or a whole kind: small, full, trained, narrow, segmentation, classics, all."""
    models: dict[str, Model] = {}
    for name in names or default:
        found = {n: m for n, m in CATALOGUE.items() if name in (n, m.kind, "all", "classics" if n in CLASSICS else n)}
        if not found:
            known = f"{', '.join(CATALOGUE)}; small, full, trained, narrow, segmentation, classics, all"
            raise SystemExit(f"error: no model {name!r}; there are {known}")
        models |= found
    return list(models.values())
