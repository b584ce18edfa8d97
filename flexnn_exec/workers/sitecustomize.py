"""The first module of each Python that a program under ``flexnn exec`` starts, as PYTHONPATH names this folder: FlexNN
stands in there, too. The interpreter's own sitecustomize, if any, comes after it.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _stand_in() -> None:
    """Install the finder, without leaving a folder in the way of other imports."""
    if os.environ.get("FLEXNN_EXEC"):
        sys.path.append(os.path.dirname(os.path.dirname(_HERE)))
        try:
            from flexnn_exec.finder import install
        finally:
            sys.path.pop()
        install()


def _go_on() -> None:
    """Import the sitecustomize that this one hides."""
    from importlib.machinery import PathFinder

    others = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


_stand_in()
_go_on()
