"""Names as addresses of ranks: several addresses of one name, and names that are none."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest

from ringcast.errors import LinkLost
from ringcast.transports.sockets import tcp
from ringcast.transports.sockets.transport import SocketTransport
from support.socket_jobs import received, until_reached

pytestmark = pytest.mark.usefixtures("nothing_left")

NO_ROUTE, NOT_OURS = "255.255.255.255", "192.0.2.1"  # nobody connects to the former; the latter is for documents
NO_NAMES = ["a..b", ".a", "x" * 64, "\N{SNOWMAN}" * 60]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Names, and the addresses that the system finds for them."""
    known: dict[str, list[str]] = {}
    ask = socket.getaddrinfo

    def found(host: str, *arguments: Any, **named: Any) -> list[Any]:
        return [answer for each in known.get(host, [host]) for answer in ask(each, *arguments, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return known


@pytest.mark.parametrize("order", [[NO_ROUTE, "127.0.0.1"], ["127.0.0.1", NO_ROUTE], ["127.0.0.1"]])
def test_a_rank_is_reached_at_the_address_to_which_there_is_a_route(
    order: list[str], names: dict[str, list[str]]
) -> None:
    names["somewhere"] = order
    a, b = (SocketTransport("tcp://127.0.0.1:*", size=2) for _ in range(2))
    named = b.address.replace("127.0.0.1", "somewhere")
    for each in a, b:
        each.meet([a.card, replace(b.card, address=named)])
    a.connect([1])
    until_reached(a, b)
    a.send(1, [b"header"])
    assert received(b).header == b"header"
    a.close()
    b.close()


def test_where_there_is_no_route_at_all_that_is_the_error(names: dict[str, list[str]]) -> None:
    names["nowhere"] = [NO_ROUTE, NO_ROUTE]
    a = SocketTransport("tcp://127.0.0.1:*", size=2)
    a.meet([a.card, replace(a.card, address="tcp://nowhere:5")])
    a.connect([1])
    assert a.unreached()[1]
    with pytest.raises(LinkLost):
        a.send(1, [b"header"])
    a.close()


def test_a_rank_listens_at_the_address_of_a_name_that_is_its_hosts(names: dict[str, list[str]]) -> None:
    names["here"], names["elsewhere"] = [NOT_OURS, "127.0.0.1"], [NOT_OURS, NOT_OURS]
    sock, address = tcp.listen(["tcp://here:*"])
    sock.close()
    assert address.startswith("tcp://127.0.0.1:")
    with pytest.raises(OSError, match="assign requested address"):
        tcp.listen(["tcp://elsewhere:*"])


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_is_an_error_of_the_address(name: str) -> None:
    with pytest.raises(OSError, match="no name of a host"):
        tcp.resolve(f"tcp://{name}:5")
    with pytest.raises(OSError, match="no name of a host"):
        SocketTransport(f"tcp://{name}:*")
    a = SocketTransport("tcp://127.0.0.1:*", size=2)
    a.meet([a.card, replace(a.card, address=f"tcp://{name}:5")])
    with pytest.raises(LinkLost, match=r"cannot be used: .*no name of a host"):
        a.send(1, [b"header"])
    a.close()
