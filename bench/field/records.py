"""Records of onnxruntime's own operators, as the onnxruntime that is installed states them.

python -m bench.field records > flexnn/graph/standard/records.py    those of com.microsoft that FlexNN has
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.cli import cli
from flexnn.graph.contrib import expanded
from flexnn.graph.contrib.expansion import DOMAIN

HEAD = '''"""Operators of com.microsoft as onnxruntime {version} states them: attributes, inputs, outputs, types.

Made by ``python -m bench.field records``. An attribute is a name and its AttributeProto.AttributeType, with ``!``
where it must be stated. An input or output is the name of its type, with ``?`` where it is optional and ``...`` where
there may be many.
"""

from __future__ import annotations
'''


def records() -> str:
    """The text of flexnn/graph/standard/records.py."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    wanted = expanded(DOMAIN)
    schemas = {s.name: s for s in get_all_operator_schema() if s.domain == DOMAIN and s.name in wanted}
    lines = [HEAD.format(version=onnxruntime.__version__)]
    lines.append("RECORDS: dict[str, tuple[str, str, str]] = {")
    for name, schema in sorted(schemas.items()):
        stated = sorted(schema.attributes.items())
        attributes = " ".join(f"{key}:{value.type.name}{'!' if value.required else ''}" for key, value in stated)
        texts = [attributes, *(" ".join(map(_port, group)) for group in (schema.inputs, schema.outputs))]
        lines += [f'    "{name}": (', *_strings(texts), "    ),"]
    lines += ["}", '"""Attributes, inputs and outputs of each operator."""']
    lines.append("TYPES: dict[str, dict[str, str]] = {")
    for name, schema in sorted(schemas.items()):
        lines.append(f'    "{name}": {{')
        for constraint in sorted(schema.type_constraints, key=lambda c: c.type_param_str):
            elements = sorted(t.removeprefix("tensor(").removesuffix(")") for t in constraint.allowed_type_strs)
            lines += [f'        "{constraint.type_param_str}": (', *_strings([" ".join(elements)], 12)]
            lines[-1] = lines[-1].removesuffix(",")
            lines.append("        ),")
        lines.append("    },")
    lines += ["}", '"""Element types that each named type may be."""', ""]
    return "\n".join(lines)


def _strings(texts: Sequence[str], indent: int = 8) -> list[str]:
    """Lines of literals, one for each text; a long one is several."""
    lines = []
    for text in texts:
        parts, line = [], ""
        for word in text.split():
            if len(line) + len(word) > 90:
                parts.append(line)
                line = ""
            line += f"{word} "
        parts.append(line.rstrip())
        lines += [f'{" " * indent}"{part}"' for part in parts]
        lines[-1] += ","
    return lines


def _port(port: Any) -> str:
    option = str(port.option).rpartition(".")[2]
    return port.typeStr + {"Single": "", "Optional": "?", "Variadic": "..."}[option]


def main(arguments: Sequence[str] | None = None) -> int:
    cli("bench.field records", __doc__, is_json=False).parse_args(arguments)
    print(records(), end="")
    return 0
