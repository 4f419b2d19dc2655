"""Error handlers: the reactions to failed calls on a communicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringcast.mpi.base.contexts import Action, fatal, no_action
from ringcast.mpi.base.error_classes import ERR_ERRHANDLER
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.handles.handle import Handle, forget, is_predefined, predefined

__all__ = ["ERRHANDLER_NULL", "ERRORS_ABORT", "ERRORS_ARE_FATAL", "ERRORS_RETURN", "Errhandler"]

_MOST = 32  # handlers that a program may have at a time, as in mpi4py
_made: list[Any] = []


class Errhandler(Handle):
    """The reaction to a call that fails."""

    _state: Action | None

    def Free(self) -> None:
        """Free the handler; it stays in force where it was set."""
        if self._state is None:
            raise Exception(ERR_ERRHANDLER, "expected an error handler, got ERRHANDLER_NULL")
        if not is_predefined(self):
            forget(self._state)
            if self._state in _made:
                _made.remove(self._state)
        self._state = None


ERRHANDLER_NULL = predefined(Errhandler(), "ERRHANDLER_NULL")
ERRORS_RETURN = predefined(Errhandler._of_state(no_action), "ERRORS_RETURN")
ERRORS_ARE_FATAL = predefined(Errhandler._of_state(fatal), "ERRORS_ARE_FATAL")
ERRORS_ABORT = predefined(Errhandler._of_state(Action(fatal.act)), "ERRORS_ABORT")


class ErrorHandling(Handle):
    """Calls of communicators about their error handlers."""

    _shared: Any

    @classmethod
    def Create_errhandler(cls, errhandler_fn: Callable[[Any, int], Any]) -> Errhandler:
        """Return a handler that calls a function with the communicator and the code of the error."""
        if len(_made) >= _MOST:
            raise RuntimeError(f"a program has at most {_MOST} error handlers at a time")
        handler = Errhandler._of_state(Action(lambda comm, error: errhandler_fn(comm, error.ob_mpi)))
        _made.append(handler._state)
        return handler

    def Get_errhandler(self) -> Errhandler:
        """Return the handler."""
        return Errhandler._of_state(self._shared.errhandler)

    def Set_errhandler(self, errhandler: Errhandler) -> None:
        """Set the handler."""
        shared, action = self._shared, Errhandler(errhandler)._state
        if action is None:
            raise Exception(ERR_ERRHANDLER, "expected an error handler, got ERRHANDLER_NULL")
        shared.errhandler = action

    def Call_errhandler(self, errorcode: int) -> None:
        """Call the handler."""
        self._shared.errhandler.act(self, Exception(errorcode))
