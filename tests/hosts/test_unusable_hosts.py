"""A host that a job cannot use: one clear error that names it, in time, and nothing stays anywhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.beds import PROGRAMS, drop, on
from support.fleets import Fleet, finished, fleet, last_line, until
from support.patience import patience
from support.places import python

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

START = 5.0  # seconds that the hosts get where one of them never answers
SLEEP = "import time\ntime.sleep(1000)"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Hosts; h2 refuses every key, and h3 has no sshd."""
    with fleet("4", tmp_path_factory.mktemp("hosts"), refused=[2], silent=[3]) as made:
        yield made


def refused(hosts: Fleet, *arguments: str, code: int = 1, program: str = SLEEP) -> str:
    """Return what is said of a job that must not start."""
    done = hosts.launch(*arguments, hosts.program(program))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert all(line.startswith("ringcast-launch: ") for line in done.stderr.splitlines()), done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("h9", "Could not resolve hostname h9"),
        ("h2", r"Permission denied \(publickey\)"),
        ("h3", "Connection refused"),
        ("nobody@h1", r"nobody@h1: Permission denied \(publickey\)"),
    ],
)
def test_a_host_that_ssh_does_not_reach(hosts: Fleet, host: str, words: str) -> None:
    said = refused(hosts, "-H", f"h0,h1,{host}")
    start = (
        rf"ringcast-launch: the job cannot start: host {host}: its agent cannot be started \(ssh -oBatchMode=yes …\)"
    )
    assert re.match(rf"{start}: .*{words}", said), said
    assert re.search("`ringcast doctor -H [a-z@h0-9,]+` shows more", said)


def test_all_hosts_that_fail_at_once_are_named(hosts: Fleet) -> None:
    said = refused(hosts, "-H", "h1,h2,h3,h9").splitlines()
    assert {word for line in said for word in re.findall(r"host (h\d): ", line)} == {"h2", "h3", "h9"}


def test_a_host_that_never_answers(hosts: Fleet) -> None:
    drop(hosts.bed, 1, hosts.bed.hosts[0].address)
    limit, start = patience(START), time.monotonic()
    said = refused(hosts, "--start-timeout", f"{limit:g}", "-H", "h0,h1")
    took = time.monotonic() - start
    on(hosts.bed, 1, "ip", "neigh", "del", hosts.bed.hosts[0].address, "dev", "e0")
    assert limit <= took < 2 * limit + patience(5)
    assert f"host h1: its agent has not started within {limit:g} s" in said


@contextmanager
def covered(hosts: Fleet, host: int, path: str, by: str) -> Iterator[None]:
    """Let another file be at a path of a host."""
    on(hosts.bed, host, "mount", "--bind", by, path)
    try:
        yield
    finally:
        on(hosts.bed, host, "umount", path)


def script(hosts: Fleet, name: str, text: str) -> str:
    path = hosts.folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def starter(hosts: Fleet, text: str) -> list[str]:
    """Return the options for a starter that has host and command as $1 and $2."""
    return ["--rsh-agent", shlex.quote(script(hosts, "starter", text))]


def test_a_host_without_this_python(hosts: Fleet) -> None:
    gone = f'exec ssh "$1" "$(echo "$2" | sed "s,{sys.executable},/opt/python/bin/python,")"'
    said = refused(hosts, *starter(hosts, gone), "-H", "h0,h1")
    assert re.search(
        r"host h1: its agent cannot be started .*/opt/python/bin/python.*: No such file or directory", said
    )


def test_a_host_whose_python_has_no_ringcast(hosts: Fleet) -> None:
    bare = 'exec ssh "$1" "$(echo "$2" | sed "s, -P , -I -S ,")"'  # which finds its own library only
    said = refused(hosts, *starter(hosts, bare), "-H", "h0,h1", program="")
    assert re.search("host h1: its agent cannot be started .*No module named '?ringcast_launcher", said)


AGENT = """
import platform
from ringcast.control import envelope
{change}
from ringcast_launcher.hosts.agent import main
main()
"""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "envelope.__version__ = '0.0.9'",
            r"it runs ringcast 0\.0\.9 \(protocol \d+\), but this launcher ",
        ),
        ("platform.python_version = lambda: '3.9.1'", r"it runs Python 3\.9\.1, but this launcher \d"),
    ],
)
def test_a_host_with_another_version(hosts: Fleet, change: str, words: str) -> None:
    (hosts.folder / "agent.py").write_text(AGENT.format(change=change))
    other = f'exec ssh "$1" {shlex.quote(python(hosts.folder / "agent.py"))}'
    said = refused(hosts, *starter(hosts, other), "-H", "h0,h1")
    assert re.match(f"ringcast-launch: the job cannot start: host h1: {words}", said), said


NONSENSE = """
import sys, time
from ringcast_launcher.hosts.framing import MARK, encode
from ringcast_launcher.hosts.messages import AgentHello
from ringcast.wire.codec import plain
from ringcast.control import version
import platform
out = sys.stdout.buffer
out.write(b"noise" + MARK)
{write}
out.flush()
sys.stdin.buffer.read()
"""
GOOD = "out.write(encode(plain(AgentHello(version(), platform.python_version(), 'h1', '10.77.0.1'))))"


@pytest.mark.parametrize(
    ("write", "words"),
    [
        ("out.write(b'\\xff' * 99)", "a message of .* bytes was announced"),
        ("out.write(encode(['Rubbish', 1]))", r"a message is not understood: \['Rubbish', 1\]"),
        (f"{GOOD}; out.write(encode(['Output', 'x', 1, b'']))", r"a message is not understood: \['Output', 'x', 1"),
        (f"{GOOD}; out.write(encode(['Exited', 0, 1]))", r"it reports ranks that it does not have: \['Exited', 0, 1\]"),
        (f"{GOOD}; out.write(encode(['Fence', 1]))", r"a message is not understood: \['Fence', 1\]"),
    ],
)
def test_an_agent_that_talks_nonsense(hosts: Fleet, write: str, words: str) -> None:
    (hosts.folder / "agent.py").write_text(NONSENSE.format(write=write))
    other = f'exec ssh "$1" {shlex.quote(python(hosts.folder / "agent.py"))}'
    said = refused(hosts, *starter(hosts, other), "-H", "h0,h1")
    assert re.search(f"data from its host h1 cannot be understood: {words}", said), said


def test_an_agent_that_somebody_starts_by_hand_says_so(hosts: Fleet) -> None:
    agent = shlex.join([sys.executable, "-m", "ringcast_launcher.hosts.agent"])
    done = on_shell(hosts, f"echo help me | {agent} >/dev/null")
    assert (
        done == "ringcast agent: this is started by ringcast-launch only: a message of 1886152040 bytes was announced\n"
    )


def on_shell(hosts: Fleet, line: str) -> str:
    return on(hosts.bed, 1, "env", f"TMPDIR={hosts.temporary}", "sh", "-c", f"({line}) 2>&1 || true")


def test_a_launcher_that_is_reached_by_ssh_only_in_the_other_direction(hosts: Fleet) -> None:
    nobody = {"RINGCAST_ADVERTISE": "10.77.0.99"}  # packets to it get lost, as in a firewall
    done = hosts.launch("-H", "h0,h1", hosts.program(SLEEP), **nobody)
    assert (done.returncode, done.stdout) == (1, "")
    start = r"ringcast-launch: host h1: the launcher cannot be reached from there at tcp://10\.77\.0\.99:\d+ "
    assert re.fullmatch(f"{start}.*; open its ports in the firewalls .*\n", done.stderr), done.stderr


@pytest.mark.long
def test_a_firewall_between_two_hosts_of_workers(hosts: Fleet, tmp_path: Path) -> None:
    with fleet("3", tmp_path) as three:
        drop(three.bed, 1, three.bed.hosts[2].address)
        options = ["--start-timeout", f"{patience(15):g}", "-H", "h0,h1,h2"]
        done = three.launch(*options, str(PROGRAMS / "without_end.py"), "barrier", "8", "3")
        three.assert_empty()
    assert done.returncode == 1, done.stderr
    assert re.search("rank [12] .*rank [12]", done.stderr), done.stderr
    assert len(last_line(done)) < 500


@pytest.mark.parametrize(
    ("text", "words"),
    [("h0 slots=2\nh1 slots=x\n", "hostfile:2: "), ("h0\n\nh1 slots=0\n", "hostfile:3: "), ("# none\n", "hostfile")],
)
def test_a_hostfile_that_is_wrong(hosts: Fleet, text: str, words: str) -> None:
    (hosts.folder / "hostfile").write_text(text)
    assert words in refused(hosts, "--hostfile", str(hosts.folder / "hostfile"), code=2)


LISTEN = """
import socket, time
taken = [socket.create_server(("10.77.0.1", port)) for port in range(22000, 22003)]
print("listening", flush=True)
time.sleep(1000)
"""


def test_a_range_of_ports_that_is_taken(hosts: Fleet) -> None:
    with hosts.bed.start(0, [sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout.readline() == "listening\n"
        said = refused(hosts, "-H", "h0,h1", "--port-range", "22000-22002")
        listener.kill()
    assert "22000" in said


def test_ctrl_c_while_a_host_does_not_answer(hosts: Fleet) -> None:
    never = starter(hosts, "sleep 1000")
    with hosts.started(*never, "-H", "h0,h1", hosts.program(SLEEP)) as process:
        until(lambda: any("sleep 1000" in command for command in hosts.processes(0).values()))
        process.send_signal(2)
        done = finished(process)
    assert (done.returncode, done.stderr) == (130, "ringcast-launch: ended by SIGINT\n")


def test_ctrl_c_while_a_host_does_not_start_its_workers(hosts: Fleet) -> None:
    (hosts.folder / "agent.py").write_text(NONSENSE.format(write=f"{GOOD}\nout.flush()\nopen(sys.argv[1], 'w')"))
    sign = hosts.folder / "said-hello"
    mute = starter(hosts, f'exec ssh "$1" {shlex.quote(python(hosts.folder / "agent.py", sign))}')
    with hosts.started(*mute, "-H", "h0,h1", hosts.program(SLEEP)) as process:
        until(lambda: sign.exists() and hosts.workers(0))
        process.send_signal(2)
        done = finished(process, 8)
    assert (done.returncode, done.stderr) == (130, "ringcast-launch: ended by SIGINT\n")


@pytest.mark.long
def test_one_of_many_hosts_that_cannot_be_started(tmp_path: Path) -> None:
    names = ",".join(f"h{i}" for i in range(16))
    with fleet("16", tmp_path, silent=[11]) as many:
        start = time.monotonic()
        done = many.launch("--start-timeout", "60", "-H", names, many.program(SLEEP))
        assert time.monotonic() - start < patience(75)
        many.assert_empty()
    assert done.returncode == 1
    assert "host h11: its agent cannot be started" in done.stderr
    assert "Connection refused" in done.stderr


@pytest.mark.long
def test_many_hosts(tmp_path: Path) -> None:
    with fleet("16", tmp_path) as many:
        done = many.launch("-H", ",".join(f"h{i}:2" for i in range(16)), "--output", "none", "hostname")
        many.assert_empty()
    assert (done.returncode, sorted(done.stdout.split())) == (0, sorted(2 * [f"h{i}" for i in range(16)]))
