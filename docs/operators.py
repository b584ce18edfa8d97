"""Write docs/operators.md, the table of ONNX operators: python docs/operators.py"""

from __future__ import annotations

from pathlib import Path

import onnx.defs

from flexnn.graph import support, supported
from flexnn.graph.stated import OPSET_MAX

PAGE = Path(__file__).with_name("operators.md")
DOMAINS = {"": "ai.onnx", "ai.onnx.ml": "ai.onnx.ml", "com.microsoft": "com.microsoft"}
OPSETS = {"": OPSET_MAX, "ai.onnx.ml": 5}
"""Newest opset of each domain whose operators are listed, so that the page does not change with onnx's releases."""
MEANING = {
    "native": "The C core computes it, for the element types that it has. numpy computes the other types.",
    "numpy": "numpy computes it, between the parts of the graph that the C core runs. This is slower.",
    "rewritten": "Compiling turns it into operators of the default domain, or into one of the C core.",
    "walked": "Control flow: the run decides which of its graphs runs, and how often.",
    "unsupported": "`flexnn compile` refuses a model that needs it, and names the operator.",
}


def page() -> str:
    """Return the page: for each domain the operators by how they are supported."""
    lines = [
        "# Operators",
        "",
        "`python docs/operators.py` makes this page from the code's own tables, and a test compares the two. Operators",
        f"of `ai.onnx` and `ai.onnx.ml` are those of opset {OPSET_MAX} and before. Operators of",
        "`com.microsoft` are onnxruntime's own; only the supported ones are listed.",
        "",
        "| support | meaning |",
        "|---|---|",
        *(f"| {name} | {text} |" for name, text in MEANING.items()),
    ]
    for domain, title in DOMAINS.items():
        found = _operators(domain)
        lines += ["", f"## {title}", "", "| support | operators |", "|---|---|"]
        for kind in MEANING:
            names = [name for name, how in found.items() if how == kind]
            if names:
                lines.append(f"| {kind} ({len(names)}) | {', '.join(names)} |")
    return "\n".join(lines) + "\n"


def _operators(domain: str) -> dict[str, str]:
    names = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if _is_listed(schema, domain)}
    return dict(support(sorted(names | supported(domain).keys()), domain))


def _is_listed(schema: onnx.defs.OpSchema, domain: str) -> bool:
    return schema.domain == domain and schema.since_version <= OPSETS.get(domain, 0)


if __name__ == "__main__":
    PAGE.write_text(page())
