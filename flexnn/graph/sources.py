"""Sources of constants: arrays in memory, files, and functions of either; loaded when asked for, never kept.

A source has a key: two sources of the same model with the same key hold the same numbers, whatever shapes the model is
bound to. That is how an artifact's weights are found again when shapes are bound at run time.
"""

from __future__ import annotations

from _blake2 import blake2b  # hashlib would load OpenSSL, which takes more memory than a small model
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .descriptor import Descriptor
from .ir import AbsentError, Array, WeightSource

if TYPE_CHECKING:
    from .late import Late


@quick_dataclass(frozen=True, slots=True)
class FileSource:
    """Row-major little-endian numbers in a file."""

    file: Descriptor
    offset: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    @property
    def key(self) -> str:
        """Its place."""
        return f"file:{self.file.path}:{self.offset}"

    def load(self) -> Array:
        """The whole constant, read into an array of its own. Raises CompileError where a budget does not hold it."""
        from .allowance import allowance  # only compiling reads such files

        found = allowance()
        if found is not None:
            found.reserve(prod(self.shape) * self.dtype.itemsize, f"a constant of shape {list(self.shape)}")
        values = np.empty(self.shape, self.dtype)
        self.file.read_into(values.reshape(-1).view(np.uint8).data, self.offset)
        return values


@quick_dataclass(frozen=True, slots=True)
class ArraySource:
    """Numbers already in memory."""

    values: Array

    @property
    def key(self) -> str:
        """A digest of type, shape and numbers."""
        values = np.ascontiguousarray(self.values)
        digest = blake2b(f"{values.dtype.str}{values.shape}".encode(), digest_size=16)
        digest.update(values.tobytes())
        return f"array:{digest.hexdigest()}"

    def load(self) -> Array:
        """The array itself."""
        return self.values


@quick_dataclass(frozen=True, slots=True)
class SizesSource:
    """Numbers of which some are sizes (graph/sizes.py)."""

    numbers: Array
    """An array of objects."""
    dtype: np.dtype[np.generic]

    @property
    def key(self) -> str:
        """A digest, as of an ArraySource."""
        return ArraySource(self.load()).key

    @property
    def same(self) -> int | None:
        """The number that all are, if it is one size or there is one alone."""
        numbers = self.numbers.reshape(-1)
        return numbers[0] if numbers.size and all(number is numbers[0] for number in numbers) else None

    def late(self, indices: Callable[[Array], Array]) -> Late:
        """Maker of the numbers of a template's (graph/template.py). ``indices``: of numbers in its trail."""
        from .late import LateSizes

        return LateSizes(indices(self.numbers), self.dtype)

    def load(self) -> Array:
        """The numbers of the sizes, which are conditions from now on."""
        flat = self.dtype.type if self.dtype.kind == "b" else int if self.dtype.kind in "iu" else float
        return np.array([flat(v) for v in self.numbers.reshape(-1)], self.dtype).reshape(self.numbers.shape)


@quick_dataclass(frozen=True, slots=True)
class ShapedSource:
    """Numbers that depend on sizes, in another shape, of which some dimensions may be sizes."""

    base: WeightSource
    shape: tuple[int, ...]

    @property
    def key(self) -> str:
        """A digest, as of an ArraySource."""
        return ArraySource(self.load()).key

    def load(self) -> Array:
        """The numbers. All sizes are conditions from now on."""
        return self.base.load().reshape(self.shape)

    def late(self, indices: Callable[[Array], Array]) -> Late:
        """Maker of the numbers of a template's, as of a SizesSource."""
        from .late import LateShape

        return LateShape(self.base.late(indices), indices(np.array(self.shape, object)).tolist())  # type: ignore[attr-defined]


@quick_dataclass(frozen=True, slots=True)
class MappedSource:
    """A function of another source: a transposition, a flip, a product."""

    base: WeightSource
    function: Callable[[Array], Array]
    label: str
    """Description of the function, complete and with its numbers: a part of the key."""
    is_view: bool = False
    """Whether the function shows the numbers in another order and copies none, so that some can be read alone."""

    @property
    def key(self) -> str:
        """The label, of the base."""
        return f"{self.label}({self.base.key})"

    def load(self) -> Array:
        """Load the base and apply the function."""
        return self.function(self.base.load())

    def late(self, indices: Callable[[Array], Array]) -> Late:
        """Maker of the numbers of a template's, as of a SizesSource; those of the base depend on sizes."""
        from .late import LateMap

        return LateMap(self.base.late(indices), self.function)  # type: ignore[attr-defined]


@quick_dataclass(frozen=True, slots=True)
class RestoredSource(MappedSource):
    """Floats that are 8-bit integers less ``zero``, times ``scale``: ``whole`` are the integers."""

    whole: WeightSource | None = None
    scale: float = 1.0
    zero: int = 0


def depends(source: WeightSource | None) -> bool:
    """Whether numbers depend on sizes (graph/sizes.py)."""
    while isinstance(source, MappedSource):
        source = source.base
    return hasattr(source, "late")


def same(source: WeightSource | None) -> int | None:
    """Return the number, maybe a size, that all numbers which depend on sizes are; None: others, or none known."""
    while isinstance(source, ShapedSource):
        source = source.base
    return getattr(source, "same", None)


@quick_dataclass(frozen=True, slots=True)
class MadeSource:
    """Many numbers that a node makes out of few; they are made whenever they are asked for."""

    label: str
    """Description of how they are made, complete and with the numbers: the key."""
    make: Callable[[], Array]

    @property
    def key(self) -> str:
        """The label."""
        return self.label

    def load(self) -> Array:
        """Make the numbers; one number everywhere takes the memory of one."""
        return self.make()


@quick_dataclass(slots=True)
class ModelSource:
    """The numbers of one of the model's constants."""

    index: int
    """Counts the constants of all its graphs."""
    base: WeightSource
    used: bool = False
    """Whether anybody asked for the numbers."""
    is_tied: bool = False
    """Whether it is a table that a product reads, too (graph/tied.py)."""
    form: str = ""
    """The form that its weights are stored in by choice (flexnn/narrowing); "": nobody chose one."""

    @property
    def key(self) -> str:
        """The index."""
        return f"c{self.index}"

    def load(self) -> Array:
        """Load the base, and note that its numbers were read."""
        self.used = True
        return self.base.load()


@quick_dataclass(frozen=True, slots=True)
class KeptSource:
    """The loaded numbers of another source."""

    base: WeightSource
    values: Array

    @property
    def key(self) -> str:
        """Key of the source."""
        return self.base.key

    def load(self) -> Array:
        """The array itself."""
        return self.values


@quick_dataclass(frozen=True, slots=True)
class HeldSource:
    """Numbers that an artifact holds, as a stored template names them."""

    key: str
    """Key of the weight in the artifact (artifact/model_section.py)."""

    def load(self) -> Array:
        """Raise AbsentError: the engine reads them."""
        raise AbsentError(f"the numbers of weight {self.key} are in the artifact")


def model_source(source: WeightSource | None) -> ModelSource | None:
    """Return the one constant of the model that numbers are made of; None where there are several, or none."""
    while source is not None and not isinstance(source, ModelSource):
        source = getattr(source, "base", None)
    return source
