"""Calls that a session with state has (docs/decisions/0053-state.md)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from flexnn.run.engine import SessionError

if TYPE_CHECKING:
    from flexnn.run.protocol import Run
    from flexnn.run.stateful import StateRun

_T = TypeVar("_T")


class StateCalls:
    """Calls of a session that concern its state."""

    _while_open: Callable[[Callable[[Run], Any]], Any]

    @property
    def state_length(self) -> int:
        """Number of tokens whose keys and values the session keeps.

        Raises:
            SessionError: The session keeps no state, or is closed.
        """
        return self._with_state(lambda run: run.length)

    @property
    def state_capacity(self) -> int | None:
        """Number of tokens that the session's state has room for; None: it keeps none.

        Raises:
            SessionError: The session is closed.
        """
        capacity: int | None = self._while_open(lambda run: getattr(getattr(run, "inner", run), "capacity", None))
        return capacity

    def reset(self, length: int = 0) -> None:
        """Forget the state, but for its first ``length`` tokens.

        Raises:
            StateError: The state has fewer tokens.
            SessionError: The session keeps no state, or is closed.
        """
        self._with_state(lambda run: run.reset(length))

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, of which sessions of the same model, type and a capacity as large can go on.

        Raises:
            SessionError: The session keeps no state, or is closed.
            OSError: The file cannot be written; one that was there stays.
        """
        self._with_state(lambda run: run.save(os.fsdecode(path)))

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Replace the state by that of a file.

        Raises:
            StateError: The file is damaged, of another model or type, or longer than the capacity; the state stays.
            SessionError: The session keeps no state, or is closed.
            OSError: The file cannot be read.
        """
        self._with_state(lambda run: run.load(os.fsdecode(path)))

    def _with_state(self, call: Callable[[StateRun], _T]) -> _T:
        def called(run: Run) -> _T:
            from flexnn.run.stateful import StateRun  # most sessions have no state

            run = getattr(run, "inner", run)  # of a budget that follows the system
            if not isinstance(run, StateRun):
                raise SessionError("the session keeps no state: open it with kv_capacity")
            return call(run)

        found: _T = self._while_open(called)
        return found
