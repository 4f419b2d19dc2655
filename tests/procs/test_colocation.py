"""Ranks of a job over tcp talk over ipc if they see each other's sockets; admission to an inbox of both."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from ringcast._util import socket_path
from ringcast.bootstrap.inbox import near_ranks, open_inbox
from ringcast.config.worker import WorkerConfig
from ringcast.errors import LinkLost
from ringcast.net.keys import KeyPair, new_key, new_pair
from ringcast.procs import colocation
from ringcast.procs.libc import reason_not_shared
from ringcast.transports.zeromq import ZeroMQTransport
from ringcast.wire.endpoint_card import EndpointCard
from support.intruders import another_jobs_member, arrivals, knock
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private directory, for which the names of sockets are not too long."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="rc-") as made:
        yield Path(made)


@pytest.fixture
def outside() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """The sockets of a stranger to the job."""
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


# What is told, and what is seen.


@dataclass(frozen=True)
class Spot:
    """The place of a rank: boot of its kernel, network, the disk that it sees, and the path of its socket."""

    boot: str
    network: str
    disk: str
    path: str


SPOTS = st.builds(
    Spot, st.sampled_from("ab"), st.sampled_from("ab"), st.sampled_from("ab"), st.sampled_from(["/x", "/y z", "/z"])
)


@given(st.lists(SPOTS, max_size=6))
def test_near_is_who_has_the_same_kernel_the_same_network_and_the_same_file(spots: list[Spot]) -> None:
    # The last one that was bound at a path has it; files have the same numbers on all disks of all kernels.
    files = {(spot.disk, spot.path): (rank, f"1:{'xyz'.index(spot.path[1])}{rank}") for rank, spot in enumerate(spots)}

    def sees(me: Spot, path: str) -> str:
        return files.get((me.disk, path), (0, ""))[1]

    systems = [colocation.system_name(spot.boot, spot.network) for spot in spots]
    told = [
        colocation.advertisement(
            systems[rank], spot.path, lambda _, rank=rank, spot=spot: f"1:{'xyz'.index(spot.path[1])}{rank}"
        )
        for rank, spot in enumerate(spots)
    ]
    for mine, me in enumerate(spots):
        found = colocation.reachable(systems[mine], told, lambda path, me=me: sees(me, path))
        for rank, other in enumerate(spots):
            alike = (me.boot, me.network, me.disk) == (other.boot, other.network, other.disk)
            there = files[other.disk, other.path][0] == rank
            assert (rank in found) == (alike and there)
            assert found.get(rank, other.path) == other.path


@pytest.mark.parametrize(
    "text", ["", " ", "s", "s ", "s  ", "s 1:1", "s 1:1 ", "s  /a", " 1:1 /a", "S 1:1 /a", "s 1:2 /a"]
)
def test_what_is_malformed_is_far(text: str) -> None:
    seen = {"/a": "1:1"}
    assert colocation.reachable("s", [text, "s 1:1 /a"], lambda path: seen.get(path, "")) == {1: "/a"}
    assert colocation.reachable("", [text, " 1:1 /a"], lambda path: seen.get(path, "")) == {}


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_only_a_socket_in_a_directory_that_is_ours_alone_is_looked_at(folder: Path) -> None:
    private, link, open_to_all = folder / "private", folder / "link", folder / "open"
    for made in private, open_to_all:
        made.mkdir(mode=0o700)
        bound(made / "socket")
    link.symlink_to(private)
    (private / "file").touch()
    (private / "chain").symlink_to(private / "socket")
    open_to_all.chmod(0o711)
    assert colocation.identify(str(private / "socket")) == colocation.identify(str(link / "socket")) != ""
    for path in (private / "file", private / "missing", private / "chain", open_to_all / "socket"):
        assert colocation.identify(str(path)) == ""
    assert colocation.identify("") == colocation.identify("\0/x") == colocation.identify(f"{private}/\0") == ""


def test_a_socket_that_took_the_place_of_another_is_not_taken_for_it(folder: Path) -> None:
    path = folder / "rank-0"
    bound(path)
    told = colocation.advertisement("s", str(path))
    assert colocation.reachable("s", [told]) == {0: str(path)}
    path.rename(folder / "kept")  # so that the next one does not get its number
    bound(path)
    assert colocation.reachable("s", [told]) == {}


def test_no_socket_where_its_path_is_too_long_or_others_may_enter(folder: Path) -> None:
    assert colocation.socket_path(str(folder), 3) == f"{folder}/rank-3"
    assert colocation.socket_path("", 3) == colocation.socket_path(f"{folder}/missing", 3) == ""
    long = folder / ("x" * (socket_path.LONGEST - len(str(folder)) - len("//rank-3")))
    long.mkdir(mode=0o700)
    assert len(colocation.socket_path(str(long), 3)) == socket_path.LONGEST
    bound(long / "rank-3")
    assert colocation.socket_path(str(long), 33) == ""
    nameless = os.path.join(folder, os.fsdecode(b"\xff"))  # which could not be told
    os.mkdir(nameless, 0o700)
    assert colocation.is_private(nameless)
    assert colocation.socket_path(nameless, 3) == ""
    folder.chmod(0o750)
    assert colocation.socket_path(str(folder), 3) == ""
    folder.chmod(0o700)


def test_without_proc_nothing_is_near(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert colocation.system()
    monkeypatch.setattr(colocation, "_BOOT", folder / "boot_id")
    assert colocation.system() == colocation.advertisement(colocation.system(), str(folder / "rank-0")) == ""


# The inboxes that are opened.


def config(rank: int, folder: Path, **settings: object) -> WorkerConfig:
    usual = {"transport": "tcp", "near": True, "directory": str(folder), "key": new_key()}
    return WorkerConfig(rank, 3, "tcp://127.0.0.1:1", **usual | settings)


def test_ranks_that_have_a_directory_find_each_other_in_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [
        config(0, folder, debug="info"),
        config(1, folder, transport="tcp", near=False),
        config(2, folder),
    ]
    opened = [open_inbox(each)[1] for each in settings]
    try:
        cards = [each.card for each in opened]
        assert [bool(card.near) for card in cards] == [True, False, True]
        assert all(each.address.startswith("tcp://127.0.0.1:") for each in cards)
        found = [near_ranks(each, cards) for each in settings]
        assert found == [{2: f"ipc://{folder}/rank-2"}, {}, {0: f"ipc://{folder}/rank-0"}]
        said = capsys.readouterr().err
        assert f"rank 0 listens at ipc://{folder}/rank-0 too\n" in said
        assert "rank 0 reaches 1 of 2 other ranks over ipc, on its own host" in said
    finally:
        for each in opened:
            each.close()
    assert list(folder.iterdir()) == []


def test_zeromq_shares_no_memory(folder: Path) -> None:
    """In a job over several hosts it is the transport between all ranks, as on one host."""
    for transport, expected in ("tcp", (False, True)), ("sockets", (not reason_not_shared(), False)):
        _, inbox = open_inbox(config(0, folder, transport=transport))
        inbox.close()
        assert (bool(inbox.card.memory), bool(inbox.card.near)) == expected


def test_where_no_socket_can_be_made_there_is_tcp(folder: Path) -> None:
    with contextlib.closing(ZeroMQTransport("tcp://127.0.0.1:*", near=f"ipc://{folder}/missing/rank-0")) as transport:
        assert transport.near == ""
        assert transport.address.startswith("tcp://")
    folder.chmod(0o755)
    _, inbox = open_inbox(config(0, folder))
    inbox.close()
    folder.chmod(0o700)
    assert (inbox.card.near, list(folder.iterdir())) == ("", [])


# Who is let in.


def both(folder: Path) -> list[ZeroMQTransport]:
    """Ranks 0 and 1 of a host, and rank 2 elsewhere."""
    made = [ZeroMQTransport("tcp://127.0.0.1:*", near=f"ipc://{folder}/{rank}") for rank in range(3)]
    cards = [each.card for each in made]
    for rank, each in enumerate(made):
        each.meet(cards, {1 - rank: made[1 - rank].near} if rank < 2 else {})
    return made


def test_the_ipc_end_needs_no_key_and_the_tcp_end_still_does(
    folder: Path, outside: zmq.Context[zmq.Socket[bytes]]
) -> None:
    a, b, c = made = both(folder)
    strangers: list[KeyPair | None] = [None, new_pair(), another_jobs_member()]
    try:
        for pair in strangers:
            with outside.socket(zmq.PUSH) as sock:
                assert not knock(sock, b.address, b"forged", pair, b.public_key)
        with outside.socket(zmq.PUSH) as sock:
            assert knock(sock, b.near, b"who may enter the directory", None, "")
            a.send(1, [b"near"])
            c.send(1, [b"far"])
            got = [header for _ in range(3) if (header := arrivals_of(b))]
        assert set(got) == {b"who may enter the directory", b"near", b"far"}
    finally:
        for each in made:
            each.close()
    assert b.strangers == len(strangers)
    assert list(folder.iterdir()) == []


def arrivals_of(transport: ZeroMQTransport) -> bytes:
    deadline = transport.clock() + patience(60)
    while (arrival := transport.poll(deadline)) is None:
        assert transport.clock() < deadline
    return arrival.header


def test_over_ipc_nothing_is_encrypted_and_over_tcp_all(folder: Path) -> None:
    a, _, c = made = both(folder)
    try:
        a.connect([1, 2])
        c.connect([0])
        mechanisms = [sock.getsockopt(zmq.MECHANISM) for sock in (a._peers[1], a._peers[2], c._peers[0])]
        assert mechanisms == [zmq.NULL, zmq.CURVE, zmq.CURVE]
        assert a.address_of(1) == made[1].near
        deadline = a.clock() + patience(60)
        while 2 in a.unreached():
            a.wait_for_news(deadline)
            assert a.clock() < deadline
        assert a.unreached() == {}  # of ipc nothing is to be waited for
    finally:
        for each in made:
            each.close()


PEER = """
import sys
from ringcast.transports.zeromq import ZeroMQTransport
from ringcast.wire.endpoint_card import EndpointCard
transport = ZeroMQTransport("tcp://127.0.0.1:*", near=sys.argv[1], secure=False)
print(transport.address, flush=True)
transport.meet([EndpointCard(sys.argv[2]), transport.card])
while transport.poll(None) is None:
    pass
print("heard", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["ipc", "tcp"])
def test_a_killed_peer_is_lost_and_who_takes_its_place_hears_nothing(
    way: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringcast.transports.zeromq.LINGER", 0.1)  # what was sent to the peer is not delivered
    near = f"ipc://{folder}/1"
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(contextlib.closing(ZeroMQTransport("tcp://127.0.0.1:*", secure=False)))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        peer = stack.enter_context(subprocess.Popen([sys.executable, "-c", PEER, near, a.address], **pipes))
        assert peer.stdout is not None
        address = peer.stdout.readline().strip()
        a.meet([a.card, EndpointCard(address)], {1: near} if way == "ipc" else {})
        a.send(1, [b"first"])
        assert peer.stdout.readline() == "heard\n"
        peer.kill()
        peer.wait()
        other = stack.enter_context(contextlib.closing(ZeroMQTransport(address, near=near, secure=False)))
        other.meet([a.card, EndpointCard(address)])
        deadline = a.clock() + patience(60)
        with pytest.raises(LinkLost):  # noqa: PT012 (it is the first send after the end was noticed that raises)
            while a.clock() < deadline:
                a.send(1, [b"meant for another"])
                a.poll(a.clock() + 0.01)
        with contextlib.closing(ZeroMQTransport("tcp://127.0.0.1:*", secure=False)) as third:
            third.meet([a.card, EndpointCard(address)], {1: near} if way == "ipc" else {})
            third.send(1, [b"meant for it"])
            assert arrivals(other, b"meant for it") == [b"meant for it"]
    assert not os.path.exists(folder / "1")
