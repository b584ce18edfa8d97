"""The ONNX standard: what every model must keep, whether or not its operators are supported.

versions checks what a model says of itself, graphs walks its graphs: names that exist, types that agree, branches and
bodies that fit their nodes. nodes checks one node against its schema (schemas: from the onnx package; records: those of
com.microsoft), types what it reads and makes, numbers the values
of its attributes, shapes and fits the shapes of what it reads; bodies checks control flow.

What a model declares of shapes is not checked: converters often state wrong ones, and nothing here believes them.
"""

from __future__ import annotations

import onnx

from ..stated import GraphError
from .graphs import GraphChecker
from .schemas import Schemas
from .versions import check_versions

__all__ = ["check_standard"]


def check_standard(model: onnx.ModelProto) -> None:
    """Refuse a model that breaks the standard. Raises GraphError, one line that names the node and the rule."""
    if not model.graph.output:
        raise GraphError("the model has no outputs")
    functions = {(function.domain, function.name) for function in model.functions}
    GraphChecker(Schemas(check_versions(model), functions)).check(model.graph)
