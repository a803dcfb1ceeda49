"""A proxy that does to each exchange of a right server what makes it a wrong one."""

import json
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final, TypeAlias

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


RECEIVE_BYTES: Final = 65536
_FRAMING: Final = {"content-length", "transfer-encoding", "connection"}
_NOT_FORWARDED: Final = _FRAMING | {"host", "user-agent", "expect"}
_BAD_REQUEST: Final = HttpAnswer(status=HTTPStatus.BAD_REQUEST, headers=(), body=b"")


class _NoRequestError(Exception):
    """What came is no HTTP request."""


class _Reader:
    """What the parser finds in the bytes of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        import httptools

        self._connection = connection
        self._parser = httptools.HttpRequestParser(self)
        self._errors = httptools.HttpParserError, httptools.HttpParserUpgrade
        self._read: list[Message] = []
        self._goes_on = True  # another request may follow

    def messages(self) -> Iterator[Message]:
        """The requests, one by one, until the client ends.

        Raises:
            _NoRequestError: they no longer are.
        """
        while data := self._connection.recv(RECEIVE_BYTES):
            is_http = True
            try:
                self._parser.feed_data(data)
            except self._errors:
                is_http = False
            yield from self._read
            self._read = []
            if not self._goes_on:
                return
            if not is_http:
                raise _NoRequestError

    # -- the parser's calls

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", dict[str, str](), bytearray()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        message = Message(
            method=self._parser.get_method().decode("latin-1"),
            path=self._url.decode("latin-1"),
            headers=self._headers,
            body=bytes(self._body),
        )
        self._read.append(message)
        self._goes_on = self._parser.should_keep_alive()


def _head(answer: HttpAnswer) -> bytes:
    kept = [f"{name}: {value}" for name, value in answer.headers if name not in _FRAMING]
    lines = [f"HTTP/1.1 {answer.status} ", *kept, f"content-length: {len(answer.body)}"]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")


@contextmanager
def tampering(
    target: Address, tamper: Tamper, *, tls: ssl.SSLContext | None = None
) -> Iterator[Address]:
    """A proxy in front of a server that does to each exchange what ``tamper`` says.

    With ``tls`` it speaks that to its clients, under the name ``localhost``.
    """

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            # Small answers would wait for each other's receipt.
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with Client(target) as client:

                def forward(message: Message) -> HttpAnswer:
                    kept = [h for h in message.headers.items() if h[0] not in _NOT_FORWARDED]
                    answer = client.exchange(
                        message.method, message.path, message.body, kept
                    ).answer
                    assert isinstance(answer, HttpAnswer), answer
                    return answer

                try:
                    for message in _Reader(self.request).messages():
                        answer = tamper(message, forward)
                        body = b"" if message.method == "HEAD" else answer.body
                        self.request.sendall(_head(answer) + body)
                except _NoRequestError:
                    self.request.sendall(_head(_BAD_REQUEST))

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
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
