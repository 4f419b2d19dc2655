"""A deterministic job gives the same bits however its ranks are spread over hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.fleets import Fleet
from support.programs import bits

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")


def test_where_ranks_run_does_not_change_a_bit(hosts: Fleet) -> None:
    def digests(*arguments: str, **environment: str) -> Any:
        done = hosts.launch(
            "--output", "none", *arguments, str(Path(bits.__file__)), "3", "2500", "20001", **environment
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    want = digests("-n", "4", RINGCAST_DETERMINISTIC="1")
    for where in (
        ("-H", "h0:2,h1:2"),
        ("-H", "h0:2,h1:2", "--placement", "cyclic"),
        ("-H", "h0,h1:3"),
        ("-H", "h0,h1,h2,h3"),
    ):
        assert digests(*where, RINGCAST_DETERMINISTIC="1") == want, where
    assert digests("-H", "h0:2,h1:2") != want  # as the links decide then
