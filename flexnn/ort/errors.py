"""Exceptions with onnxruntime's names and texts, and what FlexNN's errors become."""

from __future__ import annotations

from flexnn.errors import FlexNNError, one_line, printable
from flexnn.planning import BudgetError


def _named(code: int, label: str) -> str:
    return f"[ONNXRuntimeError] : {code} : {label} : "


class Fail(Exception):  # noqa: N818 (onnxruntime's names, here and below)
    """Anything else."""

    prefix = _named(1, "FAIL")


class InvalidArgument(Exception):  # noqa: N818
    """An input, an output's name or an option is wrong."""

    prefix = _named(2, "INVALID_ARGUMENT")


class NoSuchFile(Exception):  # noqa: N818
    """The model is not there."""

    prefix = _named(3, "NO_SUCHFILE")


class NoModel(Exception):  # noqa: N818
    """No model was loaded."""

    prefix = _named(4, "NO_MODEL")


class EngineError(Exception):
    """The engine failed."""

    prefix = _named(5, "ENGINE_ERROR")


class RuntimeException(Exception):  # noqa: N818
    """A run failed."""

    prefix = _named(6, "RUNTIME_EXCEPTION")


class InvalidProtobuf(Exception):  # noqa: N818
    """The file is no model."""

    prefix = _named(7, "INVALID_PROTOBUF")


class ModelLoaded(Exception):  # noqa: N818
    """A model was loaded already."""

    prefix = _named(8, "MODEL_LOADED")


class NotImplemented(Exception):  # noqa: A001, N818
    """An operator or a type is not supported."""

    prefix = _named(9, "NOT_IMPLEMENTED")


class InvalidGraph(Exception):  # noqa: N818
    """The model does not keep the standard."""

    prefix = _named(10, "INVALID_GRAPH")


class EPFail(Exception):  # noqa: N818
    """A provider failed."""

    prefix = _named(11, "EP_FAIL")


class ModelLoadCanceled(Exception):  # noqa: N818
    """Loading was cancelled."""

    prefix = _named(12, "MODEL_LOAD_CANCELED")


class ModelRequiresCompilation(Exception):  # noqa: N818
    """The model must be compiled before."""

    prefix = _named(13, "MODEL_REQUIRES_COMPILATION")


class NotFound(Exception):  # noqa: N818
    """Something is not there."""

    prefix = _named(14, "NOT_FOUND")


class DeviceReset(Exception):  # noqa: N818
    """A device was reset."""

    prefix = _named(15, "DEVICE_RESET")


class OutOfBudget(Fail, BudgetError):  # noqa: N818
    """The budget is too small; ``minimum`` is the smallest for the model, in bytes."""

    def __init__(self, minimum: int, budget: int, how: str = "", text: str = "") -> None:
        BudgetError.__init__(self, minimum, budget, how)
        self.args = (f"{self.prefix}{text or self.args[0]}",)
        self._text = text

    def __reduce__(self) -> tuple[type[OutOfBudget], tuple[int, int, str, str]]:  # type: ignore[override]
        return OutOfBudget, (self.minimum, self.budget, self.how, self._text)


def opening_error(error: Exception, model: str) -> Exception:
    """Return the exception that onnxruntime's users know for an error of opening ``model``."""
    if isinstance(error, BudgetError):
        return OutOfBudget(error.minimum, error.budget, error.how)
    if isinstance(error, OSError) and error.filename not in (None, model):
        return Fail(f"{Fail.prefix}{printable(one_line(error))}")  # of the folder of kept artifacts, not of the model
    model = printable(model)
    if isinstance(error, FileNotFoundError):
        return NoSuchFile(
            f"{NoSuchFile.prefix}Load model from {model} failed:Load model {model} failed. File doesn't exist"
        )
    text = str(error)
    if "not a regular file" in text or isinstance(error, OSError):
        text = f"not an ONNX model: {text}"
    kind: type[Exception] = Fail
    if "not an ONNX model" in text or "artifact" in text:
        kind, text = InvalidProtobuf, f"Load model from {model} failed:Protobuf parsing failed. {text}"
    elif "support" in text:
        kind = NotImplemented
    elif isinstance(error, FlexNNError):
        kind = InvalidGraph
    return kind(f"{kind.prefix}{text}")  # type: ignore[attr-defined]


def running_error(error: FlexNNError) -> Exception:
    """Return the exception that onnxruntime's users know for an error of a run."""
    if isinstance(error, BudgetError):
        return OutOfBudget(error.minimum, error.budget, error.how)
    return RuntimeException(f"{RuntimeException.prefix}{error}")
