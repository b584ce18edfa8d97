"""The C core: operators one by one, and the engine that runs a program inside one arena. Its names are those of the
extension module (_core.pyi), the dtypes of the records, and what is named here.
"""

try:
    from flexnn._core._core import *  # noqa: F403
except ModuleNotFoundError as error:
    if error.name != "flexnn._core._core":
        raise
    raise ImportError(
        f"{__file__.rpartition('/')[0]} holds FlexNN's sources, not its compiled core: leave the clone, or start "
        "python with -P, so that the installed flexnn is imported"
    ) from None
from flexnn._core.engine_session import EngineSession as EngineSession
from flexnn._core.params import encode_params as encode_params
from flexnn._core.records import *  # noqa: F403
