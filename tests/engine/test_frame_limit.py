"""The largest frame that each sender can produce is below what the other end takes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import zmq

from ringcast.communicator import Communicator
from ringcast.control import version
from ringcast.control.envelope import longest_to_server, longest_to_worker, seal
from ringcast.errors import Revoked
from ringcast.ops import Op
from ringcast.transports.zeromq import ZeroMQTransport
from ringcast.wire import header as wire
from ringcast.wire.codec import decode, encode
from ringcast.wire.control_messages import (
    Bye,
    Failed,
    Failing,
    Finished,
    Hello,
    Revoke,
    Roster,
    ToServer,
    ToWorker,
    Waiting,
)
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.failure import Failure, clean
from ringcast.wire.header import LARGEST_FRAME
from ringcast.wire.reports import ENDED, KNOWN, REPORTED, CallRecord, Deadlock, OperationReport, StallReport
from ringcast.wire.votes import AGREE, SHRINK, Decision, Vote
from ringcast_launcher.hosts.framing import PIECE, cut, joined
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
    assert 100_000 < max(largest) + CURVE < LARGEST_FRAME


@pytest.mark.parametrize("itemsize", [200_000, (512 << 10) + 8, 1_500_000])
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
    assert max(largest) + CURVE < LARGEST_FRAME


@pytest.mark.parametrize("text", list(LONG))
def test_what_ended_a_call_is_told_in_a_frame_below_the_limit(text: str, job: Job, largest: list[int]) -> None:
    def fail(a: Any, b: Any) -> Any:
        raise ValueError(LONG[text])

    found = job.run(lambda c: c.allreduce(np.arange(100_000), Op(fail, commutative=True, elementwise=True)))
    assert {type(error) for error in found} <= {ValueError, Revoked}
    assert max(largest) + CURVE < LARGEST_FRAME


@pytest.mark.parametrize("text", list(LONG))
def test_a_failure_is_told_in_bounded_form(text: str) -> None:
    told = Failure.of(ValueError(LONG[text] + "why"))
    assert (told.cause[-3:], told.traceback[-4:]) == ("why", "why\n")
    assert max(len(encode(told)), len(encode(told.at("h" * 64, NUMBER)))) < LARGEST_FRAME // 2
    assert decode(encode(told), (Failure,)) == told


def counts(size: int) -> dict[int, int]:
    return dict.fromkeys(range(size), NUMBER)


CARD = EndpointCard("tcp://[" + "f" * 39 + "]:65535", "k" * 40, "ipc://" + "x" * 107)


@pytest.mark.parametrize("size", [*SIZES[:-1], pytest.param(SIZES[-1], marks=pytest.mark.long)])
@pytest.mark.parametrize("text", list(LONG))
def test_what_a_worker_says_is_below_the_limit_of_the_control_plane(text: str, size: int) -> None:
    ranks, long = tuple(range(size)), clean(LONG[text])
    failure = Failure(long, long, ranks)
    made = CallRecord(NUMBER, NUMBER, NUMBER, "\U0001f600" * 300, "\U0001f600" * 300)
    vote = OperationReport(made, None, ranks, ranks, ())
    others = (OperationReport(made, NUMBER, (size,) * 2, (size,) * 2, (size,)),) * (REPORTED - 1)
    facts = dict.fromkeys(range(KNOWN), NUMBER), counts(size), counts(size), (made,) * ENDED
    said: list[ToServer] = [
        Hello(version(), 0, size, CARD, NUMBER, "h" * 64, "n" * 1000),
        Revoke(0, NUMBER, long, size),
        Vote(0, NUMBER, NUMBER, SHRINK, -NUMBER, ranks),
        Finished(0, counts(size), counts(size), counts(size), failure),
        Failing(0, failure),
        Waiting(StallReport(0, (vote, *others), 1, True, *facts, seconds=1.5, times=NUMBER)),
    ]
    assert max(len(seal(NONCE, NUMBER, message)) for message in said) + CURVE < longest_to_server(size)
    if size <= 4096:
        assert longest_to_server(size) < LARGEST_FRAME


@pytest.mark.parametrize("size", [*SIZES[:-1], pytest.param(SIZES[-1], marks=pytest.mark.long)])
@pytest.mark.parametrize("text", list(LONG))
def test_what_the_control_plane_says_is_below_the_limit_of_a_worker(text: str, size: int) -> None:
    ranks, long = tuple(range(size)), clean(LONG[text])
    failure = Failure(long, long, ranks, "h" * 64, NUMBER)
    calls = ("\U0001f600" * 300 + " at " + "\U0001f600" * 300,) * 8
    messages: list[ToWorker] = [
        Roster((CARD,) * size, False),
        Failed(0, failure),
        Bye(0, NUMBER, failure),
        Decision(NUMBER, NUMBER, ranks, (AGREE,) * size, -NUMBER, ranks, NUMBER),
        Deadlock(0, NUMBER, NUMBER, 1.5, ranks * 2, calls),
    ]
    assert max(len(seal(NONCE, NUMBER, message)) for message in messages) + CURVE < longest_to_worker(size)


@pytest.mark.parametrize("text", list(LONG))
def test_the_longest_error_of_a_rank_reaches_the_others(text: str) -> None:
    with zmq.Context() as context, controlled(context, "tcp://127.0.0.1:*", 2) as (server, workers):
        workers[1].client.send(Failing(1, Failure.of(ValueError(LONG[text] + "the end"))))
        found = server.notice(Failing)
        assert isinstance(found, Failing)
        server.do(lambda: server.server.declare_failed(1, Failure("exit code 1")))
        told = workers[0].news()
        assert isinstance(told, Failed)
        assert (told.rank, told.failure.cause[-7:]) == (1, "the end")


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
