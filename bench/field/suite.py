"""Counts the official ONNX backend suite through flexnn.backend: all of it, the core, and the groups of interest.

python -m bench.field suite                what passed, and why the rest did not
python -m bench.field suite '^test_lstm'   cases whose names match

The core: tensors of float32, int64, int32, bool, uint8 and int8, default domain; no sequences, optionals, random
values, training, text or compressed pictures. The strict core is what is left of it from opset 7 on without operators
on pictures (Resize, GridSample, RoiAlign, NonMaxSuppression and the like) and signals (DFT, windows). Groups are
counted within the core, but for PyTorch's; control flow: models with If, Loop or Scan.
"""

from __future__ import annotations

import re
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx

from bench.cli import cli, tables, write_json
from flexnn.backend import Backend
from flexnn.graph.ir import GraphError

UNSUPPORTED = {
    r"data type .* is not supported|element type .* is not supported": "types that numpy does not have: bfloat16, "
    "floats of 8 bits and fewer, integers of 4 and 2 bits; strings",
    r"is not a tensor|(Sequence|Optional)\w* node|SplitToSequence|a kind that is not supported": "sequences, optionals",
    r"training_mode": "training",
    r"(ImageDecoder|TfIdfVectorizer|String\w*|RegexFullMatch) node": "images and text",
    r"TreeEnsemble node .* branches of kind": "trees that ask for members of sets",
    r"operator of domain": "other domains: training, classic machine learning, preview",
    r"opset \d+; opsets": "models without an opset of the default domain",
    r"FlexAttention": "an operator with functions as attributes",
    r"the artifact lacks the numbers": "constants that change with the shapes",
}
"""Errors with which a case may fail, by a pattern of their text, and the reason why that is not supported."""

RANDOM = r"^test_bernoulli"
"""Cases whose values are random: they cannot be those of the suite. Shapes and types must be."""
CORES = ("core", "strict core", "control flow")
GROUPS = {
    "recurrent": r"^test_(simple_rnn|rnn|gru|lstm)",
    "pytorch": r"^(PyTorch)",
}
_TYPES = {getattr(onnx.TensorProto, name) for name in ("FLOAT", "INT64", "INT32", "BOOL", "UINT8", "INT8")}
_OUTSIDE = re.compile(
    r"Sequence[A-Z]|Optional|Random|Bernoulli|Multinomial|ImageDecoder|String|Ada|Momentum|Gradient|TfIdf"
)
_PICTURES = re.compile(r"Resize|Upsample|GridSample|AffineGrid|Roi|NonMaxSuppression|CenterCropPad|Col2Im|MaxUnpool")
_SIGNALS = re.compile(r"^(DFT|STFT|\w+Window|MelWeightMatrix)$")

Case = tuple[str, str, Callable[[object], None], frozenset[str]]
"""Category, name, the test, the cores it is of."""


def cases(pattern: str = "") -> Iterator[Case]:
    """The suite's cases for CPUs whose name matches."""
    import onnx.backend.test
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        categories = onnx.backend.test.BackendTest(Backend, __name__)._test_items
        kinds = ("node", "simple", "pytorch-converted", "pytorch-operator")
        cores = {case.name: _cores(case) for kind in kinds for case in load_model_tests(kind=kind)}
    for category, items in categories.items():
        for name, item in items.items():
            if name.endswith("_cpu") and re.search(pattern, name):
                yield category, name, item.func, cores.get(name.removesuffix("_cpu"), frozenset())


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _cores(case: object) -> frozenset[str]:
    model = getattr(case, "model", None) or onnx.load(f"{case.model_dir}/model.onnx")  # type: ignore[attr-defined]
    types: set[int] = set()
    operators: set[str] = set()
    for graph in _graphs(model.graph):
        ports = [p for p in (*graph.input, *graph.output, *graph.value_info) if p.type.WhichOneof("value")]
        types |= {p.type.tensor_type.elem_type if p.type.HasField("tensor_type") else 0 for p in ports}
        types |= {tensor.data_type for tensor in graph.initializer}
        operators |= {node.op_type if node.domain in ("", "ai.onnx") else "Optional" for node in graph.node}
    if (
        not types <= _TYPES
        or any(_OUTSIDE.search(name) for name in operators)
        or "training" in getattr(case, "name", "")
    ):
        return frozenset()
    cores = {"core"}
    opset = max(entry.version for entry in model.opset_import)
    if opset >= 7 and not any(_PICTURES.search(name) or _SIGNALS.search(name) for name in operators):
        cores.add("strict core")
    if operators & {"If", "Loop", "Scan"}:
        cores.add("control flow")
    return frozenset(cores)


def outcome(run: Callable[[object], None], name: str = "") -> str:
    """passed, skipped, or the reason that a refusal falls under. Raises what is no refusal in one line."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(None)
    except unittest.SkipTest:
        return "skipped"
    except AssertionError as error:
        if not re.search(RANDOM, name) or "Mismatched elements" not in str(error):
            raise
        return "random values differ by definition"
    except (GraphError, ValueError) as error:
        reasons = [reason for pattern, reason in UNSUPPORTED.items() if re.search(pattern, str(error))]
        if not reasons or "\n" in str(error):
            raise
        return reasons[0]
    return "passed"


def count(pattern: str = "") -> tuple[dict[str, Counter[str]], dict[str, str]]:
    """Outcomes by group, and the failures: cases that neither pass nor are refused for a listed reason."""
    groups: dict[str, Counter[str]] = {name: Counter() for name in ("all", *CORES, *GROUPS)}
    failures = {}
    for category, name, run, cores in cases(pattern):
        try:
            result = outcome(run, name)
        except Exception as error:
            result = "failed"
            failures[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        groups["all"][result] += 1
        for core in cores:
            groups[core][result] += 1
        for group, wanted in GROUPS.items():
            if re.search(wanted, category) if group == "pytorch" else "core" in cores and re.search(wanted, name):
                groups[group][result] += 1
    return groups, failures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.field suite", __doc__)
    parser.add_argument("pattern", nargs="?", default="", help="cases whose names match this regular expression")
    options = parser.parse_args(arguments)
    groups, failures = count(options.pattern)
    write_json(options.json, {"groups": groups, "failures": failures})
    out = tables(options.json).file
    for name, outcomes in groups.items():
        print(f"{name:14} {outcomes['passed']:5} of {outcomes.total()}", file=out)
    for reason, number in groups["all"].most_common():
        print(f"{number:6}  {reason}", file=out)
    for name, text in failures.items():
        print(f"FAILED  {name}: {text}", file=out)
    return 1 if failures else 0
