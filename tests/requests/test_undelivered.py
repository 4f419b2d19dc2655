"""Data that the system does not take at once: every waiting call returns when it has taken them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ringcast.bootstrap.in_process import LocalControl
from ringcast.communicator import Communicator
from ringcast.requests.request import Request, wait_all, wait_any
from ringcast.transports.sockets.transport import SocketTransport
from support.jobs import Job
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

COUNT, SIZE = 75, 12_000  # messages, and their bytes: less than a rank may send without being asked
PATIENCE = 60.0


@pytest.fixture
def job() -> Iterator[Job]:
    """Two ranks with connections of little room."""
    made = Job("sockets", 2)
    for endpoint in made.endpoints:
        transport = endpoint.transport
        assert isinstance(transport, SocketTransport)
        for connection in transport._incoming:
            connection.socks[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
        for link in transport._links.values():
            link.first.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    yield made
    made.close()


def crowd(comm: Communicator) -> list[Request[None]]:
    """Begin to send more than the system takes, none of which has to be asked for: all these calls are done."""
    requests = [comm.isend(np.full(SIZE, i, np.uint8), 1) for i in range(COUNT)]
    assert comm._group.endpoint.transport.unsent
    assert all(request._state == "done" for request in requests)
    return requests


def receive(comm: Communicator) -> None:
    for i in range(COUNT):
        assert (comm.recv(0) == i).all()


async def awaited(request: Request[None]) -> None:
    await request


WAYS: dict[str, Callable[[Request[None]], Any]] = {
    "wait": lambda request: request.wait(),
    "wait_all": lambda request: wait_all([request]),
    "wait_any": lambda request: wait_any([request]),
    "await": lambda request: asyncio.run(awaited(request)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_wait_for_a_call_that_is_done_delivers_what_it_has_sent(job: Job, way: str) -> None:
    """The receiver begins when the sender does, and perhaps the system has no room before that."""
    begun = threading.Event()

    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            *others, last = crowd(comm)
            begun.set()
            WAYS[way](last)
            assert not comm._group.endpoint.transport.unsent
            wait_all(others)
        else:
            assert begun.wait(patience(PATIENCE))
            receive(comm)

    job.ask(work)


def test_the_loop_serves_others_until_all_is_delivered(job: Job) -> None:
    """The receiver takes nothing before another coroutine of the sender's loop lets it."""
    may_take = threading.Event()

    async def send(comm: Communicator) -> None:
        *others, last = crowd(comm)
        waiting = asyncio.ensure_future(awaited(last))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        may_take.set()
        await waiting
        assert not comm._group.endpoint.transport.unsent
        wait_all(others)

    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            asyncio.run(send(comm))
        else:
            assert may_take.wait(patience(PATIENCE))
            receive(comm)

    job.ask(work)


@pytest.mark.parametrize("way", WAYS)
def test_it_waits_no_longer_than_the_timeout(job: Job, way: str) -> None:
    """That is no error: the call is done, and the next one goes on with it."""
    returned = threading.Event()

    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            *others, last = crowd(comm)
            comm.timeout = 0.1
            WAYS[way](last)
            assert comm._group.endpoint.transport.unsent
            comm.timeout = PATIENCE
            returned.set()
            wait_all(others)
        else:
            assert returned.wait(patience(PATIENCE))
            receive(comm)

    job.ask(work)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_waited_for_when_the_job_has_ended(job: Job, way: str) -> None:
    begun, over = threading.Event(), threading.Event()

    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            *others, last = crowd(comm)
            begun.set()
            WAYS[way](last)
            over.set()
            assert comm._group.endpoint.protocol.aborted
            wait_all(others)
        else:
            assert begun.wait(patience(PATIENCE))
            control = comm._group.endpoint.control
            assert isinstance(control, LocalControl)
            control.abort("enough")
            assert over.wait(patience(PATIENCE))

    job.ask(work)
