"""A TCP server that says exactly what a test wants said, byte by byte."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Talk = Callable[[socket.socket], None]


@contextmanager
def talking(talk: Talk) -> Iterator[str]:
    """Serve each connection with ``talk`` in a thread; the base URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(30)
    open_sockets: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            talk(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_sockets.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        for connection in open_sockets:
            connection.close()


def request_of(connection: socket.socket) -> bytes:
    """One whole request: head and as much body as its length says; empty at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().splitlines():
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def answering(answer: bytes) -> Talk:
    """Read one request, say this, and hang up."""

    def talk(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(answer)

    return talk


def http(status: str, body: bytes, kind: str = "application/json") -> bytes:
    """A plain HTTP answer."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
