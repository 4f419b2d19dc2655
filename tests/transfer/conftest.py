"""A server for the tests of fetch."""

from collections.abc import Iterator

import pytest

from support.web import Web, web


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def site() -> Iterator[Web]:
    with web() as made:
        yield made
