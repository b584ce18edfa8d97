"""Options with onnxruntime's names. FlexNN plans by itself, so most change nothing; one line says which do not."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from . import errors
from .lacking import refuse
from .logs import say

if TYPE_CHECKING:
    from flexnn.asynchronous import Call

_T = TypeVar("_T")


class GraphOptimizationLevel(IntEnum):
    """Optimisations of a graph; FlexNN always does its own."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether nodes run at the same time; FlexNN's threads share each node."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Order of nodes; FlexNN's planner chooses it."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_WEIGHTS = "write the weights into the model, and open that"
_CHANGES = {
    "add_initializer": _WEIGHTS,
    "add_external_initializers": _WEIGHTS,
    "add_external_initializers_from_files_in_memory": _WEIGHTS,
    "add_active_adapter": "merge the adapter into the model's weights, and open the merged model",
}
"""Methods without which a run would have other numbers, and what to do instead."""


class _Options:
    """Fields with defaults, and entries by name. Other fields are taken, with a line; pickles hold all."""

    _DEFAULTS: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.__dict__.update(self._DEFAULTS, _has_providers=False)
        self._entries: dict[str, str] = {}
        self._others: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        """Calls that change nothing here, for an onnxruntime that runs what FlexNN does not."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in self._DEFAULTS:
            say(f"{type(self).__name__}.{name} is not known and changes nothing")
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        """Return a method that takes anything, for those that onnxruntime has and FlexNN needs not."""
        if not name.startswith(("add_", "clear_", "register_", "set_", "enable_", "disable_")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def taken(*arguments: Any, **options: Any) -> None:
            if name in _CHANGES:
                refuse(f"{type(self).__name__}.{name}", _CHANGES[name])
            if "provider" in name:
                self.__dict__["_has_providers"] = True
            else:
                self._others.append((name, arguments, options))
            say(f"{type(self).__name__}.{name} changes nothing")

        return taken

    def _add_entry(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError("an entry's key and value must be str")
        self._entries[key] = value

    def _entry(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]


class SessionOptions(_Options):
    """Options of a session: ``intra_op_num_threads`` and ``enable_profiling`` act, and ``log_severity_level`` 3 and
    more keeps FlexNN quiet. Entries are kept and change nothing.
    """

    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Return an entry. Raises RuntimeError where there is none."""
        return self._entry(key)

    def has_providers(self) -> bool:
        """Return whether providers were named here; FlexNN computes on the CPU."""
        return bool(self._has_providers)

    def register_custom_ops_library(self, path: str) -> None:
        """Take a library of operators, which FlexNN cannot call: a model that uses one is refused when it opens."""
        self._others.append(("register_custom_ops_library", (path,), {}))

    def given_to(self, real: Any) -> Any:
        """Return the same options of an installed onnxruntime, ``real``."""
        options = real.SessionOptions()
        for name, default in self._DEFAULTS.items():
            value = self.__dict__[name]
            if value != default and name != "enable_profiling":  # the profile is ours
                is_enum = isinstance(value, IntEnum)
                setattr(options, name, getattr(real, type(value).__name__)(int(value)) if is_enum else value)
        for key, text in self._entries.items():
            options.add_session_config_entry(key, text)
        for name, arguments, others in self._others:
            getattr(options, name)(*arguments, **others)
        return options


class RunOptions(_Options):
    """Options of a run. ``terminate`` breaks off the runs that have these options, and lets none begin."""

    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
        "training_mode": False,
    }

    def __init__(self) -> None:
        super().__init__()
        self._calls: set[Call] = set()
        """Runs that go on."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "terminate" and value:
            for call in list(self._calls):
                call.cancel()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_calls"} | {"_calls": set()}

    def made(self, run: Callable[[], _T]) -> _T:
        """Return what a run does that these options may break off. Raises Fail then."""
        from flexnn.asynchronous import Call, Cancelled

        call = Call()
        self._calls.add(call)
        try:
            if self.terminate:
                raise Cancelled
            return call.make(run)
        except Cancelled:
            raise errors.Fail(f"{errors.Fail.prefix}Exiting due to terminate flag being set to true.") from None
        finally:
            self._calls.discard(call)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return an entry. Raises RuntimeError where there is none."""
        return self._entry(key)
