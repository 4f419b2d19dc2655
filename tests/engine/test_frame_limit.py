"""The largest frame that each sender can produce is below what the other end takes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import zmq

from ringcast.communicator import Communicator
from ringcast.config.worker import WorkerConfig
from ringcast.control.agreement import AGREE, SHRINK, Decision, Vote
from ringcast.control.client import ControlClient
from ringcast.control.deadlocks import CallRecord, Deadlock, Report
from ringcast.control.envelope import longest_to_server, longest_to_worker, seal
from ringcast.control.events import Failing, Hello, Message
from ringcast.control.membership import _finding, _roster_message
from ringcast.errors import Revoked
from ringcast.ops import Op
from ringcast.transports.zeromq import ZeroMQTransport
from ringcast.wire import header as wire
from ringcast.wire.failure import LONGEST, Failure
from ringcast.wire.header import LARGEST_FRAME
from ringcast_launcher.hosts.codec import PIECE, cut, joined
from support.controlled import job as controlled
from support.jobs import Job

pytestmark = pytest.mark.usefixtures("nothing_left")

CURVE = 33  # bytes that encryption adds to a frame
SIZES = (1, 2, 3, 5, 4096, 100_000)
NONCE = (1 << 64) - 1
NUMBER = (1 << 63) - 1  # a count that takes the most room
# Characters that take the most room: in UTF-8, in JSON, and those that no encoding has.
LONG = {"wide": "\U0001f600" * 600_000, "control": "\x01" * 600_000, "surrogate": "\ud800" * 600_000}


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all frames that ranks send."""
    found = [0]
    send = ZeroMQTransport.send

    def noting(self: ZeroMQTransport, peer: int, frames: Sequence[Any]) -> None:
        found.extend(memoryview(frame).nbytes for frame in frames)
        send(self, peer, frames)

    monkeypatch.setattr(ZeroMQTransport, "send", noting)
    return found


@pytest.fixture(params=[3, *(pytest.param(p, marks=pytest.mark.long) for p in (2, 5))])
def job(request: pytest.FixtureRequest, largest: list[int]) -> Iterator[Job]:
    made = Job("tcp", request.param)
    yield made
    made.close()


CALLS: dict[str, Callable[[Communicator], Any]] = {
    "array": lambda c: c.bcast(np.full(3_000_001, 7, np.uint8)).sum(),
    "items": lambda c: c.allreduce(np.full(400_000, c.rank + 1)).sum(),
    "object": lambda c: len(c.bcast(b"x" * 3_000_000 if c.rank == 0 else None)),
    "objects": lambda c: list(map(len, c.alltoall([b"x" * 700_000] * c.size))),
    "message": lambda c: len(c.sendrecv(b"x" * 3_000_000, (c.rank + 1) % c.size, (c.rank - 1) % c.size)),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_ranks_send_data_in_frames_below_the_limit(call: str, job: Job, largest: list[int]) -> None:
    job.ask(CALLS[call])
    assert 100_000 < max(largest) + CURVE < LARGEST_FRAME // 2


@pytest.mark.parametrize("itemsize", [200_000, (256 << 10) + 8, 1_500_000])
def test_items_that_are_longer_than_a_segment_are_combined_all_the_same(
    itemsize: int, job: Job, largest: list[int]
) -> None:
    def later(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(a["value"][:, :1] >= b["value"][:, :1], a["value"], b["value"]).view(a.dtype)[:, 0]

    def combine(c: Communicator) -> Any:
        mine = np.zeros(3, np.dtype([("value", np.int64, itemsize // 8)]))
        mine["value"] = (c.rank * np.array([1, -1, 1]))[:, None]
        return c.allreduce(mine, Op(later, commutative=True, elementwise=True))["value"][:, [0, -1]].tolist()

    last = job.size - 1
    assert job.ask(combine) == [[[last, last], [0, 0], [last, last]]] * job.size
    assert max(largest) + CURVE < LARGEST_FRAME // 2


@pytest.mark.parametrize("text", list(LONG))
def test_what_ended_a_call_is_told_in_a_frame_below_the_limit(text: str, job: Job, largest: list[int]) -> None:
    def fail(a: Any, b: Any) -> Any:
        raise ValueError(LONG[text])

    found = job.run(lambda c: c.allreduce(np.arange(100_000), Op(fail, commutative=True, elementwise=True)))
    assert {type(error) for error in found} <= {ValueError, Revoked}
    assert max(largest) + CURVE < LARGEST_FRAME


@pytest.mark.parametrize("text", list(LONG))
def test_a_failure_is_told_in_bounded_form(text: str) -> None:
    whole = Failure("why", "host", 5, "traceback\n" * 1000)
    assert Failure.decode(whole.encode()) == whole
    cut_down = Failure(LONG[text] + "why", "host", NUMBER, LONG[text] + "last line")
    data = cut_down.encode()
    assert len(data) <= LONGEST < LARGEST_FRAME
    told = Failure.decode(data)
    assert (told.cause[-3:], told.host, told.pid, told.traceback[-9:]) == ("why", "host", NUMBER, "last line")


def counts(size: int) -> dict[int, int]:
    return dict.fromkeys(range(size), NUMBER)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", list(LONG))
def test_what_a_worker_says_is_below_the_limit_of_the_control_plane(text: str, size: int) -> None:
    said: list[Message] = []
    config = WorkerConfig(0, size, "tcp://127.0.0.1:1", hosted=True, nonce=NONCE)
    address, near = "tcp://[" + "f" * 39 + "]:65535", "ipc://" + "x" * 107
    with zmq.Context() as context:
        client = ControlClient(config, address, print, context, network="n" * 1000, public_key="k" * 40, near=near)
        said.append(client._hello)
        client._post = said.append
        ranks, long = tuple(range(size)), LONG[text]
        made = CallRecord(NUMBER, NUMBER, "\U0001f600" * 1000, "\U0001f600" * 1000)
        client.revoke(NUMBER, long, size)
        client.vote(Vote(0, NUMBER, NUMBER, SHRINK, -NUMBER, ranks))
        client.finished(counts(size), counts(size), counts(size), ranks, long, long)
        client.failing(long, long, ranks)
        facts = ranks, ranks, ranks, counts(size), counts(size), (made,) * 8
        client.waiting(Report(0, NUMBER, made, NUMBER, *facts, seconds=1.5, times=NUMBER))
        client.moving()
        del client._post
        client.close()
    assert len(said) == 7
    assert max(len(seal(NONCE, NUMBER, message)) for message in said) + CURVE < longest_to_server(size)
    if size <= 4096:
        assert longest_to_server(size) < LARGEST_FRAME


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", list(LONG))
def test_what_the_control_plane_says_is_below_the_limit_of_a_worker(text: str, size: int) -> None:
    ranks = tuple(range(size))
    hello = Hello(b"", 0, size, "tcp://[" + "f" * 39 + "]:65535", 1, "h", "v", "", "k" * 40, True, "ipc://" + "x" * 107)
    failure = Failure(LONG[text], "h" * 64, NUMBER, LONG[text]).encode()
    decision = Decision(NUMBER, NUMBER, ranks, (AGREE,) * size, -NUMBER, ranks, NUMBER)
    calls = ("\U0001f600" * 1000 + " at " + "\U0001f600" * 1000,) * 8
    messages: list[Message] = [
        _roster_message([hello] * size),
        {"type": "failed", "rank": 0, "failure": failure},
        {"type": "bye", "rank": 0, "failure": failure, "sent": NUMBER},
        {"type": "agreed", "context": NUMBER, "number": NUMBER, "decision": decision.encode()},
        _finding(Deadlock(0, NUMBER, NUMBER, 1.5, ranks * 2, calls)),
    ]
    assert max(len(seal(NONCE, NUMBER, message)) for message in messages) + CURVE < longest_to_worker(size)


@pytest.mark.parametrize("text", list(LONG))
def test_the_longest_error_of_a_rank_reaches_the_others(text: str) -> None:
    with zmq.Context() as context, controlled(context, "tcp://127.0.0.1:*", 2) as (server, workers):
        workers[1].client.failing(LONG[text] + "the end", LONG[text], ())
        found = server.notice(Failing)
        assert isinstance(found, Failing)
        server.do(lambda: server.server.declare_failed(1, "exit code 1"))
        header, cause = workers[0].news()
        assert (header.kind, header.source, cause[-7:]) == (wire.Kind.FAILED, 1, "the end")


@pytest.mark.parametrize("length", [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE, 20_000_000])
def test_launchers_cut_messages_into_frames_below_the_limit(length: int) -> None:
    message = ["Output", secrets.token_bytes(length)]
    frames = cut(message)
    assert max(map(len, frames)) + CURVE < LARGEST_FRAME
    assert all(frames)
    assert joined(frames) == message


def test_requests_list_no_more_frames_than_fit_into_one() -> None:
    """Where frames are not joined, a message has at most one for every rank; a request to send lists their sizes."""
    assert 8 * max(SIZES) + wire.SIZE + CURVE < LARGEST_FRAME
