"""A fixed part of what `tests/support/fuzz.py` can say, and strangers at the sockets of jobs that work."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import zmq

from ringcast.communicator import Communicator
from ringcast.control import new_key
from ringcast.errors import RingcastError
from ringcast.net.keys import KeyPair, new_pair
from ringcast.wire import header as wire
from ringcast.wire.header import Header
from support import fuzz
from support.jobs import Job
from support.patience import patience
from support.places import TESTS

pytestmark = pytest.mark.usefixtures("nothing_left")

SHOUTS = 2000
QUICK = [("lie", 60), ("flood", 7), ("shout", 20), ("petition", 60), ("proclaim", 60)]


@pytest.mark.parametrize(("name", "count"), QUICK)
def test_nonsense_is_borne(name: str, count: int) -> None:
    bear(name, range(count))


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_much_nonsense_is_borne(part: int) -> None:
    bear("lie", range(10_000 + 500 * part, 10_500 + 500 * part))


def bear(name: str, seeds: range) -> None:
    for seed in seeds:
        try:
            fuzz.CASES[name](seed)
        except BaseException as error:
            error.add_note(f"PYTHONPATH=tests python -m support.fuzz --case {name} --seed {seed} --seconds 0.1")
            raise


# Strangers at the inboxes.


def strange(rng: random.Random) -> list[bytes]:
    """Return a message that is none of this job: its nonce is another."""
    header = Header._make(fuzz.number(rng, fuzz.WIDTHS[name]) for name in Header._fields)
    known = header._replace(version=wire.VERSION, kind=rng.randint(0, 12), source=rng.randint(0, 3))
    return rng.choice((fuzz.garbage(rng), [wire.pack(known), *fuzz.garbage(rng)], [wire.pack(known)]))


def push(addresses: list[str], pair: KeyPair | None = None, servers: Sequence[str] = (), heard: bool = True) -> None:
    """Send many messages to every inbox, as a stranger with this pair and these public keys of the inboxes."""
    rng = random.Random(4)
    with zmq.Context() as context:
        for i, address in enumerate(addresses):
            with context.socket(zmq.PUSH) as sock:
                sock.linger = 10_000 if heard else 100
                sock.sndhwm = 0
                if pair is not None:
                    sock.curve_secretkey, sock.curve_publickey = pair.secret, pair.public
                    sock.curve_serverkey = servers[i].encode()
                sock.connect(address)
                try:
                    for _ in range(SHOUTS):
                        sock.send_multipart(strange(rng), zmq.NOBLOCK)
                except zmq.Again:
                    assert not heard, "the door was shut"


def scribble(addresses: list[str]) -> None:
    """Open connections of the operating system and write what is not ZeroMQ's protocol, or only its beginning."""
    rng = random.Random(5)
    greeting = b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL" + bytes(48)
    for address in addresses:
        kind, _, place = address.partition("://")
        host, _, port = place.rpartition(":")
        for _ in range(50):
            with socket.socket(socket.AF_UNIX if kind == "ipc" else socket.AF_INET) as sock:
                sock.connect(place if kind == "ipc" else (host, int(port)))
                with contextlib.suppress(ConnectionError):  # it may have closed already
                    sock.sendall(rng.choice((b"", greeting, greeting[: rng.randint(1, 64)])) + rng.randbytes(300))


def work(comm: Communicator, over: threading.Event) -> int:
    """Call collectives until the stranger is done, at least once; rank 0 decides for all."""
    calls = 0
    while comm.bcast(calls == 0 or not over.is_set() if comm.rank == 0 else None):
        for n in (1, 20_000, 200_000):
            np.testing.assert_array_equal(comm.allreduce(np.full(n, comm.rank + 1)), 6)
            np.testing.assert_array_equal(comm.allgather(np.full(n, comm.rank))[2], 2)
        calls += 1
    return calls


def disturbed(kind: str, disturb: Callable[[list[str], Job], None], heard: int = 0) -> list[int]:
    """Run a job that a stranger disturbs; its results are right. Returns how many messages each rank has dropped.

    Of `heard` messages some may still be under way when the last call is over.
    """
    job, over = Job(kind, 3), threading.Event()
    addresses = [endpoint.transport.address for endpoint in job.endpoints]

    def stranger() -> None:
        try:
            disturb(addresses, job)
        finally:
            over.set()

    thread = threading.Thread(target=stranger)
    thread.start()
    try:
        assert min(job.ask(lambda comm: work(comm, over))) > 0
        for endpoint in job.endpoints:
            dropped, clock = endpoint.protocol.dropped, endpoint.transport.clock
            while endpoint.progress(clock() + (10 if sum(dropped.values()) < heard else 0)):
                pass
        return [sum(endpoint.protocol.dropped.values()) for endpoint in job.endpoints]
    finally:
        thread.join()
        job.close()


def test_strangers_at_ipc_inboxes_are_counted_and_harm_nobody() -> None:
    assert disturbed("ipc", lambda addresses, _: push(addresses), SHOUTS) == [SHOUTS] * 3


def public_keys(job: Job) -> list[str]:
    return [endpoint.transport.public_key for endpoint in job.endpoints]


def test_who_has_the_pair_of_a_member_but_not_the_number_of_the_job_is_counted_and_harms_nobody() -> None:
    def disturb(addresses: list[str], job: Job) -> None:
        push(addresses, job.endpoints[0].transport._pair, public_keys(job))

    assert disturbed("tcp", disturb, SHOUTS) == [SHOUTS] * 3


def test_who_has_no_key_or_another_is_not_even_heard() -> None:
    def disturb(addresses: list[str], job: Job) -> None:
        push(addresses, heard=False)
        push(addresses, new_pair(), [new_key()] * 3, heard=False)
        push(addresses, new_pair(), public_keys(job), heard=False)

    assert disturbed("tcp", disturb) == [0] * 3


@pytest.mark.parametrize("kind", ["ipc", "tcp"])
def test_who_does_not_speak_the_protocol_of_zeromq_harms_nobody(kind: str) -> None:
    disturbed(kind, lambda addresses, _: scribble(addresses))


# A member that lies, and strangers at the control plane.


@pytest.mark.parametrize(
    "kind", ["ipc", *(pytest.param(kind, marks=pytest.mark.live) for kind in ("shm", "sockets", "tcp"))]
)
def test_a_member_that_lies_on_real_sockets_is_borne(kind: str) -> None:
    for seed in range(6):
        job = Job(kind, 3)
        liar, rng = job.endpoints[fuzz.LIAR], random.Random(seed)
        liar.transport = fuzz.Lying(liar.transport, liar.protocol.nonce, rng, 0.3)

        def some(comm: Communicator) -> None:
            for n in (1, 2000, 20_000):
                comm.allgather(np.full(n, comm.rank))
                comm.sendrecv(np.full(n, comm.rank), (comm.rank + 1) % 3, (comm.rank - 1) % 3)

        try:
            for _ in range(2):
                for end in job.run(some, timeout=0.5)[: fuzz.LIAR]:
                    assert end is None or isinstance(end, RingcastError), repr(end)
            for endpoint in job.endpoints[: fuzz.LIAR]:
                fuzz.check(endpoint.protocol)
                assert set(endpoint.protocol.failed) <= {fuzz.LIAR}
        finally:
            for endpoint in job.endpoints:
                with contextlib.suppress(RingcastError):  # a mismatch after the last call
                    endpoint.leave()
            job.discard()


PROGRAM = """
import os, random, threading
import numpy as np, zmq
import ringcast
from support import fuzz
comm = ringcast.init()
over = threading.Event()

def shout():
    rng, nonce, folder = random.Random(6), int(os.environ["RINGCAST_NONCE"]), os.environ["RINGCAST_DIR"]
    with zmq.Context() as context:
        for place, kind in ("control", zmq.DEALER), ("rank-0", zmq.PUSH), ("rank-1", zmq.PUSH), ("rank-2", zmq.PUSH):
            with context.socket(kind) as sock:
                sock.linger, sock.sndhwm = 5000, 0
                sock.connect(f"ipc://{folder}/{place}")
                for i in range(2000):
                    if kind == zmq.DEALER:
                        sock.send(fuzz.envelope(rng, rng.choice((nonce, nonce, 5)), i, fuzz.REQUESTS))
                    else:
                        sock.send_multipart(fuzz.garbage(rng))
    over.set()

if comm.rank == 0:
    threading.Thread(target=shout).start()
calls = 0
while comm.bcast(not over.is_set() if comm.rank == 0 else None):
    assert (comm.allreduce(np.full(20_000, comm.rank + 1)) == 6).all()
    calls += 1
assert calls
"""


@pytest.mark.live
def test_a_launched_job_bears_strangers_at_all_its_sockets(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ringcast_launcher",
            "-v",
            "-n",
            "3",
            "--transport",
            "ipc",
            str(tmp_path / "program.py"),
        ],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=patience(100),
    )
    assert done.returncode == 0, done.stderr
    assert "messages to the control plane were dropped" in done.stderr
