"""The endpoint answers what clients of OpenAI's API send, one request at a time, and refuses the rest in one line."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from flexnn.llm.language import LanguageModel
from flexnn.llm.serving import Endpoint
from tests.support.gguf_models import write_talker

CHAT = {"model": "any", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    path = tmp_path_factory.mktemp("served") / "talker.gguf"
    write_talker(path)
    with LanguageModel(path, capacity=128) as opened:
        yield opened


class Client:
    def __init__(self, model: LanguageModel, queue: int = 0) -> None:
        self.endpoint = Endpoint(model, "talker.gguf", queue=queue, is_local=True)

    def open(self, path: str, body: Any = None, **environ: str) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {
            "PATH_INFO": path,
            "REQUEST_METHOD": "GET" if body is None else "POST",
            "CONTENT_TYPE": "application/json; charset=utf-8",
            "CONTENT_LENGTH": str(len(raw)),
            "HTTP_HOST": "localhost:8080",
            "wsgi.input": io.BytesIO(raw),
        } | environ
        status: list[str] = []
        made = self.endpoint(given, lambda line, headers: status.append(line))
        return int(status[0].split()[0]), made

    def ask(self, path: str, body: Any = None, **environ: str) -> tuple[int, Any]:
        status, made = self.open(path, body, **environ)
        return status, json.loads(b"".join(made))


def test_chat_and_text_are_completed(model: LanguageModel) -> None:
    client = Client(model)
    status, found = client.ask("/v1/chat/completions", CHAT)
    assert status == 200
    assert found["object"] == "chat.completion"
    assert found["choices"][0]["message"]["role"] == "assistant"
    assert 0 < found["usage"]["completion_tokens"] <= 6
    parts = CHAT | {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]}
    assert client.ask("/v1/chat/completions", parts)[1]["choices"] == found["choices"]
    status, text = client.ask("/v1/completions", {"prompt": "hello", "max_tokens": 3})
    assert status == 200
    assert isinstance(text["choices"][0]["text"], str)
    assert client.ask("/v1/models")[1]["data"][0]["id"] == "talker.gguf"


def test_a_stream_has_the_same_text(model: LanguageModel) -> None:
    client = Client(model)
    whole = client.ask("/v1/chat/completions", CHAT)[1]["choices"][0]
    _, made = client.open("/v1/chat/completions", CHAT | {"stream": True})
    lines = [line for line in b"".join(made).decode().split("\n\n") if line]
    made.close()
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-1]]
    assert "".join(event["delta"].get("content", "") for event in events) == whole["message"]["content"]
    assert events[-1]["finish_reason"] == whole["finish_reason"]


def test_more_than_the_queue_holds_is_refused(model: LanguageModel) -> None:
    client = Client(model)
    _, first = client.open("/v1/chat/completions", CHAT | {"stream": True})
    next(iter(first))
    assert client.ask("/v1/chat/completions", CHAT)[0] == 429
    first.close()  # a client that goes away gives its place back
    assert client.ask("/v1/chat/completions", CHAT)[0] == 200


def test_requests_wait_for_each_other(model: LanguageModel) -> None:
    client = Client(model, queue=4)
    found: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(client.ask("/v1/chat/completions", CHAT)[1]["choices"][0]["message"]["content"])
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("path", "body", "environ", "status"),
    [
        ("/v1/nothing", {}, {}, 404),
        ("/v1/chat/completions", None, {}, 405),
        ("/v1/chat/completions", CHAT, {"HTTP_HOST": "evil.example"}, 403),
        ("/v1/chat/completions", CHAT, {"CONTENT_TYPE": "text/plain"}, 415),
        ("/v1/chat/completions", CHAT, {"CONTENT_LENGTH": "99999999"}, 413),
        ("/v1/chat/completions", b"{", {}, 400),
        ("/v1/chat/completions", b"[" * 60_000, {}, 400),
        ("/v1/chat/completions", b'{"messages": [' + b"[]," * 1_000_000 + b"[]]}", {}, 413),
        ("/v1/chat/completions", [], {}, 400),
        ("/v1/chat/completions", {"messages": []}, {}, 400),
        ("/v1/chat/completions", {"messages": [1]}, {}, 400),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, {}, 400),
        ("/v1/chat/completions", CHAT | {"temperature": "hot"}, {}, 400),
        ("/v1/chat/completions", CHAT | {"top_p": 0}, {}, 400),
        ("/v1/chat/completions", CHAT | {"n": 2}, {}, 400),
        ("/v1/chat/completions", CHAT | {"max_tokens": 0}, {}, 400),
        ("/v1/chat/completions", CHAT | {"stop": [1]}, {}, 400),
        ("/v1/completions", {"prompt": ["a"]}, {}, 400),
        ("/v1/completions", {"prompt": "a" * 500}, {}, 400),
        ("/v1/completions", {"prompt": "a" * 500, "stream": True}, {}, 400),
        ("/v1/completions", {"prompt": ""}, {}, 400),
    ],
)
def test_what_is_wrong_is_refused_and_the_next_request_served(
    model: LanguageModel, path: str, body: Any, environ: dict[str, str], status: int
) -> None:
    client = Client(model)
    found, said = client.ask(path, body, **environ)
    assert found == status
    assert "\n" not in said["error"]["message"]
    assert client.ask("/v1/chat/completions", CHAT)[0] == 200


@pytest.mark.parametrize("is_chat", [False, True])
def test_a_text_that_is_surely_too_long_is_not_cut(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch, is_chat: bool
) -> None:
    """Was cut, which took some hundred MiB beside the budget."""
    cut: list[str] = []
    monkeypatch.setattr(model.tokens, "cut", lambda text: cut.append(text) or [1])
    text, client = "a" * (1 << 20), Client(model)
    body = {"messages": [{"role": "user", "content": text}]} if is_chat else {"prompt": text}
    status, found = client.ask("/v1/chat/completions" if is_chat else "/v1/completions", body)
    assert status == 400
    assert "beyond the state's 128 tokens" in found["error"]["message"]
    assert not cut
