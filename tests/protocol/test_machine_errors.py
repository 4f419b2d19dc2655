"""The protocol between two ranks after errors: failures, notices, departures, and calls that do not match."""

from __future__ import annotations

import pytest

from ringcast.errors import CollectiveMismatch, JobAborted, LinkLost, PeerFailed, Revoked
from ringcast.protocol.communicators import OVER
from ringcast.protocol.counters import PATIENCE
from ringcast.protocol.operations import SEGMENT, Operation
from ringcast.wire import codec
from ringcast.wire.call import NOWHERE, Call
from ringcast.wire.control_messages import Abort, Bye, Failed, Notice, Revoke
from ringcast.wire.failure import Failure
from ringcast.wire.header import EAGER_LIMIT as EAGER_LIMIT
from ringcast.wire.header import ECHO, GIVEN_UP_BY, LOST, PROBE, STAGES, Kind
from support.protocol_net import (
    CALL,
    CONTEXT,
    LARGE,
    Buffer,
    Net,
    check_quiet,
    check_quiet_rank,
    content,
    data_of,
    tell,
)

KILLED = Failed(1, Failure("killed"))


class Cut:
    """A message whose connection breaks off behind the header."""

    loan, more = None, True

    def __init__(self, header: bytes) -> None:
        self.header = header

    def read(self) -> bytes:
        raise LinkLost(0, "it was reset")

    def read_into(self, _: memoryview) -> int:
        raise LinkLost(0, "it was reset")


# Rule 5: after an error the transfers are dead.


def half_done(granted: bool) -> tuple[Net, list[Operation], Buffer]:
    """Rank 1 has received one segment of a message from 0 when its operation fails."""
    net = Net(2)
    ops = net.begin(granted=granted)
    sink = Buffer(20 * SEGMENT)
    net.ranks[1].receive(ops[1], 0, sink)
    net.ranks[0].send(ops[0], 1, [memoryview(b"x" * 20 * SEGMENT)])
    if not granted:
        net.step(0, 1)
    net.step(1, 0)
    net.step(0, 1)
    assert sink.filled == SEGMENT
    return net, ops, sink


@pytest.mark.parametrize("granted", [False, True])
def test_data_of_dead_transfers_is_dropped(granted: bool) -> None:
    net, ops, sink = half_done(granted)
    net.ranks[1].fail(ops[1], TimeoutError("too late"))
    net.run()
    assert net.ranks[1].dropped["dead data"] == 3  # the rest of the window
    assert sink.filled == SEGMENT  # the user has this memory back
    assert sink.data[SEGMENT:] == bytes(19 * SEGMENT)
    assert isinstance(ops[0].error, Revoked)
    assert "too late" in str(ops[0].error)
    assert (ops[0].error.rank, ops[0].error.by) == (0, 1)
    check_quiet(net)


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.RTS, Kind.REFUSE])
def test_a_connection_that_breaks_off_in_a_message_is_the_failure_of_its_sender(kind: Kind) -> None:
    net = Net(3)
    ops = net.begin(granted=False)
    net.ranks[1].receive(ops[1], 0, Buffer(LARGE))
    net.ranks[0].send(ops[0], 1, [memoryview(bytes(LARGE))])
    if kind == Kind.DATA:
        net.step(0, 1)
        net.step(1, 0)
    if kind == Kind.REFUSE:
        net.step(0, 1)
        net.ranks[0].fail(ops[0], TimeoutError("too late"))
    net.collect()
    assert net.kinds(0, 1)[-1] == kind
    net.ranks[1].handle(Cut(bytes(net.links[0, 1].popleft()[0])))
    error = ops[1].error
    assert isinstance(error, PeerFailed)
    assert (error.rank, error.peer) == (1, 0)
    assert "the link from rank 0 to rank 1 broke off in the middle of a message: it was reset" in str(error)
    assert net.ranks[1].found == [(CONTEXT, 0)]  # so the other members hear of it
    check_quiet_rank(net.ranks[1])


@pytest.mark.parametrize("granted", [False, True])
def test_a_stale_grant_gets_no_data(granted: bool) -> None:
    net, ops, _ = half_done(granted)
    sent = len(data_of(net))
    net.ranks[0].fail(ops[0], TimeoutError("too late"))
    net.step(0, 1)
    net.step(0, 1)  # rank 1 sends more credit
    assert net.kinds(1, 0)[-1] == Kind.CTS
    net.run()
    assert len(data_of(net)) == sent
    assert isinstance(ops[1].error, Revoked)
    check_quiet(net)


def test_an_early_grant_for_a_dead_communicator_is_refused() -> None:
    net = Net(2)
    ops = net.begin(granted=True)
    net.ranks[0].fail(ops[0], TimeoutError("too late"))
    net.ranks[1].receive(ops[1], 0, Buffer(5))
    net.run()
    assert net.kinds(0, 1) == [Kind.REFUSE]
    assert isinstance(ops[1].error, Revoked)
    check_quiet(net)


def test_every_peer_that_was_announced_or_granted_something_is_refused_once() -> None:
    net = Net(6)
    ops = net.begin(granted=False)
    net.ranks[0].send(ops[0], 1, [memoryview(bytes(LARGE))])  # announced to 1, twice
    net.ranks[0].send(ops[0], 1, [memoryview(bytes(LARGE))])
    net.ranks[0].receive(ops[0], 1, Buffer(LARGE))
    net.ranks[2].send(ops[2], 0, [memoryview(bytes(LARGE))])  # granted to 2
    net.ranks[0].receive(ops[0], 2, Buffer(LARGE))
    net.ranks[3].send(ops[3], 0, [memoryview(bytes(LARGE))])  # announced by 3, and no receive
    net.ranks[4].send(ops[4], 0, [memoryview(b"small")])  # complete for 4: nothing to tell
    for r in 2, 3, 4:
        net.step(r, 0)
    before = len(net.log)
    net.ranks[0].fail(ops[0], TimeoutError())
    net.collect()
    told = [b for a, b, h in net.log[before:] if a == 0 and h.kind == Kind.REFUSE]
    assert sorted(told) == [1, 2, 3]
    net.run()
    assert [type(op.error) for op in ops[1:]] == [Revoked, Revoked, Revoked, type(None), type(None)]


def test_an_early_grant_without_a_send_is_refused_when_the_operation_fails() -> None:
    net = Net(2)
    ops = net.begin(granted=True)
    net.ranks[1].receive(ops[1], 0, Buffer(5))
    net.run()
    net.ranks[0].fail(ops[0], TimeoutError())
    net.run()
    assert net.kinds(0, 1) == [Kind.REFUSE]
    assert isinstance(ops[1].error, Revoked)


def test_a_rank_that_knows_of_a_failure_tells_those_who_wait_for_it_all_that_it_knows() -> None:
    net = Net(3)
    ops = net.begin(granted=True)
    net.ranks[1].receive(ops[1], 0, Buffer(5))
    net.run()
    net.ranks[0].lose(2, Failure("killed", "Traceback", (), "host", 77))
    net.run()
    error = ops[1].error
    assert isinstance(error, PeerFailed)
    assert (error.rank, error.peer, error.cause, error.host, error.pid) == (1, 2, "killed", "host", 77)
    assert error.remote_traceback == "Traceback"
    assert not net.ranks[1].failed  # only the control plane says so


@pytest.mark.parametrize("word", [0, 5, 2**40])
def test_a_failure_of_this_rank_or_of_none_is_not_believed(word: int) -> None:
    net = Net(2)
    ops = net.begin(granted=True)
    net.ranks[0].receive(ops[0], 1, Buffer(5))
    payload = codec.encode(Failure("it failed"))
    net.ranks[1]._aborter.refuse(0, CONTEXT, ops[1].number, 0, payload, set(), LOST, word)
    net.run()
    assert isinstance(ops[0].error, Revoked)


def test_a_peer_that_reports_a_failure_in_no_known_way_counts_as_failed() -> None:
    net = Net(3)
    ops = net.begin(granted=True)
    net.ranks[0].receive(ops[0], 1, Buffer(5))
    net.ranks[1]._aborter.refuse(0, CONTEXT, ops[1].number, 0, b"it failed", set(), LOST, 2)
    net.run()
    assert "not understood" in net.ranks[0].failed[1].cause or "cannot be read" in net.ranks[0].failed[1].cause
    assert isinstance(ops[0].error, PeerFailed)


def test_only_when_no_communicator_is_left_nothing_counts_any_more() -> None:
    rank = Net(2).ranks[0]
    assert not rank.hopeless
    rank.begin(CONTEXT, CALL)
    rank.invalidate(CONTEXT, TimeoutError())
    assert rank.hopeless
    rank.begin(CONTEXT + 1, CALL)
    assert not rank.hopeless


def test_the_cause_is_raised_once_and_then_revoked() -> None:
    net = Net(2)
    cause = PeerFailed(0, 1, "killed")
    net.ranks[0].invalidate(CONTEXT, cause)
    with pytest.raises(PeerFailed) as first:
        net.ranks[0].begin(CONTEXT, CALL)
    assert first.value is cause
    for _ in range(2):
        with pytest.raises(Revoked, match="killed"):
            net.ranks[0].begin(CONTEXT, CALL)


def test_a_caller_that_raises_the_cause_itself_leaves_revoked_to_the_next() -> None:
    net = Net(1)
    op = net.ranks[0].begin(CONTEXT, CALL)
    net.ranks[0].fail(op, TimeoutError("too late"))
    with pytest.raises(Revoked, match="too late"):
        net.ranks[0].begin(CONTEXT, CALL)


@pytest.mark.parametrize("granted", [False, True])
def test_a_dead_operation_sends_nothing_more(granted: bool) -> None:
    """An error may come up in the middle of a post: its receive finds a wrong message, and its send follows."""
    net = Net(2)
    mine, theirs = net.ranks
    op = mine.begin(CONTEXT, CALL, granted=granted)
    mine.invalidate(CONTEXT, Revoked(0, "for a reason"))
    theirs.begin(CONTEXT, CALL, granted=granted)
    net.run()
    before = len(net.log)
    mine.receive(op, 1, Buffer(LARGE))
    mine.send(op, 1, [memoryview(bytes(LARGE))])
    mine.send(op, 1, [memoryview(b"small")])
    net.run()
    assert net.log[before:] == []
    check_quiet_rank(mine)


# Rule 6: contexts.


def test_messages_for_a_communicator_that_is_not_begun_are_kept() -> None:
    net = Net(2)
    op = net.ranks[0].begin(99, CALL)
    small, large = content(0, 1, 0, 10), content(0, 1, 1, LARGE)
    net.ranks[0].send(op, 1, [memoryview(small)])
    net.ranks[0].send(op, 1, [memoryview(large)])
    net.run()
    other = net.ranks[1].begin(99, CALL)
    sinks = Buffer(10), Buffer(LARGE)
    for sink in sinks:
        net.ranks[1].receive(other, 0, sink)
    net.run()
    assert [sink.data for sink in sinks] == [small, large]


def test_operations_ahead_of_this_rank_are_kept_apart() -> None:
    net = Net(2)
    data = [content(0, 1, i, 10) for i in range(3)]
    for message in data:
        op = net.ranks[0].begin(CONTEXT, CALL)
        net.ranks[0].send(op, 1, [memoryview(message)])
        net.ranks[0].end(op)
    net.run()
    for message in data:
        op, sink = net.ranks[1].begin(CONTEXT, CALL), Buffer(10)
        net.ranks[1].receive(op, 0, sink)
        net.ranks[1].end(op)
        assert sink.data == message
    check_quiet(net)


@pytest.mark.parametrize("granted", [False, True])
def test_a_retired_communicator_refuses(granted: bool) -> None:
    net = Net(2)
    net.ranks[1].retire(CONTEXT)
    op = net.ranks[0].begin(CONTEXT, CALL, granted=granted)
    if granted:
        net.ranks[0].receive(op, 1, Buffer(LARGE))
    else:
        net.ranks[0].send(op, 1, [memoryview(bytes(LARGE))])
    net.run()
    assert isinstance(op.error, Revoked)
    assert "freed" in str(op.error)
    assert CONTEXT not in net.ranks[1]._contexts
    with pytest.raises(Revoked, match="freed"):
        net.ranks[1].begin(CONTEXT, CALL)


def test_a_communicator_that_all_have_freed_still_answers_probes() -> None:
    """Rank 0 waits for somebody else in the call in which all free it, and for rank 1, which has left that call."""
    net = Net(2)
    net.ranks[1].retire(CONTEXT, by_all=True)
    op = net.ranks[0].begin(CONTEXT, CALL)
    net.ranks[0].receive(op, 1, Buffer(1))
    net.ranks[0].probe([op])
    net.run()
    assert op.error is None
    assert [h.flags for _, _, h in net.log] == [PROBE, ECHO]
    net.ranks[0].send(op, 1, [memoryview(bytes(LARGE))])  # what nobody has received is refused
    net.run()
    assert isinstance(op.error, Revoked)


def test_communicators_that_all_have_freed_are_remembered_for_a_while() -> None:
    protocol = Net(2).ranks[1]
    for context in range(100, 100 + 2 * OVER):
        protocol.retire(context, by_all=context != 100)
    assert protocol.revoked(100), "this rank alone has freed it, and others may call for ever"
    assert [protocol.revoked(context) for context in (101, 99 + OVER, 100 + OVER)] == [False, False, True]
    assert len(protocol._contexts.retired) == OVER + 1
    assert not protocol._contexts


def test_the_messages_of_a_failed_rank_are_zombies() -> None:
    net = Net(2)
    ops = net.begin()
    tell(net, 1, Failed(0, Failure("killed by signal 9")))
    sink = Buffer(1)
    net.ranks[0].send(ops[0], 1, [memoryview(b"x")])
    net.run()
    assert net.ranks[1].dropped == {"zombie": 1}
    assert sink.filled == 0
    error = ops[1].error
    assert isinstance(error, PeerFailed)
    assert (error.peer, error.cause) == (0, "killed by signal 9")
    assert net.kinds(1, 0) == []  # no message goes to a failed rank


def test_a_communicator_that_a_failed_rank_belongs_to_is_given_up_when_it_is_come_to() -> None:
    net = Net(3)
    tell(net, 0, KILLED)
    with pytest.raises(PeerFailed, match="killed") as caught:
        net.ranks[0].begin(1, CALL)
    assert caught.value.peer == 1
    with pytest.raises(Revoked):
        net.ranks[0].begin(1, CALL)


@pytest.mark.parametrize("before", [True, False])
def test_the_failure_of_a_rank_leaves_a_communicator_without_it_as_it_is(before: bool) -> None:
    net = Net(3)
    whole = net.ranks[0].begin(1, CALL)
    if before:
        tell(net, 0, KILLED)
    ops = []
    for rank in 0, 2:
        net.ranks[rank].enrol(2, (0, 2))
        ops.append(net.ranks[rank].begin(2, CALL))
    if not before:
        tell(net, 0, KILLED)
    assert isinstance(whole.error, PeerFailed)
    buffer = Buffer(LARGE)
    net.ranks[2].receive(ops[1], 0, buffer)
    net.ranks[0].send(ops[0], 2, [memoryview(bytes(range(256)) * (LARGE // 256 + 1))[:LARGE]])
    net.run()
    assert buffer.filled == LARGE
    assert not ops[0].pending
    assert ops[0].error is None


def test_a_message_that_comes_before_its_receiver_has_come_to_the_communicator_outlives_a_failure() -> None:
    net = Net(3)
    net.ranks[0].enrol(2, (0, 2))
    net.ranks[0].send(net.ranks[0].begin(2, CALL), 2, [memoryview(b"early")])
    net.run()
    tell(net, 2, KILLED)
    net.ranks[2].enrol(2, (0, 2))
    op, buffer = net.ranks[2].begin(2, CALL), Buffer(5)
    net.ranks[2].receive(op, 0, buffer)
    assert buffer.data == b"early"


def test_what_another_rank_says_about_a_communicator_is_refused_and_changes_nothing() -> None:
    net = Net(3)
    for rank in 0, 2:
        net.ranks[rank].enrol(2, (0, 2))
    mine = net.ranks[0].begin(2, CALL)
    foreign = net.ranks[1].begin(2, CALL)
    net.ranks[1].send(foreign, 0, [memoryview(b"hello")])
    net.ranks[1].send(foreign, 2, [memoryview(bytes(LARGE))])
    net.run()
    assert isinstance(foreign.error, Revoked)
    assert "no member" in foreign.error.cause
    assert mine.error is None
    net.ranks[1].invalidate(2, foreign.error)  # its own refusals are not listened to either
    net.run()
    net.ranks[0].end(mine)
    assert mine.error is None


# Rule 7: leaving.


def bye(net: Net, source: int, dest: int) -> None:
    net.collect()
    count = net.ranks[source].sent[dest]
    tell(net, dest, Bye(source, count))


def test_a_rank_that_left_after_all_its_messages_is_no_error() -> None:
    net = Net(2)
    ops = net.begin()
    net.ranks[0].send(ops[0], 1, [memoryview(b"x")])
    bye(net, 0, 1)  # overtakes the message
    sink = Buffer(1)
    net.ranks[1].receive(ops[1], 0, sink)
    assert ops[1].error is None
    net.run()
    net.ranks[1].end(ops[1])
    assert sink.data == b"x"
    assert ops[1].error is None
    assert net.ranks[1].begin(CONTEXT, CALL).error is None


def test_finished_is_raised_by_a_receiver_that_has_had_all_messages_and_still_waits() -> None:
    net = Net(2)
    ops = net.begin()
    net.ranks[0].send(ops[0], 1, [memoryview(b"x")])
    for _ in range(2):
        net.ranks[1].receive(ops[1], 0, Buffer(1))
    bye(net, 0, 1)
    assert ops[1].error is None
    net.run()
    assert isinstance(ops[1].error, PeerFailed)
    assert "finished" in str(ops[1].error)


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("first", ["bye", "call"])
@pytest.mark.parametrize("do", ["send", "receive"])
def test_finished_is_raised_by_one_who_asks_a_rank_that_has_left(granted: bool, first: str, do: str) -> None:
    net = Net(2)
    op = net.ranks[1].begin(CONTEXT, CALL, granted=granted)
    if first == "bye":
        bye(net, 0, 1)
    if do == "send":
        net.ranks[1].send(op, 0, [memoryview(bytes(LARGE))])
    else:
        net.ranks[1].receive(op, 0, Buffer(LARGE))
    if first == "call":
        bye(net, 0, 1)
    assert isinstance(op.error, PeerFailed)
    assert "finished" in str(op.error)
    check_quiet_rank(net.ranks[1])


def test_the_last_messages_of_a_rank_that_has_left_may_take_long_if_one_comes_now_and_then() -> None:
    net = Net(2)
    ops = net.begin()
    sinks = [Buffer(1) for _ in range(3)]
    for sink in sinks:
        net.ranks[1].receive(ops[1], 0, sink)
        net.ranks[0].send(ops[0], 1, [memoryview(b"x")])
    bye(net, 0, 1)
    for _ in sinks:
        for _ in range(PATIENCE):
            net.ranks[1].probe([ops[1]])
        net.step(0, 1)
    assert ops[1].error is None
    assert not ops[1].pending


def test_a_rank_that_left_is_no_error_for_those_who_wait_for_others() -> None:
    net = Net(3)
    ops = net.begin()
    sink = Buffer(1)
    net.ranks[1].receive(ops[1], 2, sink)
    bye(net, 0, 1)
    net.ranks[2].send(ops[2], 1, [memoryview(b"x")])
    net.run()
    assert sink.data == b"x"
    assert ops[1].error is None


# Rule 8: notices.


@pytest.mark.parametrize(
    ("notice", "error"),
    [
        (Abort("a reason"), JobAborted),
        (Failed(0, Failure("a reason")), PeerFailed),
        (Revoke(0, CONTEXT, "a reason"), Revoked),
        (Revoke(0, CONTEXT, "a reason", failed=2), PeerFailed),
    ],
)
def test_notices_end_what_is_under_way(notice: Notice, error: type[BaseException]) -> None:
    net = Net(3)
    ops = net.begin()
    net.ranks[1].receive(ops[1], 2, Buffer(1))
    tell(net, 1, notice)
    assert type(ops[1].error) is error
    assert "a reason" in str(ops[1].error)
    assert net.kinds(1, 2) == [Kind.REFUSE]
    with pytest.raises(error):
        net.ranks[1].begin(CONTEXT, CALL)


@pytest.mark.parametrize("notice", [Revoke(1, CONTEXT, "a reason"), Failed(2, Failure("a reason"))])
def test_a_call_that_began_by_prediction_ends_if_its_communicator_has_meanwhile(notice: Notice) -> None:
    rank = (net := Net(3, continues=True)).ranks[0]
    rank.end(rank.begin(CONTEXT, CALL))
    tell(net, 0, notice)
    op = Operation(CONTEXT, 2 * STAGES, CALL, False, 1, NOWHERE)
    rank.adopt(op)
    assert "a reason" in str(op.error)
    assert rank.idle(CONTEXT)
    with pytest.raises((PeerFailed, Revoked), match="a reason"):
        rank.begin(CONTEXT, CALL)


def test_each_call_after_a_revocation_names_the_rank_that_gave_up() -> None:
    net = Net(3)
    tell(net, 0, Revoke(2, CONTEXT, "a reason"))
    for _ in range(3):
        with pytest.raises(Revoked, match="a reason") as raised:
            net.ranks[0].begin(CONTEXT, CALL)
        assert raised.value.by == 2


@pytest.mark.parametrize(("word", "by"), [(2, 2), (1, 0), (3, 0), (2**40, 0)])
def test_a_revocation_that_is_passed_on_names_the_rank_that_gave_up(word: int, by: int) -> None:
    net = Net(3)
    ops = net.begin(granted=True)
    net.ranks[1].receive(ops[1], 0, Buffer(5))
    net.run()
    if word == by:  # the true one is sent by the rank itself
        tell(net, 0, Revoke(2, CONTEXT, "a reason"))
    else:
        net.ranks[0]._aborter.refuse(1, CONTEXT, ops[0].number, 0, b"a reason", set(), GIVEN_UP_BY, word)
    net.run()
    error = ops[1].error
    assert isinstance(error, Revoked)
    assert (error.by, error.cause) == (by, "a reason")


def test_revoke_ends_one_communicator_only() -> None:
    net = Net(2)
    one, two = (net.ranks[0].begin(context, CALL) for context in (1, 2))
    tell(net, 0, Revoke(1, 1, "a reason"))
    assert isinstance(one.error, Revoked)
    assert two.error is None


@pytest.mark.parametrize("context", [CONTEXT, CONTEXT + 1])
def test_an_aborted_job_begins_nothing(context: int) -> None:
    net = Net(2)
    net.ranks[0].end(net.ranks[0].begin(CONTEXT, CALL))
    tell(net, 0, Abort("a reason"))
    with pytest.raises(JobAborted, match="a reason"):
        net.ranks[0].begin(context, CALL)


def test_a_notice_may_come_without_a_cause() -> None:
    net = Net(2)
    op = net.ranks[0].begin(CONTEXT, CALL)
    tell(net, 0, Abort(""))
    assert isinstance(op.error, JobAborted)


# Mismatched calls.


@pytest.mark.parametrize(
    ("theirs", "aspect"),
    [
        (Call("barrier"), "barrier, not bcast"),
        (Call("reduce", dtype="float64", shape=(10,), root=0, algorithm="circulant"), "reduce, not bcast"),
        (Call("bcast", dtype="int32", shape=(10,), root=0, algorithm="circulant"), "dtype"),
        (Call("bcast", dtype="float64", shape=(11,), root=0, algorithm="circulant"), "shape or counts"),
        (Call("bcast", dtype="float64", shape=(10,), root=1, algorithm="circulant"), "root"),
        (Call("bcast", dtype="float64", shape=(10,), op="SUM", root=0, algorithm="circulant"), "op"),
        (Call("bcast", dtype="float64", shape=(10,), root=0, algorithm="ring"), "algorithm or nblocks"),
        (Call("bcast", dtype="float64", shape=(10,), root=0, algorithm="circulant", nblocks=2), "algorithm or nblocks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("how", ["eager", "rts", "granted"])
@pytest.mark.parametrize("first", ["sender", "receiver"])
def test_both_sides_of_a_mismatch_learn_what_differs(theirs: Call, aspect: str, how: str, first: str) -> None:
    net = Net(2)
    granted, size = how == "granted", 1 if how == "eager" else LARGE

    def begin(rank: int) -> Operation:
        return net.ranks[rank].begin(CONTEXT, theirs if rank else CALL, granted=granted)

    def act(rank: int, op: Operation) -> None:
        if rank == 0:
            net.ranks[0].send(op, 1, [memoryview(bytes(size))])
        elif not op.error:
            net.ranks[1].receive(op, 0, Buffer(size))

    ops: dict[int, Operation] = {}
    for rank in (0, 1) if first == "sender" else (1, 0):
        ops[rank] = begin(rank)
        act(rank, ops[rank])
        net.run()
    errors = {rank: op.error for rank, op in ops.items()}
    assert all(isinstance(error, CollectiveMismatch) for error in errors.values()), errors
    finder = 0 if granted else 1  # who got the other's message first
    found, told = errors[finder], errors[1 - finder]
    assert isinstance(found, CollectiveMismatch)
    assert isinstance(told, CollectiveMismatch)
    if aspect.endswith("not bcast"):  # each names the other's collective
        other = CALL.collective if finder else theirs.collective
        assert found.theirs.startswith(other)
    else:
        assert aspect in found.theirs
        assert found.differs.startswith(f"{aspect} differ")
    assert (found.peer, told.peer) == (1 - finder, finder)
    assert told.theirs == str((theirs, CALL)[1 - finder])  # the other rank gets the whole call
    assert told.mine == str((theirs, CALL)[finder])
    check_quiet(net)


@pytest.mark.parametrize("granted", [False, True])
def test_a_mismatch_that_has_arrived_already_is_found_before_anything_is_sent(granted: bool) -> None:
    net = Net(2)
    op = net.ranks[0].begin(CONTEXT, Call("barrier"), granted=granted)
    if granted:
        net.ranks[0].receive(op, 1, Buffer(LARGE))
    else:
        net.ranks[0].send(op, 1, [memoryview(b"x")])
    net.run()
    assert isinstance(net.ranks[1].begin(CONTEXT, CALL, granted=granted).error, CollectiveMismatch)


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("first", ["sender", "receiver"])
def test_a_message_of_another_size_is_a_mismatch(granted: bool, first: str) -> None:
    net = Net(2)
    ops = net.begin(granted=granted)

    def send() -> None:
        net.ranks[0].send(ops[0], 1, [memoryview(bytes(LARGE))])
        net.run()

    def receive() -> None:
        net.ranks[1].receive(ops[1], 0, Buffer(LARGE + 1))
        net.run()

    for act in (send, receive) if first == "sender" else (receive, send):
        act()
    for op in ops:
        assert isinstance(op.error, CollectiveMismatch)
    finder = ops[0 if granted else 1].error
    assert str(LARGE) in str(finder)
    assert str(LARGE + 1) in str(finder)
    check_quiet(net)


@pytest.mark.parametrize("how", ["eager", "rts", "granted"])
def test_a_message_that_is_left_over_is_a_mismatch(how: str) -> None:
    net = Net(2)
    ops = net.begin(granted=how == "granted")
    size = 1 if how == "eager" else LARGE
    if how == "granted":  # rank 0 never sends what rank 1 waits for
        net.ranks[1].receive(ops[1], 0, Buffer(size))
        net.run()
        net.ranks[0].end(ops[0])
        mine, other = ops
    else:
        net.ranks[0].send(ops[0], 1, [memoryview(bytes(size))])
        net.run()
        net.ranks[1].end(ops[1])
        other, mine = ops
    net.run()
    assert isinstance(mine.error, CollectiveMismatch)
    assert isinstance(other.error, CollectiveMismatch)
    assert "does not expect" in str(mine.error)
    check_quiet(net)


@pytest.mark.parametrize("how", ["eager", "rts", "granted"])
def test_a_message_for_an_operation_that_has_ended_is_a_mismatch(how: str) -> None:
    net = Net(2)
    ops = net.begin(granted=how == "granted")
    net.ranks[1].end(ops[1])
    if how == "granted":
        net.ranks[0].receive(ops[0], 1, Buffer(LARGE))
    else:
        net.ranks[0].send(ops[0], 1, [memoryview(bytes(1 if how == "eager" else LARGE))])
    net.run()
    assert isinstance(ops[0].error, CollectiveMismatch)
    with pytest.raises(CollectiveMismatch):
        net.ranks[1].begin(CONTEXT, CALL)
    check_quiet_rank(net.ranks[0])


def test_many_messages_left_over_are_refused_once_each_sender() -> None:
    net = Net(3)
    ops = net.begin()
    for _ in range(3):
        net.ranks[0].send(ops[0], 2, [memoryview(bytes(LARGE))])
        net.ranks[1].send(ops[1], 2, [memoryview(bytes(LARGE))])
    net.run()
    net.ranks[2].end(ops[2])
    assert net.kinds(2, 0) == net.kinds(2, 1) == [Kind.REFUSE]
    net.run()
    assert all(isinstance(op.error, CollectiveMismatch) for op in ops)


@pytest.mark.parametrize("size", [1, LARGE])
@pytest.mark.parametrize("first", ["sender", "receiver"])
def test_granted_on_the_receiving_side_only_is_a_mismatch(size: int, first: str) -> None:
    """The two ends decide by the size of the whole buffer; when they differ, so do their sizes."""
    net = Net(2)
    ops = [net.ranks[0].begin(CONTEXT, CALL), net.ranks[1].begin(CONTEXT, CALL, granted=True)]

    def send() -> None:
        net.ranks[0].send(ops[0], 1, [memoryview(bytes(size))])
        net.run()

    def receive() -> None:
        net.ranks[1].receive(ops[1], 0, Buffer(size))
        net.run()

    for act in (send, receive) if first == "sender" else (receive, send):
        act()
    for op in ops:
        assert isinstance(op.error, CollectiveMismatch)
    assert any("shape or counts" in str(op.error) for op in ops)
    check_quiet_rank(net.ranks[0])
    check_quiet_rank(net.ranks[1])


# A link that does not take a message.


def test_a_peer_that_is_gone_need_not_take_its_budget_back() -> None:
    """Rank 0 has sent all it had to and left; that the return of its budget cannot be delivered is no failure."""
    net = Net(2)
    ops = net.begin()
    for _ in range(10):
        net.ranks[0].send(ops[0], 1, [memoryview(bytes(EAGER_LIMIT))])
    net.run()
    returned = 0
    for _ in range(10):
        net.ranks[1].receive(ops[1], 0, Buffer(EAGER_LIMIT))
        outbox = [*net.ranks[1].outbox]
        net.ranks[1].outbox.clear()
        assert not any(vital for _, _, vital, _ in outbox)
        returned += len(outbox)
    assert returned == 1


@pytest.mark.parametrize("kind", [Kind.EAGER, Kind.RTS, Kind.CTS])
def test_what_a_rank_needs_its_peer_for_is_vital(kind: Kind) -> None:
    net = Net(2)
    op = net.ranks[0].begin(CONTEXT, CALL, granted=kind == Kind.CTS)
    if kind == Kind.CTS:
        net.ranks[0].receive(op, 1, Buffer(5))
    else:
        net.ranks[0].send(op, 1, [memoryview(bytes(1 if kind == Kind.EAGER else LARGE))])
    assert [vital for _, _, vital, _ in net.ranks[0].outbox] == [True]
    assert net.kinds(0, 1) == [kind]
