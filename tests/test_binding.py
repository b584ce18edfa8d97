"""_core.pyi says what the extension module has: the same names, and the same parameters."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from flexnn import _core
from flexnn._core import _core as extension

SOURCE = Path(__file__).resolve().parents[1] / "flexnn" / "_core"
STUB = ast.parse((SOURCE / "_core.pyi").read_text())
CYTHON = "\n".join(path.read_text() for path in sorted(SOURCE.glob("*.pxi")))
Parameters = list[tuple[str, bool, bool]]  # of each: name, is by keyword only, has a default


def _public(nodes: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Return the names that a module or a class of the stub declares."""
    named = {}
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            named[node.target.id] = node
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            named[node.name] = node
    return {name: node for name, node in named.items() if not name.startswith("_")}


def _declared(node: ast.FunctionDef) -> Parameters:
    arguments = node.args
    plain = len(arguments.args) - len(arguments.defaults)
    found = [(item.arg, False, i >= plain) for i, item in enumerate(arguments.args)]
    found += [(item.arg, False, False) for item in [arguments.vararg] if item is not None]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found + [(item.arg, True, default is not None) for item, default in keywords]


def _actual(function: object) -> Parameters:
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.kind is p.KEYWORD_ONLY, p.default is not p.empty) for p in parameters]


def _constructor(name: str) -> Parameters:
    """Parameters of an extension type, which has no signature at run time: from its source."""
    text = re.search(rf"cdef class {name}\b.*?def __c?init__\((.*?)\):", CYTHON, re.S).group(1)
    found, is_keyword = [], False
    for item in (part.strip() for part in text.split(",")):
        if item == "*":
            is_keyword = True
            continue
        declared = item.partition("=")[0].removesuffix(" not None")
        found.append((declared.split()[-1], is_keyword, "=" in item))
    return found


def test_the_stub_has_the_names_of_the_module():
    assert set(_public(STUB.body)) == set(extension.__all__)
    assert set(extension.__all__) | set(_core.records.__all__) | {"EngineSession", "encode_params"} <= set(vars(_core))


def test_the_stub_has_the_parameters_of_functions():
    functions = {name: node for name, node in _public(STUB.body).items() if isinstance(node, ast.FunctionDef)}
    assert len(functions) > 20
    for name, node in functions.items():
        assert _declared(node) == _actual(getattr(extension, name)), name


def test_the_stub_has_the_members_of_classes():
    for name, node in _public(STUB.body).items():
        if not isinstance(node, ast.ClassDef) or name == "EngineError":
            continue
        actual = getattr(extension, name)
        members = _public(node.body)
        assert set(members) == {member for member in vars(actual) if not member.startswith("_")}, name
        for member, declared in members.items():
            if isinstance(declared, ast.FunctionDef) and not declared.decorator_list:
                assert _declared(declared) == _actual(getattr(actual, member)), f"{name}.{member}"
        start = next(item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
        assert _declared(start) == _constructor(name), name


def test_errors_have_what_the_stub_says():
    error = extension.EngineError("text", "io")
    node = _public(STUB.body)["EngineError"]
    assert isinstance(node, ast.ClassDef)
    assert set(vars(error)) == set(_public(node.body))
