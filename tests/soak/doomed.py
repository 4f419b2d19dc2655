"""The program of a rank in a job that a fault will strike: it calls without end, then the survivors finish."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from itertools import count
from pathlib import Path
from types import FrameType

import ringcast
from ringcast import Communicator

from .calls import MAKERS, agree
from .fault import AT_CALLS, OF_HOSTS, Fault
from .program import PATIENCE, one_call

AFTERWARDS = 10  # calls of those that go on
COLLECTIVES = tuple(maker for maker in MAKERS if maker is not agree)  # a failure does not end an agreement


class Trap:
    """Lets a fault strike this rank after a number of function calls; a profiler of `sys.setprofile`."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        self._fault, self._folder, self._left = fault, folder, fault.depth

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        self._left -= event == "call"
        if self._left <= 0:
            sys.setprofile(None)
            self.strike()

    def strike(self) -> None:
        """Say when it is; then come to an end, or go on if it is for others to end this rank."""
        (self._folder / "soon").write_text(str(time.monotonic()))
        (self._folder / "soon").rename(self._folder / "now")
        match self._fault.way:
            case "SIGKILL" | "SIGSTOP":
                os.kill(os.getpid(), signal.Signals[self._fault.way])
            case "sys.exit(3)":
                sys.exit(3)
            case "sys.exit(0)":
                sys.exit(0)
            case "raise":
                raise ValueError("this rank was to fail")
            case "os._exit(0)":
                os._exit(0)
            case "os.abort()":
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                os.abort()
            case way:
                assert way in OF_HOSTS, way


def doomed(comm: Communicator, seed: int, folder: Path) -> Communicator:
    """Make calls until a rank fails; return the communicator of those that are left, if they are to go on."""
    fault = Fault.drawn(seed)
    comm.timeout = PATIENCE
    try:
        for number in count():
            if (comm.rank, number) == (fault.rank, fault.number):
                trap = Trap(fault, folder)
                trap.strike() if fault.way in AT_CALLS else sys.setprofile(trap)
            one_call(comm, f"{seed}.{number}", COLLECTIVES)
    except (ringcast.PeerFailed, ringcast.Revoked):
        if not fault.go_on:
            raise
    return finish(comm, seed)


def finish(comm: Communicator, seed: int) -> Communicator:
    """Recover, and make some more calls, until these come to a good end: more than one rank may fail, in turn."""
    done = 0
    while not done:
        comm.revoke()
        comm = comm.shrink()
        done = 1
        try:
            for number in range(AFTERWARDS):
                one_call(comm, f"{seed}.{comm.members}.{number}", COLLECTIVES)
        except (ringcast.PeerFailed, ringcast.Revoked):
            done = 0
        try:
            done = comm.agree(done)  # all come here, so that nobody leaves while another one still needs it
        except ringcast.PeerFailed:
            done = 0
    return comm


if __name__ == "__main__":
    world = ringcast.init()
    left = doomed(world, int(sys.argv[1]), Path(sys.argv[2]))
    print(world.rank, left.members)
