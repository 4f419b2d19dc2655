"""Predicted messages give what the engine gives: results, messages and counters, wherever it has to go on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from ringcast import ANY_TAG, Status
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.again import UNMADE, Again, Counted, OnProgram, Rest
from ringcast.collectives.broadcast_again import BroadcastAgain
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine.drive import drive
from ringcast.transports.base import MemoryArrival
from ringcast.wire.flight import Entry, decode
from ringcast.wire.header import EAGER_LIMIT, SIZE, Kind, unpack
from support.any_order import CONTEXT, PLANE, AnyOrder, End, Link
from support.calls import CASES, assert_same
from support.cases import long_but
from support.conversations import LIMIT, talk
from support.fault_cases import EVERY, Case, call, expected

ENGINE = 4  # a seed of `AnyOrder` by which messages cannot be looked at …
LANES = (0, 1, 2, 3, 8, 9, 10, 11)  # … and seeds by which they can
NBYTES = 24
TIMES = 2  # calls, as a call can begin where the one before has ended on other ranks only
OVERLAPPING = {("alltoallv", "scattered")}  # rounds overlap: nothing is predicted


class Watched(AnyOrder):
    """A job that notes its messages; rank `rank` leaves its lane at the look number `place`, if that is not 0."""

    def __init__(self, size: int, seed: int = 0, rank: int = 0, place: int = 0) -> None:
        super().__init__(size, seed)
        self.exit, self.looks = (rank, place), Counter[int]()
        self.messages: dict[Link, list[object]] = defaultdict(list)

    def put(self, link: Link, what: Any) -> None:
        if isinstance(what, MemoryArrival) and PLANE not in link:
            header = unpack(what.header)
            if header.kind != Kind.NOTICE:  # its credit depends on the order of events
                self.messages[link].append((header._replace(word=0), what.header[SIZE:], [*what._frames[1:]]))
        super().put(link, what)

    def refuses(self) -> bool:
        rank = self._running
        assert rank is not None, "lanes are used by ranks that run"
        self.looks[rank] += 1
        return (rank, self.looks[rank]) == self.exit or super().refuses()

    @property
    def ledgers(self) -> list[list[list[int]]]:
        return [[[*words] for words in (p.sent, p.posted, p.seen, p.matched)] for p in self.protocols]

    @property
    def protocols(self) -> list[Any]:
        return [endpoint.protocol for endpoint in self.endpoints]


def played(job: Watched, work: Callable[[Communicator], Any]) -> list[Any]:
    """Return the results of all ranks; nothing is left over, and what a rank has spent at another one lies there."""
    results = job.run(work)
    assert not job.left_over()
    for a, mine in enumerate(job.protocols):
        for b, theirs in enumerate(job.protocols):
            assert mine._ledger.spent[b] == theirs._ledger.held[a] + theirs._ledger.owed[a]
    return results


def played_case(job: Watched, case: Case) -> None:
    """Make the call some times, and compare its results with numpy's."""

    def work(comm: Communicator) -> list[Any]:
        group = Group(job.endpoints[comm.rank], CONTEXT, NETWORKS["threads"])
        return [drive(group.endpoint, call(case, group)) for _ in range(TIMES)]

    for results, right in zip(played(job, work), expected(case), strict=True):
        assert not isinstance(results, BaseException), results
        for result in results:
            np.testing.assert_array_equal(result, right)


def cases(ranks: Sequence[int], name: tuple[str, str]) -> list[Case]:
    return [case for p in ranks if (case := Case(*name, p, NBYTES)).fits]


def algorithms(few: Sequence[int], ranks: Sequence[int]) -> Any:
    """Parametrize by algorithm: one of these few numbers of ranks, chosen by its name; in `make test-long` all."""
    chosen = {name: cases(sorted(few, key=lambda p: crc32(f"{name} {p}".encode())), name)[:1] for name in EVERY}
    others = {name: [case for case in cases(ranks, name) if case not in chosen[name]] for name in EVERY}
    marked = [pytest.param(todo, id=f"{'-'.join(name)}-all", marks=pytest.mark.long) for name, todo in others.items()]
    one = [pytest.param(todo, id="-".join(name)) for name, todo in chosen.items()]
    return pytest.mark.parametrize("todo", [*one, *marked])


@algorithms(range(2, 9), (*range(1, 18), 33))
def test_results_messages_and_counters_are_those_of_the_engine(todo: list[Case]) -> None:
    for case in todo:
        engine = Watched(case.size, ENGINE)
        played_case(engine, case)
        assert not engine.looks
        for seed in LANES if len(todo) > 1 else LANES[crc32(str(case).encode()) % 4 :: 4]:
            job = Watched(case.size, seed)
            played_case(job, case)
            assert job.messages == engine.messages, f"{case}, seed {seed}"
            assert job.ledgers == engine.ledgers, f"{case}, seed {seed}"


@algorithms((2, 3), (2, 3, 4, 5))
def test_the_engine_goes_on_from_any_place(todo: list[Case]) -> None:
    """A rank leaves its lane at one look, whichever that is: of a message out, or of one in."""
    for case in todo:
        assert_equal_wherever_a_rank_leaves(case.size, lambda job, case=case: played_case(job, case), str(case))


def assert_equal_wherever_a_rank_leaves(p: int, play: Callable[[Watched], None], what: str) -> None:
    engine, never = Watched(p, ENGINE), Watched(p, 0)
    for job in engine, never:
        play(job)
    for rank, looks in never.looks.items():
        for place in range(1, looks + 1):
            job = Watched(p, 0, rank, place)
            play(job)
            assert job.messages == engine.messages, f"{what}, rank {rank}, place {place}"
            assert job.ledgers == engine.ledgers, f"{what}, rank {rank}, place {place}"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts messages, by what has sent them: "send", the engine, and "put", a lane."""
    count, send, put = Counter[str](), End.send, End.put

    def sending(end: End, *message: Any) -> None:
        count["send"] += 1
        send(end, *message)

    def putting(end: End, *message: Any) -> bool:
        done = put(end, *message)
        count["put"] += done
        return done

    monkeypatch.setattr(End, "send", sending)
    monkeypatch.setattr(End, "put", putting)
    return count


@pytest.mark.parametrize("name", [pytest.param(name, id="-".join(name)) for name in EVERY])
def test_all_messages_go_by_lanes_if_nothing_disturbs_them(name: tuple[str, str], sent: Counter[str]) -> None:
    """But where rounds overlap: there none is predicted."""
    case = cases((5, 6, 8), name)[0]
    played_case(Watched(case.size, 0), case)
    assert [how for how in sent if sent[how]] == (["put", "send"] if name in OVERLAPPING else ["put"])


# Calls that are made again.

AGAIN = (
    "allreduce", "allgather", "allgatherv", "allgatherv with counts", "reduce_scatter", "reduce_scatter with counts",
    "barrier", "bcast", "reduce", "gather", "gatherv", "gatherv with counts", "scan", "exscan", "alltoall",
)  # fmt: skip
BETWEEN = "scatter"  # a call that is not


def again(comm: Communicator, name: str, seed: int) -> tuple[tuple[Any, ...], Any]:
    """Return arguments and result of a call whose root, if it has one, is rank 1, and whose counts may be given."""
    call, _, counts = name.partition(" with ")
    arguments, right = CASES[call](comm, 3, seed * comm.size + (comm.size > 1))
    if counts:
        rows = [3 * (rank % 3) for rank in range(comm.size)]
        with_counts = {"allgatherv": (rows,), "gatherv": (rows, 1), "reduce_scatter": (sum, [3] * comm.size)}
        arguments = (arguments[0], *with_counts[call])
    return arguments, right


def played_again(job: Watched, name: str) -> None:
    """Make a call again and again, with other values; what one has returned is not changed by another one."""

    def work(comm: Communicator) -> list[tuple[Any, Any, str]]:
        found = []
        for seed in range(3):
            for each in (name, name, BETWEEN):
                arguments, right = again(comm, each, seed)
                found.append((getattr(comm, each.split()[0])(*arguments), right, each))
        return found

    for results in played(job, work):
        assert not isinstance(results, BaseException), results
        for each in results:
            assert_same(*each)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the ways of calls that are made again."""
    count = Counter[str]()

    def counted(make: Callable[..., Any]) -> Callable[..., Any]:
        def making(call: Again, *given: Any) -> Any:
            result = make(call, *given)
            count["general" if result is UNMADE else "by the engine" if type(result) is Rest else "again"] += 1
            return result

        return making

    for kind in (OnProgram, Counted, BroadcastAgain):
        monkeypatch.setattr(kind, "make", counted(vars(kind)["make"]))
    return count


@pytest.mark.parametrize("p", [2, *(pytest.param(p, marks=pytest.mark.long) for p in (3, 4, 5, 6))])
@pytest.mark.parametrize("name", AGAIN)
def test_the_engine_goes_on_from_any_place_of_a_call_that_is_made_again(name: str, p: int, ways: Counter[str]) -> None:
    assert_equal_wherever_a_rank_leaves(p, lambda job: played_again(job, name), f"{name}, {p} ranks")
    assert ways["again"], "no call was made again"
    assert ways["by the engine"], "the engine has never gone on with one"


ALONE = [name for name in AGAIN if name != "alltoall" and "gatherv" not in name]  # in the others nothing is moved


@pytest.mark.parametrize(("name", "p"), [*((n, 1) for n in ALONE), *((n, p) for n in AGAIN for p in (2, 3, 4, 5, 8))])
def test_all_calls_but_the_first_two_are_made_again(name: str, p: int, ways: Counter[str]) -> None:
    played_again(Watched(p, 0), name)
    assert ways == {"again": (5 if name == "bcast" else 4) * p}


@pytest.mark.parametrize("seed", long_but(range(4), range(8)))
@pytest.mark.parametrize("name", AGAIN)
def test_calls_made_again_in_any_order_of_messages_are_those_of_the_engine(name: str, seed: int) -> None:
    p, jobs = 2 + seed % 5, []
    for job in (Watched(p, ENGINE), Watched(p, LANES[seed])):
        played_again(job, name)
        jobs.append((job.messages, job.ledgers))
    assert jobs[0] == jobs[1]


# Messages between two ranks.

ITEMS = 30


def played_talk(job: Watched, seed: int, items: int = ITEMS) -> None:
    for result in played(job, lambda comm: talk(comm, seed, items)):
        if isinstance(result, BaseException):
            raise result


@pytest.mark.parametrize("p", [3, *(pytest.param(p, marks=pytest.mark.long) for p in (1, 2, 5))])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
def test_conversations_are_those_of_the_engine(p: int, seed: int) -> None:
    """Results, messages and counters; whether ranks lend memory depends on the seed of the job."""
    for order in LANES:
        engine, job = Watched(p, order), Watched(p, order)
        engine.lanes = False
        for each in engine, job:
            played_talk(each, seed)
        assert not engine.looks
        assert bool(job.looks) == (p > 1)
        assert job.messages == engine.messages, f"order {order}"
        assert job.ledgers == engine.ledgers, f"order {order}"


@pytest.mark.parametrize("p", [2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_the_engine_goes_on_from_any_place_of_a_conversation(p: int, seed: int) -> None:
    assert_equal_wherever_a_rank_leaves(p, lambda job: played_talk(job, seed, 12), f"{p} ranks")


def edges(comm: Communicator) -> None:
    """Messages that go at once, or just do not."""
    comm.barrier()
    for size in (LIMIT - 1, LIMIT, LIMIT + 1, EAGER_LIMIT, EAGER_LIMIT + 1):
        if comm.rank == 0:
            comm.send(np.zeros(size, np.uint8), 1, 2)
            comm.send(bytes(size), 1, 2)
        else:
            assert comm.recv(0, 2).size == size
            assert comm.recv(0, 2) == bytes(size)


def test_messages_go_at_once_up_to_the_same_size() -> None:
    jobs = []
    for lanes in True, False:
        jobs.append(job := Watched(2))
        job.lanes = lanes
        assert played(job, edges) == [None, None]
    assert jobs[0].looks
    assert jobs[0].messages == jobs[1].messages


def recorded(job: Watched, seed: int) -> list[list[Entry]]:
    """Return the records of calls of a conversation, without times."""
    played_talk(job, seed)
    flights = [decode(endpoint.recorder.image()) for endpoint in job.endpoints]
    return [[replace(entry, begun=0, start=0, end=entry.end and 0) for entry in flight.entries] for flight in flights]  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(4))
def test_the_flight_recorder_has_the_same_calls(seed: int) -> None:
    engine = Watched(3)
    engine.lanes = False
    assert recorded(Watched(3), seed) == recorded(engine, seed)


def ping_pong(comm: Communicator) -> None:
    """Two ranks send to each other, in all ways that are predicted."""
    comm.barrier()  # of a communicator of which nothing is known yet, nothing is predicted
    other, array = 1 - comm.rank, np.arange(3.0)
    for value in array, array[0], {"a": 1}, np.arange(6).reshape(2, 3).T, "text":
        for turn in range(2):
            if comm.rank == turn:
                comm.send(value, other, tag=4)
            else:
                np.testing.assert_equal(comm.recv(other, 4), value)
        np.testing.assert_equal(comm.sendrecv(value, other, other), value)
        comm.sendrecv(value, other, None)
        np.testing.assert_equal(comm.sendrecv(None, None, other), value)
    comm.send(array, other)
    comm.recv(other, out=array, status=Status())


def test_all_messages_go_by_lanes_if_nothing_disturbs_them_in_a_conversation(sent: Counter[str]) -> None:
    results = played(Watched(2, 0), ping_pong)
    assert results == [None, None]
    assert [how for how in sent if sent[how]] == ["put"]


def ahead(comm: Communicator, count: int) -> None:
    """Rank 0 sends much more than rank 1 keeps, before that receives: some messages, then many of another tag."""
    tags = [*(number % 3 for number in range(count)), 7]
    if comm.rank == 0:
        for number, tag in enumerate(tags):
            comm.send(np.full(1000, number), 1, tag)
    elif comm.rank == 1:
        for number, tag in enumerate(tags):
            assert (comm.recv(0, tag if number % 2 else ANY_TAG) == number).all()


@pytest.mark.parametrize("order", [0, 2, 8, 10])
def test_a_sender_that_runs_ahead_is_stopped_by_its_credit(order: int, sent: Counter[str]) -> None:
    """Messages stay in order, and the engine has sent some of them, as the credit was used up."""
    for result in played(Watched(2, order), lambda comm: ahead(comm, 150)):
        assert result is None
    assert sent["put"] > 50
    assert sent["send"]


@pytest.fixture
def partly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a lane sends is not all on its way before its rank polls, as where a socket takes a part of it only."""
    put, poll = End.put, End.poll

    def putting(end: End, peer: int, frame: Any) -> bool:
        done = put(end, peer, frame)
        end.unsent = [peer] if done else end.unsent
        return done

    def polling(end: End, deadline: float | None) -> MemoryArrival | None:
        end.unsent = []
        return poll(end, deadline)

    monkeypatch.setattr(End, "put", putting)
    monkeypatch.setattr(End, "poll", polling)


def follow_each_other(comm: Communicator) -> None:
    """Messages of one tag come close behind each other."""
    comm.barrier()
    other = 1 - comm.rank
    for number in range(20):
        assert comm.sendrecv(number, other, other, 3) == number
        comm.send(-number, other, 3)
        assert not comm._group.endpoint.transport.unsent
        assert comm.recv(other, 3) == -number


@pytest.mark.usefixtures("partly")
@pytest.mark.parametrize("order", LANES)
def test_messages_stay_in_order_where_they_are_sent_in_parts(order: int) -> None:
    for result in played(Watched(2, order), follow_each_other):
        assert result is None
    played_talk(Watched(3, order), 1)
