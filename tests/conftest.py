"""Checks that tests share."""

import gc
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from ringcast.monitoring import jobs
from ringcast.net.fd_limits import allow_files
from support import needs
from support.fleets import Fleet, fleet
from support.patience import patience
from support.places import TESTS
from support.sample import left_out

settings.register_profile("ringcast", deadline=None)  # speed is for benchmarks, and the machines are shared
settings.register_profile("quick", deadline=None, max_examples=10)  # of `make quick`
settings.load_profile("ringcast")

# A process of the tests has all ranks of several jobs at a time; most users are allowed 1,024 files until they ask.
allow_files(8192)

# A shell that is no terminal starts what runs in the background deaf to these, and programs hand that on; but tests
# interrupt programs.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _end in signal.SIGQUIT, signal.SIGHUP:
    signal.signal(_end, signal.SIG_DFL)


LIVE_ROOMS = {"clusters", "hosts", "live"}  # of whose tests each starts hosts, clusters or jobs
LIMITS = {"long": 900, "live": 300}  # seconds, which `patience` scales


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from going through the tests themselves, which are many and stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(700, 10, 50)  # what pytest and Hypothesis keep grows, and need not be searched as often
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", metavar="SEED", help="run a sample of the live and long tests, by this seed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of these rooms as live, except those with the mark `smoke`, and raise their time limit.

    With a seed, keep only a sample of the live and long tests.
    """
    for item in items:
        if " at 0x" in item.name:  # an address, which is another one in each process of pytest-xdist
            raise pytest.UsageError(f"{item.nodeid}: give its parameters ids")
        if item.path.relative_to(TESTS).parts[0] in LIVE_ROOMS and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.live)
        mark = next((mark for mark in LIMITS if item.get_closest_marker(mark)), None)
        if mark is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMITS[mark]))
    if seed := config.getoption("sample"):
        without = left_out(items, seed)
        config.hook.pytest_deselected(items=without)
        gone = {*without}
        items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Scale the limit of a test before pytest-timeout reads it."""
    mark = item.get_closest_marker("timeout")
    limit = mark.args[0] if mark else float(item.config.getini("timeout"))
    item.add_marker(pytest.mark.timeout(patience(limit)), append=False)
    return (yield)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves a thread, a child process or an open file."""
    threads, children, files = set(threading.enumerate()), _children(), _files()
    yield
    assert set(threading.enumerate()) <= threads
    assert _children() <= children
    assert _files() <= files


@pytest.fixture
def soon_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ranks of this process report that they wait after a twentieth of a second, instead of a second."""
    monkeypatch.setattr("ringcast.engine.drive.QUIET", 0.05)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory for which the names of sockets are not too long, as they are in tmp_path: jobs lie in it."""
    with tempfile.TemporaryDirectory(prefix="rc-", dir=jobs.bases()[0]) as name:
        yield Path(name)


@pytest.fixture
def common() -> Iterator[Path]:
    """A directory as /tmp: all users can write, and each can rename his own files only."""
    needs.root()
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Four emulated hosts with sshd, for the tests of a module."""
    with fleet("4", tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture
def nothing_on_hosts(hosts: Fleet) -> Iterator[None]:
    """Fail a test that leaves a process or a file on one of the hosts."""
    yield
    try:
        hosts.assert_empty()
    finally:
        hosts.clear()


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _files() -> set[str]:
    return {file for file in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{file}")}
