"""A web server in a thread of the test process, whose pages behave as badly as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext


class Web:
    """Pages by path: bytes, or a function that answers a request. `asked` has all requests, with their headers."""

    def __init__(self, port: int, scheme: str) -> None:
        self.pages: dict[str, bytes | Callable[[BaseHTTPRequestHandler], None]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.changed: float | None = 1e9  # when all pages changed; None: the server does not tell
        self.port, self.root = port, f"{scheme}://127.0.0.1:{port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def do_GET(self) -> None:
        self.web.asked.append((self.path, dict(self.headers.items())))
        self.close_connection = True
        page = self.web.pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(404)
        elif callable(page):
            page(self)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            if self.web.changed is not None:
                self.send_header("Last-Modified", formatdate(self.web.changed, usegmt=True))
            self.end_headers()
            self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that the end waits for them

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away."""


@contextmanager
def web(tls: SSLContext | None = None) -> Iterator[Web]:
    """Serve pages, by TLS if there is a context for that."""
    handler = type("Handler", (_Handler,), {})
    with _Server(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        made = Web(server.server_address[1], "http" if tls is None else "https")
        handler.web = made  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
