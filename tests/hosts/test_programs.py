"""The programs of the examples on four hosts over real ssh: each compares its result with the result of one process."""

from __future__ import annotations

import re

import pytest

from support.causes import names
from support.fleets import Fleet
from support.places import EXAMPLES

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

FOUR = "-H", "h0,h1,h2,h3"


def output(hosts: Fleet, example: str, *arguments: str, options: tuple[str, ...] = ()) -> tuple[str, str]:
    """Return what an example printed on four hosts, and its errors and the launcher's; it must succeed."""
    done = hosts.launch(*FOUR, "--output", "none", *options, str(EXAMPLES / example), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("options", [(), ("--plain", "--points", "7")])
def test_a_plate_is_that_of_one_process(hosts: Fleet, options: tuple[str, ...]) -> None:
    out, err = output(hosts, "jacobi.py", "--steps", "100", *options)
    assert re.fullmatch(r"100 steps on 2 x 2 ranks, the last change \S+\n", out)
    assert re.fullmatch(r"\S+ ms per step\n", err)


def test_a_network_learns_what_it_does_on_one_process(hosts: Fleet) -> None:
    out, _ = output(hosts, "sgd.py", "--steps", "30")
    assert out.endswith("as with one process\n")


def test_tasks_are_done_by_whoever_is_free(hosts: Fleet) -> None:
    assert output(hosts, "tasks.py") == ("4 ranks began, 4 finished 60 tasks: 11301 primes\n", "")


@pytest.mark.parametrize("lost", [[2], [1, 2, 3]])
def test_the_tasks_of_workers_that_die_are_done_again(hosts: Fleet, lost: list[int]) -> None:
    dying = [option for rank in lost for option in ("--lose", str(rank))]
    out, err = output(hosts, "tasks.py", *dying, options=("--on-failure", "continue"))
    assert out == f"4 ranks began, {4 - len(lost)} finished 60 tasks: 11301 primes\n"
    for rank in lost:
        said = re.search(rf"rank {rank} \(h{rank}, pid \d+\) failed: .*", err)
        assert said is not None, err
        assert names(said[0], "killed by SIGKILL")
