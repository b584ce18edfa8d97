"""Quantised forms of float32 models, as onnxruntime's quantiser writes them: seeded noise calibrates.

python -m bench.models narrow                          every form of every model that is compared, about 0.6 GB
python -m bench.models narrow --small                  of the small variants, for tests
python -m bench.models narrow mobilenet_v2 --form u8s8
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from bench import MODELS
from bench.cli import cli
from bench.models.build import BUILT, build
from bench.models.fetch import BY_NAME, fetch
from bench.models.inputs import input_shapes, random_feed

SAMPLES = 2
"""Inputs that calibrate."""
AXES_SINCE = 13
"""Opset from which on DequantizeLinear has an axis."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a model is quantised; types are QuantType's names. ``operators``: QLinear operators, not QDQ pairs."""

    activations: str = "QUInt8"
    weights: str = "QInt8"
    operators: bool = False
    dynamic: bool = False
    per_channel: bool = True


FORMS = {
    "u8s8": Form(),
    "s8s8": Form("QInt8"),
    "u8u8": Form(weights="QUInt8", per_channel=False),
    "qlinear": Form(operators=True),
    "dynamic": Form(dynamic=True),
}
"""Forms by the names that end the files'."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model to quantise: built, or trained where ``bench.models.fetch`` knows it; shapes of open inputs."""

    name: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    forms: tuple[str, ...] = ("u8s8", "s8s8")


SOURCES = (
    Source("resnet152", forms=("u8s8", "s8s8", "qlinear")),
    Source("mobilenet_v2", forms=("u8s8", "s8s8", "qlinear")),
    Source("vit_b16", forms=("u8s8", "s8s8", "dynamic")),
    Source("ppocr_v4_det", {"x": (1, 3, 640, 640)}, ("u8s8",)),
)
"""Models that are compared at full size."""


def narrow_path(name: str, form: str) -> Path:
    """The file of a quantised model."""
    return MODELS / f"{name}_{form}.onnx"


class _Samples:
    """Seeded inputs in the form of onnxruntime's CalibrationDataReader."""

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        sizes = input_shapes(path, dict(shapes))
        self._feeds: Iterator[dict[str, Any]] = iter([random_feed(sizes, seed, 1.0) for seed in range(SAMPLES)])

    def get_next(self) -> dict[str, Any] | None:
        """The next inputs, None at the end."""
        return next(self._feeds, None)


def quantise(source: Path, target: Path, form: Form, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write the model ``source`` in ``form`` to ``target``."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    weights = QuantType[form.weights]
    model = onnx.load(source, load_external_data=False)
    opset = next(o.version for o in model.opset_import if not o.domain)
    by_channel = form.per_channel and opset >= AXES_SINCE
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        quant_pre_process(str(source), str(plain), skip_symbolic_shape=True)
        part = Path(folder) / "quantised.onnx"
        if form.dynamic:
            quantize_dynamic(plain, part, weight_type=weights, per_channel=by_channel)
        else:
            quantize_static(
                str(plain),
                str(part),
                _Samples(source, shapes),
                quant_format=QuantFormat.QOperator if form.operators else QuantFormat.QDQ,
                activation_type=QuantType[form.activations],
                weight_type=weights,
                per_channel=by_channel,
            )
        target.write_bytes(part.read_bytes())


def make(source: Source, form: str, small: bool = False) -> Path:
    """Make sure that a model is there in a form; its path."""
    built = build(source.name, small) if source.name in BUILT else fetch(source.name)[0]
    path = narrow_path(built.stem, form)
    if not path.is_file() or path.stat().st_mtime < built.stat().st_mtime:
        quantise(built, path, FORMS[form], source.shapes)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.models narrow", __doc__, is_json=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all that are compared")
    parser.add_argument("--form", action="append", choices=[*FORMS], help="default: those that are compared")
    parser.add_argument("--small", action="store_true", help="of the small variants")
    options = parser.parse_args(arguments)
    known = {source.name: source for source in SOURCES}
    if unknown := [name for name in options.names if name not in (*known, *BUILT, *BY_NAME)]:
        parser.error(f"no model {unknown[0]!r}")
    for name in options.names or [n for n in known if n in BUILT or not options.small]:
        source = known.get(name, Source(name))
        for form in options.form or source.forms:
            print(make(source, form, options.small))
    return 0
