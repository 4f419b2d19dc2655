"""The ranks of its host with which a rank shares memory, in a job over several hosts."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ringcast.bootstrap import inbox
from ringcast.config.worker import WorkerConfig
from ringcast.errors import RendezvousError
from ringcast.procs import colocation
from ringcast.transports.memory.transport import ShmTransport
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.transport_kinds import SHM
from support import needs
from support.patience import patience

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
        f"{system} {replace(cards[3], who=cards[3].who._replace(uid=os.getuid() + 1))}",
    ]
    known = [EndpointCard("tcp://h:1", memory=text) for text in texts]
    assert inbox._map(CONFIG, made[0], known) == {1}
    made[1].close()
    again = ShmTransport(0, 4)
    assert inbox._map(CONFIG, again, known) == {1}
    assert (made[0].lenders, again.lenders) == ({1}, set())
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


def test_a_process_that_is_protected_from_others_offers_no_memory() -> None:
    """The ranks of its host then reach it as ranks of other hosts do."""
    program = f"""
import ctypes
from ringcast.bootstrap import inbox
from ringcast.config.worker import WorkerConfig
ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
print(inbox._shared({CONFIG!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(60), check=True
    )
    assert done.stdout == "None\n"


def test_shared_memory_over_two_hosts_is_an_error_that_names_both() -> None:
    """All else may be alike there: users, and the numbers of processes, descriptors and namespaces."""
    one, other = (inbox._open_shm(WorkerConfig(rank=rank, size=2, transport=SHM.name), None) for rank in range(2))
    kernel, host = one.card.host.split(" ")
    assert kernel == colocation.kernel()
    with pytest.raises(RendezvousError, match=f"rank 0 is on host {host} and rank 1 on host elsewhere.*choose auto"):
        one.meet([one.card, replace(other.card, host="another elsewhere")])
    one.close()
    other.close()


def test_where_kernels_are_not_known_shared_memory_is_tried() -> None:
    one, other = (inbox._open_shm(WorkerConfig(rank=rank, size=2, transport=SHM.name), None) for rank in range(2))
    one.meet([one.card, replace(other.card, host=" elsewhere")])
    other.meet([replace(one.card, host=""), other.card])
    one.close()
    other.close()


ELSEWHERE = """
mount --bind "$1" /proc/sys/kernel/random/boot_id
hostname elsewhere
shift
exec "$@"
"""
PROGRAM = """
import ringcast
ringcast.init()
"""


def test_ranks_of_two_kernels_find_that_at_the_start(short_path: Path) -> None:
    """The other host is emulated: it has its own boot ID and name, and all else in common with this one."""
    needs.root()
    boot = short_path / "boot"
    boot.write_text("another\n")
    inside = ["unshare", "--mount", "--uts", "sh", "-c", ELSEWHERE, "sh", str(boot)]
    env = {"RINGCAST_SIZE": "2", "RINGCAST_TRANSPORT": "shm", "RINGCAST_CONTROL": f"ipc://{short_path}/control"}
    ranks = [
        subprocess.Popen(
            [*before, sys.executable, "-c", PROGRAM],
            env={**os.environ, **env, "RINGCAST_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, before in enumerate(([], inside))
    ]
    errors = [rank.communicate(timeout=patience(60))[1] for rank in ranks]
    hosts = socket.gethostname(), "elsewhere"
    for rank, error in enumerate(errors):
        named = f"rank {rank} is on host {hosts[rank]} and rank {1 - rank} on host {hosts[1 - rank]}"
        assert f"RendezvousError: {named}" in error
    assert all(rank.returncode for rank in ranks)
