"""The server as a separate process, which rank 0 starts where no launcher is; it ends with the job."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from functools import partial
from math import inf
from pathlib import Path
from typing import IO

import zmq

from ringcast.config.worker import WorkerConfig
from ringcast.control.envelope import PACE
from ringcast.control.events import Joined, Lost
from ringcast.control.rank_processes import end_of_rank, family
from ringcast.control.server import ControlServer
from ringcast.errors import RendezvousError
from ringcast.procs.liveness import Hung
from ringcast.procs.process_tree import kill
from ringcast.procs.procfs import ProcessProbe
from ringcast.wire.failure import Failure

ENDED = "its process ended"
START_SERVER = 20.0  # seconds that a busy machine may take to start the server's process, however short the timeout


# The child forks before it imports anything, so that rank 0 has no child to wait for; -P keeps the modules of the
# user's directory from standing in for the library's.
_CHILD = """import os, sys
if os.fork(): os._exit(0)
sys.path.append(sys.argv[1])
from ringcast.control import main
main()"""


def start_server(config: WorkerConfig, deadline: float) -> tuple[IO[bytes], str]:
    """Start the control plane in its own process and session.

    Returns the pipe whose end tells that rank 0 has ended, and the address (where the port was `*`, with a free one).

    Raises:
        RendezvousError: it did not come up; the text has its output.
    """
    import subprocess  # takes 2 ms, for which the other ranks do not wait

    root = str(Path(__file__).resolve().parents[2])
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD, root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    settings = {
        "address": config.control,
        "size": config.size,
        "nonce": config.nonce,
        "key": config.key,
        "security": config.security,
        "start_timeout": config.start_timeout,
        "temporary": config.directory if config.temporary else "",
    }
    with child.stdout:
        try:
            child.stdin.write(json.dumps(settings).encode() + b"\n")
            said = _read_line(child.stdout, deadline)
        except BrokenPipeError:
            said = "its process ended at once"
        finally:
            child.wait()  # ends at once: see above
    state, _, address = said.partition(" ")
    if state != "ready":
        child.stdin.close()
        raise RendezvousError(f"rank {config.rank} could not start the control plane: {said or 'no answer'}")
    return child.stdin, address


def _read_line(pipe: IO[bytes], deadline: float) -> str:
    """Return the line that reports success, or all output until the end of file or the deadline."""
    said = b""
    while not (said.startswith(b"ready ") and said.endswith(b"\n")):
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            break
        chunk = os.read(pipe.fileno(), 65536)
        if not chunk:
            break
        said += chunk
    return said.decode("utf-8", "replace").strip()


def main() -> None:
    """Run the control plane of a job without launcher; the settings come as one line of JSON on standard input.

    Says "ready" and its address once it listens. The end of standard input means that rank 0 has ended.
    """
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        settings = json.loads(stdin.readline())
    with zmq.Context() as context:
        try:
            server = ControlServer(
                context,
                settings["address"],
                size=settings["size"],
                nonce=settings["nonce"],
                key=settings["key"],
                security=settings["security"],
                hosted=False,
                start_timeout=settings["start_timeout"],
            )
        except RendezvousError as error:
            sys.exit(str(error))
        os.write(1, f"ready {server.address}\n".encode())
        _to_nowhere(1, 2)
        serve(server, lifeline=0, nonce=settings["nonce"])
    if settings["temporary"]:
        import shutil

        shutil.rmtree(settings["temporary"], ignore_errors=True)  # with the sockets of ranks that were killed


def serve(server: ControlServer, lifeline: int, nonce: int) -> None:
    """Serve until all ranks have left or failed; the end of file on `lifeline` means that rank 0 is gone."""
    found_here = partial(family, server, nonce)
    probe, poller = ProcessProbe(found_here, lambda rank: server.process(rank)[1]), zmq.Poller()
    ends = {lifeline: 0}  # files that become readable when a rank's process has ended
    for file in (server.socket, lifeline):
        poller.register(file, zmq.POLLIN)
    while not server.over:
        due = min(server.due, probe.due or inf)
        ready = dict(poller.poll(max(0, int(1000 * (due - time.monotonic())) + 1)))
        # The messages that a rank sent before it ended come first.
        for found in [*server.service(), *probe.look(server.heard, time.monotonic())]:
            match found:
                case Joined():
                    try:
                        end = end_of_rank(server, found.rank)
                    except ProcessLookupError:
                        server.declare_failed(found.rank, Failure(ENDED))
                    else:
                        if end is not None:
                            ends[end] = found.rank
                            poller.register(end, zmq.POLLIN)
                case Lost() | Hung():
                    kill(partial(found_here, found.rank))
                    server.declare_failed(found.rank, Failure(found.cause))
        for file in ends.keys() & ready.keys():
            poller.unregister(file)
            os.close(file)
            server.declare_failed(ends.pop(file), Failure(ENDED))
    for file in ends:
        os.close(file)
    server.close(linger=PACE.linger)


def _to_nowhere(*files: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for file in files:
        os.dup2(nowhere, file)
    os.close(nowhere)
