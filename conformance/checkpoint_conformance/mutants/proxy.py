"""A proxy that does to each exchange of a right server what makes it a wrong one."""

import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from checkpoint_conformance.client import Address, Client, HttpAnswer
from checkpoint_model.vocabulary import TOOL_PATH


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A request on its way in, as the proxy saw it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body, where it is a JSON object; else nothing."""
        try:
            members = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return members if isinstance(members, dict) else {}

    @property
    def is_to_tool(self) -> bool:
        """Whether it is a request to the tool."""
        return self.path == TOOL_PATH and self.method == "POST"

    def with_json(self, **members: object) -> "Message":
        """The same with some members changed."""
        return replace(self, body=json.dumps({**self.json, **members}).encode())


Forward: TypeAlias = Callable[[Message], HttpAnswer]
Tamper: TypeAlias = Callable[[Message, Forward], HttpAnswer]


def with_members(answer: HttpAnswer, **members: object) -> HttpAnswer:
    """An answer with some members changed; ``...`` removes one."""
    changed = {**json.loads(answer.body), **members}
    changed = {name: value for name, value in changed.items() if value is not ...}
    return replace(answer, body=json.dumps(changed).encode())


def with_header(answer: HttpAnswer, name: str, value: str | None) -> HttpAnswer:
    """An answer with one header changed, or removed."""
    headers = [header for header in answer.headers if header[0] != name]
    if value is not None:
        headers.append((name, value))
    return replace(answer, headers=tuple(headers))


@contextmanager
def tampering(
    target: Address, tamper: Tamper, *, tls: ssl.SSLContext | None = None
) -> Iterator[Address]:
    """A proxy in front of a server that does to each exchange what ``tamper`` says.

    With ``tls`` it speaks that to its clients, under the name ``localhost``.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # One write for each answer, at once: small ones would wait for each other's receipt.
        wbufsize = -1
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.client = Client(target)

        def finish(self) -> None:
            self.client.close()
            with suppress(OSError):
                super().finish()

        def _any(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            message = Message(
                method=self.command,
                path=self.path,
                headers={name.lower(): value for name, value in self.headers.items()},
                body=self.rfile.read(length),
            )
            answer = tamper(message, self._forward)
            self.send_response_only(answer.status)
            for name, value in answer.headers:
                if name not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_POST = do_HEAD = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815

        def _forward(self, message: Message) -> HttpAnswer:
            kept = [
                (name, value)
                for name, value in message.headers.items()
                if name not in ("host", "content-length", "connection", "user-agent")
            ]
            answer = self.client.exchange(message.method, message.path, message.body, kept).answer
            assert isinstance(answer, HttpAnswer), answer
            return answer

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256  # a race opens its connections all at once

        def handle_error(self, request: Any, client_address: Any) -> None:
            # A check that ends at its first fault hangs up on whatever else is under way.
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        # Hands are shaken with the first read, in a thread of each connection's own.
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        where = "http://127.0.0.1" if tls is None else "https://localhost"
        yield Address.parse(f"{where}:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()
