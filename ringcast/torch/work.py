"""A call under way, as torch sees it: it is waited for, or asked for a future."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist

from ringcast.adapters.background import UNLIMITED, Background
from ringcast.collectives.status import Status
from ringcast.communicator import Communicator
from ringcast.errors import RingcastError
from ringcast.requests.request import Request, has_ended, wait_all
from ringcast.torch.errors import as_torch

LEAST = 0.001  # seconds; calls take no limit of zero
Finish = Callable[[list[Any]], object]  # brings the results of the requests into the tensors


class Work(dist.Work):
    """The handle of a call: torch's programs wait for it, or ask for its future.

    A call that is over has no requests. The tensors hold the result when the call has been waited for, or its future
    is done.
    """

    def __init__(
        self,
        comm: Communicator,
        background: Background,
        tensors: list[Any],
        requests: Sequence[Request[Any]] = (),
        finish: Finish | None = None,
        status: Status | None = None,
        limit: float | None = None,
    ) -> None:
        super().__init__()
        self.comm, self._background, self._tensors, self._status = comm, background, tensors, status
        self._requests, self._finish, self._limit = requests, finish, limit
        self._error: BaseException | None = None
        self._over = not requests
        self._future: Any = None
        self._ends: list[Any] = []  # a future to be done when the call is over, whether well or not
        if requests:
            self._ending = threading.RLock()
            self.begun = monotonic()
            background.watch(self)

    def wait(self, timeout: timedelta = UNLIMITED) -> bool:
        """Wait until the tensors hold the result.

        Args:
            timeout: how long it may take from now on, however many requests it has; zero: as long as the options of the
                call say from its begin on, or else the group's timeout from now on.

        Raises:
            DistBackendError: the call has failed; its `__cause__` is the error of ringcast.
        """
        if not self._over:
            self._end(timeout.total_seconds() if timeout > UNLIMITED else self._left())
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the call is over, well or not; it makes progress, and does not wait."""
        if not self._over:
            try:
                with self._background.call():
                    for request in self._requests:
                        request.test()
            except RingcastError:
                self._end(None)
        return self._over or self.poll()

    def is_success(self) -> bool:
        """Return whether the call has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error that has ended the call; None if there is none."""
        return self._error

    def result(self) -> list[Any]:
        """Return the tensors with the result, when that is there."""
        self.wait()
        return self._tensors

    def source_rank(self) -> int:
        """Return the rank that has sent the received message."""
        if self._status is None:
            raise RuntimeError("only a receive from any rank has a source to ask for")
        return self._status.source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Return a future of the tensors, which comes true while the program does something else."""
        if self._future is None:
            ends: Any = torch.futures.Future()
            self._future = ends.then(self._outcome)
            self._ends.append(ends)
            if self._over:
                self._complete()
            else:
                self._background.when_ended(self)
        return self._future

    def poll(self) -> bool:
        """Return whether the call is over, as far as is known; a thread that waits for it ends it itself."""
        if not self._over and all(map(has_ended, self._requests)) and self._ending.acquire(blocking=False):
            try:
                self._end(None)
            finally:
                self._ending.release()
        return self._over

    def _left(self) -> float | None:
        """Return the seconds that are left of the call's own limit, if it has one."""
        return None if self._limit is None else left_until(self.begun + self._limit)

    def _outcome(self, _: object) -> list[Any]:
        if self._error is not None:
            raise self._error
        return self._tensors

    def _end(self, seconds: float | None) -> None:
        """Wait for the requests, and bring their results into the tensors."""
        with self._ending:
            if self._over:
                return
            try:
                with self._background.call():
                    results = wait_all(self._requests, seconds)
                if self._finish is not None:
                    self._finish(results)
            except RingcastError as error:
                self._error = as_torch(error)
            except BaseException as error:
                self._error = error
                if not isinstance(error, Exception):  # as Ctrl-C, for the thread that waits
                    raise
            finally:
                self._over, self._requests, self._finish = True, (), None
                self._background.ended(self)
                self._complete()

    def _complete(self) -> None:
        """Have the future done, once: the thread that ends the call comes here, and perhaps one that asks for it."""
        with suppress(IndexError):
            self._ends.pop().set_result(None)


def left_until(end: float) -> float:
    """Return the seconds until a time on `monotonic`, as the limit of a call."""
    return max(LEAST, round(end - monotonic(), 3))  # errors have the number
