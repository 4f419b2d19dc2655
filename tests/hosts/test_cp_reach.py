"""`ringcast cp` with hosts that cannot be reached or take no files: each is named, the others go on."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.beds import on, run_on
from support.fleets import LIMIT, Fleet, finished, fleet, serving, until
from support.places import python

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

CP = [sys.executable, "-m", "ringcast", "cp"]
THERE = "/dev/shm/data"  # each host has a /dev/shm of its own, all other files are those of the machine


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Hosts; h3 refuses every key, and h4 has no sshd."""
    with fleet("5", tmp_path_factory.mktemp("hosts"), refused=[3], silent=[4]) as made:
        for host in range(5):
            on(made.bed, host, "mount", "-o", "remount,size=200m", "/dev/shm")
        yield made


@pytest.fixture
def nothing_on_hosts(hosts: Fleet) -> Iterator[None]:
    yield
    for host in range(5):
        on(hosts.bed, host, "rm", "-rf", THERE)
    try:
        hosts.assert_empty()
    finally:
        hosts.clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").write_bytes(os.urandom(3_000_000))
    return tmp_path / "source"


def cp(hosts: Fleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_on(hosts.bed, 0, [*CP, *arguments], LIMIT, hosts.environment)


def has(hosts: Fleet, host: int, source: Path, path: str = f"{THERE}/source") -> bool:
    """Return whether a host has the content of the source, as cmp sees it."""
    return run_on(hosts.bed, host, ["cmp", str(source), path]).returncode == 0


def errors(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return what is said of each host; it must be one line each."""
    lines = [line.removeprefix("ringcast cp: ").partition(": ") for line in done.stderr.splitlines()]
    assert len(lines) == len({host for host, _, _ in lines}), done.stderr
    return {host: why for host, _, why in lines}


REASONS = {
    "h3": "Permission denied (publickey)",
    "h4": "Connection refused",
    "h9": "Could not resolve hostname h9",
}


def test_all_hosts_that_cannot_be_reached_are_named(hosts: Fleet, source: Path) -> None:
    done = cp(hosts, str(source), "-H", f"h[1-4,9]:{THERE}/")
    assert (done.returncode, done.stdout) == (1, "")
    said = errors(done)
    assert said.keys() == REASONS.keys()
    assert all(words in said[host] for host, words in REASONS.items())
    assert not has(hosts, 1, source)


def test_the_others_get_all_with_keep_going(hosts: Fleet, source: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["--keep-going", "--json-report", str(report), str(source), "-H", f"h9,h1,h3,h2,h4:{THERE}/"]
    done = cp(hosts, *arguments)
    assert done.returncode == 1
    first, _, rest = done.stderr.partition("\n")
    assert first == "ringcast cp: trying once more: h9, h3, h4"
    said = errors(subprocess.CompletedProcess([], 1, "", rest))
    assert said.keys() == REASONS.keys()
    assert all(words in said[host] for host, words in REASONS.items())
    assert done.stdout.startswith("2 of 5 hosts have 1 files")
    assert [has(hosts, host, source) for host in (1, 2)] == [True, True]
    told = json.loads(report.read_text())
    assert not told["ok"]
    assert [host["host"] for host in told["hosts"]] == ["h9", "h1", "h3", "h2", "h4"]
    assert {host["host"]: host["error"] for host in told["hosts"] if host["error"]} == said


def test_a_host_that_comes_late_gets_all(hosts: Fleet, source: Path, tmp_path: Path) -> None:
    late = f'[ "$1" != h2 ] || ! mkdir "{tmp_path}/came" && exec ssh "$1" "$2"; echo not yet >&2; exit 255'
    report = tmp_path / "report.json"
    done = cp(
        hosts,
        "--keep-going",
        *starter(tmp_path, late),
        "--json-report",
        str(report),
        str(source),
        "-H",
        f"h1,h2:{THERE}/",
    )
    assert (done.returncode, done.stderr) == (0, "ringcast cp: trying once more: h2\n")
    assert done.stdout.startswith("2 of 2 hosts have 1 files, 3,000,000 bytes: 6,000,000 sent")
    assert [has(hosts, host, source) for host in (1, 2)] == [True, True]
    told = json.loads(report.read_text())
    assert told["ok"]
    assert ["not yet" in host["first_error"] for host in told["hosts"]] == [False, True]


def test_a_host_that_comes_late_gets_a_file_of_a_server(hosts: Fleet, tmp_path: Path) -> None:
    late = f'[ "$1" != h2 ] || ! mkdir "{tmp_path}/came" && exec ssh "$1" "$2"; echo not yet >&2; exit 255'
    with serving(hosts, 3_000_000, 1_000_000, 64) as url:
        done = cp(hosts, "--keep-going", *starter(tmp_path, late), url, f"h1,h2:{THERE}/")
    assert (done.returncode, done.stderr) == (0, "ringcast cp: trying once more: h2\n")
    assert done.stdout.startswith("2 of 2 hosts have 1 files, 3,000,000 bytes: 6,000,000 read")
    (tmp_path / "zeros").write_bytes(bytes(3_000_000))
    assert [has(hosts, host, tmp_path / "zeros", f"{THERE}/model.bin") for host in (1, 2)] == [True, True]


def test_a_host_that_was_lost_gets_the_rest(hosts: Fleet, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(24_000_000))
    arguments = ["--keep-going", "--limit-rate", "12m", str(source), "-H", f"h1,h2:{THERE}/"]
    with started(hosts, *arguments) as process:
        until(lambda: run_on(hosts.bed, 2, ["test", "-e", f"{THERE}/.source.ringcast-part"]).returncode == 0)
        for pid in hosts.workers(2):
            os.kill(pid, signal.SIGKILL)
        done = finished(process)
    assert (done.returncode, done.stderr) == (0, "ringcast cp: trying once more: h2\n")
    assert done.stdout.startswith("2 of 2 hosts have 1 files, 24,000,000 bytes: ")
    assert [has(hosts, host, source) for host in (1, 2)] == [True, True]


def starter(folder: Path, text: str) -> list[str]:
    """Return the options for a starter that has host and command as $1 and $2."""
    (folder / "starter").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "starter").chmod(0o755)
    return ["--rsh-agent", shlex.quote(str(folder / "starter"))]


def started(hosts: Fleet, *arguments: str) -> subprocess.Popen[str]:
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return hosts.bed.start(0, [*CP, *arguments], env=hosts.environment, **files)


OTHER_VERSION = """
from ringcast.control import envelope
envelope.__version__ = "0.0.9"
from ringcast_launcher.hosts.agent import main
main()
"""


def test_ringcast_is_missing_or_another_one(hosts: Fleet, source: Path, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(OTHER_VERSION)
    odd = f"""case "$1" in
h1) exec ssh "$1" "$(echo "$2" | sed 's, -P , -I -S ,')" ;;
h2) exec ssh "$1" {shlex.quote(python(tmp_path / "agent.py"))} ;;
*) exec ssh "$1" "$2" ;;
esac"""
    done = cp(hosts, "--keep-going", *starter(tmp_path, odd), str(source), "-H", f"h1,h2,h0:{THERE}/")
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert said[0] == "ringcast cp: trying once more: h1, h2"
    assert re.match(r"ringcast cp: h1: .*No module named '?ringcast_launcher", said[1])
    assert re.match(r"ringcast cp: h2: it runs ringcast 0\.0\.9 .* install the same one everywhere", said[2])
    assert len(said) == 3
    assert has(hosts, 0, source)


def test_this_host_among_others_is_named_rightly(hosts: Fleet, source: Path, tmp_path: Path) -> None:
    on(hosts.bed, 0, "touch", THERE)  # a file where a directory shall be
    done = cp(hosts, "--keep-going", str(source), "-H", f"h1,h0,h2:{THERE}/")
    assert (done.returncode, errors(done)) == (1, {"h0": f"{THERE}/: Not a directory"})
    assert [has(hosts, host, source) for host in (1, 2)] == [True, True]


def test_a_directory_that_other_hosts_have_not(hosts: Fleet, source: Path) -> None:
    line = f"mkdir -p {THERE}/only && cd {THERE}/only && cp {source} here && exec {shlex.join(CP)} here -H h1:{THERE}/"
    done = run_on(hosts.bed, 0, ["sh", "-c", line], LIMIT, hosts.environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert has(hosts, 1, source, f"{THERE}/here")


READ_ONLY = f"mkdir {THERE} && mount -t tmpfs -o ro tmpfs {THERE}"
IN_THE_WAY = {
    "a directory for a file": (f"mkdir -p {THERE}/source", f"{THERE}/source: is a directory there"),
    "a file for a directory": (f"touch {THERE}", f"{THERE}/: Not a directory"),
    "no right to write": (READ_ONLY, f"{THERE}/: Read-only file system"),
}


@pytest.mark.parametrize("kind", IN_THE_WAY)
def test_what_is_in_the_way_is_named(hosts: Fleet, source: Path, kind: str) -> None:
    before, words = IN_THE_WAY[kind]
    on(hosts.bed, 2, "sh", "-c", before)
    try:
        done = cp(hosts, str(source), "-H", f"h1,h2:{THERE}/")
        assert (done.returncode, done.stdout) == (1, "")
        assert errors(done).keys() == {"h2"}
        assert words in errors(done)["h2"]
        assert not has(hosts, 1, source)
    finally:
        if before == READ_ONLY:
            on(hosts.bed, 2, "umount", THERE)


@pytest.mark.parametrize(
    ("file", "words"), [("speed", "Invalid argument"), ("mtu", "became shorter while it was read")]
)
def test_a_source_that_cannot_be_read(hosts: Fleet, source: Path, file: str, words: str) -> None:
    path = f"/sys/class/net/lo/{file}"  # whose size is a page; root may read it
    done = cp(hosts, str(source), path, "-H", f"h[1-2]:{THERE}/")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"ringcast cp: {path}: {words}\n"
    assert on(hosts.bed, 1, "find", THERE, "-type", "f", "!", "-name", ".*.ringcast-part") == ""


def test_each_source_that_cannot_be_copied_is_named_before_anything_starts(hosts: Fleet, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "right").write_text("right")
    (tree / "secret").touch(0o000)
    os.mkfifo(tree / "pi\npe")
    os.mknod(os.fsencode(tree) + b"/device\xff", stat.S_IFCHR, os.makedev(1, 3))
    root_as_others = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    command = [*root_as_others, *CP, "-r", str(tree), "-H", f"h1:{THERE}/"]
    done = run_on(hosts.bed, 0, command, LIMIT, hosts.environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert errors(done) == {
        f"{tree}/device\\udcff": "neither file, directory nor link; it cannot be copied",
        f"{tree}/pi\\npe": "neither file, directory nor link; it cannot be copied",
        f"{tree}/secret": "no permission to read it",
    }


def test_a_host_of_two_names(hosts: Fleet, source: Path) -> None:
    source.write_bytes(os.urandom(30_000_000))
    done = cp(hosts, str(source), "-H", f"h1,{hosts.bed.hosts[1].address},h2:{THERE}/")
    assert done.returncode == 1
    ((host, why),) = errors(done).items()
    assert host in ("h1", hosts.bed.hosts[1].address)
    assert why == f"{THERE}/source: another copy writes it at the same time, maybe to this host by another name"
    again = cp(hosts, str(source), "-H", f"h1,h2:{THERE}/")
    assert again.returncode == 0
    assert [has(hosts, host, source) for host in (1, 2)] == [True, True]


@pytest.mark.parametrize("waiting", ["sleep 1000", "exec ssh $1 sleep 1000"])
def test_ctrl_c_before_the_ranks_run(hosts: Fleet, source: Path, tmp_path: Path, waiting: str) -> None:
    with started(hosts, *starter(tmp_path, waiting), str(source), "-H", f"h1:{THERE}/") as process:
        until(lambda: any("sleep 1000" in command for command in hosts.processes(0).values()))
        process.send_signal(signal.SIGINT)
        done = finished(process)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("ringcast cp: interrupted; ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("whose", ["the launcher's", "the command's and the launcher's"])
def test_an_agent_below_its_starter_leaves_nothing_when_the_launcher_is_killed(
    hosts: Fleet, source: Path, tmp_path: Path, whose: str
) -> None:
    """As with sudo or docker: there the agent descends from the launcher."""
    below = starter(tmp_path, 'exec sh -c "$2"')
    with started(hosts, "--limit-rate", "300k", *below, str(source), "-H", f"h1:{THERE}/") as process:
        until(lambda: len(list(hosts.temporary.glob("ringcast-job-*"))) == 2)
        until(lambda: run_on(hosts.bed, 0, ["sh", "-c", f"ls -A {THERE} | grep -q ."]).returncode == 0)
        names = [r" -m ringcast_launcher -H"] + [r" -m ringcast cp"] * whose.startswith("the command")
        for pid, command in hosts.processes(0).items():
            if any(name in command for name in names):
                os.kill(pid, signal.SIGKILL)
        finished(process)


def test_words_of_a_host_give_a_terminal_no_orders(hosts: Fleet, source: Path, tmp_path: Path) -> None:
    odd = starter(tmp_path, "printf '\\033]0;title\\007 said\\n' >&2; exit 3")
    done = cp(hosts, *odd, str(source), "-H", f"h1:{THERE}/")
    assert done.returncode == 1
    assert r"\x1b]0;title\x07 said" in errors(done)["h1"]


LIES = r"""
import json, os, socket, sys
if os.environ.get("LIES") and "ringcast.commands.cp.worker" in sys.orig_argv:
    with open(os.environ["LIES"], "w") as file:
        file.write(os.environ["RINGCAST_NO_PICKLE"])
    print(json.dumps(["CopyReport", 1, 2, 2, 2, 0.5, [[99, "h1", 0, 0, 0.0, 0.0, "\x1b]0;x"]]]), flush=True)
    print(json.dumps(["Failed", "rank 1: \x1b[2Jit is h1"]), flush=True)
    socket.gethostname = lambda: "\x1b[2Jh1"
    from ringcast.transfer import copying, destination
    def prepare(self):
        raise copying.TransferError("full\x1b[2J\nrank 1: it is h1")
    destination.Destination.prepare = prepare
"""


def test_a_host_that_lies_stands_alone_in_what_is_said(hosts: Fleet, source: Path, tmp_path: Path) -> None:
    """It prints reports of its own, and in its error lines of another host and orders to the terminal."""
    (tmp_path / "sitecustomize.py").write_text(LIES)
    lies = f"env PYTHONPATH={tmp_path} LIES={tmp_path}/environment"
    start = f'[ "$1" != h2 ] || exec ssh "$1" "{lies} $2"; exec ssh "$1" "$2"'
    report = tmp_path / "report.json"
    told = ["--keep-going", "--json-report", str(report), *starter(tmp_path, start)]
    done = cp(hosts, *told, str(source), "-H", f"h1,h2:{THERE}/")
    assert done.returncode == 1
    assert errors(done) == {"h2": r"full\x1b[2J\nrank 1: it is h1"}
    assert done.stdout.startswith("1 of 2 hosts have 1 files, 3,000,000 bytes: 3,000,000 sent")
    assert [has(hosts, host, source) for host in (1, 2)] == [True, False]
    assert (tmp_path / "environment").read_text() == "1"  # RINGCAST_NO_PICKLE
    assert [host["host"] for host in json.loads(report.read_text())["hosts"] if host["error"]] == ["h2"]
