"""Access to the files of another process: the kernel is the judge, and both processes predict its answer to both."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from itertools import combinations

import pytest

from ringcast.procs.credentials import Credentials, own, reason_not
from support import needs
from support.patience import patience

CHILD = """
import os
from ringcast.procs.credentials import own
print(os.getpid(), os.memfd_create("test"), *own(), flush=True)
while line := input():
    pid, file = line.split()
    try:
        os.close(os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR))
        print("opened", flush=True)
    except PermissionError:
        print("refused", flush=True)
"""
RESTRICTIONS = {
    "none": (),
    "no ptrace": ("setpriv", "--bounding-set=-sys_ptrace"),
    "neither ptrace nor chown": ("setpriv", "--bounding-set=-sys_ptrace,-chown"),
    "neither ptrace nor kill": ("setpriv", "--bounding-set=-sys_ptrace,-kill"),
    "no kill": ("setpriv", "--bounding-set=-kill"),
    "nothing": ("setpriv", "--bounding-set=-all"),
    "nothing, again": ("setpriv", "--bounding-set=-all"),
    "nothing, and another group": ("setpriv", "--bounding-set=-all", "--regid=12345", "--clear-groups"),
    "another group": ("setpriv", "--regid=12345", "--clear-groups"),
}


class Child:
    """A process with fewer rights than this one."""

    def __init__(self, before: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid, self.file, *who = map(int, self.read().split())
        self.who = Credentials(*who)

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def opens(self, other: Child) -> bool:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{other.pid} {other.file}\n")
        self.process.stdin.flush()
        answer = self.read()
        assert answer in ("opened\n", "refused\n")
        return answer == "opened\n"

    def end(self) -> None:
        self.process.communicate("\n", timeout=patience(60))


def test_two_processes_share_where_the_kernel_lets_both() -> None:
    needs.root()
    with ExitStack() as stack:
        children = {name: Child(before) for name, before in RESTRICTIONS.items()}
        for child in children.values():
            stack.callback(child.end)
        for (name, one), (another, other) in combinations(children.items(), 2):
            foretold = not reason_not(one.who, other.who)
            assert foretold == (not reason_not(other.who, one.who))
            assert foretold == (one.opens(other) and other.opens(one)), f"{name} / {another}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"uid": 7}, "another user's"),
        ({"pid_namespace": 7}, "another PID namespace"),
        ({"user_namespace": 7}, "another user namespace"),
        ({"label": 7}, "security module"),
        ({"gid": 7}, "another group"),
        ({"permitted": 3}, "capabilities"),
    ],
)
def test_the_reason_names_what_differs(change: dict[str, int], words: str) -> None:
    ours = Credentials(0, 0, 1, 1, 0, 1, 1)
    theirs = ours._replace(**change)
    for reason in reason_not(ours, theirs), reason_not(theirs, ours):
        assert words in reason
        assert bool(words) == bool(reason)


def test_a_process_may_open_its_own() -> None:
    assert not reason_not(own(), own())
