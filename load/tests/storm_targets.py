"""What the storms are let loose on: right servers, and wrong ones that only a storm finds out."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from checkpoint_conformance.client import Address, HttpAnswer
from checkpoint_conformance.mutants.concurrency import TwoSteps
from checkpoint_conformance.mutants.proxy import Message, tampering
from checkpoint_model import (
    Action,
)

NOWHERE = Address.parse("http://127.0.0.1:9")
"""What stands behind a proxy that answers everything itself."""


@contextmanager
def two_steps(*actions: Action) -> Iterator[str]:
    """The base URL of a server that checks and writes in two steps."""
    decide = TwoSteps(actions=frozenset(actions)) if actions else TwoSteps()
    with tampering(NOWHERE, decide) as address:
        yield address.url


@contextmanager
def one_connection_at_a_time() -> Iterator[str]:
    """A right server that talks to nobody else until a connection is closed."""
    decide = TwoSteps(actions=frozenset())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            message = Message(method="POST", path=self.path, headers={}, body=body)
            came = decide(message, lambda _: HttpAnswer(status=500, headers=(), body=b""))
            self.send_response_only(came.status)
            for name, value in (*came.headers, ("content-length", str(len(came.body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(came.body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        # It may sit in a connection until that is closed; it is a daemon, and ends with the tests.
        server.socket.close()
