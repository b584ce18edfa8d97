"""Attack: requests to ``flexnn serve`` and prompts that are no text, ask for impossible numbers, are huge or slow or do
not end, and clients that go away.

Answer: a status that says what is wrong, in one line, never 500; the next request is served, memory and descriptors are
as before. A client that sends nothing for 20 s loses its connection; more than 100 at a time wait.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flexnn.llm.language import LanguageModel
from flexnn.llm.sampling import NumbersError, Sampler, Sampling
from flexnn.llm.tokens import TokenizerError
from tests.llm.test_serving import CHAT, Client
from tests.support.gguf_models import write_talker
from tests.support.hangs import HANG_SECONDS, wait_until

TEXT = {"prompt": "abc", "max_tokens": 3, "temperature": 1}
PORTS = 5
"""Ports that are tried: another program may take one before the server does."""
CHATS, TEXTS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("attacked") / "talker.gguf"
    write_talker(made)
    return made


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[LanguageModel]:
    with LanguageModel(path, capacity=128) as opened:
        yield opened


@pytest.mark.parametrize(
    ("address", "body", "status"),
    [
        (TEXTS, TEXT | {"prompt": "\ud800"}, 400),  # was 500
        (TEXTS, TEXT | {"prompt": "\udfff", "stream": True}, 400),
        (CHATS, CHAT | {"messages": [{"role": "\ud800", "content": "\udfff"}]}, 200),
        (TEXTS, TEXT | {"stop": ["\ud800"]}, 200),
        (TEXTS, TEXT | {"stop": [""] * 16}, 200),
        (TEXTS, TEXT | {"stop": ["a" * 1_000_000] * 3}, 200),
        (TEXTS, TEXT | {"stop": ["a"] * 17}, 400),
        (TEXTS, TEXT | {"prompt": "\0"}, 200),
        (TEXTS, TEXT | {"seed": -1}, 400),
        (TEXTS, TEXT | {"seed": -1, "stream": True}, 400),
        (TEXTS, TEXT | {"repeat_penalty": 1e-320}, 400),  # was a token chosen of no numbers
        (TEXTS, TEXT | {"repeat_penalty": 1e15}, 400),
        (TEXTS, TEXT | {"top_k": 1 << 52}, 200),
        (TEXTS, TEXT | {"top_k": -1}, 400),
        (TEXTS, TEXT | {"temperature": 1e-300}, 200),
        (TEXTS, TEXT | {"temperature": -1}, 400),
        (TEXTS, TEXT | {"max_tokens": 1 << 50}, 200),
        (TEXTS, TEXT | {"max_tokens": 0.5}, 400),
        (TEXTS, TEXT | {"max_tokens": float("nan")}, 400),
        (TEXTS, TEXT | {"min_p": float("-inf")}, 400),
        (TEXTS, b'{"prompt": "a", "max_tokens": 1' + b"0" * 5000 + b"}", 400),
        (TEXTS, b'{"prompt": "a", "max_tokens": 1e999}', 400),
        (TEXTS, b'{"prompt": "\xff\xfe"}', 400),
        (TEXTS, b'{"a":' * 60_000 + b"1" + b"}" * 60_000, 400),
        (TEXTS, b"null", 400),
        (TEXTS, b"", 400),
        (CHATS, CHAT | {"messages": [{"role": "user", "content": "x"}] * 20_000}, 400),
        ("/v1/\x1b[2J\n\u202e", {}, 404),
    ],
)
def test_hostile_bodies(model: LanguageModel, address: str, body: object, status: int) -> None:
    client = Client(model)
    found, made = client.open(address, body)
    said = b"".join(made)
    assert found == status, said
    assert status == 200 or not {"\n", "\x1b"} & set(json.loads(said)["error"]["message"])
    if hasattr(made, "close"):
        made.close()
    assert client.ask(TEXTS, TEXT)[0] == 200


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        *(("CONTENT_LENGTH", value, 400) for value in ("abc", "\u0663", "1e3", "+5", "9" * 5000, "")),
        ("CONTENT_LENGTH", "-1", 413),
        *(("HTTP_HOST", value, 400) for value in ("[", "[::1")),
        *(("HTTP_HOST", value, 403) for value in ("localhost.evil", "127.0.0.1@evil", "", "evil:127.0.0.1")),
        *(("HTTP_HOST", value, 200) for value in ("[::1]:8", "LOCALHOST:1")),
        ("CONTENT_TYPE", "Application/JSON", 200),
        *(("REQUEST_METHOD", value, 405) for value in ("OPTIONS", "", "post")),
    ],
)
def test_hostile_heads(model: LanguageModel, name: str, value: str, status: int) -> None:
    assert Client(model).ask(CHATS, CHAT, **{name: value})[0] == status


def test_prompts_that_are_no_text(model: LanguageModel) -> None:
    with pytest.raises(TokenizerError, match="half a pair of surrogates"):
        model.tokens.cut(os.fsdecode(b"\xff"))  # what a command line makes of it


@pytest.mark.parametrize(
    "numbers", [[float("nan")] * 3, [0, float("nan"), 1], [0, float("inf"), 1], [float("-inf")] * 3]
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_model_without_numbers_says_nothing(numbers: list[float], temperature: float) -> None:
    """Said the first token, whatever that is."""
    import numpy as np

    with pytest.raises(NumbersError, match="not finite"):
        Sampler(Sampling(temperature)).choose(np.array(numbers, np.float32), [1])


class Server:
    """``flexnn serve`` in a process of its own."""

    def __init__(self, path: Path) -> None:
        for _ in range(PORTS):
            with socket.socket() as found:
                found.bind(("127.0.0.1", 0))
                self.port = found.getsockname()[1]
            command = [sys.executable, "-P", "-m", "flexnn", "serve", str(path), "--port", str(self.port)]
            self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            wait_until(lambda: self.process.poll() is not None or self.is_there())
            if self.process.poll() is None:
                return
        pytest.fail("no server starts")

    def is_there(self) -> bool:
        try:
            self.connect().close()
        except ConnectionRefusedError:
            return False
        return True

    def connect(self, head: bytes = b"") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=HANG_SECONDS)
        made.sendall(head)
        return made

    def ask(self, body: bytes) -> bytes:
        with self.connect(head(len(body)) + body) as asked:
            return asked.recv(1 << 16)

    def is_well(self) -> bool:
        return self.ask(json.dumps(CHAT).encode()).startswith(b"HTTP/1.1 200")

    def state(self) -> tuple[int, int]:
        """Resident KiB, and descriptors."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as lines:
            resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        return resident, len(os.listdir(f"/proc/{self.process.pid}/fd"))


def head(size: int) -> bytes:
    return (
        f"POST {CHATS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    ).encode()


def poured(sender: socket.socket, part: bytes, most: int) -> int:
    """Send until the other side has had enough; return the bytes that it took."""
    sent = 0
    try:
        while sent < most:
            sent += sender.send(part)
    except OSError:
        pass
    return sent


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Server]:
    pytest.importorskip("waitress")
    made = Server(path)
    yield made
    made.process.send_signal(signal.SIGINT)
    try:
        assert made.process.wait(HANG_SECONDS) is not None
    finally:
        made.process.kill()


def test_bodies_and_heads_that_never_end(server: Server) -> None:
    assert server.is_well()
    before, most = server.state()[0], 64 << 20
    with server.connect(head(1 << 40)) as asked:
        assert poured(asked, b"x" * 65536, most) < most
    with server.connect(head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")) as asked:
        assert poured(asked, b"10000\r\n" + b"x" * 65536 + b"\r\n", most) < most
    with server.connect(b"GET / HTTP/1.1\r\n") as asked:
        assert poured(asked, b"X: " + b"y" * 65536, most) < most
    with server.connect(head(1 << 40)) as asked:
        assert asked.recv(100).startswith(b"HTTP/1.1 413")
    assert server.is_well()
    assert server.state()[0] < before + (16 << 10)


def test_clients_that_are_slow_or_gone(server: Server) -> None:
    assert server.is_well()
    before = server.state()
    slow = [server.connect(head(1 << 20) + b"{") for _ in range(40)]
    assert server.is_well()
    body = json.dumps(CHAT | {"stream": True, "max_tokens": 1 << 20}).encode()
    for _ in range(8):
        server.connect(head(len(body)) + body).close()
    unread = server.connect(head(len(body)) + body)
    wait_until(server.is_well, pause=0.1)  # those that are gone give their places back
    for client in (*slow, unread):
        client.close()
    wait_until(lambda: server.state()[1] <= before[1], pause=0.1)
    assert server.state()[0] < before[0] + (16 << 10)


def test_who_sends_nothing_goes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 clients that sent nothing kept all others waiting for two minutes."""
    waitress = pytest.importorskip("waitress")
    from flexnn.llm import serving

    given: dict[str, object] = {}
    monkeypatch.setattr(waitress, "serve", lambda endpoint, **how: given.update(how))
    with LanguageModel(path, capacity=32) as model:
        serving.serve(model, "talker", host="127.0.0.1", port=1, queue=2)
    assert (given["channel_timeout"], given["threads"]) == (serving.IDLE_SECONDS, 4)
    assert isinstance(given["cleanup_interval"], int)
    assert given["cleanup_interval"] < serving.IDLE_SECONDS


def test_waiting_requests_are_no_news(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Was a line on the terminal for each request that waited."""
    waitress = pytest.importorskip("waitress")
    from flexnn.llm import serving

    queue = logging.getLogger("waitress.queue")
    monkeypatch.setattr(queue, "level", logging.NOTSET)
    monkeypatch.setattr(waitress, "serve", lambda endpoint, **how: None)
    with LanguageModel(path, capacity=32) as model:
        serving.serve(model, "talker", host="127.0.0.1", port=1, queue=2)
    assert queue.getEffectiveLevel() > logging.WARNING
