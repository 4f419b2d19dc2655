"""Emulated hosts: links as fast as said, hosts that are really apart, nothing left behind; and ringcast on them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import psutil
import pytest

from ringcast.commands.bench import bed as bed_module
from ringcast.commands.bench.bed import Bed, BedError, parse
from support.beds import ENVIRONMENT, PROGRAMS, make_bed, outputs, run_ranks
from support.patience import patience


@pytest.fixture(scope="module")
def four() -> Iterator[Bed]:
    with make_bed("4x100mbit") as bed:
        yield bed


def ask(bed: Bed, i: int, script: str) -> str:
    """Return what a shell script prints on host i."""
    done = subprocess.run(bed.argv(i, ["sh", "-ec", script]), capture_output=True, text=True, timeout=patience(30))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# What the option says, and what stands in the way.


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("8x100mbit", (8, 100_000_000)),
        ("4x1gbit", (4, 10**9)),
        ("36x20mbit", (36, 20_000_000)),
        ("2x512kbit", (2, 512_000)),
        ("4", (4, None)),
        ("1000", (1000, None)),
    ],
)
def test_parse(text: str, meaning: tuple[int, int | None]) -> None:
    assert parse(text) == meaning


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *[
            (text, "expected HOSTS or HOSTSxRATE")
            for text in ("", "x", "4x", "x1gbit", "4x100", "4x1.5gbit", "-4", "4 ")
        ],
        *[(text, "expected HOSTS or HOSTSxRATE") for text in ("4x100MB", "4x100mbit\n", "٤x1gbit", "4x-1gbit")],
        *[(text, "1 to 1000 hosts") for text in ("0", "0x1gbit", "1001")],
        ("4x0mbit", "rate must be more than 0"),
    ],
)
def test_parse_refuses(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)


def test_missing_tools_are_named_with_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed_module, "_PATH", str(tmp_path))
    with pytest.raises(BedError, match=r"need ip, tc, unshare.*apt-get install iproute2 mount util-linux"):
        Bed(2)


@pytest.mark.parametrize(
    ("user", "without", "words"),
    [
        (65534, "chown", "need root (network namespaces); run with sudo"),
        (0, "sys_admin", "the system says: unshare"),
        (0, "net_admin", "the system says: RTNETLINK answers: Operation not permitted"),
    ],
)
def test_what_the_kernel_refuses_is_one_sentence(four: Bed, user: int, without: str, words: str) -> None:
    program = f"""
import os
from ringcast.commands.bench.bed import Bed, BedError
os.setuid({user})
try:
    Bed(2)
except BedError as error:
    print(error)
"""
    drop = ["setpriv", "--bounding-set", f"-{without}", "--inh-caps", f"-{without}"]
    command = [*drop, sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30), env=ENVIRONMENT)
    assert words in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1


def test_the_congestion_control_is_allowed_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setting = tmp_path / "tcp_allowed_congestion_control"
    setting.write_text("reno bbr\n")
    monkeypatch.setattr(bed_module, "ALLOWED", setting)
    for _ in range(2):
        bed_module._allow_congestion_control()
    assert setting.read_text().split() == ["reno", "bbr", "cubic"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{setting}: added cubic, which stays allowed on this machine"
    ]
    monkeypatch.setattr(bed_module, "ALLOWED", Path("/proc/version"))  # which nobody can write
    with pytest.raises(BedError, match="need the congestion control cubic; /proc/version: "):
        bed_module._allow_congestion_control()


def test_a_setup_that_fails_leaves_nothing(four: Bed, nothing_left: None) -> None:
    with pytest.raises(BedError, match=r"emulated host switch cannot be made.*rate"):
        Bed(2, 1)  # less than a byte per second


# What the hosts are.


def test_hosts_have_names_addresses_processes_and_shared_memory_of_their_own(four: Bed) -> None:
    assert [ask(four, i, "hostname") for i in range(4)] == ["h0", "h1", "h2", "h3"]
    assert ask(four, 0, "getent hosts h1").split() == [four.hosts[1].address, "h1"]
    assert ask(four, 2, "ip -4 -o address show dev e0").split()[3] == f"{four.hosts[2].address}/16"
    assert ask(four, 0, "cat /proc/sys/net/ipv4/tcp_congestion_control") == "cubic"
    assert ask(four, 1, "ls /sys/class/net").split() == ["e0", "lo"]
    ask(four, 0, "echo here >/dev/shm/name")
    assert ask(four, 1, "ls /dev/shm") == ""
    assert ask(four, 0, "df --output=size /dev/shm").split()[-1] == "65536"
    assert ask(four, 0, "ls -d /proc/[0-9]*").split()[0] == "/proc/1"
    assert str(os.getpid()) not in ask(four, 0, "cd /proc; echo [0-9]*").split()
    assert ask(four, 0, "pwd") == os.getcwd()
    kinds = ("net", "uts", "ipc", "mnt", "pid")
    assert len({ask(four, i, f"readlink /proc/self/ns/{kind}") for i in range(4) for kind in kinds}) == 20


def test_hosts_know_their_neighbours_for_good(four: Bed) -> None:
    """Entries that the kernel finds itself share one small table with all namespaces of the machine."""
    for i in range(4):
        links = {ask(four, j, "cat /sys/class/net/e0/address"): j for j in range(4)}
        entries = [line.split() for line in ask(four, i, "ip -4 neigh show dev e0").splitlines()]
        assert {entry[0]: links[entry[2]] for entry in entries} == {
            host.address: j for j, host in enumerate(four.hosts) if j != i
        }
        assert {entry[-1] for entry in entries} == {"PERMANENT"}


def test_nothing_of_a_bed_is_seen_outside() -> None:
    def own() -> tuple[list[str], list[str], str, str]:
        places = ("/proc", "/sys", "/dev/shm", "/etc/hosts")
        mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if line.split()[1] in places]
        return sorted(os.listdir("/sys/class/net")), mounts, os.uname().nodename, Path("/etc/hosts").read_text()

    before = own()
    with make_bed("2x100mbit"):
        assert own() == before
    assert own() == before


def test_the_status_is_that_of_the_command_and_a_signal_reaches_it(four: Bed) -> None:
    assert four.start(0, ["sh", "-c", "exit 7"]).wait(patience(30)) == 7
    script = "trap 'echo asked; exit 5' TERM; echo running; while :; do wait; done"
    with four.start(1, ["sh", "-c", f"sleep 1000 & {script}"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "running\n"
        process.terminate()
        assert process.stdout.readline() == "asked\n"
        assert process.wait(patience(30)) == 5
        assert "sleep" in ask(four, 1, "ps ax -o comm")  # an orphan, which close has to find
    with four.start(1, ["sh", "-c", "echo running; exec sleep 1000"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.kill()
        assert process.wait(patience(30)) == -signal.SIGKILL
    assert "Z" not in ask(four, 1, "ps ax -o stat=")


def test_links_are_as_fast_as_said_in_both_directions_at_once() -> None:
    size, rate = 4_000_000, 50_000_000
    with make_bed("2x50mbit") as bed:
        before = [bed.carried(i) for i in range(2)]
        port = next(bed.ports)
        files = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        place = [bed.hosts[0].address, str(port), str(size)]
        command = [sys.executable, str(PROGRAMS / "stream.py")]
        listener = bed.start(0, [*command, "listen", *place], **files)
        assert listener.stdout.readline() == "listening\n"
        seconds = outputs([listener, bed.start(1, [*command, "connect", *place], **files)], 30)
        for taken in map(float, seconds):
            # How near they come, the benchmark shows on an idle machine. A reader that starts late finds data waiting.
            assert 0.3 * rate < 8 * size / taken < 1.2 * rate
        for i in range(2):
            for carried, was in zip(bed.carried(i), before[i], strict=True):
                assert size < carried - was < 1.1 * size


# How they end.


def spaces(processes: Iterable[psutil.Process]) -> set[str]:
    """Return the namespaces that these processes are in."""
    found = set()
    for process, kind in product(processes, ("net", "mnt", "ipc", "uts", "pid")):
        with contextlib.suppress(OSError):  # it has ended
            found.add(os.readlink(f"/proc/{process.pid}/ns/{kind}"))
    return found


def networks(names: set[str]) -> int:
    return sum(name.startswith("net:") for name in names)


def test_beds_live_side_by_side_and_are_gone_after_close(nothing_left: None) -> None:
    me = psutil.Process()
    before = spaces([me, *me.children(recursive=True)])
    with make_bed("2x100mbit") as first:
        ask(first, 0, "echo first >/dev/shm/bed")
        with make_bed("3") as second:
            ask(second, 0, "echo second >/dev/shm/bed")
            assert [ask(bed, 0, "cat /dev/shm/bed") for bed in (first, second)] == ["first", "second"]
            assert ask(second, 2, "getent hosts h2").split()[0] == second.hosts[2].address
            sleeper = second.start(2, ["sleep", "1000"])
            made = spaces(me.children(recursive=True)) - before
            assert networks(made) == 3 + 4
        assert sleeper.wait(patience(30)) != 0
        assert ask(first, 1, "hostname") == "h1"
    first.close()
    assert not made & spaces(psutil.process_iter())
    for use in (lambda: first.argv(0, ["true"]), lambda: first.carried(0), lambda: first.start(0, ["true"])):
        with pytest.raises(BedError, match="closed"):
            use()


def test_everything_is_gone_when_the_process_that_made_it_is_killed(four: Bed) -> None:
    program = """
import subprocess
from ringcast.commands.bench.bed import Bed
bed = Bed(3, 100_000_000)
running = [bed.start(i, ["sh", "-c", "sleep 1000 & sleep 1000"]) for i in range(3)]
orphan = bed.start(0, ["sh", "-c", "setsid sleep 1000 & echo started"], stdout=subprocess.PIPE)
orphan.stdout.readline()
print("made", flush=True)
input()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as maker:
        assert maker.stdout.readline() == b"made\n"
        processes = psutil.Process(maker.pid).children(recursive=True)
        made = spaces(processes) - spaces([psutil.Process()])
        assert networks(made) == 3 + 1
        maker.kill()
        _, alive = psutil.wait_procs(processes, timeout=patience(30))
    assert not alive
    assert not made & spaces(psutil.process_iter())


def test_a_host_whose_first_process_was_killed_is_not_entered(nothing_left: None) -> None:
    with make_bed("2") as bed:
        first = psutil.Process(bed._holder(0))
        holder = first.parent()
        first.kill()
        psutil.wait_procs([first], timeout=patience(30))
        assert holder.wait(patience(30)) is not None
        with pytest.raises(BedError, match="h0 has ended"):
            bed.argv(0, ["true"])
        assert ask(bed, 1, "hostname") == "h1"


# ringcast on them.


def test_collectives_are_right_on_four_hosts(four: Bed) -> None:
    before = [four.carried(i) for i in range(4)]
    run_ranks(four, "collectives.py", "0", "1", "1000", "1000000")
    for i, was in enumerate(before):
        assert min(now - then for now, then in zip(four.carried(i), was, strict=True)) > 5_000_000


def test_collectives_are_right_on_nine_hosts() -> None:
    with make_bed("9x80mbit") as bed:
        run_ranks(bed, "collectives.py", "1", "100000")


@pytest.mark.long
@pytest.mark.timeout(400)
def test_36_hosts_that_all_talk_to_each_other() -> None:
    """The table of neighbours that all namespaces share has room for 1024 entries, and these are 1260."""

    def refused() -> int:
        """Return how many neighbours had no room in the table."""
        names, *rows = (line.split() for line in Path("/proc/net/stat/arp_cache").read_text().splitlines())
        return sum(int(row[names.index("table_fulls")], 16) for row in rows)

    before = refused()
    with make_bed("36x20mbit") as bed:
        run_ranks(bed, "everybody.py", "1000", timeout=300.0)
    assert refused() == before


def test_never_two_large_messages_in_flight_into_or_out_of_a_rank() -> None:
    with make_bed("4x100mbit") as bed:
        # Ranks in step keep the rule in any case. One that sends slowly is not done when others begin the next round.
        ask(bed, 3, "tc qdisc change dev e0 root tbf rate 25mbit burst 64kb limit 4mb")
        counts = [json.loads(said) for said in run_ranks(bed, "one_port.py", "schedules")]
    assert [(count["out"], count["in"]) for count in counts] == [(1, 1)] * 4
    assert sum(count["sent"] for count in counts) == sum(count["received"] for count in counts) > 50


def test_two_large_messages_in_flight_are_noticed(four: Bed) -> None:
    counts = [json.loads(said) for said in run_ranks(four, "one_port.py", "two-at-once")]
    assert [(count["out"], count["in"]) for count in counts] == [(2, 2), (1, 1), (1, 1), (0, 0)]
