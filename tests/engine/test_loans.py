"""Memory that is lent to another rank, which reads it in pieces, and may come to know that it is taken back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ringcast import MAX, SUM
from ringcast.communicator import Communicator
from ringcast.transports.memory import segment
from ringcast.transports.memory import transport as shm
from ringcast.transports.memory.transport import ShmLoan
from support import needs
from support.jobs import Job

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

SIZE = 400_000  # items: several pieces of what a reduction takes at a time


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job("shm", 3)
    yield made
    assert not made.left_over()
    made.close()


@pytest.fixture(params=range(8))
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every rank take back other memory, as much as there can be, before one of the reads; return all sizes."""
    sizes: list[int] = []
    read_into = ShmLoan.read_into

    def read(self: ShmLoan, view: memoryview) -> int:
        if len(sizes) == request.param:
            returns = self._link._segment.returns
            for word in range(segment.RETURNS):
                returns[word] += 1
        sizes.append(len(view))
        return read_into(self, view)

    monkeypatch.setattr(shm.ShmLoan, "read_into", read)
    return sizes


def test_what_another_call_takes_back_costs_this_one_only_time(job: Job, reads: list[int]) -> None:
    """The words that tell of it are shared by all memory of a rank: what was read so far counts, the rest is sent."""

    def work(comm: Communicator) -> None:
        p, r = comm.size, comm.rank
        every = [np.arange(SIZE) * (rank + 1) for rank in range(p)]
        np.testing.assert_array_equal(comm.allreduce(every[r]), sum(every))
        largest = comm.reduce(every[r], MAX, root=p - 1)
        if r == p - 1:
            np.testing.assert_array_equal(largest, every[-1])
        np.testing.assert_array_equal(comm.allgather(every[r]), np.stack(every))
        got = comm.sendrecv({"a": every[r], "b": [every[r][1:], r]}, (r + 1) % p, (r - 1) % p)
        np.testing.assert_array_equal(got["a"], every[r - 1])
        np.testing.assert_array_equal(got["b"][0], every[r - 1][1:])
        np.testing.assert_array_equal(comm.scan(every[r], SUM), sum(every[: r + 1]))

    job.ask(work)
    assert len(reads) > 8
