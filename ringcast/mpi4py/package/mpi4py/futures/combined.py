"""Futures that depend on others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Lock
from typing import Any


def collect(fs: Iterable[Future[Any]]) -> Future[list[Any]]:
    """Return a future of all results; the first failed or cancelled future ends it alike, and cancels the others."""
    futures = list(fs)
    whole: Future[list[Any]] = Future()
    left, lock = len(futures), Lock()

    def results(last: Future[Any]) -> list[Any]:
        last.result()  # raises if it has failed, while others are still running
        return [future.result() for future in futures]

    def note(future: Future[Any]) -> None:
        nonlocal left
        with lock:
            before = left
            left = 0 if future.cancelled() or future.exception() else max(left - 1, 0)
            ends = before > 0 and left == 0
        if ends:
            _settle(whole, future, lambda: results(future))

    def cancel_others(_: Future[Any]) -> None:
        for future in futures:
            future.cancel()

    whole.add_done_callback(cancel_others)
    for future in futures:
        future.add_done_callback(note)
    if not futures:
        whole.set_result([])
    return whole


def compose(
    future: Future[Any],
    resulthook: Callable[[Any], Any] | None = None,
    excepthook: Callable[[BaseException], Any] | None = None,
) -> Future[Any]:
    """Return a future of the hooks' outcome: `resulthook` gets the result of `future`, `excepthook` its error.

    The result of a hook is the new result; if it is an exception that `excepthook` returns, the new error.
    """
    composed: Future[Any] = Future()

    def outcome() -> Any:
        error = future.exception()
        if error is None:
            return future.result() if resulthook is None else resulthook(future.result())
        instead = error if excepthook is None else excepthook(error)
        if isinstance(instead, BaseException):
            raise instead
        return instead

    composed.add_done_callback(lambda done: done.cancelled() and future.cancel())
    future.add_done_callback(lambda done: _settle(composed, done, outcome))
    return composed


def _settle(future: Future[Any], by: Future[Any], outcome: Callable[[], Any]) -> None:
    """Let a future end as another has: cancelled, or with this outcome."""
    if by.cancelled():
        future.cancel()
    if future.set_running_or_notify_cancel():
        try:
            result = outcome()
        except BaseException as error:  # of the program's hook or of its task: the future has it
            future.set_exception(error)
        else:
            future.set_result(result)
