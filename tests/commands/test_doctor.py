"""`ringcast doctor`: verdicts over made-up readings, then the command, here and on emulated hosts."""

from __future__ import annotations

import io
import ipaddress
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringcast.commands.bench.bed import Bed
from ringcast.commands.bench.remote import RemoteStarter
from ringcast.commands.doctor import clock, hosts, link, machine, network, report, software
from ringcast.commands.doctor.examine import Examined, examine, probe
from ringcast.commands.doctor.finding import Finding, Verdict, fail, ok, warn
from ringcast.commands.doctor.hosts import NoAnswer, Remote, examine_hosts, remote_argv
from ringcast.commands.doctor.question import Question
from ringcast.net.interfaces import ListenAddress
from ringcast.net.ports import PortRange
from ringcast.protocol import compiled
from support import needs
from support.beds import drop, make_bed, on
from support.patience import patience

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}
COMMAND = [sys.executable, "-m", "ringcast", "doctor"]
OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL
GB = 1_000_000_000


def place(address: str) -> ListenAddress:
    ip = ipaddress.ip_address(address)
    return ListenAddress(ip, "because", ip)


@pytest.mark.parametrize(
    ("finding", "verdict", "words"),
    [
        (software.judge_zeromq(True, True), OK, "CURVE and ipc"),
        (software.judge_zeromq(False, True), FAIL, "without CURVE"),
        (software.judge_zeromq(False, False), FAIL, "without CURVE and ipc"),
        (software.judge_build(""), OK, "by the compiled part"),
        (software.judge_build(compiled.ASKED), OK, "by Python: RINGCAST_PURE=1"),
        (software.judge_build(compiled.NO_PLATFORM), OK, "not for this platform"),
        (software.judge_build(compiled.NOT_INSTALLED), WARN, "is not installed"),
        (software.judge_build(compiled.STALE), WARN, "older than its source"),
        (network.judge_name("a", []), WARN, "cannot be resolved"),
        (network.judge_name("a", ["127.0.1.1"]), WARN, "a is 127.0.1.1 here"),
        (network.judge_name("a", ["127.0.1.1", "10.0.0.1"]), OK, "10.0.0.1"),
        (network.judge_place(place("127.0.0.1"), "lo", Question(4, 2)), FAIL, "other hosts cannot reach it"),
        (network.judge_place(place("127.0.0.1"), "lo", Question(4, 4)), OK, "127.0.0.1 on lo: because"),
        (network.judge_place(place("10.0.0.1"), "e0", Question(4, 2)), OK, "10.0.0.1 on e0"),
        (network.judge_mtu("e0", 1279), WARN, "1279 on e0"),
        (network.judge_mtu("e0", 1280), OK, "1280 on e0"),
        (network.judge_mtu("e0", 0), OK, "unknown"),
        (network.judge_ports(PortRange(7, 9), 3, "", 2), OK, "3 of 7-9 are free"),
        (network.judge_ports(PortRange(7, 9), 2, "h port 7: in use", 2), FAIL, "2 of 7-9 are free, and 3 are needed"),
        (network.judge_ports(None, 0, "no such device", 1), FAIL, "no such device"),
        (machine.judge_processors(2, 3), WARN, "2 for 3 ranks"),
        (machine.judge_processors(3, 3), OK, "3 for 3 ranks"),
        (machine.judge_memory(GB, 5), OK, "1.0 GB"),
        (machine.judge_memory(GB - 1, 5), WARN, "1000 MB"),
        (machine.judge_files(None, 1000), OK, "unlimited"),
        (machine.judge_files(259, 1000), FAIL, "a rank of 1000 needs 260"),
        (machine.judge_files(260, 1000), WARN, "talks to all 1000 needs 4096"),
        (machine.judge_files(4096, 1000), OK, "4096 are enough"),
        (machine.judge_processes(None, 10**6, 100), OK, "unlimited"),
        (machine.judge_processes(111, 100, 2), FAIL, "2 ranks need 12 more"),
        (machine.judge_processes(112, 100, 2), OK, "112 are allowed"),
        (machine.judge_shared_memory(""), OK, "works"),
        (
            machine.judge_shared_memory("darwin has no futexes"),
            WARN,
            "darwin has no futexes; ranks of one host use ipc",
        ),
        (machine.judge_reading(""), OK, "works"),
        (machine.judge_reading("process_vm_readv: Function not implemented"), WARN, "are copied twice"),
        (
            link.judge("a", "b", "10.0.0.2 port 7", 0.0, "Connection timed out"),
            FAIL,
            "a does not reach b at 10.0.0.2 port",
        ),
        (link.judge("a", "b", "10.0.0.2 port 7", 9.9e6, ""), WARN, "10 MB/s"),
        (link.judge("a", "b", "10.0.0.2 port 7", 1e8, ""), OK, "100 MB/s"),
    ],
)
def test_the_verdict_over_a_reading(finding: Finding, verdict: Verdict, words: str) -> None:
    assert finding.verdict is verdict
    assert words in finding.text
    assert bool(finding.fix) == (verdict is not OK)


def test_versions_must_be_equal() -> None:
    one = {"ringcast": "1 (protocol 1)", "python": "3.11", "numpy": "2.0", "pyzmq": "27"}
    assert {f.verdict for f in software.compare({"a": one, "b": one})} == {OK}
    for name, verdict in {"ringcast": FAIL, "python": FAIL, "numpy": WARN, "pyzmq": WARN}.items():
        for other in ({**one, name: "0.9"}, {k: v for k, v in one.items() if k != name}):
            found = {f.check: f for f in software.compare({"a": one, "b": one, "c": other})}
            assert {check: f.verdict for check, f in found.items()} == {**dict.fromkeys(one, OK), name: verdict}
            assert f"c has {other.get(name, 'none')}" in found[name].text


def test_packet_sizes_must_be_equal() -> None:
    assert network.compare_mtu({"a": 1500, "b": 1500}) == []
    assert "9000 on a, 1500 on b" in network.compare_mtu({"a": 9000, "b": 1500})[0].text


@pytest.mark.parametrize("offset", [-7.0, -0.3, 0.0, 2.5])
@pytest.mark.parametrize("delays", [[(0.1, 0.1)], [(0.0, 2.0), (0.3, 0.1)], [(1.0, 0.0), (2.0, 0.5), (0.25, 0.25)]])
def test_the_offset_of_a_clock_is_within_its_error(offset: float, delays: list[tuple[float, float]]) -> None:
    now, samples = 100.0, []
    for there, back in delays:
        samples.append((now, now + there + offset, now + there + back))
        now += there + back
    found = clock.estimate(samples)
    assert abs(found.seconds - offset) <= found.error + 1e-9
    assert found.error <= min(there + back for there, back in delays) / 2 + 1e-9


def test_clocks_are_judged_by_what_is_certain() -> None:
    at = clock.Offset
    assert clock.judge({"a": at(0, 0.01), "b": at(0.4, 0.01)}).verdict is OK
    assert clock.judge({"a": at(0, 0.01), "b": at(-60, 0.01), "c": at(1, 0.1)}) == warn(
        "clocks",
        "c is 61.0 s ahead of b (within 0.1 s)",
        "run chrony or ntpd on all hosts, or times in logs and traces will not fit",
    )
    assert clock.judge({"a": at(0, 3.0), "b": at(5, 3.0)}).verdict is OK  # a slow line tells nothing


def test_what_travels_is_read_back_and_nothing_else() -> None:
    question = Question(8, 4, "h0", "^lo", PortRange(7, 9))
    assert Question.from_json(json.loads(json.dumps(question.to_json()))) == question
    examined = Examined("h0", {"numpy": "2"}, "10.0.0.1", 1500, (ok("a", "b"), fail("c", "d", "e")))
    assert Examined.from_json(json.loads(json.dumps(examined.to_json()))) == examined
    for bad in (None, [], {}, {**examined.to_json(), "mtu": "x"}, {**examined.to_json(), "findings": [{}]}):
        with pytest.raises(ValueError, match=r"not a doctor's answer|no finding"):
            Examined.from_json(bad)
    with pytest.raises(ValueError, match=r"not a valid"):
        Finding.from_json({"check": "a", "verdict": "fine", "text": "", "fix": ""})


def test_what_hosts_have_alike_is_one_row() -> None:
    found = [
        ("a", ok("x", "1")),
        ("a", ok("y", "2")),
        ("b", ok("x", "1")),
        ("b", warn("y", "[3]", "do")),
        ("", ok("z", "")),
    ]
    table = report.rows(found, ["a", "b"])
    assert [(name, f.check) for name, f in table] == [("all", "x"), ("a", "y"), ("b", "y"), ("all", "z")]
    out = io.StringIO()
    report.show(found, ["a", "b"], out)
    assert out.getvalue().splitlines()[2:4] == ["warn  y  b    [3]", "              -> do"]
    assert out.getvalue().endswith("\na job would run, with 1 to look at\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_is_coloured_and_what_is_in_brackets_stays() -> None:
    out = Terminal()
    report.show([("a", ok("x", "[red]fine[/]")), ("a", fail("y", "[::1] no", "do"))], ["a"], out)
    assert "\x1b[" in out.getvalue()
    assert "[red]fine[/]" in out.getvalue()
    assert "[::1] no" in out.getvalue()


def test_a_temporary_directory_that_is_no_use(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as short:
        assert machine.check_temporary(short).verdict is OK
        assert os.listdir(short) == []
    assert machine.check_temporary("/proc").verdict is FAIL
    assert "No such file" in machine.check_temporary(str(tmp_path / "none")).text


def test_a_temporary_directory_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    found = machine.check_place()
    assert found.verdict is FAIL
    assert f"TMPDIR={tmp_path}/none: there is no such directory" in found.text


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=patience(60), env=ENVIRONMENT)


def test_the_command_on_this_machine() -> None:
    done = doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "127.0.0.1 on lo" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("a job would run")


@pytest.mark.parametrize(
    ("arguments", "check", "words"),
    [
        (["--iface", "nic9"], "interface", "no interface is as wished by RINGCAST_IFACE=nic9"),
        (["-n", "3", "--port-range", "21900-21902"], "ports", "are needed here"),
    ],
)
def test_a_job_that_would_fail(arguments: list[str], check: str, words: str) -> None:
    done = doctor("--json", *arguments)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (1, False)
    assert [f["check"] for f in told["findings"] if f["verdict"] == "fail"] == [check]
    assert words in next(f["text"] for f in told["findings"] if f["verdict"] == "fail")


def test_a_port_that_is_taken_counts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = {f.check: f for f in examine(Question(ports=PortRange(port, port))).findings}
    assert found["ports"].verdict is FAIL
    assert f"127.0.0.1 port {port}: Address already in use" in found["ports"].text


@pytest.mark.parametrize(
    "arguments",
    [["-n", "0"], ["-H", ""], ["-H", "a,,b"], ["-H", "a,-oProxyCommand=x"], ["--port-range", "9-1"],
     ["--iface", "10.0.0.0/99"]],
)  # fmt: skip
def test_wrong_arguments(arguments: list[str]) -> None:
    done = doctor(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ringcast doctor: ")


def test_a_probe_answers_until_its_input_ends() -> None:
    asked = [Question().to_json(), {"ask": "clock"}, {"ask": "send", "to": ["127.0.0.1", 1]}, {"ask": "nonsense"}]
    said = io.StringIO()
    probe(io.StringIO("".join(json.dumps(line) + "\n" for line in asked)), said)
    first, time, sent = map(json.loads, said.getvalue().splitlines())
    assert Examined.from_json(first).address == "127.0.0.1"
    assert time["time"] > 1e9
    assert sent == {"error": "Connection refused"}


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("echo no host key >&2; exit 255", "no host key"),
        ("exit 3", "it ended without a word"),
        ("echo welcome", "it said: welcome"),
        ("echo '[1, 2]'", "not a doctor's answer: [1, 2]"),
        ("head -c 3000000 /dev/zero", "it ended"),
    ],
)
def test_a_host_that_does_not_answer_is_named(agent: str, words: str) -> None:
    found = examine_hosts(["h7"], ["sh", "-c", agent], Question())
    assert [(host, f.check, f.verdict) for host, f in found] == [("h7", "ssh", FAIL)]
    assert words in found[0][1].text
    assert "h7" in found[0][1].fix


@pytest.mark.usefixtures("nothing_left")
def test_a_host_that_is_silent_is_given_up() -> None:
    remote = Remote("h7", ["sleep"])  # which does not know how long "h7" is
    with pytest.raises(NoAnswer):
        remote.answer(5)
    remote.close(time.monotonic() + patience(5))
    remote = Remote("h7", ["sh", "-c", "exec sleep 1000"])
    with pytest.raises(NoAnswer, match="it did not answer in time"):
        remote.answer(0.1)
    remote.close(time.monotonic())
    with pytest.raises(NoAnswer, match="No such file"):
        Remote("h7", ["/no/agent"])


@pytest.mark.usefixtures("nothing_left")
def test_hosts_that_never_answer_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "START", 0.5)
    names = [f"h{i}" for i in range(20)]
    begin = time.monotonic()
    found = examine_hosts(names, ["sh", "-c", "exec sleep 1000"], Question(20))
    assert time.monotonic() - begin < patience(20)  # not 20 times the 2 s that one may take to end
    assert [(host, f.check) for host, f in found] == [(name, "ssh") for name in names]


def test_the_words_of_ssh_itself() -> None:
    if shutil.which("ssh") is None:
        assert not os.environ.get("CI"), "openssh-client is missing"
        pytest.skip("openssh-client is missing")
    needs.known_user()
    [(host, finding)] = examine_hosts(["no-such-host.invalid"], hosts.STARTER, Question())
    assert (host, finding.verdict) == ("no-such-host.invalid", FAIL)
    assert "Could not resolve hostname" in finding.text


def test_the_remote_command_is_one_word_for_the_shell() -> None:
    assert remote_argv("h1", ["ssh"])[1:2] == ["h1"]
    assert shlex.split(remote_argv("h1", ["ssh"])[-1])[1:] == ["-P", "-m", "ringcast", "doctor", "--probe"]


@pytest.fixture
def bed() -> Iterator[Bed]:
    with make_bed("3x100mbit") as made:
        yield made


@pytest.fixture
def starter(bed: Bed, tmp_path: Path) -> Iterator[RemoteStarter]:
    with RemoteStarter(bed, tmp_path, ENVIRONMENT) as made:
        yield made


def examined(bed: Bed, starter: RemoteStarter, *arguments: str) -> tuple[int, dict[tuple[str, str], Finding]]:
    command = [*COMMAND, "--json", "--rsh-agent", shlex.quote(str(starter.agent)), *arguments]
    done = bed.start(0, command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = done.communicate(timeout=patience(100))
    assert done.returncode in (0, 1), err
    told = json.loads(out)
    assert told["ok"] == (done.returncode == 0)
    found = {(f.pop("host"), f["check"]): Finding.from_json(f) for f in told["findings"]}
    return done.returncode, found


@pytest.mark.live
def test_hosts_that_are_fine(bed: Bed, starter: RemoteStarter) -> None:
    code, found = examined(bed, starter, "-H", "h0,h1,h2", "-n", "6", "--port-range", "20100-20102")
    assert code == 0, found
    busy = {"link", "memory", "processors"}  # which a machine full of tests may lack
    assert {finding.verdict for (_, check), finding in found.items() if check not in busy} == {OK}
    for i, host in enumerate(["h0", "h1", "h2"]):
        assert found[host, "interface"].text.startswith(f"10.77.0.{i + 1} on e0")
        assert f"{host} to h{(i + 1) % 3}: " in found[host, "link"].text
        assert 0 < int(found[host, "link"].text.split()[3]) < 20  # MB/s, on a link of 100 Mbit/s
    assert "clocks" in {check for host, check in found if host == ""}


@pytest.mark.live
def test_hosts_with_faults(bed: Bed, starter: RemoteStarter) -> None:
    on(bed, 1, "ip", "link", "set", "e0", "mtu", "1400")
    on(bed, 2, "sh", "-c", "sed '/h2/d; 1s/$/\\n127.0.1.1 h2/' /etc/hosts >/dev/shm/x; cat /dev/shm/x >/etc/hosts")
    drop(bed, 1, "10.77.0.1")
    code, found = examined(bed, starter, "-H", "h2,h1,h0,h9", "-n", "3")
    assert code == 1
    assert found["", "MTU"].verdict is WARN
    assert "1400 on h1" in found["", "MTU"].text
    assert "h2 is 127.0.1.1 here" in found["h2", "host name"].text
    assert found["h2", "interface"].text.startswith("10.77.0.3 on e0")  # not fooled
    assert found["h1", "link"].verdict is FAIL
    assert "h1 does not reach h0 at 10.77.0.1 port " in found["h1", "link"].text
    assert found["h2", "link"].verdict is not FAIL  # a busy machine is slow, which is a warning
    assert found["h9", "ssh"].verdict is FAIL
