"""Families of decoders that GGUF files hold, and what a file says of its model: sizes, and where the family differs."""

from __future__ import annotations

import math

import numpy as np

from flexnn.graph.ir import GraphError
from flexnn.quick_dataclass import quick_dataclass

from .gguf_file import GgufFile

_SIZE_MAX = 1 << 20
_LAYERS_MAX = 1024
_ANGLES_MAX = 512


@quick_dataclass(frozen=True, slots=True)
class Family:
    """A family: all that its decoders have in common."""

    is_interleaved: bool = False
    """Whether rotary pairs are neighbours: the rows of queries and keys of such files are stored in that order."""
    is_gelu: bool = False
    """Whether the gate is a GELU (of tanh); else a SiLU."""
    scales_embedding: bool = False
    """Whether rows of the table are multiplied by the square root of their size."""
    window_every: int = 0
    """Layers of which only the last looks at all rows; 0: every layer does."""
    skips_rotary_every: int = 0
    """Every so manyth layer turns nothing; 0: every layer turns."""


FAMILIES = {
    "llama": Family(is_interleaved=True),
    "smollm3": Family(is_interleaved=True, skips_rotary_every=4),
    "qwen2": Family(),
    "qwen3": Family(),
    "gemma": Family(is_gelu=True, scales_embedding=True),
    "gemma2": Family(is_gelu=True, scales_embedding=True, window_every=2),
    "gemma3": Family(is_gelu=True, scales_embedding=True, window_every=6),
}
"""By ``general.architecture``."""


@quick_dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that a file gives its model."""

    family: Family
    vocabulary: int
    context: int
    """Positions that the model was made for."""
    width: int
    layers: int
    hidden: tuple[int, ...]
    """Sizes of the gated part of each layer."""
    heads: int
    kv_heads: int
    key: int
    value: int
    """Numbers of a head of queries and keys, and of values."""
    turned: int
    """Numbers of a head that rotary turns."""
    epsilon: float
    scale: float
    """Factor of scores."""
    score_cap: float
    logit_cap: float
    """0: none."""
    window: int
    """Rows that layers with a window see; 0: all."""
    base: float
    window_base: float
    stretched: float
    """Divisor of positions."""

    def is_windowed(self, layer: int) -> bool:
        """Whether a layer sees a window only."""
        every = self.family.window_every
        return bool(self.window and every and layer % every < every - 1)

    def turns(self, layer: int) -> bool:
        """Whether a layer has rotary positions."""
        every = self.family.skips_rotary_every
        return not every or (layer + 1) % every != 0


def read_sizes(opened: GgufFile) -> Sizes:
    """Return what the metadata say. Raises GraphError that names what is not supported."""
    name = opened.text("general.architecture")
    if name not in FAMILIES:
        raise GraphError(f"architecture {name!r} is not supported ({', '.join(FAMILIES)} are)")
    about = _Sized(opened, name)
    for lacking in ("expert_count", "attention.sliding_window_pattern"):
        if opened.number(f"{name}.{lacking}", 0):
            raise GraphError(f"metadata: {name}.{lacking} is not supported")
    width, heads, layers = about.size("embedding_length"), about.size("attention.head_count"), about.size("block_count")
    if layers > _LAYERS_MAX or (width % heads and f"{name}.attention.key_length" not in opened.about):
        raise GraphError(f"{layers} layers, or {heads} heads of {width} numbers, are not supported")
    key = about.size("attention.key_length", width // heads)
    found = Sizes(
        family=FAMILIES[name],
        vocabulary=_vocabulary(opened),
        context=about.size("context_length"),
        width=width,
        layers=layers,
        hidden=about.each("feed_forward_length", layers),
        heads=heads,
        kv_heads=about.size("attention.head_count_kv", heads),
        key=key,
        value=about.size("attention.value_length", key),
        turned=about.size("rope.dimension_count", key),
        epsilon=opened.real(f"{name}.attention.layer_norm_rms_epsilon"),
        scale=_scale(name, layers, width, heads, key),
        score_cap=opened.real(f"{name}.attn_logit_softcapping", 0.0),
        logit_cap=opened.real(f"{name}.final_logit_softcapping", 0.0),
        window=about.size("attention.sliding_window", 0) if FAMILIES[name].window_every else 0,
        base=opened.real(f"{name}.rope.freq_base", 10000.0),
        window_base=opened.real(f"{name}.rope.freq_base_swa", 10000.0),
        stretched=_stretched(opened, name),
    )
    if found.heads % found.kv_heads or found.turned % 2 or found.turned > key or found.key != found.value:
        raise GraphError(f"{heads} heads on {found.kv_heads}, of {key} numbers, {found.turned} turned, not supported")
    if min(found.base, found.window_base) <= 0 or found.epsilon < 0 or min(found.score_cap, found.logit_cap) < 0:
        raise GraphError("metadata: a base of angles, an epsilon or a cap is negative")
    return found


def frequencies(sizes: Sizes, *, windowed: bool, factors: np.ndarray | None) -> np.ndarray:
    """The angle of each pair for one position; layers with a window have a base of their own and no stretching where
    most layers have one.
    """
    is_own = windowed and sizes.family.window_every > 2
    base, stretched = (sizes.window_base, 1.0) if is_own else (sizes.base, sizes.stretched)
    found = base ** -(np.arange(0, sizes.turned, 2) / sizes.turned) / stretched
    return np.asarray(found / factors if factors is not None and not is_own else found, np.float32)


class _Sized:
    """Reader of sizes in the metadata of one family."""

    def __init__(self, opened: GgufFile, name: str) -> None:
        self._opened, self._name = opened, name

    def size(self, key: str, default: int | None = None) -> int:
        """A number of at least 1 (or the default) and at most some million."""
        value = self._opened.number(f"{self._name}.{key}", default)
        if value != default and not 0 < value <= _SIZE_MAX * (16 if key == "context_length" else 1):
            raise GraphError(f"metadata: {self._name}.{key} is {value}")
        return value

    def each(self, key: str, layers: int) -> tuple[int, ...]:
        """A size for each layer: one number for all, or a list."""
        values = self._opened.about.get(f"{self._name}.{key}")
        if not isinstance(values, np.ndarray):
            return (self.size(key),) * layers
        if values.dtype.kind not in "iu" or len(values) != layers or not ((values > 0) & (values <= _SIZE_MAX)).all():
            raise GraphError(f"metadata: {self._name}.{key} has no size for each of {layers} layers")
        return tuple(int(v) for v in values)


def _vocabulary(opened: GgufFile) -> int:
    table = opened.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise GraphError("tensor 'token_embd.weight' is missing, or no matrix")
    return table.shape[0]


def _scale(name: str, layers: int, width: int, heads: int, key: int) -> float:
    """The factor of scores: the largest models of two families divide by another size."""
    is_large = (name, layers) in (("gemma2", 46), ("gemma3", 62))
    return 1 / math.sqrt(width / heads if is_large else key)


def _stretched(opened: GgufFile, name: str) -> float:
    kind = opened.text(f"{name}.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise GraphError(f"metadata: {name}.rope.scaling.type {kind!r} is not supported (linear is)")
    factor = opened.real(f"{name}.rope.scaling.factor", opened.real(f"{name}.rope.scale_linear", 1.0))
    if factor < 0:
        raise GraphError(f"metadata: {name}.rope.scaling.factor is {factor}")
    return factor if kind == "linear" and factor else 1.0
