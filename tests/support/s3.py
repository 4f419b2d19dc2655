"""moto's S3 server with one object, by http in a thread: it notes the ranges of all reads, and refuses on demand.

As a program it serves zeros: `s3.py PORT BYTES REFUSALS`; so many reads get 503 SlowDown, the second one first.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

BUCKET, KEY = "bucket", "models/model.bin"
URL = f"s3://{BUCKET}/{KEY}"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDOFATEST", "AWS_SECRET_ACCESS_KEY": "secretofatest"}
_ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>Please reduce your request rate.</Message></Error>"

Answer = tuple[str, str]  # status line, and code


class Objects:
    """A WSGI application around moto's.

    Attributes:
        asked: ranges of all reads that were answered.
        refusals: answers to the next reads; once they are used, `always` decides, by the number of the read.
        after: Retry-After of refusals.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self.asked: list[tuple[int, int]] = []
        self.refusals: list[Answer] = []
        self.always: Callable[[int], Answer | None] = lambda _: None
        self.after: str | None = None
        self.reads = self.refused = 0
        self.endpoint = ""
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", environ.get("HTTP_RANGE", ""))
        if environ["REQUEST_METHOD"] == "GET" and found:
            with self._lock:
                self.reads += 1
                answer = self.refusals.pop(0) if self.refusals else self.always(self.reads)
                if answer is None:
                    self.asked.append((int(found[1]), int(found[2]) + 1))
                else:
                    self.refused += 1
            if answer is not None:
                after = [] if self.after is None else [("Retry-After", self.after)]
                body = _ERROR.format(code=answer[1]).encode()
                start_response(answer[0], [("Content-Length", str(len(body))), *after])
                return [body]
        return self._application(environ, start_response)


@contextmanager
def objects(data: bytes, address: str = "127.0.0.1", port: int = 0) -> Iterator[Objects]:
    """Serve an object."""
    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept, as by S3

        def log(self, *_: object) -> None:
            """Say nothing."""

    made = Objects(DomainDispatcherApplication(create_backend_app))
    server = make_server(address, port, made, threaded=True, request_handler=Quiet)
    server.daemon_threads = True
    made.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        key, secret = CREDENTIALS.values()
        client = boto3.client(
            "s3",
            endpoint_url=made.endpoint,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key=KEY, Body=data)
        client.close()
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main(port: int, size: int, refusals: int) -> None:
    with objects(bytes(size), "0.0.0.0", port) as served:
        served.refusals = [("503 Slow Down", "SlowDown")] * refusals
        print("ready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
