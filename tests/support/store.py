"""A store in a thread: one file by http, in parts, with limits of rate and of connections, and faults on demand.

As a program it serves zeros for benchmarks: `store.py PORT BYTES RATE MOST`; a rate of 0 is none, as is a number of 0.
"""

from __future__ import annotations

import itertools
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any

BLOCK = 1 << 14


class Store:
    """One file. `asked` has the ranges of all requests, `headers` their headers, `busiest` the most connections.

    Attributes:
        rate: bytes that a connection gets in a second.
        most: connections at a time; a further one gets HTTP 429 with `after` as Retry-After.
        faults: functions that answer the next requests: `fault(handler, start, stop)`, True if that was the answer.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.etag, self.changed = data, '"1"', "Sun, 09 Sep 2001 01:46:40 GMT"
        self.rate: float | None = None
        self.most: int | None = None
        self.after: str | None = "0"
        self.faults: list[Callable[[Handler, int, int], bool]] = []
        self.always: Callable[[Handler, int, int], bool] = lambda *_: False
        self.asked: list[tuple[int, int]] = []
        self.headers: list[dict[str, str]] = []
        self.refused = self.busiest = 0
        self.open: set[int] = set()
        self.lock = threading.Lock()
        self.connections, self.left = 0, threading.Condition()  # that were accepted and have not ended
        self.ended = threading.Event()  # wakes what stalls
        self.root = ""

    def forget(self) -> None:
        """Forget what was asked by clients that have all left, also what comes only now of their requests."""
        from support.patience import patience  # not known where this module runs as a program

        host, port = self.root.rpartition("/")[2].split(":")
        with socket.create_connection((host, int(port)), patience(30)) as last:  # which is accepted after all others
            last.shutdown(socket.SHUT_WR)
            assert last.recv(1) == b""
        with self.left:
            assert self.left.wait_for(lambda: self.connections == 0, patience(30))
        self.asked.clear()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: Store
    numbers = itertools.count()
    due = 0.0  # when the connection may send the next block

    def setup(self) -> None:
        super().setup()
        self.number = next(self.numbers)
        with self.store.lock:
            self.store.open.add(self.number)
            self.store.busiest = max(self.store.busiest, len(self.store.open))

    def finish(self) -> None:
        with self.store.lock:
            self.store.open.discard(self.number)
        super().finish()

    def do_GET(self) -> None:
        store = self.store
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, stop = (int(found[1]), min(int(found[2]) + 1, len(store.data))) if found else (0, len(store.data))
        with store.lock:
            store.asked.append((start, stop))
            store.headers.append({"path": self.path, **self.headers})
            fault = store.faults.pop(0) if store.faults else store.always
            full = store.most is not None and sorted(store.open).index(self.number) >= store.most
            store.refused += full
        if full:
            self.refuse(429, store.after)
        elif not fault(self, start, stop):
            self.part(start, stop, **({} if found else {"status": 200, "Content_Range": ""}))

    def refuse(self, status: int, after: str | None = None) -> None:
        """Answer with an error, and close the connection."""
        self.send_response(status)
        if after is not None:
            self.send_header("Retry-After", after)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def part(self, start: int, stop: int, **other: str | int) -> None:
        """Send a part; `other` headers replace the right ones, `status` the status, `bytes` the number of bytes."""
        store = self.store
        condition = self.headers.get("If-Match", store.etag), self.headers.get("If-Unmodified-Since", store.changed)
        if condition != (store.etag, store.changed):
            self.refuse(412)
            return
        if start >= len(store.data):
            self.send_response(416)
            headers: dict[str, Any] = {"Content-Range": f"bytes */{len(store.data)}", "Content-Length": 0}
            stop = start
        else:
            self.send_response(int(other.pop("status", 206)))
            headers = {
                "Content-Range": f"bytes {start}-{stop - 1}/{len(store.data)}",
                "Content-Length": stop - start,
                "ETag": store.etag,
                "Last-Modified": store.changed,
                "Accept-Ranges": "bytes",
            }
        length = int(other.pop("bytes", stop - start))
        for name, value in {**headers, **{name.replace("_", "-"): value for name, value in other.items()}}.items():
            if value != "":
                self.send_header(name, str(value))
        self.end_headers()
        self.body(store.data[start : start + length])
        if length != stop - start:
            self.close_connection = True

    def body(self, data: bytes) -> None:
        """Send bytes at the rate of a connection."""
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            if self.store.rate is not None:
                self.due = max(self.due, time.monotonic())
                self.store.ended.wait(self.due - time.monotonic())
                self.due += len(block) / self.store.rate  # which the next one waits for, of whatever request
            self.wfile.write(block)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], store: Store) -> None:
        super().__init__(address, type("Handler", (Handler,), {"store": store}))
        self.store = store

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.store.left:
            self.store.connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self.store.left:
            self.store.connections -= 1
            self.store.left.notify_all()

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away."""


@contextmanager
def store(data: bytes, tls: SSLContext | None = None) -> Iterator[Store]:
    """Serve a file, by TLS if there is a context for that."""
    made = Store(data)
    with _Server(("127.0.0.1", 0), made) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        made.root = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            made.ended.set()
            server.shutdown()
            thread.join()


def main(port: int, size: int, rate: float, most: int) -> None:
    made = Store(bytes(size))
    made.rate, made.most, made.after = rate or None, most or None, "1"
    with _Server(("0.0.0.0", port), made) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
