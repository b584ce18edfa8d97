"""Chat templates: programs in a model's file, so they run in a process of their own, within limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from flexnn.errors import FlexNNError

TEMPLATE_BYTES_MAX = 1 << 20
TEXT_BYTES_MAX = 16 << 20
SECONDS = 10
_SCRIPT = os.path.join(os.path.dirname(__file__), "template_process.py")
_LACKING = "chat templates need the jinja2 package: pip install 'flexnn[llm]'"


class TemplateError(FlexNNError, ValueError):
    """A chat template that cannot be used; the message is one line."""


def check_messages(messages: object) -> None:
    """Raise TemplateError where these are no messages of a chat, or none."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise TemplateError("a chat is a list of messages, at least one")
    for message in messages:
        known = message if isinstance(message, Mapping) else {}
        if not all(isinstance(known.get(name), str) for name in ("role", "content")):
            raise TemplateError("a message needs role and content, both texts")


def rendered(template: str, messages: Sequence[Mapping[str, str]], first: str, end: str) -> str:
    """The text of a chat before the next answer. ``first`` and ``end``: tokens that begin and end a text. Raises
    TemplateError.
    """
    if len(template) > TEMPLATE_BYTES_MAX:
        raise TemplateError(
            f"the chat template has {len(template)} characters; at most {TEMPLATE_BYTES_MAX} are supported"
        )
    given = json.dumps({"template": template, "messages": list(messages), "bos_token": first, "eos_token": end})
    command = [sys.executable, "-P", _SCRIPT]
    try:
        made = subprocess.run(command, input=given.encode(), capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TemplateError(f"the chat template takes more than {SECONDS} s") from None
    if made.returncode == 3:
        raise TemplateError(_LACKING)
    if made.returncode != 0:
        said = made.stdout.decode("utf-8", "replace").strip().replace("\n", " ")[:200]
        raise TemplateError(f"the chat template fails: {said or 'it takes too much time or memory'}")
    return made.stdout.decode("utf-8", "replace")
