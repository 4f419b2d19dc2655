"""Rank 1 of two that share memory: `python shm_mate.py CARD WHAT ...` prints its own card and does that."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from dataclasses import replace

from ringcast.procs.credentials import own
from ringcast.transports.memory import segment
from ringcast.transports.memory.segment import SegmentCard, parse
from ringcast.transports.memory.transport import ShmTransport

libc = ctypes.CDLL(None)
SET_DUMPABLE = 4  # of prctl


def main(text: str, does: str, *arguments: str) -> None:
    card = parse(text)
    assert card is not None
    if does == "map as another user":
        map_as_another_user(card)
        return
    if does == "map what is protected":
        map_what_is_protected()
        return
    if does == "map what has ended":
        map_what_has_ended()
        return
    mate = ShmTransport(1, 2)
    assert not mate.meet({0: card})
    match does:
        case "sleep":
            show(mate)
            signal.pause()
        case "send and lend":
            memory = bytearray(b"m" * 1000)
            mate.send(0, [b"sent", b"by the mate"])
            mate.lend(0, [b"lent"], [memoryview(memory)])
            show(mate)
            end(mate, arguments[0])
        case "echo":
            show(mate)
            echo(mate, arguments[0], int(arguments[1]))


def show(mate: ShmTransport) -> None:
    print(mate.card, flush=True)


def end(mate: ShmTransport, how: str) -> None:
    match how:
        case "leave":
            mate.close()
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            signal.pause()


def echo(mate: ShmTransport, waits: str, count: int) -> None:
    """Return so many messages, waiting in this way; then wait for a line, so that nothing is lost by leaving."""
    descriptor = mate.fileno() if waits == "descriptor" else -1
    done = 0
    while done < count:
        if waits == "descriptor":
            arrival = mate.poll(mate.clock())
            if arrival is None:
                assert select.select([descriptor], [], [], 60)[0], f"{done} of {count}"
        else:
            arrival = mate.poll(mate.clock() + 60)
        if arrival is not None:
            mate.send(0, [arrival.header, arrival.read()])
            done += 1
    sys.stdin.readline()
    mate.close()


def map_as_another_user(card: SegmentCard) -> None:
    become_another_user()
    map_and_tell(replace(card, who=own()))


def map_what_is_protected() -> None:
    """Map the segment of a process that protects itself; then as if that process were another one by now."""
    become_another_user()
    told, tell = os.pipe()
    mate = os.fork()
    if mate == 0:
        transport = ShmTransport(0, 2)
        libc.prctl(SET_DUMPABLE, 0)
        os.write(tell, str(transport.card).encode())
        signal.pause()
    try:
        card = parse(os.read(told, 1000).decode())
        assert card is not None
        map_and_tell(card)
        map_and_tell(replace(card, started=card.started + 1))
        map_and_tell(replace(card, pid=1))  # root's
    finally:
        os.kill(mate, signal.SIGKILL)
        os.waitpid(mate, 0)


def map_what_has_ended() -> None:
    """Map the segment of a process of an ordinary user that has left, and that nobody has waited for yet."""
    become_another_user()
    told, tell = os.pipe()
    mate = os.fork()
    if mate == 0:
        os.write(tell, str(ShmTransport(0, 2).card).encode())
        os._exit(0)
    os.waitid(os.P_PID, mate, os.WEXITED | os.WNOWAIT)
    card = parse(os.read(told, 1000).decode())
    assert card is not None
    map_and_tell(card)
    os.waitpid(mate, 0)


def become_another_user() -> None:
    os.setgroups([])
    os.setresgid(12345, 12345, 12345)
    os.setresuid(12345, 12345, 12345)
    libc.prctl(SET_DUMPABLE, 1)  # which a change of the user ends


def map_and_tell(card: SegmentCard) -> None:
    try:
        segment.open_at(card, own(), 1, 2)
    except OSError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("mapped")


if __name__ == "__main__":
    main(*sys.argv[1:])
