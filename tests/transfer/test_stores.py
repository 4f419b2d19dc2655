"""`read_file` from an S3 store, which moto plays, by fsspec and s3fs as they are."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from hashlib import sha256

import pytest

from ringcast import SourceChanged, SourceError
from ringcast.transfer import shares
from ringcast.transfer.ranges import Ranges
from support import needs
from support.reads import alike, read
from support.s3 import BUCKET, CREDENTIALS, KEY, URL, Answer, Objects, objects

pytestmark = [
    pytest.mark.live,
    pytest.mark.usefixtures("no_proxy"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

DATA = random.Random(4).randbytes(9_000_000)
REFUSALS = {"SlowDown": ("503 Slow Down", "SlowDown"), "429": ("429 Too Many Requests", "TooManyRequests")}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    """Return a store that s3fs finds by the environment."""
    needs.package("moto")
    needs.package("s3fs")
    with objects(DATA) as made:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": made.endpoint, "AWS_REGION": "us-east-1"}.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.mark.parametrize("hosts", ["a", "aabb", "abc"])
def test_hosts_read_parts_of_an_object(hosts: str, served: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_STALLED", 10**9)  # on a busy machine a reader may get no byte for a second
    results = read(hosts, URL)
    assert {sha256(result).hexdigest() for result in results} == {sha256(DATA).hexdigest()}
    assert [*Ranges(served.asked)] == [(0, len(DATA))]
    assert sum(stop - start for start, stop in served.asked) <= 2 * len(DATA)  # by idle hosts, of what comes late


@pytest.mark.parametrize("name", REFUSALS)
def test_a_store_that_wants_fewer_requests_gets_fewer(name: str, served: Objects) -> None:
    """Each refusal pauses all hosts: in the end not even each of the twelve connections has met another one."""
    served.always = lambda number: REFUSALS[name] if number in (3, 9) else None
    served.after = "1"
    results = read("abc", URL)
    assert {sha256(result).hexdigest() for result in results} == {sha256(DATA).hexdigest()}
    assert served.refused == 2


@pytest.mark.parametrize("name", REFUSALS)
def test_a_store_that_always_refuses_is_given_up_after_few_requests(name: str, served: Objects) -> None:
    """After eight pauses, in each of which a request of each of eight connections may be under way."""
    served.always, served.after = lambda _: REFUSALS[name], "0"
    assert "the server refuses all requests" in str(alike(read("ab", URL)))
    assert served.refused <= 8 * 8


def test_an_object_that_changes_is_an_error(served: Objects) -> None:
    import boto3

    def change(number: int) -> Answer | None:
        if number == 5:
            client = boto3.client("s3", region_name="us-east-1")
            client.put_object(Bucket=BUCKET, Key=KEY, Body=DATA[::-1])
            client.close()
        return None

    served.always = change
    assert type(alike(read("ab", URL))) is SourceChanged


def test_neither_errors_nor_logs_have_credentials(served: Objects, caplog: pytest.LogCaptureFixture) -> None:
    served.always = lambda _: ("403 Forbidden", "AccessDenied")
    with caplog.at_level(logging.INFO):
        error = alike(read("ab", URL))
    assert type(error) is SourceError
    assert not any(secret in str(error) + caplog.text for secret in CREDENTIALS.values())
