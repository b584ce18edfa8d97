"""Text as tokens and back, by what a GGUF file says of its tokenizer. The ``tokenizers`` library cuts text into tokens;
back, each token is some bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flexnn.errors import FlexNNError
from flexnn.graph.ir import GraphError

from .gguf_file import GgufFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Cutter

_UNKNOWN, _CONTROL, _USER, _BYTE = 2, 3, 4, 6
_SPACE = "\u2581"
_BYTE_TEXT = re.compile("<0x[0-9A-Fa-f]{2}>")
TOKEN_BYTES_MAX = 4096
PIECES_MAX, JOINS_MAX, JOINED_MAX = 1 << 23, 1 << 20, 1 << 24
"""Most characters of all pieces with scores, and most ways to join two of them to a third, each of which takes some
hundred bytes and its characters.
"""
COPIED_MAX = 1 << 28
"""Most characters that looking for these ways may copy, as it does for short pieces: some 0.2 s."""
APART_MAX = 1 << 20
"""Most bytes of all tokens that are found in a text before it is cut, control tokens and a user's: the library takes
80 bytes for each of them.
"""

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
_LETTERS = r"\p{Lm}\p{Lo}\p{M}"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}{_LETTERS}]*[\p{{Ll}}{_LETTERS}]+"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}{_LETTERS}]+[\p{{Ll}}{_LETTERS}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA = _ENDINGS + _WORDS % "{1,3}"
_QWEN = _ENDINGS + _WORDS % ""
_PATTERNS = {
    "llama-bpe": _LLAMA,
    "llama3": _LLAMA,
    "llama-v3": _LLAMA,
    "smaug-bpe": _LLAMA,
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
    "tekken": _CASED,
}
"""Patterns of a word, by ``tokenizer.ggml.pre``."""
_DIGITS = ("smollm", "codeshell", "refact", "starcoder")
"""Kinds that cut as GPT-2 does, digits one by one."""
_PLAIN = ("gpt-2", "phi-2", "mpt", "olmo", "jais")


class TokenizerError(FlexNNError, ValueError):
    """A tokenizer that cannot be made; the message is one line."""


class Tokens:
    """The tokens of a model."""

    def __init__(self, opened: GgufFile) -> None:
        """Read them. Raises GraphError for what is missing or not supported, TokenizerError without the library."""
        self._texts = _texts(opened)
        kinds = opened.numbers("tokenizer.ggml.token_type")
        self._kinds = np.ones(len(self._texts), np.int32) if kinds is None else kinds
        if self._kinds.dtype.kind not in "iu" or len(self._kinds) != len(self._texts):
            raise GraphError("metadata: tokenizer.ggml.token_type does not fit the tokens")
        if not all(_BYTE_TEXT.fullmatch(self._texts[i]) for i in np.flatnonzero(self._kinds == _BYTE).tolist()):
            raise GraphError("metadata: tokenizer.ggml.tokens: a byte is not written as <0x00>")
        self.longest = max(len(text.encode()) for text in self._texts)
        """Bytes of the longest token."""
        self.model = opened.text("tokenizer.ggml.model")
        self.first = self._special(opened, "bos")
        self.ends = {i for i in (self._special(opened, name) for name in ("eos", "eot", "eom")) if i is not None}
        self.ends |= {i for i, text in enumerate(self._texts) if text in _ENDS and self._kinds[i] in (_CONTROL, _USER)}
        self.adds_first = bool(opened.about.get("tokenizer.ggml.add_bos_token", self.model == "llama"))
        self._cutter = _cutter(opened, self.model, self._texts, self._kinds)
        self._bytes_of = _byte_characters() if self.model == "gpt2" else {}

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def first_text(self) -> str:
        """Text of the token that begins a text; "" where there is none."""
        return "" if self.first is None else self._texts[self.first]

    @property
    def end_text(self) -> str:
        """Text of a token that ends a text; "" where there is none."""
        return self._texts[min(self.ends)] if self.ends else ""

    def cut(self, text: str, *, begins: bool = True) -> list[int]:
        """The tokens of ``text``; where it begins a text, with the token for that, if the model wants it. Raises
        TokenizerError for half a pair of surrogates, which JSON and a command line may hold.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise TokenizerError("the text is no Unicode: it has half a pair of surrogates") from None
        ids = list(self._cutter.encode(text, add_special_tokens=False).ids)
        if begins and self.adds_first and self.first is not None and ids[:1] != [self.first]:
            ids.insert(0, self.first)
        return ids

    def raw(self, token: int) -> bytes:
        """The bytes that a token stands for; none of control tokens."""
        text, kind = self._texts[token], self._kinds[token]
        if kind in (_CONTROL, _UNKNOWN):
            return b""
        if kind == _BYTE:
            return bytes([int(text[3:5], 16)])
        if kind == _USER:
            return text.replace(_SPACE, " ").encode() if self.model == "llama" else text.encode()
        if self.model == "gpt2":
            return b"".join(self._bytes_of.get(c, c.encode()) for c in text)
        return text.replace(_SPACE, " ").encode()

    def text(self, tokens: Iterable[int]) -> str:
        """The text of tokens; bytes that are no text are replaced."""
        return b"".join(map(self.raw, tokens)).decode("utf-8", "replace")

    def _special(self, opened: GgufFile, name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        if key not in opened.about:
            return None
        found = opened.number(key)
        if not 0 <= found < len(self._texts):
            raise GraphError(f"metadata: {key} is {found} of {len(self._texts)} tokens")
        return found


_ENDS = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "</s>"}
"""Tokens that end an answer in the families that there are."""


def _texts(opened: GgufFile) -> list[str]:
    raw = opened.texts("tokenizer.ggml.tokens")
    if not raw or max(map(len, raw)) > TOKEN_BYTES_MAX:
        raise GraphError(f"metadata: tokenizer.ggml.tokens: none, or one of more than {TOKEN_BYTES_MAX} bytes")
    try:
        return [text.decode() for text in raw]
    except UnicodeDecodeError:
        raise GraphError("metadata: tokenizer.ggml.tokens: one is not text") from None


def _cutter(opened: GgufFile, model: str, texts: Sequence[str], kinds: np.ndarray) -> Cutter:
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise TokenizerError("tokens need the tokenizers package: pip install 'flexnn[llm]'") from None
    if model == "gpt2":
        made = _byte_pairs(opened, texts)
    elif model == "llama":
        made = _pieces(opened, texts, kinds)
    else:
        raise GraphError(f"metadata: tokenizer.ggml.model {model!r} is not supported (gpt2 and llama are)")
    apart = np.flatnonzero((kinds == _CONTROL) | (kinds == _USER)).tolist()
    if sum(len(texts[i].encode()) for i in apart) > APART_MAX:
        raise GraphError(f"metadata: tokenizer.ggml.tokens: more than {APART_MAX} bytes of control tokens")
    for kind in (_CONTROL, _USER):
        found = [texts[i] for i in np.flatnonzero(kinds == kind).tolist() if texts[i]]
        added = [tokenizers.AddedToken(text, normalized=False, special=kind == _CONTROL) for text in found]
        (made.add_special_tokens if kind == _CONTROL else made.add_tokens)(added)
    if made.get_vocab_size() != len(texts):
        raise GraphError("metadata: tokenizer.ggml.tokens: some are there twice")
    return made


def _byte_pairs(opened: GgufFile, texts: Sequence[str]) -> Cutter:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    kind = opened.text("tokenizer.ggml.pre", "gpt-2")
    if kind in _PATTERNS:
        steps = [
            pre_tokenizers.Split(Regex(_PATTERNS[kind]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    elif kind in _DIGITS:
        steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    elif kind in _PLAIN:
        steps = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        known = ", ".join(sorted((*_PATTERNS, *_DIGITS, *_PLAIN)))
        raise GraphError(f"metadata: tokenizer.ggml.pre {kind!r} is not supported ({known} are)")
    merges = []
    for raw in opened.texts("tokenizer.ggml.merges"):
        text = raw.decode("utf-8", "replace")
        middle = text.find(" ", 1)
        if middle < 0 or len(raw) > 2 * TOKEN_BYTES_MAX:
            raise GraphError("metadata: tokenizer.ggml.merges: one is no pair")
        merges.append((text[:middle], text[middle + 1 :]))
    vocabulary = {text: i for i, text in enumerate(texts)}
    made = Tokenizer(_model(models.BPE, vocabulary, merges, ignore_merges=_PATTERNS.get(kind) == _LLAMA))
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return made


def _pieces(opened: GgufFile, texts: Sequence[str], kinds: np.ndarray) -> Cutter:
    """Pieces with scores, the best joined first: each way to join two is a merge, in the order of scores."""
    from tokenizers import Tokenizer, models, normalizers

    scores = opened.numbers("tokenizer.ggml.scores")
    if scores is None or scores.dtype.kind != "f" or len(scores) != len(texts):
        raise GraphError("metadata: tokenizer.ggml.scores does not fit the tokens")
    vocabulary = {text: i for i, text in enumerate(texts)}
    normal = {texts[i] for i in np.flatnonzero(kinds == 1).tolist()}
    found: list[tuple[float, int, int]] = []
    joined = 0
    if sum(map(len, normal)) > PIECES_MAX:
        raise GraphError(f"metadata: tokenizer.ggml.tokens: pieces of more than {PIECES_MAX} characters in all")
    is_short = sum(len(text) ** 2 for text in normal) <= COPIED_MAX
    for text, cut in _cuts(normal) if is_short else _cuts_of_long(normal):
        found.append((-float(scores[vocabulary[text]]), vocabulary[text[:cut]], vocabulary[text[cut:]]))
        joined += len(text)
        if len(found) > JOINS_MAX or joined > JOINED_MAX:
            raise GraphError(f"metadata: tokenizer.ggml.tokens: more than {JOINS_MAX} ways to join pieces, or too long")
    found.sort()
    unknown = next((texts[i] for i in np.flatnonzero(kinds == _UNKNOWN).tolist()), None)
    merges = [(texts[left], texts[right]) for _, left, right in found]
    made = Tokenizer(_model(models.BPE, vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token=unknown))
    steps: list[Any] = [normalizers.Replace(" ", _SPACE)]
    if opened.about.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(_SPACE))
    made.normalizer = normalizers.Sequence(steps)
    return made


def _beginnings(texts: Iterable[str]) -> dict[str, str]:
    """Return the longest other text that each one begins with, where there is one."""
    found: dict[str, str] = {}
    begun: list[str] = []
    for text in sorted(texts):
        while begun and not text.startswith(begun[-1]):
            begun.pop()
        if begun:
            found[text] = begun[-1]
        begun.append(text)
    return found


def _cuts(texts: set[str]) -> Iterator[tuple[str, int]]:
    """Yield each text with each place where it is cut into two others."""
    for text in texts:
        for cut in range(1, len(text)):
            if text[:cut] in texts and text[cut:] in texts:
                yield text, cut


def _cuts_of_long(texts: set[str]) -> Iterator[tuple[str, int]]:
    """Yield what ``_cuts`` does, without a copy of both parts at each place; of short texts it takes twice as long."""
    beginnings, endings = _beginnings(texts), _beginnings(text[::-1] for text in texts)
    for text in texts:
        starts, last, first = set(), endings.get(text[::-1]), beginnings.get(text)
        while first is not None and last is not None:
            starts.add(len(text) - len(last))
            last = endings.get(last)
        while starts and first is not None:
            if len(first) in starts:
                yield text, len(first)
            first = beginnings.get(first)


def _model(
    kind: Callable[..., Any], vocabulary: dict[str, int], merges: Sequence[tuple[str, ...]], **how: object
) -> Any:
    try:
        return kind(vocabulary, merges, **how)
    except Exception as error:  # the library has no kinds of errors
        raise GraphError(f"metadata: tokenizer.ggml.merges: {error}") from None


def _byte_characters() -> dict[str, bytes]:
    """The byte that each character of a GPT-2 token stands for: those that print stand for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    made = {chr(b): bytes([b]) for b in plain}
    return made | {chr(256 + i): bytes([b]) for i, b in enumerate(others)}
