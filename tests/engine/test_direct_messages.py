"""Larger messages between two ranks by prediction, in shared memory: results, counters and errors of the engine."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from ringcast import ANY_SOURCE, Status
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import endpoints
from ringcast.collectives import point_to_point, self_describing
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine import direct
from ringcast.engine.correspondent import MOST, Correspondent, Loan
from ringcast.engine.drive import drive
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.objects import pack_record
from ringcast.protocol import lane
from ringcast.wire.flight import decode
from support import needs
from support.conversations import LIMIT, assert_same, talk
from support.jobs import shared
from support.patience import patience

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

CONTEXT = 1
ENOUGH = 20.0  # seconds that a job may take
WAITS = (0.0, 20e-6, 1e-3)  # seconds of a wait after which a rank goes on by the engine, if nothing has come
LARGE = 100_000
STAYS = np.arange(LARGE, dtype=np.uint8)


class Job:
    """Ranks on threads, which share memory; those in `pure` have the lane in Python."""

    def __init__(self, size: int, *, predict: bool = True, pure: Sequence[int] = ()) -> None:
        self.endpoints = endpoints(shared(size))
        for rank, endpoint in enumerate(self.endpoints):
            endpoint.direct = predict
            lanes: Any = endpoint.transport.lanes
            if rank in pure:
                with patch.object(lane, "Compiled", None):
                    endpoint.protocol._open_lane(lanes)

    def run(self, work: Callable[[Communicator], Any]) -> list[Any]:
        """Return the results of all ranks, or their errors."""

        def working(endpoint: Endpoint) -> Any:
            try:
                return work(Communicator(Group(endpoint, CONTEXT, NETWORKS["shm"]), patience(ENOUGH)))
            except Exception as error:
                return error

        with ThreadPoolExecutor(len(self.endpoints)) as pool:
            return [*pool.map(working, self.endpoints, timeout=patience(2 * ENOUGH))]

    @property
    def counters(self) -> list[list[list[int]]]:
        """The messages of each rank to the others; all that was offered is confirmed."""
        protocols: list[Any] = [endpoint.protocol for endpoint in self.endpoints]
        for a, mine in enumerate(protocols):
            assert not any(mine._ledger.asked)
            assert not mine._sending.transfers
            for b, theirs in enumerate(protocols):
                assert mine._ledger.spent[b] == theirs._ledger.held[a] + theirs._ledger.owed[a]
        return [[[*words] for words in (p.posted, p.matched)] for p in protocols]

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.transport.close(0.1)


@pytest.fixture
def job() -> Iterator[Callable[..., Job]]:
    """Make jobs, and close them at the end."""
    made = []

    def make(*args: Any, **named: Any) -> Job:
        made.append(Job(*args, **named))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what was offered, and how the waits for the readers ended."""
    needs.compiled_part()
    count, offer, settle = Counter[str](), Correspondent.offer, Loan.settle

    def offering(to: Correspondent, *message: Any) -> Loan | None:
        loan = offer(to, *message)
        count["offered" if loan is not None else "refused"] += 1
        return loan

    def settling(loan: Loan) -> bool:
        done = settle(loan)
        count["settled" if done else "handed over"] += 1
        return done

    monkeypatch.setattr(Correspondent, "offer", offering)
    monkeypatch.setattr(Loan, "settle", settling)
    return count


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let ranks leave their lanes at any place, with this probability."""

    def leave(share: float) -> None:
        rng = Random(1)

        def perhaps(name: str, owner: Any, instead: Any) -> None:
            method = getattr(owner, name)
            monkeypatch.setattr(
                owner, name, lambda *args, **named: instead if rng.random() < share else method(*args, **named)
            )

        perhaps("look", Correspondent, None)
        perhaps("put", Correspondent, False)
        perhaps("offer", Correspondent, None)
        perhaps("fetch", Correspondent, False)
        perhaps("settle", Loan, False)

    return leave


def check(results: list[Any]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


# Conversations.

ITEMS = 40


@pytest.mark.parametrize("p", [2, 3])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_conversations_are_those_of_the_engine(
    p: int, seed: int, job: Callable[..., Job], ends: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a rank waits, and whether its peer has the compiled part or not."""
    engine = job(p, predict=False)
    check(engine.run(lambda comm: talk(comm, seed, ITEMS)))
    assert not ends
    for pure, wait in ((), WAITS[seed % 3]), ((seed % p,), WAITS[2]):
        monkeypatch.setattr(direct, "PATIENCE", wait)
        lanes = job(p, pure=pure)
        check(lanes.run(lambda comm: talk(comm, seed, ITEMS)))
        assert lanes.counters == engine.counters
    assert ends["offered"] or seed > 1  # where ranks come late, the engine may have sent all large messages


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_the_engine_goes_on_from_any_place(
    seed: int, share: float, job: Callable[..., Job], ends: Counter[str], leaving: Callable[[float], None]
) -> None:
    engine, lanes, p = job(2 + seed % 2, predict=False), job(2 + seed % 2), 2 + seed % 2
    check(engine.run(lambda comm: talk(comm, seed, ITEMS)))
    leaving(share)
    check(lanes.run(lambda comm: talk(comm, seed, ITEMS)))
    assert lanes.counters == engine.counters, f"{p} ranks"


SIZES = (LIMIT, LIMIT + 1, LIMIT + 2, 65_536, 100_000, 1 << 20, MOST - 1, MOST, MOST + 1)  # bytes of an array


def sizes(comm: Communicator) -> None:
    """Each message in every way, there and back."""
    other = 1 - comm.rank
    for size in SIZES:
        mine, theirs = (np.full(size, size % 251 + rank, np.uint8) for rank in (comm.rank, other))
        out, status = np.zeros(size, np.uint8), Status()
        for turn in range(4):
            if comm.rank == turn % 2:
                comm.send(mine, other, turn)
            else:
                got = comm.recv(other, turn, out=out if turn > 1 else None, status=status)
                assert_same(got, theirs)
                assert (got is out) == (turn > 1)
                assert (status.source, status.tag, status.count) == (other, turn, size)
        for into in None, out:
            assert_same(comm.sendrecv(mine, other, other, 9, out=into), theirs)


def test_messages_of_all_sizes_come_as_they_are(job: Callable[..., Job], ends: Counter[str]) -> None:
    """Those up to a limit by prediction."""
    check(job(2).run(sizes))
    assert ends["offered"] == 2 * 4 * (len(SIZES) - 2)


def kinds(comm: Communicator) -> None:
    """Values of all kinds that are large."""
    numbers = np.random.default_rng(5)
    values = [
        numbers.random((120, 200)),
        np.asfortranarray(numbers.random((120, 200))),
        numbers.random((400, 200))[::2],
        np.arange(30_000).astype("M8[s]"),
        np.full(9000, "ä" * 9),
        np.full(20_000, 3, [("a", "i2"), ("b", "f8")]),
        np.arange(20_000, dtype=">i8").reshape(2, 1, -1),
        np.full((), "x" * 40_000),
        np.str_("y" * 40_000),
        b"z" * LARGE,
        ["text" * LARGE, 3],
        [np.ones(LARGE), np.zeros(LARGE), "three frames"],
        np.ones(LARGE, dtype=object),
    ]
    for value in values:
        if comm.rank == 0:
            comm.send(value, 1, 5)
        else:
            got = comm.recv(0, 5)
            if isinstance(value, np.ndarray) and value.dtype.hasobject:
                assert got.tolist() == value.tolist()
            else:
                assert_same(got, value)
        assert_same(comm.sendrecv(value, 1 - comm.rank, ANY_SOURCE, 5), got if comm.rank else value) if isinstance(
            value, bytes
        ) else None


def test_values_of_all_kinds_come_as_they_are(job: Callable[..., Job], ends: Counter[str]) -> None:
    check(job(2).run(kinds))
    assert ends["offered"] > 8


def exchanged(comm: Communicator) -> None:
    """Arrays that are sent from the memory where others are put, and from parts of it."""
    other, base = 1 - comm.rank, np.arange(LARGE)
    for out, mine in ((array := base + comm.rank, array), (whole := np.tile(base + comm.rank, 2), whole[LARGE:])):
        into = out if out.size == LARGE else out[LARGE // 2 : LARGE // 2 + LARGE]
        into = into if into is mine else into.reshape(-1)
        assert_same(comm.sendrecv(mine, other, other, 3, out=into).copy(), base + other)


def test_what_is_sent_is_not_overwritten_by_what_comes(job: Callable[..., Job], ends: Counter[str]) -> None:
    check(job(2).run(exchanged))
    assert not ends


def test_a_message_goes_as_it_was_when_it_was_sent(
    job: Callable[..., Job], ends: Counter[str], leaving: Callable[[float], None]
) -> None:
    """The program may change it when the call has returned, however late it is read."""

    def work(comm: Communicator) -> None:
        value = np.zeros(LARGE)
        for number in range(50):
            if comm.rank == 0:
                value[:] = number
                comm.send(value, 1)
                value[:] = -1
            else:
                assert (comm.recv(0, out=value) == number).all()

    for share in 0.0, 0.2, 0.5:
        leaving(share)
        check(job(2).run(work))
    assert ends["settled"]


def test_a_call_keeps_no_array_of_the_program(job: Callable[..., Job], ends: Counter[str]) -> None:
    def work(comm: Communicator) -> list[int]:
        given = []
        for number in range(4):
            array = np.ones(LARGE)
            given.append(weakref.ref(array))
            comm.send(array, 1, 3) if comm.rank == 0 else comm.recv(0, 3, out=array)
            comm.sendrecv(array, 1 - comm.rank, 1 - comm.rank, number)
            del array
        return [number for number, array in enumerate(given) if array() is not None]

    for wait in WAITS:
        with patch.object(direct, "PATIENCE", wait):
            assert job(2).run(work) == [[], []]
    assert ends["offered"]


# Errors.


def told(results: list[Any]) -> list[tuple[str, str]]:
    return [(type(result).__name__, str(result)) for result in results]


def before(comm: Communicator) -> None:
    """Messages that come as they are, and then all ranks meet."""
    for _ in range(3):
        assert (comm.sendrecv(STAYS, 1 - comm.rank, 1 - comm.rank, 3) == STAYS).all()
    comm.barrier()


def strange(*frames: bytes, **how: Any) -> Callable[[Communicator], Any]:
    """Return the work of ranks where rank 0 gets a message that is no value, as only a rank that breaks the rules
    sends it, or one that does not fit.
    """

    def work(comm: Communicator) -> Any:
        before(comm)
        if comm.rank == 0:
            got = comm.recv(1, 0, **how)
            comm.barrier()
            return got.shape
        group, views = comm._group, [memoryview(frame) for frame in frames]
        drive(group.endpoint, point_to_point.send(group, None, 0, 0, views))
        return comm.barrier()

    return work


def record(**facts: Any) -> bytes:
    return pack_record({"kind": "array", "dtype": "'|u1'", "shape": [LARGE], "order": "C", **facts})


DATA = bytes(LARGE)
STRANGE = {
    **{
        str(frame[:9]): strange(frame, DATA) for frame in (b"", b"\xc1", b"\x01", bytes(2000), pack_record({"kind": 3}))
    },
    **{
        f"{facts}": strange(record(**facts), DATA)
        for facts in (
            *({"dtype": dtype} for dtype in ("'|O'", "1 +", "[]", "'<f8'")),
            *({"shape": shape} for shape in ([LARGE + 1], [-LARGE], [-1, -LARGE], "3", [float(LARGE)], [1] * 99)),
            *({"order": order} for order in ("X", 0)),
        )
    },
    "one frame": strange(record() + DATA),
    "three frames": strange(record(), DATA, DATA),
    "no data": strange(record() * 1000, b""),
    "no pickle": strange(pack_record({"kind": "object"}), DATA),
    "other items": strange(record(), DATA, out=np.zeros(LARGE // 4, np.int32)),
    "too many": strange(record(), DATA, out=np.zeros(LARGE - 1, np.uint8)),
    "no array": strange(pack_record({"kind": "object"}), DATA, out=np.zeros(LARGE, np.uint8)),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_message_that_is_no_value_fails_as_by_the_engine(
    name: str, job: Callable[..., Job], ends: Counter[str]
) -> None:
    lanes, engine = job(2), job(2, predict=False)
    assert told(lanes.run(STRANGE[name])) == told(engine.run(STRANGE[name]))


def test_another_shape_of_the_same_items_is_put_where_it_belongs(job: Callable[..., Job], ends: Counter[str]) -> None:
    def work(comm: Communicator) -> None:
        before(comm)
        out = np.zeros(LARGE + 1, np.uint8)
        got = comm.sendrecv(STAYS.reshape(2, -1), 1 - comm.rank, 1 - comm.rank, out=out)
        assert_same(got.copy(), STAYS.reshape(2, -1))
        assert np.may_share_memory(got, out)

    check(job(2).run(work))
    assert ends["offered"]


@pytest.mark.parametrize("call", ["send", "sendrecv"])
def test_a_rank_that_leaves_fails_those_that_wait_for_it(
    call: str, job: Callable[..., Job], ends: Counter[str]
) -> None:
    """The memory is the program's again: what the engine has lent is taken back."""

    def work(comm: Communicator) -> Any:
        before(comm)
        if comm.rank == 1:
            return comm.finalize()
        return comm.send(STAYS, 1) if call == "send" else comm.sendrecv(STAYS, 1, 1)

    for predict in True, False:
        made = job(2, predict=predict)
        error = made.run(work)[0]
        assert type(error).__name__ == "PeerFailed"
        assert "rank 1" in str(error)
        protocol: Any = made.endpoints[0].protocol
        assert not protocol._sending.transfers
        assert not protocol.withdrawn


def test_a_wait_for_a_reader_has_a_deadline(job: Callable[..., Job], ends: Counter[str]) -> None:
    def work(comm: Communicator) -> Any:
        before(comm)
        if comm.rank == 0:
            comm.timeout = 0.2
            comm.send(STAYS, 1)
        return comm.recv(0, 9)

    results = job(2).run(work)
    assert told(results)[0][0] == "CollectiveTimeout"
    assert ends["handed over"]


def test_the_flight_recorder_has_the_calls_in_every_way(job: Callable[..., Job], ends: Counter[str]) -> None:
    def work(comm: Communicator) -> list[tuple[str, str]]:
        before(comm)
        flight = decode(comm._group.endpoint.recorder.image())
        assert flight is not None
        return [(entry.label, entry.state) for entry in flight.entries]

    found = []
    for wait in WAITS:
        with patch.object(direct, "PATIENCE", wait):
            found.append(job(2).run(work))
    assert found == [job(2, predict=False).run(work)] * len(WAITS)


def test_a_call_without_memory_for_its_message_loses_neither_that_nor_what_it_sends(
    job: Callable[..., Job], ends: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []
    offered = self_describing.offered

    def offered_once_without_memory(*message: Any, **how: Any) -> Any:
        if not failed:
            failed.append(1)
            raise MemoryError("no room")
        return offered(*message, **how)

    def work(comm: Communicator) -> None:
        other, sent, got = 1 - comm.rank, 0, 0
        while got < 3:
            mine = np.full(1 << 20, 3 * comm.rank + sent, np.uint8)
            try:
                value = comm.sendrecv(mine, other, other, 5) if sent < 3 else comm.recv(other, 5)
            except MemoryError:
                flight = decode(comm._group.endpoint.recorder.image())
                assert flight is not None
                assert flight.entries[-1].state == "failed"
            else:
                assert_same(value, np.full(1 << 20, 3 * other + got, np.uint8))
                got += 1
            sent += 1

    monkeypatch.setattr(self_describing, "offered", offered_once_without_memory)
    monkeypatch.setattr(direct, "PATIENCE", patience(ENOUGH))
    made = job(2)
    check(made.run(work))
    assert failed
    assert made.counters == [[[0, 3]] * 2, [[3, 0]] * 2]


def test_an_array_that_is_too_large_to_be_offered_is_described_without_memory() -> None:
    assert self_describing._record(np.dtype(np.uint8), (1 << 60,)) is None
    assert self_describing._record(np.dtype(np.uint8), (MOST,))
