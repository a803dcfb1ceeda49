"""What the storms are let loose on: right servers, and wrong ones that only a storm finds out."""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer

from wrong import Forward, Message, tampering

from checkpoint_conformance.client import Address, HttpAnswer
from checkpoint_model import (
    Action,
    ErrorCode,
    Identity,
    Record,
    Step,
    answer,
    parse_request,
    step,
)
from checkpoint_model.machine import Success

NOWHERE = Address.parse("http://127.0.0.1:9")
"""What stands behind a proxy that answers everything itself."""


@dataclass
class TwoSteps:
    """The machine with check and write apart: right for one caller, wrong for two at once.

    Every decision is the model's own, on a record that was read some milliseconds before what
    was decided is written. No other kind of test can tell it from a right one.
    """

    actions: frozenset[Action] = frozenset({Action.CLAIM, Action.TRANSITION})
    records: dict[Identity, Record | None] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, message: Message, forward: Forward) -> HttpAnswer:
        """Decide a request."""
        del forward
        identity, request = parse_request(message.json)
        if request.action in self.actions:
            with self.lock:
                before = self.records.get(identity)
            decided = step(before, request, time.time_ns() // 1_000_000)
            time.sleep(random.uniform(0.001, 0.005))
            with self.lock:
                if decided.record is not before:
                    self.records[identity] = decided.record
        else:
            with self.lock:
                decided = step(self.records.get(identity), request, time.time_ns() // 1_000_000)
                self.records[identity] = decided.record
        members = answer(decided, request)
        return _http(identity, decided, members)


def _http(identity: Identity, decided: Step, members: dict[str, object]) -> HttpAnswer:
    if isinstance(decided.outcome, Success):
        digest = sha256(repr(identity).encode()).hexdigest()
        members["workflow_hash"] = f"hmac-sha256:{digest}"
        status, kind = 200, "application/json"
    else:
        assert isinstance(decided.outcome, ErrorCode)
        members |= {"type": "about:blank", "title": "No", "detail": "", "recovery": "Look first."}
        status, kind = int(str(members["status"])), "application/problem+json"
    return HttpAnswer(
        status=status,
        headers=(("content-type", kind), ("cache-control", "no-store")),
        body=json.dumps(members).encode(),
    )


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
