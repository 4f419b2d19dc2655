"""Which ranks of its host one shares memory with, where the job is on several."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from ringcast.bootstrap import inbox
from ringcast.config.worker import WorkerConfig
from ringcast.errors import RendezvousError
from ringcast.net import colocation
from ringcast.transports.shm import ShmTransport
from ringcast.wire.endpoint_card import EndpointCard
from support import needs

pytestmark = [
    needs.shared_memory,
    pytest.mark.usefixtures("nothing_left"),
]
CONFIG = WorkerConfig(rank=0, size=4, transport="tcp", near=True)


def test_memory_is_shared_with_those_of_this_system_and_user_who_are_still_there() -> None:
    made = [ShmTransport(rank, 4) for rank in range(4)]
    system, cards = colocation.system(), [transport.card for transport in made]
    texts = [
        f"{system} {cards[0]}",
        f"{system} {cards[1]}",
        f"another {cards[2]}",
        f"{system} {replace(cards[3], uid=os.getuid() + 1)}",
    ]
    known = [EndpointCard("tcp://h:1", memory=text) for text in texts]
    assert inbox._map(CONFIG, made[0], known) == {1}
    made[1].close()
    again = ShmTransport(0, 4)
    assert inbox._map(CONFIG, again, known) == frozenset()
    for transport in (*made, again):
        transport.close()


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE, errno.EACCES])
def test_memory_that_only_this_rank_cannot_map_ends_the_start(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one may have mapped this rank's, and would offer where this one grants."""
    transport = ShmTransport(0, 4)
    monkeypatch.setattr(transport, "meet", lambda cards: {rank: OSError(number, os.strerror(number)) for rank in cards})
    card = EndpointCard("tcp://h:1", memory=f"{colocation.system()} {transport.card}")
    with pytest.raises(RendezvousError, match=rf"rank 0 shares no memory with rank 1: .*{os.strerror(number)}.*tcp"):
        inbox._map(CONFIG, transport, [card, card])
    transport.close()
