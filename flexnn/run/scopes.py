"""Scopes of stretches that are recorded during a run: what is known of values before it, and after Python acted."""

from __future__ import annotations

from collections.abc import Container, Mapping

from flexnn.graph.ir import Array
from flexnn.regions import Read, Scope, Stretch, Value
from flexnn.regions.scope import is_few


def begun_scope(live: Mapping[str, Array], steady: Container[str]) -> Scope:
    """Return the scope in which a region begins. Small integers of ``steady`` arrays may decide a branch."""
    return Scope(
        {
            name: Value(x.shape, x.dtype, is_steady=name in steady and is_few(x.dtype, x.nbytes))
            for name, x in live.items()
        }
    )


def followed_scope(stretch: Stretch, live: Mapping[str, Array]) -> Scope:
    """Return the scope behind a stretch and what its action found."""
    scope = stretch.scope.copy()
    scope.own = {name: scope.own.get(name) or Value(x.shape, x.dtype) for name, x in live.items()}
    if isinstance(stretch.action, Read):
        for name in stretch.action.names:
            value = scope[name]
            scope.own[name] = Value(value.shape, value.dtype, live[name].copy(), value.is_settled, value.is_steady)
    else:
        for name, array in live.items():
            if scope.own[name].shape != array.shape:
                scope.own[name] = Value(array.shape, array.dtype)
    return scope
