"""An endpoint in the manner of OpenAI's, so that existing clients work: chat and completions, whole or streamed.

One session serves one request at a time, others wait, and more than the queue holds are refused. It listens on this
machine alone by default, and then answers only requests that name this machine, so no web page reaches it by a name of
its own.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import BoundedSemaphore
from typing import Any, NamedTuple

from flexnn.errors import FlexNNError, one_line

from .language import TOKENS, LanguageModel
from .sampling import Sampling

BODY_BYTES_MAX = 4 << 20
MARKS_MAX = 1 << 16
"""Most marks in a body that begin a list or an object of JSON: Python's object for each takes up to 230 bytes."""
IDLE_SECONDS = 20
"""Seconds without a byte after which a client that has sent no whole request loses its connection: of those there are
100 at most.
"""
_LOCAL = ("127.0.0.1", "localhost", "::1")
_LACKING = "flexnn serve needs the waitress package: pip install 'flexnn[llm]'"
_STATUS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
_STATUS |= {413: "Content Too Large", 415: "Unsupported Media Type", 429: "Too Many Requests", 500: "Internal Error"}
Start = Callable[[str, list[tuple[str, str]]], object]


class RequestError(FlexNNError, ValueError):
    """A request that is refused, with the status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Asked(NamedTuple):
    """A request, read."""

    is_chat: bool
    prompt: list[int]
    tokens: int
    stop: list[str]
    sampling: Sampling
    streams: bool


class Endpoint:
    """The WSGI application of one model."""

    def __init__(self, model: LanguageModel, name: str, *, queue: int, is_local: bool) -> None:
        self._model, self._name, self._is_local = model, name, is_local
        self._places = BoundedSemaphore(queue + 1)

    def __call__(self, environ: Mapping[str, Any], start: Start) -> Iterable[bytes]:
        """Answer one request."""
        try:
            return self._routed(environ, start)
        except RequestError as error:
            return _sent(start, error.status, _error(error))
        except (FlexNNError, ValueError) as error:
            return _sent(start, 400, _error(error))
        except Exception as error:  # a defect of ours: the server goes on
            return _sent(start, 500, _error(RuntimeError(f"internal: {type(error).__name__}")))

    def _routed(self, environ: Mapping[str, Any], start: Start) -> Iterable[bytes]:
        host = str(environ.get("HTTP_HOST", ""))
        name = host[: host.index("]") + 1].strip("[]") if host.startswith("[") else host.partition(":")[0]
        if self._is_local and name.lower() not in _LOCAL:
            raise RequestError(403, f"this server answers requests to {', '.join(_LOCAL)} only")
        path, method = str(environ.get("PATH_INFO", "")), environ.get("REQUEST_METHOD")
        if path == "/v1/models":
            return _sent(start, 200, {"object": "list", "data": [self._about()]})
        if path not in ("/v1/chat/completions", "/v1/completions"):
            raise RequestError(404, f"no such address: {path[:80]}")
        if method != "POST":
            raise RequestError(405, f"{path} takes POST")
        if str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower() != "application/json":
            raise RequestError(415, "the body must be application/json")
        if not self._places.acquire(blocking=False):
            raise RequestError(429, "too many requests wait; try again later")
        try:
            asked = self._read(environ, is_chat="chat" in path)
            pieces = self._model.answer(asked.prompt, tokens=asked.tokens, sampling=asked.sampling, stop=asked.stop)
            if asked.streams:
                return self._streamed(asked, pieces, start)
            made = self._whole(asked, "".join(pieces))
        except BaseException:
            self._places.release()
            raise
        self._places.release()
        return _sent(start, 200, made)

    def _about(self) -> dict[str, Any]:
        return {"id": os.path.basename(self._name), "object": "model", "created": 0, "owned_by": "flexnn"}

    def _read(self, environ: Mapping[str, Any], *, is_chat: bool) -> Asked:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        if not 0 <= size <= BODY_BYTES_MAX:
            raise RequestError(413, f"a body of {size} bytes; at most {BODY_BYTES_MAX} are taken")
        raw = environ["wsgi.input"].read(size)
        if raw.count(b"[") + raw.count(b"{") > MARKS_MAX:
            raise RequestError(413, f"a body of more than {MARKS_MAX} lists and objects")
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            raise RequestError(400, "the body is not JSON") from None
        if not isinstance(body, dict):
            raise RequestError(400, "the body is no object")
        stop = body.get("stop") or []
        stops = [stop] if isinstance(stop, str) else stop
        if not isinstance(stops, list) or not all(isinstance(word, str) for word in stops) or len(stops) > 16:
            raise RequestError(400, "stop must be a text, or at most 16 of them")
        tokens = _number(body, "max_completion_tokens", _number(body, "max_tokens", TOKENS))
        sampling = Sampling(
            _number(body, "temperature", 0.0),
            int(_number(body, "top_k", 40)),
            _number(body, "top_p", 0.95),
            _number(body, "min_p", 0.05),
            _number(body, "repeat_penalty", 1.0),
            seed=int(_number(body, "seed", time.time_ns() % (1 << 32))),
        )
        if tokens < 1 or _number(body, "n", 1) != 1:
            raise RequestError(400, "max_tokens must be positive, and n 1")
        return Asked(is_chat, self._prompt(body, is_chat), int(tokens), stops, sampling, bool(body.get("stream")))

    def _prompt(self, body: Mapping[str, Any], is_chat: bool) -> list[int]:
        if not is_chat:
            text = body.get("prompt")
            if not isinstance(text, str):
                raise RequestError(400, "prompt must be a text")
            return self._model.text_tokens(text)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise RequestError(400, "messages must be a list of objects with role and content")
        return self._model.chat_tokens([_message(message) for message in messages])

    def _whole(self, asked: Asked, text: str) -> dict[str, Any]:
        speed = self._model.speed
        said = {"message": {"role": "assistant", "content": text}} if asked.is_chat else {"text": text}
        usage = {"prompt_tokens": speed.prompt_tokens, "completion_tokens": speed.tokens}
        usage["total_tokens"] = sum(usage.values())
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": speed.finish}
        return self._envelope(asked, "") | {"choices": [choice], "usage": usage}

    def _envelope(self, asked: Asked, part: str) -> dict[str, Any]:
        kind = f"chat.completion{part}" if asked.is_chat else "text_completion"
        name = f"{'chatcmpl' if asked.is_chat else 'cmpl'}-{uuid.uuid4().hex}"
        return {"id": name, "object": kind, "created": int(time.time()), "model": self._about()["id"]}

    def _streamed(self, asked: Asked, pieces: Iterator[str], start: Start) -> Iterable[bytes]:
        first = next(pieces, "")  # what is wrong with the request shows here, before the status is sent
        start("200 OK", [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")])
        return _Events(self._events(asked, first, pieces), self._places.release)

    def _events(self, asked: Asked, first: str, pieces: Iterator[str]) -> Iterator[bytes]:
        envelope = self._envelope(asked, ".chunk")
        is_first = True

        def event(text: str, finish: str | None) -> bytes:
            delta: dict[str, str] = {"role": "assistant"} if is_first else {}
            delta |= {"content": text} if text or is_first else {}
            said = {"delta": delta} if asked.is_chat else {"text": text}
            choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish}
            return f"data: {json.dumps(envelope | {'choices': [choice]})}\n\n".encode()

        try:
            yield event(first, None)
            is_first = False
            for piece in pieces:
                yield event(piece, None)
            yield event("", self._model.speed.finish)
        except FlexNNError as error:
            yield f"data: {json.dumps(_error(error))}\n\n".encode()
        finally:
            pieces.close()  # type: ignore[attr-defined]
        yield b"data: [DONE]\n\n"


class _Events:
    """Events of one answer; its place in the queue is given back once, however it ends."""

    def __init__(self, events: Iterator[bytes], release: Callable[[], None]) -> None:
        self._events, self._release = events, release
        self._is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self._events

    def close(self) -> None:
        """End the answer; twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            self._events.close()  # type: ignore[attr-defined]
            self._release()


def _message(message: Any) -> dict[str, str]:
    """A message with its content as one text: clients send parts, too."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str) or not isinstance(message.get("role"), str):
        raise RequestError(400, "a message needs role and content, both texts")
    return {"role": message["role"], "content": content}


def _number(body: Mapping[str, Any], name: str, usual: float) -> float:
    value = body.get(name)
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 53:
        raise RequestError(400, f"{name} must be a number")
    return value


def _error(error: Exception) -> dict[str, Any]:
    return {"error": {"message": one_line(error), "type": "invalid_request_error", "param": None, "code": None}}


def _sent(start: Start, status: int, body: Mapping[str, Any]) -> list[bytes]:
    raw = json.dumps(body).encode()
    start(f"{status} {_STATUS[status]}", [("Content-Type", "application/json"), ("Content-Length", str(len(raw)))])
    return [raw]


def serve(model: LanguageModel, name: str, *, host: str, port: int, queue: int) -> None:
    """Answer requests until the process is interrupted. Raises FlexNNError without the server's package, OSError."""
    try:
        import waitress
    except ModuleNotFoundError:
        raise RequestError(500, _LACKING) from None
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # that requests wait is no news: they are meant to
    endpoint = Endpoint(model, name, queue=queue, is_local=host in _LOCAL)
    waitress.serve(
        endpoint,
        host=host,
        port=port,
        threads=queue + 2,  # one more than has places, so that who is refused hears it at once
        send_bytes=1,
        max_request_body_size=BODY_BYTES_MAX,
        channel_timeout=IDLE_SECONDS,
        cleanup_interval=IDLE_SECONDS // 4,
        ident=None,
        _quiet=True,
    )
