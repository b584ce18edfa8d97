"""``flexnn chat`` and ``flexnn serve``: text of language models."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import flexnn
from flexnn import units
from flexnn.graph.state import CAPACITY
from flexnn.median import median, quantile
from flexnn.run.options import KV
from flexnn.system.process import resident

from . import options as option
from .terminal import say, write

if TYPE_CHECKING:
    from flexnn.llm.language import LanguageModel

_MS = 1e3
_LEAVE = ("/exit", "/quit", "/bye")


def add_options(sub: argparse.ArgumentParser) -> None:
    """Add the options that chat and serve share."""
    sub.add_argument("model", metavar="MODEL.gguf", help="language model in a GGUF file")
    sub.add_argument(
        "--memory", type=option.memory, metavar="SIZE", help="memory budget, as of flexnn run (default: no limit)"
    )
    sub.add_argument(
        "--threads", type=option.threads, metavar="N", help="number of compute threads (default: the usable CPUs)"
    )
    sub.add_argument(
        "--kv-capacity",
        type=option.positive,
        default=CAPACITY,
        metavar="N",
        help=f"tokens of prompt and answers that the state has room for (default: {CAPACITY})",
    )
    sub.add_argument("--kv", choices=KV, default=KV[0], help=option.KV_HELP)
    sub.add_argument(
        "--artifact",
        metavar="MODEL.flexnn",
        help="run what flexnn compile made of the file, with --rows f32 or --weights q4 for example, in place of what "
        "opening makes",
    )
    sub.add_argument("--no-drafts", action="store_true", help="compute one token at a time; greedy text is the same")


def add_chat(sub: argparse.ArgumentParser) -> None:
    """Add the options of chat."""
    add_options(sub)
    sub.add_argument("--prompt", metavar="TEXT", help="answer this and end (default: ask on the terminal)")
    sub.add_argument("--plain", action="store_true", help="go on from the prompt as it is, without the chat template")
    sub.add_argument("--system", metavar="TEXT", help="instructions before the chat")
    sub.add_argument("--tokens", type=option.positive, default=256, metavar="N", help="most tokens of an answer (256)")
    sub.add_argument("--stop", action="append", default=[], metavar="WORD", help="end the answer here (repeatable)")
    sub.add_argument("--greedy", action="store_true", help="always take the most probable token")
    for name, kind, usual, what in (
        ("temperature", float, 0.8, "how evenly tokens are drawn"),
        ("top-k", int, 40, "draw among so many tokens; 0: all"),
        ("top-p", float, 0.95, "draw among the tokens that together have this share"),
        ("min-p", float, 0.05, "draw among tokens that have this share of the most probable one's"),
        ("repeat-penalty", float, 1.0, "divide logits of tokens that came lately"),
        ("seed", int, None, "repeat what this seed drew"),
    ):
        sub.add_argument(f"--{name}", type=kind, default=usual, metavar="N", help=f"{what} (default: {usual})")
    sub.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object and nothing else; needs --prompt; bound_ms is a time that no plan of a token beats "
        "at the rates of kernels and storage that were measured when the model was first opened",
    )
    sub.set_defaults(command=chat)


def add_serve(sub: argparse.ArgumentParser) -> None:
    """Add the options of serve."""
    add_options(sub)
    sub.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine alone)")
    sub.add_argument("--port", type=option.positive, default=8080, help="port to listen on (default: 8080)")
    sub.add_argument("--queue", type=option.count, default=8, metavar="N", help="most requests that wait (default: 8)")
    sub.set_defaults(command=serve)


def chat(options: argparse.Namespace) -> None:
    """Answer one prompt, or those that are typed."""
    if options.json and options.prompt is None:
        raise ValueError("--json needs --prompt")
    with _opened(options) as opened:
        if options.prompt is not None:
            _one(options, opened)
        else:
            _many(options, opened)


class _Opened:
    """An open model, and the memory of the process before its session."""

    def __init__(self, options: argparse.Namespace) -> None:
        import numpy.random  # noqa: F401 (is no part of what the session takes)

        from flexnn.llm.language import LanguageModel
        from flexnn.llm.sampling import Sampling

        self.baseline = 0
        self.sampling = Sampling()
        if "greedy" in options and not options.greedy:
            self.sampling = Sampling(
                options.temperature,
                options.top_k,
                options.top_p,
                options.min_p,
                options.repeat_penalty,
                seed=options.seed,
            )

        def loaded() -> None:
            self.baseline = resident()[1]

        self.model: LanguageModel = LanguageModel(
            options.model,
            artifact=options.artifact,
            capacity=options.kv_capacity,
            drafts=not options.no_drafts and not self.sampling.temperature,
            loaded=loaded,
            memory=options.memory,
            threads=options.threads,
            kv=options.kv,
        )

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.model.close()


def _opened(options: argparse.Namespace) -> _Opened:
    return _Opened(options)


def _pieces(options: argparse.Namespace, opened: _Opened, prompt: list[int]) -> Iterator[str]:
    return opened.model.answer(
        prompt,
        tokens=options.tokens,
        sampling=opened.sampling,
        stop=options.stop,
    )


def _one(options: argparse.Namespace, opened: _Opened) -> None:
    model = opened.model
    prompt = model.tokens.cut(options.prompt) if options.plain else model.chat_tokens(_messages(options))
    pieces = []
    for piece in _pieces(options, opened, prompt):
        pieces.append(piece)
        if not options.json:
            _show(piece)
    if options.json:
        print(json.dumps(report(opened, "".join(pieces))))
    else:
        print()
        say(_told(opened), sys.stderr)


def _messages(options: argparse.Namespace) -> list[dict[str, str]]:
    before = [{"role": "system", "content": options.system}] if options.system else []
    return before + ([{"role": "user", "content": options.prompt}] if options.prompt is not None else [])


def report(opened: _Opened, text: str) -> dict[str, Any]:
    """Return what ``flexnn chat --json`` prints."""
    speed, session = opened.model.speed, opened.model.session
    each = [second * _MS for second in speed.token_seconds] or [0.0]
    rate = speed.tokens / speed.seconds if speed.seconds else 0.0
    return {
        "text": text,
        "tokens": speed.tokens,
        "prefill_tokens_per_s": speed.prefill_tokens / speed.prefill_seconds if speed.prefill_seconds else 0.0,
        "tokens_per_s": rate,
        "ms_per_token": {"p50": median(each), "p95": quantile(each, 0.95)},
        "memory_budget": session.memory,
        "baseline_rss": opened.baseline,
        "peak_rss": resident()[1],
        "bytes_read_per_token": session.last_run.get("bytes_read", 0),
        "bound_ms": session.plan.bound_ms,
    }


def _told(opened: _Opened) -> str:
    """One line on the last answer: its speed, the memory against the budget, and what is pinned."""
    speed, session = opened.model.speed, opened.model.session
    rate = speed.tokens / speed.seconds if speed.seconds else 0.0
    added = max(resident()[1] - opened.baseline, 0)
    budget = "no limit" if session.memory is None else units.format_bytes(session.memory)
    pinned = units.format_bytes(session.plan.pinned_bytes)
    several = f" in {speed.passes} passes" if speed.passes < speed.tokens else ""
    tokens = f"{speed.tokens} tokens{several}, {rate:.1f} tokens/s"
    return f"[{tokens}; {units.format_bytes(added)} added, budget {budget}; {pinned} of weights pinned]"


def _many(options: argparse.Namespace, opened: _Opened) -> None:
    """Answer what is typed, until the end of the input."""
    messages = _messages(options)
    say("Type a message, /reset to begin anew, /exit to leave.", sys.stderr)
    while True:
        try:
            asked = input("> ").strip()
        except EOFError:
            print()
            return
        if asked in _LEAVE:
            return
        if asked == "/reset":
            messages = _messages(options)
        elif asked:
            _answered(options, opened, [*messages, {"role": "user", "content": asked}], messages)


def _answered(
    options: argparse.Namespace, opened: _Opened, asked: list[dict[str, str]], messages: list[dict[str, str]]
) -> None:
    """Answer the last of ``asked``; what was said becomes a part of ``messages`` unless it does not fit."""
    pieces = []
    try:
        for piece in _pieces(options, opened, opened.model.chat_tokens(asked)):
            pieces.append(piece)
            _show(piece)
    except flexnn.BudgetError:
        raise
    except flexnn.FlexNNError as error:
        say(f"error: {error}; /reset begins anew", sys.stderr)
        return
    except KeyboardInterrupt:
        say("\n(interrupted)", sys.stderr)
    print()
    messages[:] = [*asked, {"role": "assistant", "content": "".join(pieces)}]
    say(_told(opened), sys.stderr)


def _show(piece: str) -> None:
    for i, part in enumerate(piece.split("\t")):  # a tab does no harm, and code has them
        sys.stdout.write("\t" if i else "")
        write(part)
    sys.stdout.flush()


def serve(options: argparse.Namespace) -> None:
    """Answer requests until it is interrupted."""
    from flexnn.llm.serving import serve as listen

    with _opened(options) as opened:
        say(f"http://{options.host}:{options.port}/v1 serves {options.model}; Ctrl-C ends", sys.stderr)
        listen(
            opened.model,
            options.model,
            host=options.host,
            port=options.port,
            queue=options.queue,
        )
