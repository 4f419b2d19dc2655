"""On which hosts a job runs, and what workers elsewhere get of the launcher's environment."""

from __future__ import annotations

import doctest
import socket
from itertools import product

import pytest

from ringcast.net.hostlist import Host, How, is_own
from ringcast_launcher.plan import placement
from ringcast_launcher.plan.job import Node

OWN = socket.gethostname()


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(placement).failed == 0


@pytest.mark.parametrize("how", ["block", "cyclic"])
def test_every_rank_has_one_place_and_each_host_one_node(how: How) -> None:
    for slots in product(range(1, 4), repeat=3):
        hosts = [Host(f"h{i}.test", each) for i, each in enumerate(slots)]
        for size in (None, *range(1, 2 * sum(slots))):
            nodes = placement.nodes(hosts, size, None, how)
            assert sorted(rank for node in nodes for rank in node.ranks) == list(range(size or sum(slots)))
            assert len({node.host for node in nodes}) == len(nodes)
            assert all(list(node.ranks) == sorted(node.ranks) and not node.here for node in nodes)


def test_without_hosts_all_ranks_are_here() -> None:
    assert placement.nodes((), 3, None, "block") == (Node(OWN, (0, 1, 2), True),)
    assert placement.nodes((), None, 2, "block") == (Node(OWN, (0, 1), True),)


@pytest.mark.parametrize("name", ["localhost", OWN, "127.0.0.1", "127.0.1.1", "::1"])
def test_names_and_addresses_of_this_machine_are_here(name: str) -> None:
    far, here = placement.nodes([Host("far.test", 1), Host(name, 2)], None, None, "block")
    assert (far.here, here) == (False, Node(OWN, (1, 2), True))


def test_several_names_of_this_machine_are_one_node() -> None:
    hosts = [Host("localhost", 1), Host("far.test", 1), Host(OWN, 1)]
    assert placement.nodes(hosts, None, None, "block") == (Node(OWN, (0, 1), True), Node("far.test", (2,), False))
    assert placement.nodes(hosts, None, None, "cyclic") == (Node(OWN, (0, 2), True), Node("far.test", (1,), False))
    assert placement.nodes(hosts, None, 1, "block") == (Node(OWN, (0,), True), Node("far.test", (1,), False))


def test_what_the_list_calls_this_machine_is_the_only_one_here() -> None:
    hosts = [Host("n1", 1), Host("localhost", 1)]
    assert placement.nodes(hosts, None, None, "block", called="n1") == (
        Node("n1", (0,), True),
        Node("localhost", (1,), False),
    )
    assert not any(node.here for node in placement.nodes([*hosts, Host(OWN)], None, None, "block", called=""))


@pytest.mark.parametrize("name", ["me@localhost", "192.0.2.1", "localhost.test", "not-" + OWN])
def test_others_and_other_users_are_not_here(name: str) -> None:
    assert not is_own(name, OWN)


def test_no_secret_travels_unless_it_is_named() -> None:
    environment = dict.fromkeys(
        [
            *("PATH", "PYTHONPATH", "LC_ALL", "CONDA_PREFIX", "MKL_DYNAMIC", "TZ"),
            *("SECRET", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "HOME", "RINGCAST_KEY"),
        ],
        "s",
    )
    passed = placement.passed_on(environment, {"MINE": "1"})
    assert passed.keys() == {"PATH", "PYTHONPATH", "LC_ALL", "CONDA_PREFIX", "MKL_DYNAMIC", "TZ", "MINE"}
    assert placement.passed_on(environment, {"SECRET": "s"})["SECRET"] == "s"
