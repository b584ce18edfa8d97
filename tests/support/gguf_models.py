"""Small random decoders as GGUF files, and the same computed plainly in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

TYPES = {
    kind.name: kind for kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16,
                                 gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.Q8_0,
                                 gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1,
                                 gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K,
                                 gguf.GGMLQuantizationType.Q5_0, gguf.GGMLQuantizationType.Q5_1,
                                 gguf.GGMLQuantizationType.Q5_K)
}  # fmt: skip


@dataclass
class Small:
    """Sizes of a small decoder, and where its family differs."""

    arch: str
    width: int = 64
    layers: int = 2
    hidden: int = 96
    heads: int = 4
    kv_heads: int = 2
    key: int = 16
    vocabulary: int = 96
    kind: str = "F32"
    tied: bool = False
    biases: tuple[str, ...] = ()
    extra: dict[str, object] = field(default_factory=dict)
    factors: bool = False

    @property
    def interleaved(self) -> bool:
        return self.arch in ("llama", "smollm3")

    @property
    def gemma(self) -> bool:
        return self.arch.startswith("gemma")


SMALL = {
    "llama": Small("llama"),
    "llama3": Small("llama", factors=True, tied=True),
    "smollm3": Small("smollm3", layers=4),
    "qwen2": Small("qwen2", biases=("attn_q", "attn_k", "attn_v"), extra={"rope.freq_base": 1e6}),
    "qwen3": Small("qwen3", key=32, tied=True),
    "gemma": Small("gemma", tied=True, key=32),
    "gemma2": Small(
        "gemma2",
        tied=True,
        extra={"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "attention.sliding_window": 3},
    ),
    "gemma3": Small(
        "gemma3",
        tied=True,
        layers=7,
        extra={
            "attention.sliding_window": 3,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
    ),
}


def tensors_of(small: Small, seed: int = 0) -> dict[str, np.ndarray]:
    """Random tensors of a decoder."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        made[name + ".weight"] = (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)
        if name.rpartition(".")[2] in small.biases:
            made[name + ".bias"] = rng.standard_normal(rows).astype(np.float32)

    def vector(name: str, size: int) -> None:
        made[name + ".weight"] = (1 + rng.standard_normal(size) / 4).astype(np.float32)

    matrix("token_embd", small.vocabulary, small.width)
    vector("output_norm", small.width)
    if not small.tied:
        matrix("output", small.vocabulary, small.width)
    if small.factors:
        made["rope_freqs.weight"] = np.linspace(1, 4, small.key // 2).astype(np.float32)
    for i in range(small.layers):
        at = f"blk.{i}."
        vector(at + "attn_norm", small.width)
        matrix(at + "attn_q", small.heads * small.key, small.width)
        matrix(at + "attn_k", small.kv_heads * small.key, small.width)
        matrix(at + "attn_v", small.kv_heads * small.key, small.width)
        matrix(at + "attn_output", small.width, small.heads * small.key)
        vector(at + "ffn_norm", small.width)
        matrix(at + "ffn_gate", small.hidden, small.width)
        matrix(at + "ffn_up", small.hidden, small.width)
        matrix(at + "ffn_down", small.width, small.hidden)
        if small.arch in ("qwen3", "gemma3"):
            vector(at + "attn_q_norm", small.key)
            vector(at + "attn_k_norm", small.key)
        if small.arch in ("gemma2", "gemma3"):
            vector(at + "post_attention_norm", small.width)
            vector(at + "post_ffw_norm", small.width)
    return made


def _blocks_of_256(values: np.ndarray, kind: str) -> np.ndarray:
    """Blocks of this shape, which gguf does not make: random bytes, and scales that make small numbers."""
    rng = np.random.default_rng(values.size)
    nbytes = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}[kind]
    raw = rng.integers(0, 256, (values.shape[0], values.shape[1] // 256, nbytes), np.uint8)
    scales = rng.uniform(0.5, 1, (*raw.shape[:2], 2)) * (2e-4, 1.5e-3)
    if kind != "Q6_K":
        scales /= 1 if kind == "Q4_K" else (2, 1)
        raw[..., :4] = scales.astype(np.float16).view(np.uint8)
    else:
        raw[..., 208:] = (scales[..., :1] / 16).astype(np.float16).view(np.uint8)
    return raw.reshape(values.shape[0], -1)


TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"


def byte_tokens(writer: gguf.GGUFWriter) -> int:
    """Write a tokenizer of bytes, a few merges and control tokens; return how many tokens it has."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    tokens = [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]
    tokens += ["he", "ll", "hell", "\u0120w", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 4) + [3] * 4)
    writer.add_token_merges(["h e", "l l", "he ll", "\u0120 w"])
    writer.add_eos_token_id(len(tokens) - 4)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    return len(tokens)


def piece_tokens(writer: gguf.GGUFWriter) -> int:
    """Write a tokenizer of pieces with scores and of bytes; return how many tokens it has."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    pieces = [
        "\u2581",
        "h",
        "e",
        "l",
        "o",
        "w",
        "he",
        "ll",
        "hell",
        "hello",
        "\u2581hello",
        "\u2581w",
        "wo",
        "\u2581wo",
    ]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens + pieces)
    writer.add_token_scores([0.0] * len(tokens) + [-float(i) for i in range(len(pieces))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(pieces))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return len(tokens) + len(pieces)


def write_talker(path: Path, seed: int = 0) -> None:
    """Write a small decoder that has a tokenizer."""
    write_small(path, Small("llama", vocabulary=264, tied=True), seed, tokenizer=byte_tokens)


def write_small(
    path: Path, small: Small, seed: int = 0, tokenizer: Callable[[gguf.GGUFWriter], int] | None = None
) -> dict[str, np.ndarray]:
    """Write a decoder; return its tensors as the file holds them, in float32."""
    writer = gguf.GGUFWriter(str(path), small.arch)
    if tokenizer is not None:
        assert tokenizer(writer) == small.vocabulary
    for key, number in (
        ("context_length", 512),
        ("embedding_length", small.width),
        ("block_count", small.layers),
        ("feed_forward_length", small.hidden),
        ("attention.head_count", small.heads),
        ("attention.head_count_kv", small.kv_heads),
        ("attention.key_length", small.key),
        ("attention.value_length", small.key),
        ("rope.dimension_count", small.key),
    ):
        writer.add_uint32(f"{small.arch}.{key}", number)
    writer.add_float32(f"{small.arch}.attention.layer_norm_rms_epsilon", 1e-5)
    for key, value in small.extra.items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        (writer.add_uint32 if isinstance(value, int) else add)(f"{small.arch}.{key}", value)
    held = {}
    for name, values in tensors_of(small, seed).items():
        kind = TYPES[small.kind if values.ndim == 2 else "F32"]
        raw = _blocks_of_256(values, kind.name) if kind.name.endswith("_K") else gguf.quantize(values, kind)
        writer.add_tensor(name, raw, raw_dtype=kind)
        held[name] = np.asarray(gguf.dequantize(raw, kind), np.float32).reshape(values.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def logits(small: Small, tensors: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """Logits of all positions, [tokens, vocabulary], in float64."""
    w = {name: values.astype(np.float64) for name, values in tensors.items()}
    x = w["token_embd.weight"][ids]
    if small.gemma:
        x = x * np.sqrt(small.width)
    for i in range(small.layers):
        at = f"blk.{i}."
        y = _attention(small, w, at, i, _rms(x, w[at + "attn_norm.weight"]))
        x = x + (_rms(y, w[at + "post_attention_norm.weight"]) if at + "post_attention_norm.weight" in w else y)
        y = _rms(x, w[at + "ffn_norm.weight"])
        gate = y @ w[at + "ffn_gate.weight"].T
        gate = _gelu(gate) if small.gemma else gate / (1 + np.exp(-gate))
        y = (gate * (y @ w[at + "ffn_up.weight"].T)) @ w[at + "ffn_down.weight"].T
        x = x + (_rms(y, w[at + "post_ffw_norm.weight"]) if at + "post_ffw_norm.weight" in w else y)
    found = _rms(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T
    cap = small.extra.get("final_logit_softcapping")
    return np.tanh(found / cap) * cap if cap else found


def _rms(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _attention(small: Small, w: dict[str, np.ndarray], at: str, layer: int, x: np.ndarray) -> np.ndarray:
    count, dim = len(x), small.key
    parts = []
    for part, heads in (("q", small.heads), ("k", small.kv_heads), ("v", small.kv_heads)):
        y = x @ w[f"{at}attn_{part}.weight"].T + w.get(f"{at}attn_{part}.bias", 0)
        y = y.reshape(count, heads, dim)
        if f"{at}attn_{part}_norm.weight" in w:
            y = _rms(y, w[f"{at}attn_{part}_norm.weight"])
        parts.append(y)
    window = small.extra.get("attention.sliding_window", 0)
    every = {"gemma2": 2, "gemma3": 6}.get(small.arch, 0)
    windowed = bool(window and every and layer % every != every - 1)
    if small.arch != "smollm3" or (layer + 1) % 4:
        parts[:2] = [_rotated(small, w, y, windowed) for y in parts[:2]]
    q, k, v = (np.repeat(y, small.heads // y.shape[1], 1).transpose(1, 0, 2) for y in parts)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(dim)
    cap = small.extra.get("attn_logit_softcapping")
    scores = np.tanh(scores / cap) * cap if cap else scores
    far = np.arange(count)[:, None] - np.arange(count)
    scores[:, (far < 0) | (far >= window if windowed else far < 0)] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return (shares @ v).transpose(1, 0, 2).reshape(count, -1) @ w[at + "attn_output.weight"].T


def _rotated(small: Small, w: dict[str, np.ndarray], y: np.ndarray, windowed: bool) -> np.ndarray:
    base, factor = small.extra.get("rope.freq_base", 10000.0), small.extra.get("rope.scaling.factor", 1.0)
    if windowed and small.arch == "gemma3":
        base, factor = 10000.0, 1.0
    rates = base ** -(np.arange(0, small.key, 2) / small.key) / factor / w.get("rope_freqs.weight", 1.0)
    turn = np.exp(1j * np.arange(len(y))[:, None, None] * rates)
    half = small.key // 2
    a, b = (y[..., ::2], y[..., 1::2]) if small.interleaved else (y[..., :half], y[..., half:])
    turned = (a + 1j * b) * turn
    if small.interleaved:
        return np.stack([turned.real, turned.imag], -1).reshape(y.shape)
    return np.concatenate([turned.real, turned.imag], -1)
