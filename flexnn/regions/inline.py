"""Branches whose condition is known while binding are lowered into the segment around them, as if there were no If.

A condition is known if shapes decide it, or small integers from the caller; exporters write many such branches. A
branch that data decide stays a branch, so that the nodes after it are one segment for both outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flexnn.graph.bind import Binder
from flexnn.graph.ir import GraphError
from flexnn.graph.lower import Const, UnknownValueError
from flexnn.graph.model import ModelNode

from .region import Region
from .scope import NumbersError, Value

Admit = Callable[[str, bool], None]
"""Function that adds an outside value to the binder, with its numbers if asked."""


class ApartError(GraphError):
    """A branch that cannot be lowered completely."""


class AgainError(GraphError):
    """A value that must be admitted with its numbers: binding starts again."""


def condition(node: ModelNode, binder: Binder, values: Mapping[str, Value], is_steady: Callable[[str], bool]) -> bool:
    """Return whether the condition of an If is known, or can be."""
    name = node.input[0] if node.op_type == "If" and node.input else ""
    if name in binder.values or name in binder.constants:
        return isinstance(binder.value(name), Const)
    return name in values and values[name].size == 1 and is_steady(name)


def may_inline(region: Region, i: int) -> bool:
    """Return whether each branch of an If may be lowered, as far as is known before: none has a loop."""
    bodies = region.children[i].values()
    return all(body.nodes[k].op_type == "If" and may_inline(body, k) for body in bodies for k in body.children)


def inline(region: Region, i: int, binder: Binder, values: Mapping[str, Value], forced: set[str], admit: Admit) -> None:
    """Lower the branch that an If takes. Values named in ``forced`` are admitted with their numbers; a value that turns
    out to need this is added. Raises AgainError, ApartError.
    """
    node = region.nodes[i]
    if node.input[0] not in binder.values and node.input[0] in values:
        admit(node.input[0], True)
    known = binder.value(node.input[0])
    if not isinstance(known, Const) or known.load().size != 1:
        raise ApartError(f"{node.where}: the condition is not known")
    branch = region.children[i].get("then_branch" if bool(known.load().reshape(-1)[0]) else "else_branch")
    if branch is None:
        raise ApartError(f"{node.where}: a branch is missing")
    own = {name for inner in branch.nodes for name in inner.output if name} | set(branch.graph.constants)
    hidden = {name: binder.values.pop(name) for name in own if name in binder.values}
    half = binder.halves & own
    binder.halves -= own
    constants, binder.constants = binder.constants, branch.constants
    try:
        for k in range(len(branch.nodes)):
            _add(branch, k, binder, values, forced, admit)
        results = [_result(name, binder, values, admit) for name in branch.outputs]
        is_half = [name in binder.halves for name in branch.outputs]
    except (AgainError, ApartError, NumbersError):
        raise
    except UnknownValueError as error:
        if error.value not in values or error.value in own or error.value in forced:
            raise ApartError(str(error)) from None
        forced.add(error.value)
        raise AgainError(str(error)) from None
    except GraphError as error:
        raise ApartError(str(error)) from None
    finally:
        binder.constants = constants
        for name in own:
            binder.values.pop(name, None)
        binder.halves -= own
        binder.values |= hidden
        binder.halves |= half
    for name, value, narrow in zip(node.output, results, is_half, strict=False):
        if name:
            binder.values[name] = value
            binder.halves |= {name} if narrow else set()


def _add(region: Region, k: int, binder: Binder, values: Mapping[str, Value], forced: set[str], admit: Admit) -> None:
    node = region.nodes[k]
    if node.op_type == "If":
        inline(region, k, binder, values, forced, admit)
        return
    if k in region.hosted or k in region.children:
        raise ApartError(f"{node.where}: is not lowered")
    for name in node.input:
        if name and binder.value(name) is None and name in values:
            admit(name, name in forced)
    binder.add(node)


def _result(name: str, binder: Binder, values: Mapping[str, Value], admit: Admit) -> Const | int:
    if binder.value(name) is None and name in values:
        admit(name, False)
    value = binder.value(name)
    if value is None:
        raise ApartError(f"output {name!r} is computed nowhere")
    return value
