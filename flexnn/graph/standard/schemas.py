"""Schemas of operators: attributes, inputs and outputs as their standard states them for a version of their domain.

The onnx package has those of ai.onnx and ai.onnx.ml; records.py holds those of com.microsoft.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from onnx import AttributeProto, defs

from flexnn.quick_dataclass import quick_dataclass

from ..stated import GraphError

CONTRIB = "com.microsoft"
_KEPT = ("GroupNormalization",)
"""Operators that onnx calls deprecated in one version and has in the next."""
_INTEGERS = frozenset(f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64))
_WIDER = {
    **dict.fromkeys(("CumProd", "CumSum", "Pow"), _INTEGERS),
    **{f"Reduce{kind}": _INTEGERS for kind in ("L1", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")},
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual"), frozenset({"tensor(bool)"})),
}
"""Types that operators compute here, and that the standard does not give them."""
_OPTION = defs.OpSchema.FormalParameterOption


@quick_dataclass(frozen=True, slots=True)
class Formal:
    """An input or output as a schema states it."""

    types: frozenset[str]
    """Types that it may have, as onnx writes them: "tensor(float)"."""
    variable: str
    """Name of a type that others have, too; "": none."""
    is_required: bool = True


@quick_dataclass(frozen=True, slots=True)
class Schema:
    """An operator in one version."""

    attributes: Mapping[str, tuple[int, bool]]
    """AttributeProto.AttributeType of each, and whether it must be stated."""
    inputs: tuple[Formal, ...]
    """The last one stands for all that follow, where there may be more."""
    outputs: tuple[Formal, ...]
    input_counts: tuple[int, int]
    """The least and the most."""
    output_counts: tuple[int, int]


class Schemas:
    """Schemas of the operators of one model, found once each. ``opsets``: versions by domain; ``functions``: domain and
    name of the operators that the model defines itself.
    """

    def __init__(self, opsets: Mapping[str, int], functions: Set[tuple[str, str]] = frozenset()) -> None:
        self._opsets = opsets
        self._functions = functions
        self._found: dict[tuple[str, str], Schema | None] = {}

    @property
    def default(self) -> int:
        """Version of the default domain."""
        return self._opsets[""]

    def find(self, domain: str, name: str) -> Schema | None:
        """Return the schema of an operator; None where no standard here has it.

        Raises GraphError, the reason alone, for an operator that the model's version of its domain does not have.
        """
        key = domain, name
        if key in self._functions:
            raise GraphError("the model defines the operator itself: functions of models are not supported")
        if key not in self._found:
            if domain not in self._opsets:
                raise GraphError(f"its domain {domain!r} is not among the model's opset imports")
            self._found[key] = _contrib(name) if domain == CONTRIB else _standard(domain, name, self._opsets[domain])
        return self._found[key]


def _standard(domain: str, name: str, version: int) -> Schema | None:
    try:
        schema = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        history = defs.get_all_schemas_with_history()
        first = min((s.since_version for s in history if (s.name, s.domain) == (name, domain)), default=0)
        if not first:
            return None
        raise GraphError(f"the operator is of opset {first} and later; the model's is {version}") from None
    if schema.deprecated and name not in _KEPT:
        raise GraphError(f"opset {schema.since_version} removed the operator; the model's is {version}")
    attributes = {
        key: (AttributeProto.AttributeType.Value(str(value.type).rpartition(".")[2]), value.required)
        for key, value in schema.attributes.items()
    }
    wider = _WIDER.get(name, frozenset()) if not domain else frozenset()
    return Schema(
        attributes,
        tuple(_formal(formal, wider) for formal in schema.inputs),
        tuple(_formal(formal, wider) for formal in schema.outputs),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
    )


def _formal(formal: defs.OpSchema.FormalParameter, wider: frozenset[str]) -> Formal:
    is_shared = formal.type_str not in formal.types and (formal.option != _OPTION.Variadic or formal.is_homogeneous)
    types = frozenset(formal.types) | (wider if is_shared else frozenset())
    return Formal(types, formal.type_str if is_shared else "", is_required=formal.option == _OPTION.Single)


def _contrib(name: str) -> Schema | None:
    from .records import RECORDS, TYPES

    if name not in RECORDS:
        return None
    attributes, inputs, outputs = RECORDS[name]
    stated = [text.split(":") for text in attributes.split()]
    ports = [[_recorded(text, TYPES[name]) for text in group.split()] for group in (inputs, outputs)]
    counts = [(max((i + 1 for i, port in enumerate(p) if port.is_required), default=0), len(p)) for p in ports]
    if inputs.endswith("..."):
        counts[0] = counts[0][0], 1 << 31
    return Schema(
        {key: (AttributeProto.AttributeType.Value(kind.rstrip("!")), kind.endswith("!")) for key, kind in stated},
        tuple(ports[0]),
        tuple(ports[1]),
        counts[0],
        counts[1],
    )


def _recorded(text: str, types: Mapping[str, str]) -> Formal:
    """Return what a record states: the name of a type, ``?`` behind it where it is optional, ``...`` where many."""
    variable = text.removesuffix("...").removesuffix("?")
    known = frozenset(f"tensor({name})" for name in types[variable].split()) if variable in types else frozenset()
    is_shared = variable in types and not text.endswith("...")
    return Formal(known or frozenset({variable}), variable if is_shared else "", not text.endswith(("?", "...")))
