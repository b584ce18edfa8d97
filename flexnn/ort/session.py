"""``InferenceSession`` on FlexNN."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flexnn.errors import FlexNNError, printable
from flexnn.session import NodeArg, Session, SessionError

from .account import account
from .devices import PROVIDER, RECORDS, OrtEpAssignedSubgraph, OrtEpDevice, assigned, cpu
from .errors import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile, opening_error, running_error
from .inputs import arrays_of
from .logs import ERROR, falls_back, say, stands_in
from .memory import CPU, OrtAllocatorType, OrtMemoryInfo
from .options import RunOptions, SessionOptions
from .report import report
from .values import IOBinding, OrtValue, run_vectors

if TYPE_CHECKING:
    from flexnn.asynchronous import Calls
    from flexnn.graph.about import About

    from .profile import Profile
    from .values import Array

_OWN = frozenset({"_opened", "_figures", "_pid", "_calls", "_profile"})
"""Attributes that a pickle does not hold."""
_TRIES = 3
"""Most times that a run is tried: once more with inputs that were cast, and once by onnxruntime."""


class InferenceSession:
    """A model, opened in the process's budget (flexnn/ort/account.py).

    It may be derived from, and pickled: where it is unpickled, and after a fork, the model is opened again.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **others: Any,
    ) -> None:
        if isinstance(path_or_bytes, (bytes, bytearray, memoryview)):
            self._model_bytes, self._model_path = bytes(path_or_bytes), ""
        elif isinstance(path_or_bytes, (str, os.PathLike)):
            self._model_bytes, self._model_path = b"", os.fspath(path_or_bytes)
        else:
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        self._is_bytes = not self._model_path
        self._sess_options = sess_options or SessionOptions()
        self._provider_options = dict(zip(map(_provider, providers or ()), provider_options or (), strict=False))
        for name in others:
            if name not in ("disabled_optimizers", "enable_fallback", "read_config_from_model"):
                say(f"InferenceSession({name}=…) is not known and changes nothing")
        self.set_providers(providers)
        self._open()

    # ---- opening ----

    def _open(self) -> None:
        self._pid = os.getpid()
        self._calls: Calls | None = None
        self._figures = report.of(self._name)
        self._profile: Profile | None = None
        if self._sess_options.enable_profiling:
            from .profile import Profile

            self._profile = Profile()
        start = time.perf_counter_ns()
        try:
            self._opened: Any = self._make()
        except (FlexNNError, OSError) as error:
            self._refused(opening_error(error, self._name))
        self._figures.opened(time.perf_counter_ns() - start)
        if self._profile is not None:
            self._profile.add("model_loading", start, model=self._name)
        self._outputs_meta, self._inputs_meta = self._opened.get_outputs(), self._opened.get_inputs()
        self._has_mappings = any(port.type.startswith("seq(") for port in self._outputs_meta)

    @property
    def _name(self) -> str:
        return self._model_path or f"a model of {len(self._model_bytes)} bytes"

    def _make(self) -> Session:
        from flexnn._core import MAX_THREADS

        options = self._sess_options
        threads = min(options.intra_op_num_threads, MAX_THREADS) or None
        trace = bool(options.enable_profiling)
        if not self._is_bytes:
            return account().open(self._model_path, threads, trace=trace)
        from flexnn.kept_artifacts import compiled_bytes
        from flexnn.run.opening import prepare

        with compiled_bytes(self._model_bytes, (SessionError,), heard=prepare) as path:
            return account().open(path, threads, trace=trace)

    def _refused(self, error: Exception) -> None:
        """Raise an error; under ``flexnn exec``, hand a model that FlexNN does not run to onnxruntime, or end the
        program: it might take an exception for one of its own and go on without the model.
        """
        if not stands_in() or isinstance(error, (NoSuchFile, InvalidProtobuf, InvalidArgument)):
            raise error from None
        self._figures.refusal = f"FlexNN did not run it: {error}"
        if not falls_back():
            _end(f"{self._name}: {error}; --fallback would hand it to onnxruntime, outside the budget")
        from flexnn_exec.installed import onnxruntime

        try:
            real = onnxruntime()
        except ImportError:
            _end(f"{self._name}: {error}; --fallback needs onnxruntime, which is not installed")
        say(f"{self._name}: {error}; onnxruntime runs it, OUTSIDE THE BUDGET", ERROR)
        self._figures.refusal += "; onnxruntime ran it, outside the budget"
        options = self._sess_options.given_to(real)
        self._opened = real.InferenceSession(self._model_path or self._model_bytes, options, providers=[PROVIDER])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    # ---- running ----

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Array]:
        """Return the outputs of these names, or all. Raises as onnxruntime does."""
        return self._run_into(output_names, input_feed, run_options, None)

    def _run_into(
        self,
        names: Sequence[str] | None,
        feed: Mapping[str, Any],
        options: RunOptions | None,
        out: Mapping[str, Array] | None,
    ) -> list[Array]:
        """Run as ``run`` does; ``out``: arrays for some outputs, where this process has a session of FlexNN's."""
        if self._pid != os.getpid():
            self._open()
        start = time.perf_counter_ns()
        if isinstance(options, RunOptions):
            outputs = options.made(lambda: self._in_turn(lambda: self._run(names or None, feed, out)))
        else:
            outputs = self._run(names or None, feed, out)
        self._figures.ran(time.perf_counter_ns() - start)
        if self._profile is not None:
            self._profile.ran(start, feed, self._opened)
        return outputs

    def _in_turn(self, run: Callable[[], list[Array]]) -> list[Array]:
        """Run when it is this thread's turn; waiting for that can be broken off, too."""
        from flexnn.asynchronous import in_turn

        return in_turn(self._opened._turns.lock, run) if isinstance(self._opened, Session) else run()

    def _run(
        self, names: Sequence[str] | None, feed: Mapping[str, Any], out: Mapping[str, Array] | None = None
    ) -> list[Array]:
        is_cast = False
        for _ in range(_TRIES):
            try:
                into = {"out": out} if out is not None and isinstance(self._opened, Session) else {}
                outputs: list[Any] = self._opened.run(names, feed, **into)
                if self._has_mappings:
                    outputs = [o if hasattr(o, "dtype") else list(o) for o in outputs]  # onnxruntime's are lists
                return outputs
            except FlexNNError as error:
                self._refused(running_error(error))
            except (ValueError, TypeError):
                if not isinstance(self._opened, Session) or is_cast:
                    raise
                _check_names(names, [port.name for port in self._outputs_meta])
                feed, is_cast = arrays_of(feed, self._inputs_meta), True
        raise AssertionError("a run is tried twice at most")

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Array], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in a thread, which calls ``callback`` with the outputs, ``user_data`` and an error's text or "". Runs
        take turns.
        """
        from flexnn.asynchronous import Calls

        def work() -> None:
            outputs: list[Array] = []
            text = ""
            try:
                outputs = self.run(output_names, input_feed, run_options)
            except Exception as error:
                text = str(error).removeprefix(str(getattr(error, "prefix", "")))
            try:
                callback(outputs, user_data, text)
            except BaseException as error:  # SystemExit, too: it would end the thread, and runs to come wait for that
                say(f"run_async: the callback raised {error!r}", ERROR)

        if self._calls is None or self._pid != os.getpid():
            self._calls = Calls()
        self._calls.put(work)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Return the outputs of a run on values, as values."""
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(array) for array in self.run(output_names, feed, run_options)]

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: list[OrtValue],
        fetch_devices: Sequence[Any] = (),
    ) -> None:
        """Run on values in the order of their names. The outputs are put into ``fetches``; those it has are written."""
        run_vectors(self, run_options, dict(zip(feed_names, feeds, strict=True)), list(fetch_names), fetches)

    def io_binding(self) -> IOBinding:
        """Return a binding for this session."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what is bound. Raises ValueError for another session's binding."""
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        iobinding.run(run_options)

    # ---- what is known of the model ----

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs: ``name``, ``shape``, ``type``."""
        return list(self._inputs_meta)

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs: ``name``, ``shape``, ``type``."""
        return list(self._outputs_meta)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return none: constants of a model are its own."""
        return []

    def get_modelmeta(self) -> About:
        """Return what the model says about itself."""
        if self._pid != os.getpid():
            self._open()
        about: About = self._opened.get_modelmeta()
        return about

    def get_session_options(self) -> SessionOptions:
        """Return the options."""
        return self._sess_options

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return where each input lies: in the CPU's memory."""
        return [OrtMemoryInfo(CPU, OrtAllocatorType.ORT_ARENA_ALLOCATOR) for _ in self._inputs_meta]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """Return whose device each input is for: the CPU's."""
        return [cpu() for _ in self._inputs_meta]

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Return the model's nodes, which the CPU computes. Raises Fail unless the session's options ask for it."""
        try:
            asked = self._sess_options.get_session_config_entry(RECORDS)
        except RuntimeError:
            asked = ""
        if asked != "1":
            raise Fail(f"{Fail.prefix}Session configuration entry '{RECORDS}' must be set to \"1\".")
        if self._pid != os.getpid():
            self._open()
        return assigned(self._opened)

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return where each output lies: in the CPU's memory."""
        return [OrtMemoryInfo(CPU, OrtAllocatorType.ORT_ARENA_ALLOCATOR) for _ in self._outputs_meta]

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return a value of its own memory."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id)

    def get_tuning_results(self) -> list[Any]:
        """Return none: kernels are measured and chosen by FlexNN."""
        return []

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        """Take the call: kernels are measured and chosen by FlexNN."""

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Take the call: there is one provider, without options."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Do nothing: there is none."""

    def get_providers(self) -> list[str]:
        """Return the CPU's."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """Return none of the CPU's."""
        return {PROVIDER: {}}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:
        """Take providers; FlexNN computes on the CPU, and says so."""
        others = [name for name in map(_provider, providers or ()) if name != PROVIDER]
        if others and self._sess_options.log_severity_level < ERROR:
            say(f"{', '.join(others)}: FlexNN computes on the CPU")

    def enable_fallback(self) -> None:
        """Take the call: there is one provider."""

    def disable_fallback(self) -> None:
        """Take the call: there is one provider."""

    def get_profiling_start_time_ns(self) -> int:
        """Return when the session began to open, on the clock of ``time.perf_counter_ns``; 0 without a profile."""
        return self._profile.start_ns if self._profile is not None else 0

    def end_profiling(self) -> str:
        """Write trace events of the opening, of the runs and, where shapes are fixed, of the last run's steps; return
        the name of the file, "" where nothing was recorded.
        """
        profile, self._profile = self._profile, None
        return "" if profile is None else profile.write(self._sess_options.profile_file_prefix, self._opened)


def _provider(given: Any) -> str:
    return given if isinstance(given, str) else str(given[0])


def _check_names(names: Sequence[str] | None, known: list[str]) -> None:
    """Raise what onnxruntime raises for outputs that the model does not have."""
    if isinstance(names, str):
        raise TypeError(f"run(): output_names is the text {names!r}, not a list of names")
    for name in names or ():
        if name not in known:
            raise InvalidArgument(f"{InvalidArgument.prefix}Invalid output name:{printable(str(name))}")


def _end(line: str) -> NoReturn:
    """End the program with status 2 and an error line; at once where SystemExit would only end a thread."""
    import threading

    say(f"error: {line}", ERROR)
    if threading.current_thread() is threading.main_thread():
        raise SystemExit(2)
    report.show()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(2)
