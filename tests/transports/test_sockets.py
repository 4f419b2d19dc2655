"""The transport on the kernel's sockets keeps the laws of all, and those of its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ringcast.transports import sockets
from ringcast.transports.base import Transport
from ringcast.transports.conformance import CHECKS, Check
from support.socket_jobs import ranks

pytestmark = pytest.mark.usefixtures("nothing_left")
SECURITY = pytest.mark.parametrize("secure", [True, False], ids=["secure", "open"])


@SECURITY
@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_conformance(check: Check, secure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LINGER", 1.0)  # what was sent to one that has closed keeps close() waiting so long

    def make(size: int) -> Sequence[Transport]:
        return ranks(size, secure=secure)

    check(make)
