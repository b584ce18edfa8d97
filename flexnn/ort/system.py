"""Functions of onnxruntime's module: what it is, and settings of the whole process."""

from __future__ import annotations

from typing import Any

from .devices import PROVIDER
from .logs import say

VERSION = "1.32.0"
"""Version of onnxruntime whose names these are."""


def get_available_providers() -> list[str]:
    """Return the CPU's."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """Return the CPU's."""
    return [PROVIDER]


def get_device() -> str:
    """Return ``CPU``."""
    return "CPU"


def get_version_string() -> str:
    """Return the version of onnxruntime whose names these are."""
    return VERSION


def get_build_info() -> str:
    """Return who computes."""
    import flexnn

    return f"FlexNN {flexnn.__version__}"


def has_collective_ops() -> bool:
    """Return False."""
    return False


def disable_telemetry_events() -> None:
    """Do nothing: there are none."""


def enable_telemetry_events() -> None:
    """Do nothing: there are none."""


def set_seed(seed: int) -> None:
    """Do nothing: no operator is random."""


def set_global_thread_pool_sizes(*_: Any, **__: Any) -> None:
    """Take sizes; each session has its threads."""
    say("set_global_thread_pool_sizes changes nothing")


def set_default_logger_callback(*_: Any) -> None:
    """Take a callback; lines go to standard error."""
    say("set_default_logger_callback changes nothing")


def preload_dlls(*_: Any, **__: Any) -> None:
    """Do nothing: there are none."""


def print_debug_info() -> None:
    """Print who computes."""
    print(get_build_info())


def create_and_register_allocator(*_: Any, **__: Any) -> None:
    """Take an allocator; each session has its arena."""
    say("create_and_register_allocator changes nothing")


create_and_register_allocator_v2 = create_and_register_allocator
