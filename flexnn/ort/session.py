"""``InferenceSession`` on FlexNN."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flexnn.errors import FlexNNError
from flexnn.planning import BudgetError
from flexnn.session import NodeArg, Session

from .account import account
from .errors import InvalidArgument, InvalidProtobuf, NoSuchFile, opening_error, running_error
from .inputs import arrays_of
from .logs import ERROR, falls_back, say, stands_in
from .options import RunOptions, SessionOptions
from .report import report
from .values import IOBinding, OrtValue

if TYPE_CHECKING:
    from flexnn.graph.about import About

    from .values import Array

PROVIDER = "CPUExecutionProvider"
_TRIES = 4
"""Most times that a run is tried: once more with inputs that were cast, and whenever the account has given more."""


class InferenceSession:
    """A model, opened in its part of the process's budget (flexnn/ort/account.py).

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
        self._figures = report.of(self._name)
        start = time.perf_counter_ns()
        try:
            self._opened: Any = account().open(self._make)
        except (FlexNNError, OSError) as error:
            self._refused(opening_error(error, self._name))
        self._figures.opened(time.perf_counter_ns() - start)
        self._outputs_meta, self._inputs_meta = self._opened.get_outputs(), self._opened.get_inputs()

    @property
    def _name(self) -> str:
        return self._model_path or f"a model of {len(self._model_bytes)} bytes"

    def _make(self, memory: int | None) -> Session:
        from flexnn._core import MAX_THREADS

        options = self._sess_options
        threads = min(options.intra_op_num_threads, MAX_THREADS) or None
        trace = bool(options.enable_profiling)
        if not self._is_bytes:
            return Session(self._model_path, memory, threads, trace=trace)
        from flexnn.kept_artifacts import compiled_bytes

        with compiled_bytes(self._model_bytes) as path:
            return Session(path, memory, threads, trace=trace)

    def _refused(self, error: Exception) -> None:
        """Raise an error; under ``flexnn exec``, hand a model that FlexNN does not run to onnxruntime, or end the
        program: it might take an exception for one of its own and go on without the model.
        """
        if not stands_in() or isinstance(error, (NoSuchFile, InvalidProtobuf, InvalidArgument)):
            raise error from None
        self._figures.refusal = f"FlexNN did not run it: {error}"
        if not falls_back():
            _end(f"{self._name}: {error}; --fallback would hand it to onnxruntime, outside the budget")
        from .installed import onnxruntime

        try:
            real = onnxruntime()
        except ImportError:
            _end(f"{self._name}: {error}; --fallback needs onnxruntime, which is not installed")
        say(f"{self._name}: {error}; onnxruntime runs it, OUTSIDE THE BUDGET", ERROR)
        self._figures.refusal += "; onnxruntime ran it, outside the budget"
        options = real.SessionOptions()
        options.intra_op_num_threads = self._sess_options.intra_op_num_threads
        self._opened = real.InferenceSession(self._model_path or self._model_bytes, options, providers=[PROVIDER])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_opened", "_figures", "_pid")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    # ---- running ----

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Array]:
        """Return the outputs of these names, or all. Raises as onnxruntime does."""
        if self._pid != os.getpid():
            self._open()
        account().check()
        start = time.perf_counter_ns()
        outputs = self._run(output_names or None, input_feed)
        took = time.perf_counter_ns() - start
        self._figures.ran(took)
        account().ran(took)
        return outputs

    def _run(self, names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Array]:
        is_cast = False
        for _ in range(_TRIES):
            try:
                outputs: list[Array] = self._opened.run(names, feed)
                return outputs
            except BudgetError as error:
                try:
                    account().grow(self._opened, error)
                except BudgetError as refusal:
                    self._refused(running_error(refusal))
            except FlexNNError as error:
                self._refused(running_error(error))
            except (ValueError, TypeError):
                if not isinstance(self._opened, Session) or is_cast:
                    raise
                _check_names(names, [port.name for port in self._outputs_meta])
                feed, is_cast = arrays_of(feed, self._inputs_meta), True
        raise running_error(FlexNNError("other sessions of this process take back what this run needs"))

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Array], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in a thread, which calls ``callback`` with the outputs, ``user_data`` and an error's text or ""."""
        from threading import Thread

        def work() -> None:
            outputs: list[Array] = []
            text = ""
            try:
                outputs = self.run(output_names, input_feed, run_options)
            except Exception as error:
                text = str(error).removeprefix(str(getattr(error, "prefix", "")))
            callback(outputs, user_data, text)

        Thread(target=work, daemon=True).start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Return the outputs of a run on values, as values."""
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(array) for array in self.run(output_names, feed, run_options)]

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
        """Return 0."""
        return 0

    def end_profiling(self) -> str:
        """Write the last run as trace events; return the name of the file, "" where nothing was recorded."""
        if not self._sess_options.enable_profiling:
            return ""
        import json

        try:
            events = self._opened.trace_events()
        except FlexNNError as error:
            say(f"end_profiling: {error}")
            events = {"traceEvents": []}
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        name = f"{self._sess_options.profile_file_prefix}_{stamp}.json".replace("__", "_")
        with open(name, "w", encoding="utf-8") as file:
            json.dump(events, file)
        return name


def _provider(given: Any) -> str:
    return given if isinstance(given, str) else str(given[0])


def _check_names(names: Sequence[str] | None, known: list[str]) -> None:
    """Raise what onnxruntime raises for outputs that the model does not have."""
    if isinstance(names, str):
        raise TypeError(f"run(): output_names is the text {names!r}, not a list of names")
    for name in names or ():
        if name not in known:
            raise InvalidArgument(f"{InvalidArgument.prefix}Invalid output name:{name}")


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
