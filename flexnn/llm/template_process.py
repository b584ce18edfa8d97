"""The process in which a chat template is rendered (template.py): JSON on standard input, the text on standard output.
It imports nothing of FlexNN, and bounds its own memory and time before it reads the template.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from typing import Any, NoReturn

MEMORY_BYTES = 512 << 20
CPU_SECONDS = 5
TEXT_BYTES_MAX = 16 << 20


def main() -> int:
    """Render; return the exit status: 0, 1 with the reason on standard output, or 3 without jinja2."""
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError:
        return 3
    given = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    def refuse(text: object) -> NoReturn:
        raise TemplateError(str(text))

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _as_json
    environment.globals.update(raise_exception=refuse, strftime_now=lambda how: datetime.now().strftime(how))
    template = given.pop("template")
    try:
        size = 0
        pieces = []
        for piece in environment.from_string(template).generate(**given, add_generation_prompt=True):
            size += len(piece)
            if size > TEXT_BYTES_MAX:
                refuse("its text is too long")
            pieces.append(piece)
    except MemoryError:
        sys.stdout.write("it takes too much memory")
        return 1
    except Exception as error:  # the template decides which
        sys.stdout.write(f"{type(error).__name__}: {str(error)[:500]}")
        return 1
    sys.stdout.buffer.write("".join(pieces).encode("utf-8", "replace"))
    return 0


def _as_json(value: Any, **how: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=how.get("indent"))


if __name__ == "__main__":
    sys.exit(main())
