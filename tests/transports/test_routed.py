"""Two transports as one: what `test_transports` does not ask of all."""

from __future__ import annotations

import threading
import time

import pytest

from ringcast.transports.memory.segment import RING
from ringcast.transports.memory.transport import ShmTransport
from ringcast.transports.routed import RoutedTransport
from ringcast.transports.sockets.transport import SocketTransport
from support import needs
from support.jobs import transports
from support.patience import patience
from support.socket_jobs import opened, received

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]


def crowded() -> tuple[RoutedTransport, ShmTransport, SocketTransport]:
    """Return the transport of a rank that has sent more than others take; and theirs, of its host and elsewhere."""
    near, other, (far, *others) = ShmTransport(0, 3), ShmTransport(1, 3), opened(3)
    assert not near.meet({1: other.card})
    both = RoutedTransport(near, far)
    for _ in range(2 * RING >> 20):
        both.send(1, [bytes(1 << 20)])
    both.send(2, [b"header"])
    assert {*both.unsent} == {1, 2}
    others[0].close()
    return both, other, others[1]


def test_the_times_of_both_parts_do_not_add_up() -> None:
    both, other, elsewhere = crowded()
    within, began = patience(2.0), time.monotonic()
    both.close(within)
    assert time.monotonic() - began < 1.75 * within  # one after the other would take twice as long
    other.close()
    elsewhere.close()


def test_each_part_gets_its_time() -> None:
    """The rank elsewhere gets its message, though the one of this host reads nothing."""
    both, other, elsewhere = crowded()
    closing = threading.Thread(target=both.close, args=(patience(4.0),))
    closing.start()
    assert received(elsewhere).header == b"header"
    other.close()
    closing.join()
    elsewhere.close()


def test_an_error_of_one_part_keeps_the_other_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised; that nothing is left open is looked at after the test."""
    both, other, elsewhere = crowded()
    close_near, close_far = both._near.close, both._far.close

    def broken_near(within: float) -> None:
        close_near(0.0)
        raise OSError("near")

    def broken_far(within: float) -> None:
        close_far(0.0)
        raise OSError("far")

    monkeypatch.setattr(both._near, "close", broken_near)
    monkeypatch.setattr(both._far, "close", broken_far)
    with pytest.raises(OSError, match="far") as caught:
        both.close(0.1)
    assert str(caught.value.__context__) == "near"
    other.close()
    elsewhere.close()


def test_a_rank_for_which_a_notice_waits_looks_at_no_message_in_advance() -> None:
    made = transports("routed", 3)
    a, b = made[0], made[1]
    assert isinstance(b, RoutedTransport)
    a.send(1, [b"message"])
    assert b.lanes is not None
    assert b.head(0, 0.0) == b"message"
    b.inject([b"notice"])
    assert b.head(0, 0.0) is None
    for transport in made:
        transport.close(0.0)
