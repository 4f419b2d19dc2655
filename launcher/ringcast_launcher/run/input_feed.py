"""Forward our standard input to a rank on another host, as fast as that rank reads it."""

from __future__ import annotations

import os
import select

from ringcast_launcher.hosts.all_hosts import AllHosts
from ringcast_launcher.hosts.messages import Input, InputTaken
from ringcast_launcher.plan.job import Job

WINDOW = 1 << 20  # bytes under way at most
CHUNK = 1 << 16  # bytes read at once


class InputFeed:
    """Forwards standard input to a rank on another host; a rank on this host reads our input itself."""

    def __init__(self, job: Job, all_hosts: AllHosts) -> None:
        self._all_hosts, self._rank = all_hosts, job.stdin
        far = [i for i, node in enumerate(job.nodes) if job.stdin in node.ranks and not node.here]
        self._host = far[0] if far else None
        self._under_way = 0

    @property
    def files(self) -> list[int]:
        """The file to poll, if any."""
        wanted = self._host is not None and self._host in self._all_hosts and self._under_way < WINDOW
        return [0] if wanted else []

    def turn(self) -> None:
        """Forward available input."""
        poller = select.poll()
        for file in self.files:
            poller.register(file, select.POLLIN)
            if poller.poll(0):
                self._forward(file)

    def hear(self, taken: InputTaken) -> None:
        """Take note of the bytes that the rank has read."""
        self._under_way -= taken.size
        if taken.closed:
            self._host = None

    def _forward(self, file: int) -> None:
        assert self._host is not None
        assert self._rank is not None
        try:
            data = os.read(file, CHUNK)
        except BlockingIOError:  # another process was faster
            return
        except OSError:  # such as a directory as standard input: as if it had ended
            data = b""
        self._all_hosts.send(self._host, Input(self._rank, data))
        self._under_way += len(data)
        if not data:
            self._host = None
