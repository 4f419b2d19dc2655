"""Messages from one rank to another: each is received once, in the order of MPI, whoever leaves source or tag open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from threading import Event
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import (
    ANY_SOURCE,
    ANY_TAG,
    ArgumentError,
    CollectiveTimeout,
    Communicator,
    ObjectsRefused,
    PeerFailed,
    Revoked,
    Status,
    UsageError,
)
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import drive_together, simulated_endpoints
from ringcast.collectives.point_to_point import sendrecv
from ringcast.collectives.self_describing import SelfDescribing
from ringcast.collectives.stage import Group
from ringcast.engine.objects import APART
from support.jobs import KINDS, Job, Jobs
from support.patience import patience

SIZES = 0, 1, 100, 5000, 100_000  # bytes: some go at once, some after a grant


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


# Each message once, in order.


class Plan:
    """The messages that every rank sends, in its order: to whom, with which tag, and of which size."""

    def __init__(self, p: int, seed: int, count: int) -> None:
        random = Random(seed)
        self.sent = [
            [(random.randrange(p), random.randrange(3), random.choice(SIZES)) for _ in range(count)] for _ in range(p)
        ]

    def expected(self, rank: int) -> Counter[tuple[int, int]]:
        """Return how many messages come to a rank, by source and tag."""
        return Counter((source, tag) for source, sent in enumerate(self.sent) for to, tag, _ in sent if to == rank)


def message(source: int, place: int, size: int) -> np.ndarray[Any, Any]:
    return np.full(16 + size, (source * 1000 + place) % 251, np.uint8) if size else np.array([source, place])


class Inbox:
    """Receives all messages of a plan in ways that a random generator chooses, and checks what comes."""

    def __init__(self, comm: Communicator, plan: Plan, random: Random) -> None:
        self.comm, self.plan, self.random = comm, plan, random
        self.left = plan.expected(comm.rank)
        self.next = {  # by source and tag, the places of the messages that have not come
            (source, tag): [i for i, (to, t, _) in enumerate(sent) if (to, t) == (comm.rank, tag)]
            for source, sent in enumerate(plan.sent)
            for tag in range(3)
        }

    def take(self) -> None:
        """Receive one message, or several, that come some time."""
        source, tag = self.random.choice([key for key, count in self.left.items() if count])
        self._take(source, tag, self.random.choice(["recv", "open", "probe", "iprobe", "requests"]))

    def take_what_has_come(self) -> None:
        """Receive one message if one has come: a program that still has to send must not wait for others."""
        if (found := self.comm.iprobe()) is not None:
            self._take(found.source, found.tag, self.random.choice(["recv", "open", "probe", "iprobe"]))

    def _take(self, source: int, tag: int, way: str) -> None:
        if way == "requests":
            self._by_requests(source, tag, self.random.randrange(1, 4))
            return
        status = Status()
        if way == "recv":
            got = self.comm.recv(source, tag, status=status)
        elif way == "open":
            got = self.comm.recv(*self._open(source, tag), status=status)
        else:
            found = self._probe(*self._open(source, tag), way)
            got = self.comm.recv(found.source, found.tag, status=status)
            assert (found.source, found.tag, found.count) == (status.source, status.tag, status.count)
        self._check(got, status)

    def _open(self, source: int, tag: int) -> tuple[Any, Any]:
        return self.random.choice([(source, ANY_TAG), (ANY_SOURCE, tag), (ANY_SOURCE, ANY_TAG)])

    def _probe(self, source: Any, tag: Any, way: str) -> Status:
        while way == "iprobe":
            found = self.comm.iprobe(source, tag)
            if found is not None:
                return found
        return self.comm.probe(source, tag)

    def _by_requests(self, source: int, tag: int, count: int) -> None:
        """Post several receives, and wait for them in any order: the first one gets the first message."""
        states = [Status() for _ in range(min(count, self.left[source, tag]))]
        requests = [self.comm.irecv(source, tag, status=status) for status in states]
        got: dict[int, Any] = {}
        for i in self.random.sample(range(len(requests)), len(requests)):
            got[i] = requests[i].wait()
        for i, status in enumerate(states):
            self._check(got[i], status)

    def _check(self, got: Any, status: Status) -> None:
        source, tag = status.source, status.tag
        place = self.next[source, tag].pop(0)
        self.left[source, tag] -= 1
        expected = message(source, place, self.plan.sent[source][place][2])
        np.testing.assert_array_equal(got, expected, err_msg=f"message {place} of rank {source}")
        assert status.count == expected.nbytes


def random_program(comm: Communicator, seed: int, count: int) -> None:
    plan, random = Plan(comm.size, seed, count), Random(f"{seed} {comm.rank}")
    inbox, requests = Inbox(comm, plan, random), []
    for place, (to, tag, size) in enumerate(plan.sent[comm.rank]):
        requests.append(comm.isend(message(comm.rank, place, size), to, tag))
        if random.random() < 0.3:
            inbox.take_what_has_come()
        if random.random() < 0.1:
            requests[-1].test()
    while inbox.left.total():
        inbox.take()
    ringcast.wait_all(requests)
    assert comm.iprobe() is None


@pytest.mark.parametrize("kind", ["threads", "shm", "sockets", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_random_programs_get_every_message_once_and_in_order(kind: str, p: int) -> None:
    job = Job(kind, p)
    for seed in range(3):
        job.ask(lambda comm, seed=seed: random_program(comm, seed, 15))
    assert not job.left_over()
    job.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
@pytest.mark.parametrize("p", [2, 3, 5, 7])
def test_many_random_programs(kind: str, p: int) -> None:
    job = Job(kind, p)
    for seed in range(100, 130):
        job.ask(lambda comm, seed=seed: random_program(comm, seed, 60))
    assert not job.left_over()
    job.close()


@pytest.mark.parametrize("p", [33, 65])
def test_one_rank_hears_of_many(jobs: Jobs, p: int) -> None:
    def work(comm: Communicator) -> list[int] | None:
        if comm.rank != 3:
            comm.send(comm.rank, 3, tag=comm.rank % 2)
            return None
        return [comm.recv(ANY_SOURCE, tag) for tag in (1, 0) for r in range(p) if r != 3 and r % 2 == tag]

    got = jobs("threads", p).ask(work)[3]
    assert sorted(got) == [r for r in range(p) if r != 3]
    assert [r % 2 for r in got] == sorted((r % 2 for r in got), reverse=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_message_does_not_overtake_a_large_one(jobs: Jobs, kind: str) -> None:
    def work(comm: Communicator) -> list[int] | None:
        if comm.rank == 0:
            ringcast.wait_all([comm.isend(np.zeros(size), 1, tag) for tag, size in enumerate((50_000, 1, 30_000, 0))])
            return None
        return [comm.recv().size for _ in range(4)]

    assert jobs(kind, 2).ask(work)[1] == [50_000, 1, 30_000, 0]


def test_any_source_on_the_simulated_wire() -> None:
    wire, made = simulated_endpoints(5)
    steps = [sendrecv(Group(e, 3, NETWORKS["threads"]), e.rank, (e.rank + 2) % 5, ANY_SOURCE, 7) for e in made]
    assert drive_together(wire, made, steps) == [(r - 2) % 5 for r in range(5)]


def test_a_part_has_messages_and_ranks_of_its_own(jobs: Jobs) -> None:
    def work(comm: Communicator) -> tuple[Any, ...]:
        part = comm.split(comm.rank % 2, -comm.rank)
        assert part is not None
        comm.send("of all", (comm.rank + 1) % 5)
        part.send(("of the part", part.rank), (part.rank + 1) % part.size)
        status = Status()
        got = part.recv(status=status)
        assert status.source == (part.rank - 1) % part.size
        return got, comm.recv()

    assert [got[1] for got in jobs("threads", 5).ask(work)] == ["of all"] * 5


# To oneself, and to nobody.


@pytest.mark.parametrize("size", SIZES)
def test_a_rank_sends_to_itself(jobs: Jobs, size: int) -> None:
    def work(comm: Communicator) -> None:
        mine = np.arange(size, dtype=np.uint8)
        comm.send(mine, comm.rank, 4)
        mine += 1
        assert comm.probe(comm.rank).count == size
        np.testing.assert_array_equal(comm.recv(comm.rank), mine - 1)
        request = comm.irecv(tag=5)
        comm.send(mine, comm.rank, 5)
        np.testing.assert_array_equal(request.wait(), mine)
        assert comm.sendrecv("x", comm.rank, ANY_SOURCE) == "x"

    for p in 1, 2:
        jobs("threads", p).ask(work)


def test_no_rank_at_the_other_end(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        comm.send("lost", None)
        assert comm.recv(None) is None
        assert ringcast.wait_all([comm.isend("lost", None), comm.irecv(None)]) == [None, None]

    jobs("threads", 2).ask(work)


# Where a message goes, and what is not copied.


@pytest.mark.parametrize("items", [0, 1, 7, 50_000])
def test_an_array_is_received_where_it_belongs(jobs: Jobs, items: int) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            for order in "CF":
                comm.send(np.asarray(np.arange(2.0 * items).reshape(2, items), order=order), 1)
            comm.send(np.float64(3), 1)
            return
        expected = np.arange(2.0 * items).reshape(2, items)
        for shape in (2, items), (2 * items + 5,):
            out = np.full(shape, -1.0)
            got = comm.recv(0, out=out)
            assert got is out if out.shape == expected.shape else np.shares_memory(got, out) or items == 0
            np.testing.assert_array_equal(got, expected)
            assert (out.reshape(-1)[2 * items :] == -1).all()
        out = np.zeros(2)
        assert comm.recv(0, out=out) == 3
        assert list(out) == [3, 0]

    jobs("threads", 2).ask(work)


@pytest.mark.parametrize(
    ("value", "out", "wanted", "given"),
    [
        (np.zeros(3), np.zeros(2), "room for 3 items of dtype float64", "2 items of dtype float64"),
        (np.zeros(30_000), np.zeros(2), "room for 30000 items of dtype float64", "2 items of dtype float64"),
        (np.zeros(2), np.zeros(2, int), "room for 2 items of dtype float64", "2 items of dtype int64"),
        ([1, 2], np.zeros(2), "None for a Python object", "2 items of dtype float64"),
    ],
)
def test_a_message_that_does_not_fit(value: Any, out: Any, wanted: str, given: str) -> None:
    job = Job("threads", 2)
    errors = job.run(lambda c: c.send(value, 1, 3) if c.rank == 0 else c.recv(0, out=out.copy()))
    assert isinstance(errors[1], ArgumentError)
    origin = "the message of rank 0 with tag 3"
    assert str(errors[1]).endswith(f"recv: argument out: expected {wanted}, {origin}; got {given}")
    assert errors[0] is None or isinstance(errors[0], Revoked)  # if it still waits to be received
    job.close()


def test_arrays_in_objects_are_not_copied_into_the_pickle() -> None:
    large, small = np.arange(float(APART)), np.arange(3)
    frames = SelfDescribing.frames({"large": large, "small": small}, lambda: None)
    assert [np.shares_memory(np.frombuffer(frame, np.uint8), large) for frame in frames] == [False, False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_objects_with_arrays(jobs: Jobs, kind: str) -> None:
    def work(comm: Communicator) -> None:
        value = {"a": np.arange(40_000), "b": [np.ones(3), np.zeros((0, 2))], "c": bytearray(30_000), "rank": comm.rank}
        got = comm.sendrecv(value, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
        assert got["rank"] == (comm.rank - 1) % comm.size
        np.testing.assert_array_equal(got["a"], value["a"])
        got["a"][0] = got["b"][0][0] = 5  # what arrives belongs to the receiver
        assert got["b"][1].shape == (0, 2)
        assert got["c"] == value["c"]

    jobs(kind, 3).ask(work)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "tcp"])
def test_a_message_beyond_two_gibibytes(kind: str) -> None:
    job, size = Job(kind, 2), (1 << 31) + 5

    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.send(np.full(size, 7, np.uint8), 1)
            return
        got = comm.recv()
        assert (got.size, got[0], got[-1], got[1 << 31]) == (size, 7, 7, 7)

    job.ask(work, timeout=patience(300))
    job.close()


def large(comm: Communicator, kind: str) -> tuple[Any, ...] | None:
    """Send something beyond 2 GiB from rank 0 to rank 1, which returns what it can tell of it."""
    size = (1 << 31) + 1
    if comm.rank == 0:
        array = np.zeros(size, np.uint8)
        array[[0, 1 << 31]] = 3, 4
        values = {"array": array, "object": {"within": array, "n": 5}}
        comm.send(values[kind] if kind in values else {"within": array.tobytes(), "n": 5}, 1, 9)
        return None
    status = Status()
    got = comm.recv(0, 9, status=status)
    body = got if kind == "array" else got["within"]
    return type(body), len(body), int(body[0]), int(body[1 << 31]), status.count > size - 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["array", "object", "bytes"])
def test_a_message_beyond_two_gibibytes_between_processes(kind: str) -> None:
    """As an array; as a buffer beside the pickle of an object; and within a pickle."""
    got = ringcast.run(large, 2, args=(kind,), timeout=patience(100))
    assert got == [None, (bytes if kind == "bytes" else np.ndarray, (1 << 31) + 1, 3, 4, True)]


# Probing and cancelling.


def test_a_probe_leaves_the_message_to_whoever_receives_it(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank:
            comm.send("first", 0, 1)
            comm.send("second", 0, 2)
            return
        found = [comm.probe(tag=2), comm.probe(1), comm.probe(ANY_SOURCE, 2)]
        assert [status.tag for status in found] == [2, 1, 2]
        assert comm.iprobe(1, 3) is None
        assert [comm.recv(tag=2), comm.recv()] == ["second", "first"]
        assert comm.iprobe() is None

    jobs("threads", 2).ask(work)


def test_a_receive_that_is_cancelled_takes_nothing(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank:
            first, second, third = comm.irecv(), comm.irecv(0), comm.irecv()
            assert second.cancel()
            with pytest.raises(UsageError, match="cancel of a request that was waited for before: irecv at"):
                second.cancel()
            comm.send("ready", 0)
            assert [first.wait(), third.wait()] == ["a", "b"]
            last = comm.irecv(0)
            comm.send("ready", 0)
            while not last.test():
                pass
            assert not last.cancel()
            assert last.wait() == "c"
            return
        assert comm.recv() == "ready"
        comm.send("a", 1)
        comm.send("b", 1)
        assert comm.recv() == "ready"
        comm.send("c", 1)
        request = comm.isend("d", comm.rank)
        with pytest.raises(UsageError, match="only a receive can be cancelled"):
            request.cancel()
        request.wait()
        assert comm.recv() == "d"

    jobs("threads", 2).ask(work)


def test_a_status_without_a_message_says_so() -> None:
    assert repr(Status()) == "Status()"
    for name in "source", "tag", "count":
        with pytest.raises(UsageError, match="empty"):
            getattr(Status(), name)


# Errors.


def test_a_number_below_zero_is_no_wildcard(jobs: Jobs) -> None:
    comm_of = jobs("threads", 1)

    def work(comm: Communicator) -> None:
        for call in comm.recv, comm.irecv, comm.probe, comm.iprobe:
            with pytest.raises(ArgumentError, match=r"argument source: expected a rank in 0..0.*ANY_SOURCE.*got -1"):
                call(-1)
            with pytest.raises(ArgumentError, match=r"argument tag: expected .* or ANY_TAG, got -1"):
                call(0, -1)
        for call in comm.probe, comm.iprobe:
            with pytest.raises(ArgumentError, match=r"source: expected a rank in 0..0 or ANY_SOURCE, got None"):
                call(None)
        for call in comm.send, comm.isend:
            for dest in -1, 1, ANY_SOURCE, "0":
                with pytest.raises(ArgumentError, match=r"argument dest: expected a rank in 0..0 or None"):
                    call("x", dest)
            for tag in -1, 1 << 32, ANY_TAG, None:
                with pytest.raises(ArgumentError, match=r"argument tag: expected a number from 0 to 2\*\*32 - 1, got"):
                    call("x", 0, tag)
        for out in [0], np.zeros((4, 4))[:, 0], np.array(None):
            with pytest.raises(ArgumentError, match="argument out"):
                comm.recv(out=out)

    comm_of.ask(work)


def test_objects_that_are_switched_off(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        comm._group.pickle = False
        comm.send(np.arange(3), 0)
        assert list(comm.recv()) == [0, 1, 2]
        with pytest.raises(ObjectsRefused, match="send: Python objects are switched off"):
            comm.send("x", 0)
        comm._group.pickle = True
        comm.send("x", 0)
        comm._group.pickle = False
        with pytest.raises(ObjectsRefused, match="recv: Python objects are switched off"):
            comm.recv()

    job = Job("threads", 1)
    job.ask(work)
    job.close()


def send_until_told(comm: Communicator, size: int) -> None:
    """Send to rank 1, which has left, until this rank has heard of it."""
    while True:
        comm.send(np.zeros(size), 1)


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_send_to_a_rank_that_has_left(kind: str, size: int) -> None:
    job, left = Job(kind, 3), Event()

    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            comm.finalize()
            left.set()
        elif comm.rank == 2:
            left.wait()
            comm.send(np.zeros(size), 0, 1)  # those who are there go on
            with pytest.raises(PeerFailed, match="rank 1 finished"):
                send_until_told(comm, size)
        else:
            assert comm.recv(tag=1).size == size

    job.ask(work)
    job.close()


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
@pytest.mark.parametrize(
    ("tags", "told"),
    [
        ((), ""),
        ((1,), "; a message of rank 0 with tag 1 was not received"),
        ((1, 7, 1), "; 3 messages of rank 0 with tags 1, 7 were not received"),
        ((*range(3, 13),), "; 10 messages of rank 0 with tags 3, 4, 5, 6, 7, 8, 9, 10 and 2 more were not received"),
    ],
)
def test_a_receive_from_a_rank_that_has_left_names_the_messages_with_other_tags(
    kind: str, tags: tuple[int, ...], told: str
) -> None:
    job = Job(kind, 3)

    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            with pytest.raises(PeerFailed) as error:
                comm.recv(0, tag=2)
            assert (
                error.value.cause
                == f"rank 0 finished (it left the job), but this rank still communicates with it{told}"
            )
        else:
            for tag in tags:
                comm.send(np.ones(3), 1, tag=tag + 20 * comm.rank)  # those of rank 2 are no matter
            comm.finalize()

    job.ask(work)
    job.close()


def test_who_waits_for_any_rank_goes_on_until_the_last_one_has_left() -> None:
    job = Job("threads", 4)

    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            assert sorted(comm.recv() for _ in range(3)) == [1, 2, 3]
            with pytest.raises(PeerFailed, match="finished"):
                comm.recv()
        else:
            comm.send(comm.rank, 0)
            comm.finalize()

    job.ask(work)
    job.close()


# Deadlocks.


@pytest.mark.usefixtures("soon_stalled")
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_ranks_that_all_wait_for_any_message(p: int) -> None:
    job = Job("threads", p)
    errors = job.run(lambda c: c.recv())
    accused = [error for error in errors if isinstance(error, CollectiveTimeout)]
    assert accused
    assert all(error.cycle == tuple(e.rank for e in accused) for error in accused)
    assert all("recv with any tag at test_point_to_point.py:" in call for e in accused for call in e.calls)
    assert all(isinstance(error, CollectiveTimeout | Revoked) for error in errors)
    job.close()


@pytest.mark.usefixtures("soon_stalled")
def test_a_rank_that_waits_for_itself() -> None:
    job = Job("threads", 2)
    errors = job.run(lambda c: c.recv(c.rank))
    assert all(isinstance(error, CollectiveTimeout | Revoked) for error in errors)
    assert any(isinstance(error, CollectiveTimeout) and len(error.cycle) == 1 for error in errors)
    job.close()


@pytest.mark.usefixtures("soon_stalled")
@pytest.mark.parametrize("how", ["probe", "irecv", "sendrecv"])
def test_every_wait_for_a_message_is_found(how: str) -> None:
    job = Job("threads", 2)
    calls = {
        "probe": lambda c: c.probe(),
        "irecv": lambda c: ringcast.wait_any([c.irecv(), c.irecv(tag=3)]),
        "sendrecv": lambda c: c.sendrecv(1, 1 - c.rank, ANY_SOURCE, c.rank),
    }
    errors = job.run(calls[how])
    assert [type(error) for error in errors] == [CollectiveTimeout] * 2
    job.close()


def test_nobody_is_accused_while_one_rank_can_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 2 polls: it does not wait, and so the other two, which wait for anybody, may still hear of it."""
    monkeypatch.setattr("ringcast.engine.drive.QUIET", 0.01)
    job = Job("threads", 3)

    def work(comm: Communicator) -> Any:
        if comm.rank < 2:
            comm.send("waits", 2)
            return comm.recv()
        mine = comm.irecv(tag=9)
        polls = 0
        while polls < 2000 or job.endpoints[2].protocol.keepalives < 6:  # both have waited for long
            assert not mine.test()
            polls += 1
        assert mine.cancel()
        for rank in range(2):
            assert comm.recv(rank) == "waits"
            comm.send("go on", rank)
        return None

    assert job.ask(work) == ["go on", "go on", None]
    job.close()
