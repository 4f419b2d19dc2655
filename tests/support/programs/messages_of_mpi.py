"""Laws of messages between ranks that use `ringcast.MPI`; every rank of a job of any size runs all of them."""

from __future__ import annotations

import gc
import pickle
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ringcast import MPI

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()
NEXT, LAST = (RANK + 1) % SIZE, (RANK - 1) % SIZE
SIZES = (0, 1, 8, 1000, 300_000)  # bytes: sent at once, and on request


@contextmanager
def refused(code: int) -> Iterator[None]:
    found = MPI.SUCCESS
    try:
        yield
    except MPI.Exception as error:
        found = error.Get_error_class()
    assert found == code


def facts(status: MPI.Status) -> tuple[int, int, int]:
    return status.source, status.tag, status.count


def check_messages_do_not_overtake() -> None:
    """A receive takes the first of the messages that fit, as a queue for each sender and tag says."""
    rng = random.Random(RANK)
    tags = [rng.randrange(3) for _ in range(60)]
    sent = [COMM.isend((RANK, number), NEXT, tag) for number, tag in enumerate(tags)]
    theirs = random.Random(LAST)
    queue = deque(enumerate(theirs.randrange(3) for _ in range(60)))
    while queue:
        tag = rng.choice([MPI.ANY_TAG, *{tag for _, tag in queue}])
        expected = next(message for message in queue if tag in (MPI.ANY_TAG, message[1]))
        queue.remove(expected)
        status = MPI.Status()
        number = COMM.recv(source=rng.choice([LAST, MPI.ANY_SOURCE]), tag=tag, status=status)
        assert (number, status.source, status.tag) == ((LAST, expected[0]), LAST, expected[1])
    MPI.Request.waitall(sent)


def check_buffers_of_all_sizes_arrive() -> None:
    for size in SIZES:
        data = np.random.default_rng(RANK).integers(0, 256, size, np.uint8)
        theirs = np.random.default_rng(LAST).integers(0, 256, size, np.uint8)
        room, status = np.zeros(size + 3, np.uint8), MPI.Status()
        COMM.Sendrecv(data, NEXT, 4, room, LAST, 4, status)
        assert facts(status) == (LAST, 4, size)
        assert (room[:size] == theirs).all()
        assert not room[size:].any()
        COMM.Sendrecv_replace(data, NEXT, 5, LAST, 5)
        assert (data == theirs).all()
        receive, send = COMM.Irecv(room, LAST, 6), COMM.Issend(data, NEXT, 6)
        send.Wait()
        receive.Wait(status)
        assert facts(status) == (LAST, 6, size)


def check_small_buffers_arrive_as_they_are() -> None:
    """Again and again, in all ways to name buffer, tag and status."""
    for size, tag, typed in product((1, 2, 1000, 2048) * 2, (MPI.ANY_TAG, 6), (False, True)):
        data, room, status = np.full(size, RANK + 0.5), np.zeros(size + 1), MPI.Status()
        COMM.Send([data, MPI.DOUBLE] if typed else data, dest=NEXT, tag=6)  # so small that it goes at once
        COMM.Recv([room, MPI.DOUBLE] if typed else room, LAST, tag, status=status if size != 2 else None)
        assert (room == [*[LAST + 0.5] * size, 0]).all()
        assert size == 2 or facts(status) == (LAST, 6, 8 * size)
        COMM.Sendrecv(data, NEXT, 7, room, LAST, 7)
        COMM.Sendrecv(np.zeros(2049), NEXT, 7, np.zeros(2049), LAST, 7)


def after_the_last(send: Callable[[], object], receive: Callable[[], object]) -> None:
    """Rank 0 sends to the next rank, and so on: a send may wait for its receive."""
    if RANK == 0:
        send()
    receive()
    if RANK:
        send()


def check_large_buffers_arrive_as_they_are() -> None:
    """Again and again, in room of any size."""
    for size, tag, more in product((2049, 10_000, 300_000) * 2, (MPI.ANY_TAG, 6), (0, 1)):
        data, room, status = np.full(size, RANK + 0.5), np.zeros(size + more), MPI.Status()
        if SIZE > 1:
            after_the_last(partial(COMM.Send, data, NEXT, 6), partial(COMM.Recv, room, LAST, tag, status))
            assert (room == [*[LAST + 0.5] * size, *[0] * more]).all()
            assert facts(status) == (LAST, 6, 8 * size)
        COMM.Sendrecv(data, NEXT, 7, room, LAST, 7, status)
        assert (room[:size] == LAST + 0.5).all()
        assert facts(status) == (LAST, 7, 8 * size)


def check_large_objects_arrive_as_they_are() -> None:
    for value in (bytes(20_000), "ä" * 99_999, np.arange(99_999.0).tolist()) * 2:
        assert COMM.sendrecv((value, RANK), NEXT, 3, None, LAST, 3) == (value, LAST)
        if SIZE > 1:
            after_the_last(partial(COMM.send, (value, RANK), NEXT), partial(receive_object, (value, LAST)))


def receive_object(right: object) -> None:
    assert COMM.recv(None, LAST, 0) == right


def check_a_large_message_that_does_not_fit_is_an_error() -> None:
    """It ends nothing."""
    room = np.zeros(10_000)
    for size in (10_001, 10_000) * (2 if SIZE > 1 else 0):
        data = np.full(size, 1.0)
        after_the_last(partial(COMM.Send, data, NEXT, 8), partial(receive_in_part, room, size > room.size))
        assert (room == 1).all() == (size == room.size)
        room[:] = 0


def receive_in_part(room: NDArray[np.float64], truncated: bool) -> None:
    with refused(MPI.ERR_TRUNCATE if truncated else MPI.SUCCESS):
        COMM.Recv(room, LAST, 8)


def check_small_objects_arrive_as_they_are() -> None:
    for value in (None, 0, "ä" * 9, b"", [1, {2: 3}], bytes(16_000)) * 2:
        status = MPI.Status()
        COMM.send((value, RANK), NEXT)
        assert COMM.recv(source=LAST, status=status) == (value, LAST)
        assert facts(status) == (LAST, 0, len(pickle.dumps((value, LAST), pickle.HIGHEST_PROTOCOL)))
        assert COMM.sendrecv((value, RANK), NEXT, 3, None, LAST, 3) == (value, LAST)


def check_mistakes_are_found_in_small_messages() -> None:
    """Also where such messages came before; they end nothing."""
    for _ in range(2):
        COMM.Send(np.arange(3.0), NEXT, 8)
        with refused(MPI.ERR_TRUNCATE):
            COMM.Recv(np.zeros(2), LAST, 8)
        COMM.send(Unreadable(), NEXT, 8)
        with suppress(ZeroDivisionError):
            COMM.recv(None, LAST, 8)
            raise AssertionError
        for mistake in (lambda: COMM.Send(np.zeros(1)), lambda: COMM.Recv(np.zeros(1), LAST, 0, None, 5)):
            with suppress(TypeError):
                mistake()
                raise AssertionError
        with suppress(pickle.PicklingError, AttributeError, TypeError):
            COMM.send(lambda: None, NEXT)
            raise AssertionError


class Unreadable:
    """An object whose unpickling raises."""

    def __reduce__(self) -> tuple[Callable[..., int], tuple[int, int]]:
        return divmod, (1, 0)  # type: ignore[return-value]


def check_a_small_message_does_not_overtake_requests_that_wait() -> None:
    """There are more large ones before it than a rank keeps requests of another one."""
    if RANK == 0 < SIZE - 1:
        large = np.zeros(20_000, np.uint8)
        sent = [COMM.Isend(large, 1, 8) for _ in range(4200)]
        COMM.Send(large[:1], 1, 8)
        MPI.Request.Waitall(sent)
    if RANK == 1:
        room, status = np.zeros(20_000, np.uint8), MPI.Status()
        for number in range(4201):
            COMM.Recv(room, 0, 8, status)
            assert status.count == (20_000 if number < 4200 else 1)


def check_a_synchronous_send_ends_when_it_is_matched() -> None:
    for size in SIZES:
        for dest, source in ((NEXT, LAST), (RANK, RANK)):
            request = COMM.Issend(np.zeros(size, np.uint8), dest, 1)
            COMM.send("another", dest, 2)
            assert COMM.recv(source=source, tag=2) == "another"
            COMM.Barrier()
            assert not request.Test()
            assert COMM.Iprobe(source, 1)
            COMM.Barrier()
            COMM.Recv(np.zeros(size, np.uint8), source, 1)
            request.Wait()
            assert not request


def check_a_message_that_is_too_long_concerns_its_receiver_alone() -> None:
    for size in (8, 300_000):
        for receive in (COMM.Recv, lambda *args: COMM.Irecv(*args[:3]).Wait(args[3])):
            request, status = COMM.Isend(np.ones(size, np.uint8), NEXT, 3), MPI.Status()
            with refused(MPI.ERR_TRUNCATE):
                receive(np.zeros(size - 1, np.uint8), LAST, 3, status)
            assert (status.source, status.tag) == (LAST, 3)
            request.Wait()
        assert COMM.sendrecv(RANK, NEXT, 0, None, LAST, 0) == LAST


def check_what_cannot_be_unpickled_concerns_its_receiver_alone() -> None:
    COMM.Send(b"no pickle", NEXT)
    with suppress(pickle.UnpicklingError):
        raise AssertionError(COMM.recv(source=LAST))
    error = MPI.Exception(MPI.ERR_TAG)
    assert COMM.sendrecv(error, NEXT, 0, None, LAST, 0) == error


def check_bad_arguments_are_refused_before_anything_is_sent() -> None:
    room = bytearray(8)
    for rank in (SIZE, -7, MPI.ROOT):
        for call in (COMM.Send, COMM.Isend, COMM.Ssend_init, COMM.send, COMM.Recv, COMM.Irecv, COMM.Recv_init):
            with refused(MPI.ERR_RANK):
                call(room, rank)
        with refused(MPI.ERR_RANK):
            COMM.probe(rank)
    for call in (COMM.Send, COMM.issend, COMM.Sendrecv_replace):
        with refused(MPI.ERR_RANK):
            call(room, MPI.ANY_SOURCE)
        with refused(MPI.ERR_TAG):
            call(room, NEXT, -1)
    with refused(MPI.ERR_TAG):
        COMM.Recv(room, LAST, -3)
    with refused(MPI.ERR_BUFFER):
        COMM.Bsend(room, NEXT)
    with refused(MPI.ERR_REQUEST):
        MPI.Request().Free()
    with refused(MPI.ERR_REQUEST):
        MPI.MESSAGE_NULL.Recv(room)


def check_nobody_is_at_the_other_end_of_proc_null() -> None:
    nobody, room = MPI.PROC_NULL, bytearray(b"unchanged")
    for call in (COMM.Send, COMM.Ssend, COMM.Rsend, COMM.send, COMM.ssend):
        call(room, nobody)
    for call in (COMM.Isend, COMM.issend, COMM.Irsend, COMM.isend):
        call(room, nobody).Wait()
    status = MPI.Status()
    for receive in (
        lambda: COMM.Recv(room, nobody, 4, status),
        lambda: COMM.Irecv(room, nobody).Wait(status),
        lambda: COMM.sendrecv(0, nobody, 0, None, nobody, 0, status),
        lambda: COMM.Sendrecv(room, nobody, 0, room, nobody, 0, status),
        lambda: COMM.Sendrecv_replace(room, nobody, 0, nobody, 0, status),
        lambda: COMM.Probe(nobody, 0, status),
        lambda: COMM.Iprobe(nobody, 0, status),
        lambda: COMM.Mprobe(nobody, 0).Recv(room, status),
    ):
        status.source = status.tag = status.count = 99
        receive()
        assert facts(status) == (MPI.PROC_NULL, MPI.ANY_TAG, 0)
    assert room == b"unchanged"


def check_a_matched_message_is_received_by_its_handle_alone() -> None:
    for size in SIZES:
        first, second = np.zeros(size, np.uint8), np.ones(size, np.uint8)
        sent = [COMM.Isend(first, NEXT, 7), COMM.Isend(second, NEXT, 7)]
        status, room = MPI.Status(), np.full(size, 9, np.uint8)
        message = COMM.Mprobe(LAST, 7, status)
        assert facts(status) == (LAST, 7, size)
        COMM.Recv(room, LAST, 7)
        assert (room == 1).all()
        assert COMM.Improbe(LAST, 7) is None
        copy = MPI.Message(message)
        message.Recv(room)
        assert (room == 0).all()
        assert not message
        with refused(MPI.ERR_REQUEST):
            copy.Recv(room)
        MPI.Request.Waitall(sent)
        COMM.Barrier()


def check_a_request_may_be_dropped() -> None:
    data = np.full(300_000, RANK, np.uint8)
    for _ in range(3):
        COMM.Isend(data, NEXT, 8)
        COMM.isend("object", NEXT, 9)
    gc.collect()
    for _ in range(3):
        room = np.zeros_like(data)
        COMM.Recv(room, LAST, 8)
        assert (room == LAST).all()
        assert COMM.recv(source=LAST, tag=9) == "object"


def check_a_receive_can_be_cancelled() -> None:
    status = MPI.Status()
    request = COMM.Irecv(bytearray(1), LAST, 10)
    request.Cancel()
    request.Wait(status)
    assert status.Is_cancelled()
    assert not request
    COMM.Barrier()
    COMM.Send(b"a", NEXT, 10)
    room = bytearray(1)
    COMM.Recv(room, LAST, 10, status)
    assert room == b"a"
    assert not status.Is_cancelled()
    request = COMM.Isendrecv(b"b", NEXT, 11, room, LAST, 11)  # what it sends is perhaps received already
    request.Cancel()
    request.Wait(status)
    assert room == b"b"
    assert not status.Is_cancelled()


def check_persistent_calls_send_what_the_buffer_holds() -> None:
    data, room = np.zeros(4), np.zeros(4)
    send, receive = COMM.Ssend_init(data, NEXT, 11), COMM.Recv_init(room, LAST, 11)
    for value in range(3):
        data[:] = value
        MPI.Prequest.Startall([receive, send])
        with refused(MPI.ERR_REQUEST):
            receive.Start()
        MPI.Request.Waitall([send, receive])
        assert (room == value).all()
        assert send
        assert receive
    assert send.Test()
    assert receive.Test()
    send.Free()
    receive.Free()
    assert not send
    assert not receive


def check_every_request_ends_once() -> None:
    requests = [COMM.irecv(source=LAST, tag=tag) for tag in range(20, 26)] + [MPI.REQUEST_NULL]
    assert MPI.Request.testany(requests) == (MPI.UNDEFINED, False, None)
    COMM.Barrier()
    for tag in (23, 21, 22, 25, 20, 24):
        COMM.send(tag, NEXT, tag)
    index, first = MPI.Request.waitany(requests)
    found = {index: first}
    while (some := MPI.Request.waitsome(requests))[0] is not None:
        assert not found.keys() & set(some[0])
        found |= dict(zip(*some, strict=True))
    assert found == {place: 20 + place for place in range(6)}
    assert not any(requests)
    assert MPI.Request.Waitall(requests)
    assert MPI.Request.Waitany(requests) == MPI.UNDEFINED


def check_buffered_sends_end_at_once_where_there_is_room() -> None:
    room = bytearray(2 * (300_000 + MPI.BSEND_OVERHEAD))
    MPI.Attach_buffer(room)
    data = np.full(300_000, RANK, np.uint8)
    COMM.Bsend(data, NEXT, 12)
    COMM.Ibsend(data, NEXT, 12).Wait()
    data[:] = 99
    if SIZE > 1:  # to itself a message is gone at once
        with refused(MPI.ERR_BUFFER):
            COMM.Bsend(data, NEXT, 12)
    got = np.zeros_like(data)
    for _ in range(2):
        COMM.Recv(got, LAST, 12)
        assert (got == LAST).all()
    assert MPI.Detach_buffer() is room


def check_elements_are_counted() -> None:
    pair, status = MPI.FLOAT.Create_contiguous(2).Commit(), MPI.Status()
    COMM.Sendrecv(np.zeros(5, np.float32), NEXT, 0, [np.zeros(10, np.float32), 5, pair], LAST, 0, status)
    assert status.Get_elements(pair) == 5
    assert status.Get_count(pair) == MPI.UNDEFINED
    assert status.Get_count(MPI.FLOAT) == 5
    assert status.Get_count() == 20
    pair.Free()


def check_threads_make_calls() -> None:
    errors: list[BaseException] = []

    def work(tag: int) -> None:
        try:
            for number in range(10):
                size = (0, 100_000)[number % 2]
                request = COMM.isend((number, bytes(size)), NEXT, tag)
                assert COMM.recv(source=LAST, tag=tag) == (number, bytes(size))
                request.wait()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(30 + i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    work(40)
    for thread in threads:
        thread.join()
    assert not errors, errors
    grequest = MPI.Grequest.Start()
    thread = threading.Thread(target=lambda: grequest.complete(RANK))
    request = COMM.irecv(source=LAST, tag=41)
    thread.start()
    COMM.send("also", NEXT, 41)
    assert MPI.Request.waitall([grequest, request]) == [RANK, "also"]
    thread.join()


def main() -> None:
    checks: list[Callable[[], None]] = [check for name, check in globals().items() if name.startswith("check_")]
    for check in checks:
        check()
        COMM.Barrier()
        assert not COMM.Iprobe(), check
        COMM.Barrier()
    COMM.Isend(np.zeros(300_000), NEXT, 50)  # nobody waits for it: the end of the program does
    COMM.Recv(np.zeros(300_000), LAST, 50)
    COMM.Ibarrier()
    print(len(checks))


if __name__ == "__main__":
    main()
