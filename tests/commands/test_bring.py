"""Bring ringcast to hosts that are reached by programs in place of ssh: all of these are this host."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ringcast.commands.cp import bring
from ringcast.commands.cp.bring import BringError, brought
from support.patience import patience

RUN = 'exec sh -c "$2"'  # what ssh does: host and command are its arguments


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory with those that are brought; it is empty at the end. What is brought is small."""
    made = tmp_path / "a place"
    made.mkdir()
    python = tmp_path / "bin" / "python{}.{}".format(*sys.version_info)
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(made))
    monkeypatch.setattr(bring, "_needed", list)
    yield made
    assert not list(made.iterdir())


def agent(script: str) -> str:
    return shlex.join(["sh", "-c", script, "agent"])


def reasons(hosts: list[str], rsh_agent: str) -> dict[str, str]:
    with pytest.raises(BringError) as caught, brought(hosts, rsh_agent):
        pass
    return dict(caught.value.hosts)


@pytest.mark.parametrize("banner", ["", "echo hello there; echo", "printf 'no end of line: '", "echo unpacked"])
def test_whatever_a_shell_prints_first_the_files_are_there_until_the_end(banner: str, place: Path) -> None:
    with brought(["h1", "h2"], agent(f"{banner}\n{RUN}")):
        found = list(place.glob("ringcast-*"))
        assert len(found) == 2
        assert all((each / "ringcast_launcher" / "__main__.py").exists() for each in found)


def test_no_hosts_get_nothing(place: Path) -> None:
    with brought([], "ssh"):
        assert not list(place.iterdir())


@pytest.mark.parametrize("silent", ["exec sleep 1000", "echo ringcast-place=/x python; exec sleep 1000"])
def test_a_host_that_stays_silent_is_named(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it gets the files, and while it should take them; the other host's are removed."""
    limit = patience(2)
    monkeypatch.setenv("RINGCAST_START_TIMEOUT", str(limit))
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args: Any, **how: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **how))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    found = reasons(["h1", "h2"], agent(f'[ "$1" = h1 ] && {{ {silent}; }}\n{RUN}'))
    assert found == {"h1": f"it did not answer for {limit:g} s (RINGCAST_START_TIMEOUT allows more)"}
    assert all(process.returncode is not None for process in started)


def test_a_host_that_fails_is_named_with_its_last_words() -> None:
    found = reasons(
        ["h1", "h2", "h3"], agent(f"case $1 in h1) echo a >&2; echo b >&2; exit 3;; h2) exit 4;; esac\n{RUN}")
    )
    assert found == {"h1": "b", "h2": "ringcast cannot be brought there (sh: exit code 4)"}


def test_a_program_that_is_missing_is_the_reason_of_each_host() -> None:
    assert reasons(["h1", "h2"], "/no/such/ssh") == dict.fromkeys(
        ["h1", "h2"], "/no/such/ssh: No such file or directory"
    )


def test_what_was_brought_is_removed_if_the_program_is_missing_for_another_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    argv = bring.ssh_argv
    monkeypatch.setattr(bring, "ssh_argv", lambda host, *rest: ["/no/ssh"] if host == "h2" else argv(host, *rest))
    assert reasons(["h1", "h2"], agent(RUN)) == {"h2": "sh: No such file or directory"}


def test_a_package_of_unknown_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "bare-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Name: bare\nVersion: 1\n")
    monkeypatch.setattr(bring, "_needed", lambda: [metadata.PathDistribution(facts)])
    found = reasons(["h1", "h2"], agent(RUN))
    why = "ringcast cannot be brought there: nothing says which files bare has here (it has no RECORD)"
    assert found == {"h1": why, "h2": why}


def test_all_hosts_remove_at_once(tmp_path: Path) -> None:
    """Each host ends only when both have seen the end of their connection."""
    for name in "h1", "h2":
        os.mkfifo(tmp_path / name)
    folder = shlex.quote(str(tmp_path))
    meet = 'case $1 in h1) echo > h2; cat h1;; *) cat h2; echo > h1;; esac; echo > "$1.done"'
    with brought(["h1", "h2"], agent(f'sh -c "$2"\ncd {folder}\n{meet}')):
        pass
    assert len(list(tmp_path.glob("*.done"))) == 2
