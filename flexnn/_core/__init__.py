"""The C core: operators one by one, and the engine that runs a program inside one arena. Its names are those of the
extension module (_core.pyi), the dtypes of the records, and what is named here.
"""

from flexnn._core._core import *  # noqa: F403
from flexnn._core.engine_session import EngineSession as EngineSession
from flexnn._core.params import encode_params as encode_params
from flexnn._core.records import *  # noqa: F403
