"""A right server that is the model itself, to be made wrong: at a URL, or without any wire at all.

For tests of what drives and judges a target, where a store and a second process would only be
slow. It keeps real time and has neither controls nor descriptions nor MCP.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final

from looking_away import Quiet

from checkpoint_conformance.client import (
    Address,
    Client,
    Exchange,
    Headers,
    HttpAnswer,
    Lost,
    LostReason,
)
from checkpoint_conformance.mutants.concurrency import TwoSteps
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper, tampering
from checkpoint_conformance.run import PROFILES, Run, Target

NOWHERE: Final = Address.parse("http://127.0.0.1:9")


def model_server() -> Tamper:
    """A right server with a memory of its own, which needs nobody to forward to."""
    decide = TwoSteps(actions=frozenset())  # no action is taken apart, so each is one step

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        if not message.is_to_tool:
            return HttpAnswer(status=404, headers=(("content-type", "text/plain"),), body=b"none\n")
        return decide(message, forward)

    return serve


class Direct(Client):
    """Calls a server in this process; one that aborts the connection has lost its answer."""

    def __init__(self, serve: Tamper) -> None:
        super().__init__(NOWHERE)
        self._serve = serve

    def exchange(
        self, method: str, path: str, body: bytes = b"", headers: Headers = ()
    ) -> Exchange:
        """The server's answer, at once."""
        called_ns = time.monotonic_ns()
        message = Message(method=method, path=path, headers=dict(headers), body=body)
        answer: HttpAnswer | Lost
        try:
            answer = self._serve(message, _nobody)
        except ConnectionAbortedError:
            answer = Lost(reason=LostReason.CLOSED, detail="")
        return Exchange(
            method=method,
            path=path,
            headers=tuple(headers),
            body=body,
            called_ns=called_ns,
            returned_ns=time.monotonic_ns(),
            answer=answer,
        )


def run_on(serve: Tamper) -> Run:
    """A run whose every request goes straight to a server in this process."""
    run = Run(target=Target(address=NOWHERE), profile=PROFILES["quick"], seed=1, progress=Quiet())
    run.client = Direct(serve)
    run.check_name = "walk"
    return run


@contextmanager
def model_at_url(serve: Tamper | None = None) -> Iterator[Target]:
    """The server at an address of its own."""
    with tampering(NOWHERE, serve or model_server()) as address:
        yield Target(address=address)


def _nobody(message: Message) -> HttpAnswer:
    raise AssertionError(f"{message.path} was forwarded")


@contextmanager
def one_connection_at_a_time() -> Iterator[str]:
    """A right server that talks to nobody else until a connection is closed."""
    decide = model_server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            message = Message(method="POST", path=self.path, headers={}, body=body)
            came = decide(message, _nobody)
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
