"""The table of transports: whatever needs to know them all knows them all."""

from __future__ import annotations

import doctest
import re

from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.inbox import OPENERS
from ringcast.wire import transport_kinds
from ringcast.wire.transport_kinds import IPC, KINDS, TCP, kind_of
from ringcast_launcher.cli import _parser
from support.places import ROOT


def test_each_transport_can_be_opened_and_has_constants() -> None:
    assert OPENERS.keys() == KINDS.keys()
    assert KINDS.keys() | {"threads"} == NETWORKS.keys()


def test_the_launcher_and_its_page_offer_each() -> None:
    parser, _ = _parser()
    (option,) = (action for action in parser._actions if "--transport" in action.option_strings)
    assert [*option.choices] == ["auto", "zeromq", *KINDS]
    page = (ROOT / "docs/use/launching.md").read_text()
    assert all(re.search(rf"\b{name}\b", page) for name in KINDS)


def test_an_address_belongs_to_the_transport_of_its_scheme() -> None:
    assert [kind_of(f"{kind.scheme}x") for kind in (IPC, TCP)] == [IPC, TCP]
    assert kind_of("") is kind_of("udp://x") is kind_of("shm://1") is None
    assert doctest.testmod(transport_kinds).failed == 0
