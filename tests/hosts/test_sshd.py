"""Emulated hosts that reach each other by plain ssh; and what of ringcast starts programs so."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ringcast.commands.bench.bed import Bed
from support import sshd
from support.beds import drop, on, run_on, set_link
from support.places import python

SSH = ["ssh", "-oBatchMode=yes"]


@pytest.fixture(scope="module")
def three() -> Iterator[Bed]:
    """Hosts; h1 has an sshd, h2 one that accepts no key, and h3 none."""
    with sshd.ssh_bed("4", refused=[2], silent=[3]) as made:
        yield made


def test_plain_ssh_runs_a_command_on_another_host(three: Bed) -> None:
    assert on(three, 0, "ssh", "h1", "hostname") == "h1\n"
    assert on(three, 2, "ssh", three.hosts[0].address, "hostname") == "h0\n"
    assert run_on(three, 0, ["ssh", "h1", "exit 7"]).returncode == 7


def test_a_session_has_what_a_login_gives_and_the_path_of_python(three: Bed) -> None:
    said = on(three, 0, "ssh", "h1", 'echo "$HOME,$RINGCAST_RANK,$PYTHONPATH"')
    assert said == f"{Path.home()},,{os.environ.get('PYTHONPATH', '')}\n"
    assert on(three, 0, "ssh", "h1", python("-m", "ringcast", "--version")).startswith("ringcast ")


@pytest.mark.parametrize(
    ("host", "words"),
    [("h2", "Permission denied (publickey)"), ("h3", "Connection refused"), ("h9", "Could not resolve hostname h9")],
)
def test_a_host_that_cannot_be_used(three: Bed, host: str, words: str) -> None:
    done = run_on(three, 0, [*SSH, host, "hostname"])
    assert (done.returncode, done.stdout) == (255, "")
    assert words in done.stderr


def test_a_cut_link_and_a_firewall_take_no_connection() -> None:
    impatient = [*SSH, "-oConnectTimeout=1", "h1", "hostname"]
    with sshd.ssh_bed("2") as bed:
        set_link(bed, 1, "down")
        assert run_on(bed, 0, impatient).returncode == 255
        set_link(bed, 1, "up")
        assert on(bed, 0, "ssh", "h1", "hostname") == "h1\n"
        drop(bed, 1, bed.hosts[0].address)
        assert "timed out" in run_on(bed, 0, impatient).stderr


def outside() -> list[object]:
    """Return what a bed may not touch: mounts, and the settings of system and user."""
    places = [sshd.settings(), Path("/etc/ssh"), Path("/run/sshd")]
    files = [(path, path.stat().st_mtime_ns) for top in places for path in (top, *top.glob("*")) if path.exists()]
    return [Path("/proc/self/mounts").read_text(), files]


@pytest.mark.usefixtures("nothing_left")
def test_nothing_is_seen_outside_or_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = outside()
    others = set(psutil.Process().children(recursive=True))
    with sshd.ssh_bed("2") as bed:
        with bed.start(0, ["ssh", "h1", "exec yes there"], stdout=subprocess.PIPE, text=True) as session:
            assert session.stdout.readline() == "there\n"
            processes = set(psutil.Process().children(recursive=True)) - others
            assert {"sshd", "yes"} <= {process.name() for process in processes}
            assert outside() == before
            bed.close()
        assert session.returncode != 0
    assert not any(process.is_running() for process in processes)
    assert outside() == before
    assert list(tmp_path.iterdir()) == []


def test_what_the_user_has_set_for_ssh_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sshd, "settings", lambda: tmp_path)
    (tmp_path / "config").write_text("User nobody\n")
    with sshd.ssh_bed("1") as bed:
        assert on(bed, 0, "ls", "-A", str(tmp_path)) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["config"]


def test_an_error_comes_with_what_the_daemons_said() -> None:
    with pytest.raises(ValueError, match=r"(?s)^mine\n.*sshd on h0:\nServer listening"), sshd.ssh_bed("1"):
        raise ValueError("mine")


def test_a_daemon_that_cannot_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sshd, "SERVER", sshd.SERVER + "NoSuchOption yes\n")
    with pytest.raises(AssertionError, match=r"(?s)^an sshd has ended.*NoSuchOption"), sshd.ssh_bed("1"):
        pass


def test_a_machine_without_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sshd, "SEARCHED", "/nowhere")
    for ci, outcome in ("", pytest.skip.Exception), ("1", pytest.fail.Exception):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match="sshd, ssh, ssh-keygen missing: apt-get install"), sshd.ssh_bed("1"):
            pass


# ringcast over it.


def test_the_doctor_looks_at_hosts_over_ssh(three: Bed) -> None:
    doctor = [sys.executable, "-m", "ringcast", "doctor", "-H"]
    done = run_on(three, 0, [*doctor, "h0,h1"])
    assert done.returncode == 0, done.stdout + done.stderr
    for i, host in enumerate(["h0", "h1"]):
        assert re.search(rf"^ok +interface +{host} +{three.hosts[i].address} on e0", done.stdout, re.MULTILINE)
        assert re.search(rf"^(ok|warn) +link +{host} +{host} to h{1 - i}: \d+ MB/s$", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1].startswith("a job would run")
    done = run_on(three, 0, [*doctor, "h0,h1,h2,h3", "--json"])
    failed = {found["host"]: found for found in json.loads(done.stdout)["findings"] if found["verdict"] == "fail"}
    assert (done.returncode, failed.keys()) == (1, {"h2", "h3"})
    assert "Permission denied" in failed["h2"]["text"]
    assert "Connection refused" in failed["h3"]["text"]
