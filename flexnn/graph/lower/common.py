"""The lowerings that most models need, imported together where somebody waits and a model will be bound."""

from . import (  # noqa: F401 (each registers its operators)
    convolution,
    elementwise,
    indexing,
    linear,
    logic,
    pooling,
    reduction,
    resizing,
    selection,
)
