"""Emulate a link with delay and loss between two emulated hosts, where the kernel has no `netem`: a stand-in for it.

Each host gets a TUN device, and a process of this module carries the packets between the two: in each direction a queue
of one size feeds a line of one rate, whose packets arrive after the delay; some are lost, by a seeded generator. All
that the two hosts send to each other goes this way. The process needs some 30 µs of processor time per packet.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ringcast._util.dataclass import dataclass
from ringcast.commands.bench.bed import Bed, BedError

PACKET = 1500  # bytes at most
_TUNSETIFF, _TUN, _NO_INFO = 0x400454CA, 0x0001, 0x1000
_PREFIX = "far"  # of the devices' names


@dataclass(frozen=True, slots=True)
class LongLink:
    """A link, the same in both directions."""

    rate_bits: int  # bit/s
    delay: float  # seconds on the way
    loss: float  # share of the packets
    seed: int = 1

    @property
    def queue(self) -> float:
        """Seconds for which a packet waits at most before the line: the longer ones' data fit on the line twice."""
        return 2 * self.delay


@contextmanager
def long_link(bed: Bed, a: int, b: int, link: LongLink) -> Iterator[None]:
    """Let two hosts of a bed reach each other only by such a link.

    Raises:
        BedError: the kernel refuses.
    """
    ends = [(a, b), (b, a)]
    names = [f"{_PREFIX}{one}-{other}" for one, other in ends]
    facts = [str(link.rate_bits), str(link.delay), str(link.loss), str(link.seed)]
    command = [sys.executable, "-P", "-m", __name__, *names, *facts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as relay:
        assert relay.stdout is not None
        try:
            if not relay.stdout.readline():
                raise BedError("a link with delay needs /dev/net/tun, and the right to make devices")
            for name, (one, other) in zip(names, ends, strict=True):
                _attach(bed, name, one, other)
            yield
            if relay.poll() is not None:
                raise BedError("the link with delay has ended")
        finally:
            relay.terminate()


def _attach(bed: Bed, name: str, one: int, other: int) -> None:
    """Give a device to a host, and send all for the other host there."""
    here, there = bed.hosts[one].address, bed.hosts[other].address
    subprocess.run(["ip", "link", "set", name, "netns", str(bed._holder(one))], check=True)
    for command in (f"link set {name} mtu {PACKET} up", f"route add {there}/32 dev {name} src {here}"):
        subprocess.run(bed.argv(one, ["ip", *command.split()]), check=True)


class _Direction:
    """The packets on the way from one device to another one."""

    def __init__(self, out: int, link: LongLink, seed: int) -> None:
        self.out, self._link, self._free = out, link, 0.0  # `_free`: when the line has sent all that is queued
        self._random = random.Random(seed)
        self._under_way: deque[tuple[float, bytes]] = deque()  # with the times of arrival

    def take(self, packet: bytes, now: float) -> None:
        link = self._link
        begins = max(now, self._free)
        if begins - now > link.queue:
            return
        self._free = begins + 8 * len(packet) / link.rate_bits
        if self._random.random() >= link.loss:
            self._under_way.append((self._free + link.delay, packet))

    def deliver(self, now: float) -> float:
        """Deliver the packets that have arrived; return the seconds until the next one does, or many."""
        waiting = self._under_way
        while waiting and waiting[0][0] <= now:
            with suppress(OSError):  # the device is not up yet
                os.write(self.out, waiting.popleft()[1])
        return waiting[0][0] - now if waiting else 3600.0


def _device(name: str) -> int:
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN | _NO_INFO))
    return file


def _relay(names: tuple[str, str], link: LongLink) -> None:
    one, other = map(_device, names)
    print("ready", flush=True)
    ways = {one: _Direction(other, link, link.seed), other: _Direction(one, link, link.seed + 1)}
    wait = 0.0
    while True:
        for file in select.select([*ways], [], [], max(wait, 0.0))[0]:
            _take_all(file, ways[file])
        now = time.monotonic()
        wait = min(way.deliver(now) for way in ways.values())


def _take_all(file: int, way: _Direction) -> None:
    now = time.monotonic()
    for _ in range(64):
        try:
            way.take(os.read(file, PACKET), now)
        except BlockingIOError:
            return


if __name__ == "__main__":
    one, other, rate, delay, loss, seed = sys.argv[1:]
    _relay((one, other), LongLink(int(rate), float(delay), float(loss), int(seed)))
