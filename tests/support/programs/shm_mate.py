"""Rank 1 of two that share memory: `python shm_mate.py CARD WHAT ...` prints its own card and does that."""

from __future__ import annotations

import os
import select
import signal
import sys
from dataclasses import replace

from ringcast.transports import segment
from ringcast.transports.segment import SegmentCard, parse
from ringcast.transports.shm import ShmTransport


def main(text: str, does: str, *arguments: str) -> None:
    card = parse(text)
    assert card is not None
    if does == "map as another user":
        map_as_another_user(card)
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
    os.setgroups([])
    os.setresgid(12345, 12345, 12345)
    os.setresuid(12345, 12345, 12345)
    try:
        segment.open_at(replace(card, uid=os.getuid()), 0, 2)
    except OSError as error:
        print(type(error).__name__)
    else:
        print("mapped")


if __name__ == "__main__":
    main(*sys.argv[1:])
