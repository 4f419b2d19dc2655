"""The substitutes for Linux's own features do the same, and no other module asks whether the features are there."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringcast.procs import portable
from support import needs
from support.places import ROOT

LINUX = re.compile(
    r"\b(eventfd|pidfd_open|memfd_create|sched_getaffinity|waitid|posix_fallocate|pipe2|SIGRTMIN|select\.epoll)\b"
)
# Shared memory, and what is imported only where epoll is, need Linux.
HOME = {
    *("procs/portable.py", "procs/host_memory.py", "procs/libc.py", "net/tls.py"),
    *(
        "transports/memory/transport.py",
        "transports/memory/segment.py",
        "transports/sockets/watcher.py",
        "transports/routed.py",
    ),
}


def test_only_these_modules_use_what_linux_has() -> None:
    found = set()
    for package in ROOT / "ringcast", ROOT / "launcher/ringcast_launcher":
        for file in package.rglob("*.py"):
            name = str(file.relative_to(package))
            if not name.startswith("commands/bench/") and any(map(LINUX.search, code_of(file))):
                found.add(name)
    assert found <= HOME


def code_of(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if "#" not in line]


@pytest.fixture(params=["eventfd", "pipe"])
def bell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[portable.Bell]:
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd")
    made = portable.Bell()
    yield made
    made.close()


def rings(bell: portable.Bell) -> bool:
    return bool(select.select([bell], [], [], 0)[0])


@pytest.mark.parametrize("times", [1, 2, 100_000], ids=str)
def test_a_bell_rings_until_it_is_silenced(bell: portable.Bell, times: int) -> None:
    assert not rings(bell)
    assert not bell.silence()
    for _ in range(times):
        bell.ring()
    assert rings(bell)
    assert bell.silence()
    assert not rings(bell)
    assert not bell.silence()


@pytest.mark.parametrize("missing", [[], ["eventfd"]], ids=str)
def test_a_bell_can_ring_from_the_beginning(monkeypatch: pytest.MonkeyPatch, missing: list[str]) -> None:
    for name in missing:
        monkeypatch.delattr(os, name)
    bell = portable.Bell(rung=True)
    assert rings(bell)
    bell.close()


def test_ps_tells_of_processes_what_proc_does() -> None:
    needs.programs([] if shutil.which("ps") else ["ps"], "procps")
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        told = portable._from_ps()
        seen = portable.processes()
        for pid in os.getpid(), child.pid:
            assert told[pid][:3] == seen[pid][:3]
        assert told[child.pid][:3] == (os.getpid(), child.pid, child.pid)
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("missing", [[], ["waitid"]], ids=str)
@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)])
def test_the_exit_code_of_a_child(monkeypatch: pytest.MonkeyPatch, missing: list[str], end: str, code: int) -> None:
    for name in missing:
        monkeypatch.delattr(os, name)
    child = subprocess.Popen([sys.executable, "-c", f"import os, sys; sys.stdin.read(); {end}"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    assert portable.exit_code(child) is None
    file = os.pidfd_open(child.pid)
    child.stdin.close()
    assert select.select([file], [], [], 60)[0]
    os.close(file)
    assert portable.exit_code(child) == code
    child.wait()


@pytest.mark.parametrize("missing", [[], ["memfd_create"]], ids=str)
def test_a_nameless_file_is_readable_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: list[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in missing:
        monkeypatch.delattr(os, name)
    file = portable.nameless_file("some")
    os.write(file, b"text")
    assert os.pread(file, 10, 0) == b"text"
    os.close(file)
    assert not list(tmp_path.iterdir())


def test_a_nameless_file_is_had_also_where_memfd_create_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(name: str, flags: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    file = portable.nameless_file("some")
    assert os.pwrite(file, b"text", 0) == os.fstat(file).st_size == 4
    os.close(file)


@pytest.mark.parametrize("missing", [[], ["posix_fallocate"]], ids=str)
def test_room_is_reserved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: list[str]) -> None:
    for name in missing:
        monkeypatch.delattr(os, name)
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    portable.reserve(file, 10_000)
    assert os.fstat(file).st_size == 10_000
    os.close(file)


def test_processors_are_counted_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert portable.processors() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert portable.processors() == os.cpu_count()
