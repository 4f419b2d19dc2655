"""`ringcast cp` over real ssh: every host has every byte, whoever is killed; what has arrived is not sent again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from ringcast.transfer.layout import CHUNK, PIECE
from support.beds import on, run_on
from support.causes import names
from support.fleets import LIMIT, Fleet, finished, fleet, serving, until
from support.patience import patience
from support.trees import described, make_tree

pytestmark = pytest.mark.usefixtures("nothing_on_links")

CP = [sys.executable, "-m", "ringcast", "cp"]
THERE = "/dev/shm/data"  # each host has a /dev/shm of its own, all other files are those of the machine
BIG = 128 << 20


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Four hosts whose links are slow enough that a copy can be disturbed."""
    with fleet("4x200mbit", tmp_path_factory.mktemp("links")) as made:
        for host in range(4):
            on(made.bed, host, "mount", "-o", "remount,size=1g", "/dev/shm")
        yield made


@pytest.fixture
def nothing_on_links(links: Fleet) -> Iterator[None]:
    """Remove the copies, and fail a test that leaves a process or a temporary file on one of the hosts."""
    yield
    for host in range(4):
        on(links.bed, host, "rm", "-rf", THERE)
    try:
        links.assert_empty()
    finally:
        links.clear()


@pytest.fixture(scope="module")
def big(links: Fleet) -> Path:
    path = links.folder / "big.bin"
    path.write_bytes(os.urandom(BIG))
    return path


def cp(links: Fleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_on(links.bed, 0, [*CP, *arguments], LIMIT, links.environment)


def started(links: Fleet, *arguments: str) -> subprocess.Popen[str]:
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return links.bed.start(0, [*CP, *arguments], env=links.environment, **files)


def _brought(links: Fleet) -> list[Path]:
    """Return the directories with ringcast on the hosts, which share this machine's files."""
    places = [place for folder in (Path("/tmp"), links.temporary) for place in folder.glob("ringcast-*")]
    return [place for place in places if (place / "ringcast_launcher").exists()]


def _agents(links: Fleet) -> set[str]:
    """Return the commands of agents on other hosts than the first."""
    return {
        f"{host} {command}"
        for host in (1, 2, 3)
        for command in links.processes(host).values()
        if "-m ringcast_launcher.hosts.agent" in command and not command.startswith(("sh ", "bash "))
    }


def digest(links: Fleet, host: int, name: str) -> str:
    return on(links.bed, host, "sha256sum", f"{THERE}/{name}").split()[0]


def sent(links: Fleet) -> int:
    return links.bed.carried(0)[0]


@pytest.mark.parametrize("preserve", [False, True])
def test_a_tree_arrives_whole_as_rsync_sees_it(links: Fleet, tmp_path: Path, preserve: bool) -> None:
    tree = make_tree(tmp_path / "tree")
    options = ["-r", "-p"] if preserve else ["-r"]
    done = cp(links, *options, str(tree), "-H", f"h[1-3]:{THERE}/")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 of 3 hosts have ")
    for host in 1, 2, 3:
        copy = tmp_path / f"copy{host}"
        on(links.bed, host, "cp", "-a", f"{THERE}/tree", str(copy))
        assert described(copy, times=preserve) == described(tree, times=preserve)


def test_a_large_package_arrives_as_rsync_compares_it(links: Fleet) -> None:
    package = Path(np.__file__).parent
    done = cp(links, "-r", "-p", str(package), "-H", f"h[1-3]:{THERE}/")
    assert (done.returncode, done.stderr) == (0, "")
    for host in 1, 2, 3:
        compared = on(links.bed, host, "rsync", "-anic", "--delete", f"{package}/", f"{THERE}/numpy/")
        assert compared == ""


def test_a_second_run_is_quick_on_any_link(links: Fleet, big: Path) -> None:
    assert cp(links, str(big), "-H", f"h[1-3]:{THERE}/").returncode == 0
    before = sent(links)
    done = cp(links, str(big), "-H", f"h[1-3]:{THERE}/")
    assert done.returncode == 0
    assert " 0 sent in " in done.stdout
    assert sent(links) - before < 1_000_000


def test_a_host_that_is_killed_does_not_keep_the_others_from_all(links: Fleet, big: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    before = sent(links)
    with started(links, str(big), "-H", f"h[1-3]:{THERE}/", "--json-report", str(report)) as process:
        until(lambda: sent(links) - before > BIG / 2, LIMIT)
        for pid in links.workers(2):
            os.kill(pid, signal.SIGKILL)
        done = finished(process)
    assert done.returncode == 1
    assert re.fullmatch("ringcast cp: h2: lost: .*\n", done.stderr)
    assert names(done.stderr, "lost: killed by SIGKILL\n")
    expected = hashlib.sha256(big.read_bytes()).hexdigest()
    assert [digest(links, host, "big.bin") for host in (1, 3)] == [expected] * 2
    assert on(links.bed, 2, "ls", "-A", THERE).split() == [".big.bin.ringcast-part"]
    told = json.loads(report.read_text())
    assert told["sent"] - BIG <= 8 * PIECE * CHUNK  # only what was in buffers is sent again
    assert [(host["host"], bool(host["error"])) for host in told["hosts"]] == [
        ("h1", False),
        ("h2", True),
        ("h3", False),
    ]
    again = cp(links, str(big), "-H", f"h[1-3]:{THERE}/")
    assert again.returncode == 0
    assert digest(links, 2, "big.bin") == expected


def test_files_of_all_hosts_are_collected_but_for_those_of_a_host_that_is_killed(
    links: Fleet, big: Path, tmp_path: Path
) -> None:
    for host in 1, 2, 3:
        on(links.bed, host, "mkdir", THERE)
        on(links.bed, host, "cp", str(big), f"{THERE}/big.bin")
        on(links.bed, host, "sh", "-c", f"echo {host} > {THERE}/own.log")
    out, report = tmp_path / "out", tmp_path / "report.json"
    command = ["--collect", f"h[1-3]:{THERE}/*.bin", f":{THERE}/own.log", str(out), "--json-report", str(report)]
    before = links.bed.carried(0)[1]
    with started(links, *command) as process:
        until(lambda: links.bed.carried(0)[1] - before > 1.5 * BIG, LIMIT)  # h2 sends
        for pid in links.workers(2):
            os.kill(pid, signal.SIGKILL)
        done = finished(process)
    assert done.returncode == 1
    assert re.fullmatch("ringcast cp: h2: .*\n", done.stderr)
    assert names(done.stderr, "killed by SIGKILL")
    assert done.stdout.startswith("2 of 3 hosts gave 4 files, ")
    told = json.loads(report.read_text())
    assert [(host["host"], bool(host["error"])) for host in told["hosts"]] == [("h1", 0), ("h2", 1), ("h3", 0)]
    assert not (out / "h2" / "big.bin").exists()
    assert cp(links, *command).returncode == 0
    expected = hashlib.sha256(big.read_bytes()).hexdigest()
    for host in 1, 2, 3:
        assert hashlib.sha256((out / f"h{host}" / "big.bin").read_bytes()).hexdigest() == expected
        assert (out / f"h{host}" / "own.log").read_text() == f"{host}\n"


@pytest.fixture
def served(links: Fleet) -> Iterator[str]:
    """A server on h0 that gives each connection 1 MB in a second, and 429 to more than 10; the URL of 24 MB there."""
    with serving(links, 24_000_000, 1_000_000, 10) as url:
        yield url


def test_a_file_of_a_server_is_read_by_all_hosts_in_parts(links: Fleet, served: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = cp(links, served, f"h[1-3]:{THERE}/", "--json-report", str(report))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 of 3 hosts have 1 files, 24,000,000 bytes: 24,000,000 read in ")
    told = json.loads(report.read_text())
    assert told["seconds"] < min(patience(12), 20)  # of 24 by one connection each; 10 together take 2.4
    assert sum(host["source"]["nbytes"] for host in told["hosts"]) >= 24_000_000
    assert sum(host["network"]["nbytes"] for host in told["hosts"]) == 2 * 24_000_000
    assert all(host[way]["seconds"] > 0 for host in told["hosts"] for way in ("source", "network"))
    expected = hashlib.sha256(bytes(24_000_000)).hexdigest()
    assert [digest(links, host, "model.bin") for host in (1, 2, 3)] == [expected] * 3
    again = cp(links, served, f"h[1-3]:{THERE}/")
    assert " 0 read in " in again.stdout


def test_a_host_that_is_killed_while_hosts_read_is_named_and_the_others_have_all(links: Fleet, served: str) -> None:
    before = sent(links)
    with started(links, served, "-H", f"h[1-3]:{THERE}/") as process:
        until(lambda: sent(links) - before > 6_000_000, LIMIT)
        for pid in links.workers(2):
            os.kill(pid, signal.SIGKILL)
        done = finished(process)
    assert done.returncode == 1
    assert re.fullmatch("ringcast cp: h2: lost: .*\n", done.stderr)
    assert done.stdout.startswith("2 of 3 hosts have 1 files, 24,000,000 bytes: 24,000,000 read in ")
    expected = hashlib.sha256(bytes(24_000_000)).hexdigest()
    assert [digest(links, host, "model.bin") for host in (1, 3)] == [expected] * 2


def test_a_host_that_was_lost_goes_on_where_it_was(links: Fleet, served: str) -> None:
    """It is tried once more by the same command, and reads what it lacks."""
    before = sent(links)
    with started(links, "--keep-going", served, f"h[1-3]:{THERE}/") as process:
        until(lambda: sent(links) - before > 18_000_000, LIMIT)
        for pid in links.workers(2):
            os.kill(pid, signal.SIGKILL)
        done = finished(process)
    assert (done.returncode, done.stderr) == (0, "ringcast cp: trying once more: h2\n")
    found = re.match("3 of 3 hosts have 1 files, 24,000,000 bytes: ([0-9,]*) read in ", done.stdout)
    assert found is not None
    assert 24_000_000 <= int(found[1].replace(",", "")) < 40_000_000  # 48 if it had begun anew
    expected = hashlib.sha256(bytes(24_000_000)).hexdigest()
    assert [digest(links, host, "model.bin") for host in (1, 2, 3)] == [expected] * 3
    assert on(links.bed, 2, "ls", "-A", THERE).split() == ["model.bin"]


def test_a_source_that_cannot_be_read_is_named_once(links: Fleet) -> None:
    done = cp(links, "http://me:secret@127.0.0.1:1/model.bin", "-H", f"h[1-3]:{THERE}/")
    assert done.returncode == 1
    assert re.fullmatch("ringcast cp: http://127.0.0.1:1/model.bin: .*Connection refused.*\n", done.stderr)


def test_ringcast_is_brought_to_hosts_without_it_and_removed(links: Fleet, tmp_path: Path) -> None:
    file, there = tmp_path / "file", tmp_path / "brought"
    file.write_bytes(os.urandom(1000))
    there.mkdir()
    agents: set[str] = set()
    command = ["--bring", "--limit-rate", "500", str(file), "-H", f"h[1-3]:{THERE}/"]
    with started(links, *command) as process:
        until(lambda: agents.update(_agents(links)) or len(agents) == 3, LIMIT)
        done = finished(process)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 of 3 hosts have 1 files, 1,000 bytes")
    assert not [agent for agent in agents if f" {sys.executable} " in agent]  # another Python, without ringcast
    assert not _brought(links)


def test_what_was_brought_is_removed_when_the_command_is_killed(links: Fleet, big: Path) -> None:
    with started(links, "--bring", str(big), "-H", f"h[1-3]:{THERE}/") as process:
        until(lambda: len(_agents(links)) == 3, LIMIT)
        assert len(_brought(links)) == 3
        process.kill()
        finished(process)
    until(lambda: not _brought(links), LIMIT)


def test_a_host_that_cannot_take_ringcast_is_named(links: Fleet, tmp_path: Path) -> None:
    file, shell, uname = tmp_path / "file", tmp_path / "shell", tmp_path / "uname"
    file.write_text("content")
    uname.write_text("#!/bin/sh\necho Linux riscv64\n")  # h2 is another machine
    shell.write_text(f"""#!/bin/sh
[ "$1" != h2 ] || set -- "$1" "env PATH={tmp_path}:/usr/bin:/bin $2"
exec ssh -oBatchMode=yes "$@"
""")
    for program in shell, uname:
        program.chmod(0o755)
    report = tmp_path / "report.json"
    command = ["--bring", "--rsh-agent", str(shell), str(file), "-H", f"h[1-3]:{THERE}/", "--json-report", str(report)]
    done = cp(links, *command)
    system = " ".join(os.uname()[::4])
    assert (done.returncode, done.stderr) == (1, f"ringcast cp: h2: it is Linux riscv64, and this host {system}\n")
    done = cp(links, "--keep-going", *command)
    assert done.returncode == 1
    assert done.stdout.startswith("2 of 3 hosts have 1 files, ")
    assert [bool(host["error"]) for host in json.loads(report.read_text())["hosts"]] == [False, True, False]
    assert not _brought(links)


@pytest.mark.parametrize("whose", ["the launcher's", "all"])
def test_nothing_is_left_on_other_hosts_when_the_command_is_killed(links: Fleet, big: Path, whose: str) -> None:
    """The launcher, or all that runs on the host which has the files, ssh and watchdog too."""
    before = sent(links)
    with started(links, str(big), "-H", f"h[1-3]:{THERE}/") as process:
        until(lambda: sent(links) - before > BIG // 8)
        there = links.processes(0)
        ours = [pid for pid, command in there.items() if whose == "all" or " -m ringcast_launcher -H" in command]
        assert ours
        launchers = [pid for pid, command in there.items() if " -m ringcast_launcher -H" in command]
        its_own = {path for pid in launchers for path in directories(pid)}
        for pid in ours:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        finished(process)
    if whose == "all":  # that of its own host stays until another launcher comes there
        for path in its_own:
            shutil.rmtree(path, ignore_errors=True)


def directories(pid: int) -> set[str]:
    """Return the directories of jobs in which a process has files open."""
    open_files = (os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink())
    found = (re.match(r".*/ringcast-job-[^/]*", path) for path in open_files)
    return {each[0] for each in found if each}


def test_the_sender_is_killed_at_half_and_run_again(links: Fleet, big: Path) -> None:
    before = sent(links)
    with started(links, str(big), "-H", f"h[1-3]:{THERE}/") as process:
        until(lambda: sent(links) - before > BIG * 0.6, LIMIT)
        for pid in links.workers(0):
            os.kill(pid, signal.SIGKILL)
        done = finished(process)
    assert done.returncode == 1
    assert "killed by SIGKILL; data that has arrived is kept" in done.stderr
    middle = sent(links)
    again = cp(links, str(big), "-H", f"h[1-3]:{THERE}/")
    assert again.returncode == 0
    assert sent(links) - middle < 0.55 * BIG + 5_000_000
    expected = hashlib.sha256(big.read_bytes()).hexdigest()
    assert [digest(links, host, "big.bin") for host in (1, 2, 3)] == [expected] * 3


def test_ctrl_c_says_one_line_and_what_has_arrived_stays(links: Fleet, big: Path) -> None:
    before = sent(links)
    with started(links, str(big), "-H", f"h[1-3]:{THERE}/") as process:
        until(lambda: sent(links) - before > BIG / 4, LIMIT)
        process.send_signal(signal.SIGINT)
        done = finished(process)
    assert done.returncode == 130
    assert done.stderr == (
        "ringcast cp: interrupted; data that has arrived is kept, and the same command sends only the rest\n"
    )
    for host in 1, 2, 3:
        assert on(links.bed, host, "ls", "-A", THERE).split() == [".big.bin.ringcast-part"]


def test_a_full_disk_is_named_before_anything_is_sent(links: Fleet, big: Path) -> None:
    on(links.bed, 2, "mount", "-o", "remount,size=50m", "/dev/shm")
    try:
        before = sent(links)
        done = cp(links, str(big), "-H", f"h[1-3]:{THERE}/")
        assert done.returncode == 1
        assert done.stderr.startswith(f"ringcast cp: h2: {THERE}/: no space: ")
        assert sent(links) - before < 1_000_000
        going = cp(links, "--keep-going", str(big), "-H", f"h[1-3]:{THERE}/")
        assert going.returncode == 1
        assert going.stdout.startswith("2 of 3 hosts have 1 files")
    finally:
        on(links.bed, 2, "mount", "-o", "remount,size=1g", "/dev/shm")


def test_text_travels_compressed_and_arrives_as_it_was(links: Fleet, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"".join(b"line %d of the text\n" % number for number in range(700_000)))
    before = sent(links)
    done = cp(links, str(text), "-H", f"h[1-3]:{THERE}/")
    assert (done.returncode, done.stderr) == (0, "")
    assert sent(links) - before < text.stat().st_size  # uncompressed, the first host sends at least so much
    assert " sent as " in done.stdout
    expected = hashlib.sha256(text.read_bytes()).hexdigest()
    assert [digest(links, host, "text") for host in (1, 2, 3)] == [expected] * 3


def test_zeros_need_no_room(links: Fleet, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(5 << 20) + b"data" + bytes(5 << 20))
    assert cp(links, "--sparse", str(image), "-H", f"h[1-3]:{THERE}/").returncode == 0
    for host in 1, 2, 3:
        assert on(links.bed, host, "du", "-k", f"{THERE}/image").split()[0] in ("4", "8")
        assert digest(links, host, "image") == hashlib.sha256(image.read_bytes()).hexdigest()


@pytest.fixture
def disk(links: Fleet, nothing_on_links: None) -> Iterator[None]:
    """Give h2 a file system that can be frozen: who writes to it then waits, and cannot even be killed."""
    on(links.bed, 2, "truncate", "-s", "200m", "/dev/shm/image")
    on(links.bed, 2, "mkfs.ext4", "-q", "/dev/shm/image")
    on(links.bed, 2, "mkdir", THERE)
    on(links.bed, 2, "mount", "-o", "loop", "/dev/shm/image", THERE)
    yield
    run_on(links.bed, 2, ["fsfreeze", "-u", THERE])
    until(lambda: run_on(links.bed, 2, ["umount", THERE]).returncode == 0)
    on(links.bed, 2, "rm", "/dev/shm/image")


@pytest.mark.usefixtures("disk")
def test_a_disk_that_blocks_is_named_and_the_others_have_all(links: Fleet, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(40 << 20))
    before = sent(links)
    with started(links, "--slow", "drop=3", "--limit-rate", "10m", str(source), "-H", f"h[1-3]:{THERE}/") as process:
        until(lambda: sent(links) - before > 5 << 20, LIMIT)
        on(links.bed, 2, "fsfreeze", "-f", THERE)
        done = finished(process)
    assert done.returncode == 1
    assert done.stderr.startswith("ringcast cp: h2: too slow: its disk made all others wait ")
    assert len(done.stderr.splitlines()) == 1
    expected = hashlib.sha256(source.read_bytes()).hexdigest()
    assert [digest(links, host, "source") for host in (1, 3)] == [expected] * 2
    on(links.bed, 2, "fsfreeze", "-u", THERE)
    again = cp(links, "--slow", "wait", str(source), "-H", f"h[1-3]:{THERE}/")
    assert again.returncode == 0
    assert digest(links, 2, "source") == expected
