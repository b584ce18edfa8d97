"""The schema of the operators as artifacts need it. To pin it: ``python -P tests/artifact/schema.py FILE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import flexnn
from flexnn.artifact.format import VERSION
from flexnn.graph.attributes import Enum, Spec
from flexnn.graph.operators import OPERATORS


def schema() -> dict[str, Any]:
    """Release, format version, and of each operator the legal attributes and the fewest and most inputs."""
    operators = {
        name: {"attrs": {key: _text(spec) for key, spec in record.attrs.items()}, "inputs": list(record.inputs)}
        for name, record in OPERATORS.items()
    }
    return {"release": flexnn.__version__, "version": VERSION, "operators": operators}


def _text(spec: Spec) -> str | list[str]:
    return list(spec.names) if isinstance(spec, Enum) else repr(spec)


def broken(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what the operators ``now`` would refuse or misread in a file that follows the operators ``before``.

    New operators, new values of an enumeration and new optional inputs leave older files as they are.
    """
    found = []
    for name, old in before.items():
        new = now.get(name)
        if new is None:
            found.append(f"{name}: is gone")
            continue
        found += [f"{name}: attribute {key} is new" for key in new["attrs"].keys() - old["attrs"].keys()]
        for key, spec in old["attrs"].items():
            if key not in new["attrs"]:
                found.append(f"{name}: attribute {key} is gone")
            elif isinstance(spec, list) and isinstance(new["attrs"][key], list):
                found += [f"{name}: {key} {value} is gone" for value in spec if value not in new["attrs"][key]]
            elif spec != new["attrs"][key]:
                found.append(f"{name}: attribute {key} was {spec}, is {new['attrs'][key]}")
        (low, high), (new_low, new_high) = old["inputs"], new["inputs"]
        if not new_low <= low <= high <= new_high:
            found.append(f"{name}: took {low} to {high} inputs, takes {new_low} to {new_high}")
    return sorted(found)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(schema(), indent=1) + "\n")
