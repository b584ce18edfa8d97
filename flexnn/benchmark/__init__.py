"""Measuring: latency against memory, and what each part of the design is worth. Both as ``flexnn bench``."""

ABLATIONS = (
    "without preloading",
    "without static memory",
    "without both",
    "direct kernels only",
    "layer by layer",
    "fixed slices",
)
"""The parts that ``ablations`` takes away. Here, as the command line lists them without loading what measures."""
