"""A system under test that does nothing, or something wrong on one rank: fake_system.py SOCKET RANK SIZE FAULT."""

import os
import signal
import sys

from ringcast.commands.bench.systems.harness import serve


class FakeSystem:
    name, version = "fake", "fake 1.0"

    def __init__(self, rank, size, fault):
        self.rank, self.size = rank, size
        self.fault = fault if rank == size - 1 else ""

    def barrier(self):
        pass

    def prepare(self, case):
        if self.fault == "refuses":
            raise ValueError("there is no such algorithm")
        return None if self.fault == "cannot" else self.call

    def call(self):
        if self.fault == "dies":
            print("what a pity")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hangs":
            signal.pause()
        if self.fault == "raises":
            raise RuntimeError("out of luck")

    def check(self):
        return "item 3 is 1 instead of 2" if self.fault == "errs" else ""

    def chosen(self):
        return {"algorithm": "none", "nblocks": 1, "rounds": 0}

    def trace(self, *, barrier=False):
        return [["start", self.rank]]


if __name__ == "__main__":
    if sys.argv[4] == "does not start":
        sys.exit("no such library")
    if sys.argv[4] == "starts alone":
        sys.argv[2:4] = "0", "1"
    if sys.argv[4] == "comes never":
        signal.pause()
    serve(FakeSystem(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]), sys.argv[1])
