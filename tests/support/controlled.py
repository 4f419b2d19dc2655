"""A control server with clients."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import zmq

from ringcast.config.worker import WorkerConfig
from ringcast.control import ControlClient, ControlServer, Pace, new_key
from ringcast.control.events import ForOwner, Lost
from ringcast.wire import header as wire
from ringcast.wire.codec import decode
from ringcast.wire.control_messages import NOTICES, Notice
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.failure import Failure
from support.patience import patience

PACE = Pace(beat=0.05, silence=5.0, linger=2.0)
NONCE = 2**63 + 5
KEY = new_key()


class Serving:
    """A server with a thread that owns it, as the launcher's loop does; orders are carried out by that thread."""

    def __init__(self, context: zmq.Context, address: str, size: int, pace: Pace = PACE, **settings: object) -> None:
        self.notices: queue.Queue[ForOwner] = queue.Queue()
        self._orders: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self.server = ControlServer(context, address, size=size, nonce=NONCE, key=KEY, pace=pace, **settings)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self.server.socket.poll(5)
            for notice in self.server.service():
                self.notices.put(notice)
                if isinstance(notice, Lost):
                    self.server.declare_failed(notice.rank, Failure(notice.cause))
            try:
                order = self._orders.get_nowait()
            except queue.Empty:
                continue
            if order is None:
                return
            order()

    def do(self, order: Callable[[], None]) -> None:
        self._orders.put(order)

    def stop(self) -> None:
        self._orders.put(None)
        self._thread.join()
        self.server.close()

    def notice(self, kind: type) -> ForOwner:
        while True:
            found = self.notices.get(timeout=patience(10))
            if isinstance(found, kind):
                return found


@contextmanager
def serving(context: zmq.Context, address: str, size: int, **settings: object) -> Iterator[Serving]:
    server = Serving(context, address, size, **settings)
    try:
        yield server
    finally:
        server.stop()


class Worker:
    """A client with an inbox."""

    def __init__(self, context: zmq.Context, control: str, rank: int, size: int, key: str = KEY, pace: Pace = PACE):
        self.inbox: queue.Queue[list[bytes]] = queue.Queue()
        config = WorkerConfig(rank, size, control, hosted=True, nonce=NONCE, key=key)
        self.client = ControlClient(config, EndpointCard(f"data{rank}"), self.inbox.put, context, pace=pace)

    def news(self) -> Notice:
        """Return the next notice of the control plane."""
        return opened(self.inbox.get(timeout=patience(10)))


def opened(frames: Sequence[bytes]) -> Notice:
    """Return the notice in these frames, which are one of this job."""
    header, payload = frames
    told = wire.unpack(header)
    assert (told.kind, told.nonce) == (wire.Kind.NOTICE, NONCE)
    notice: Notice = decode(payload, NOTICES)
    return notice


@contextmanager
def job(context: zmq.Context, address: str, size: int, **settings: object) -> Iterator[tuple[Serving, list[Worker]]]:
    """A job whose ranks have all joined."""
    with serving(context, address, size, **settings) as server:
        workers = [Worker(context, server.server.address, rank, size) for rank in range(size)]
        try:
            with ThreadPoolExecutor(size) as pool:
                rosters = list(pool.map(lambda worker: worker.client.join(patience(10)).cards, workers))
            assert rosters == [tuple(EndpointCard(f"data{rank}") for rank in range(size))] * size
            yield server, workers
        finally:
            for worker in workers:
                worker.client.close()
