"""The command lines of ssh, and the meaning of its failures."""

import doctest
import shlex

import pytest

from ringcast.net import ssh


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(ssh).failed == 0


@pytest.mark.parametrize("host", ["h1", "me@h1", "fe80::1", "[fe80::1]"])
def test_a_command_is_one_word_after_the_bare_host(host: str) -> None:
    command = ["sh", "-c", "echo 'a b'; exit $?", "", "*"]
    *starter, name, word = ssh.ssh_argv(host, command, ["rsh", "-x"])
    assert (starter, name) == (["rsh", "-x"], host.strip("[]"))
    assert shlex.split(word) == command


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("/usr/bin/python: No module named ringcast_launcher", True),
        ("env: '/opt/python': No such file or directory", True),
        ("Permission denied (publickey).", False),
        ("ssh: Could not resolve hostname h1: Name or service not known", False),
        ("", False),
    ],
)
def test_what_is_missing_is_told_from_other_failures(words: str, missing: bool) -> None:
    assert ssh.is_not_installed(words) == missing
