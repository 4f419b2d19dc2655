"""Sockets of a library are cut; those of the program are not."""

from __future__ import annotations

import socket
from typing import Any

import ringcast
from ringcast.boosting.cut import Cut, cut, sockets


def whole(pair: tuple[socket.socket, socket.socket]) -> bool:
    pair[0].sendall(b"x")
    return pair[1].recv(1) == b"x"


def test_only_sockets_of_the_library_and_of_its_tracker_are_cut() -> None:
    control: Any = None  # it is not asked
    before = socket.socketpair()
    with ringcast.init() as comm, socket.create_server(("127.0.0.1", 0)) as tracker:
        its = Cut(comm, control)
        with its.connecting():
            library = socket.socketpair()
        later = socket.socketpair()
        its.tracker = tracker.getsockname()
        member = (socket.create_connection(tracker.getsockname()), tracker.accept()[0])
        with its.soon():
            assert (library[0].recv(1), member[0].recv(1)) == (b"", b"")
        assert whole(before)
        assert whole(later)
    for each in (*before, *library, *later, *member):
        each.close()


def test_a_socket_with_the_descriptor_of_one_that_was_closed_is_not_cut() -> None:
    pair = socket.socketpair()
    descriptor = pair[1].fileno()
    cut({(descriptor, "socket:[1]")})
    assert whole(pair)
    cut({each for each in sockets() if each[0] == descriptor})
    assert pair[1].recv(1) == b""
    for each in pair:
        each.close()
