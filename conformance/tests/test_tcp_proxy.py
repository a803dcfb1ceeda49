"""The proxy cuts where it is told, as often as it is told, and holds nothing back otherwise."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from checkpoint_conformance import tcp_proxy
from checkpoint_conformance.tcp_proxy import Cut, TcpProxy, Upstream

SECONDS_MAX = 20.0
REQUEST, ANSWER = b"request\n", b"an answer\n"


class Heard:
    """What came to a server that answers each line with the same."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.partial = threading.Event()


@contextmanager
def answering(heard: Heard, answer: bytes = ANSWER) -> Iterator[Upstream]:
    """A server of lines at a port of its own."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline():
                heard.lines.append(line)
                if not line.endswith(b"\n"):
                    heard.partial.set()
                    return
                self.wfile.write(answer)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield Upstream(host="127.0.0.1", port=server.server_address[1])
        finally:
            server.shutdown()


@contextmanager
def connected(proxy: TcpProxy) -> Iterator[socket.socket]:
    """A connection to the proxy."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=SECONDS_MAX) as opened:
        yield opened


def asked(opened: socket.socket, size: int = len(ANSWER)) -> bytes:
    """What comes back for a request: whole, or as much as there is before the end."""
    came = b""
    try:
        opened.sendall(REQUEST)
        while len(came) < size and (data := opened.recv(size)):
            came += data
    except ConnectionError:
        pass
    return came


@pytest.mark.parametrize(
    ("where", "heard_lines", "came"),
    [
        (Cut.BEFORE_REQUEST, [], b""),
        (Cut.IN_REQUEST, [REQUEST[:4]], b""),
        (Cut.BEFORE_ANSWER, [REQUEST], b""),
        (Cut.IN_ANSWER, [REQUEST], ANSWER[:5]),
        (Cut.AFTER_ANSWER, [REQUEST], ANSWER),
    ],
)
def test_each_cut_is_where_it_says(where: Cut, heard_lines: list[bytes], came: bytes) -> None:
    """Whether the request arrived, and how much of the answer; then the connection is gone."""
    heard = Heard()
    with answering(heard) as upstream, TcpProxy([upstream]) as proxy:
        with connected(proxy) as opened:
            proxy.cut(where, 1)
            assert asked(opened) == came
            assert proxy.wait_until_cut(SECONDS_MAX) == 1
            with suppress(ConnectionResetError):
                assert opened.recv(1) == b""
        if where is Cut.IN_REQUEST:
            assert heard.partial.wait(SECONDS_MAX)
        assert heard.lines == heard_lines
        with connected(proxy) as opened:  # the next is none of its business
            assert asked(opened) == ANSWER


def test_it_cuts_no_more_than_it_was_told() -> None:
    """Two of three, and none once it was healed."""
    with answering(Heard()) as upstream, TcpProxy([upstream]) as proxy:
        proxy.cut(Cut.BEFORE_ANSWER, 2)
        came = []
        for _ in range(3):
            with connected(proxy) as opened:
                came.append(asked(opened))
        assert came == [b"", b"", ANSWER]
        proxy.cut(Cut.BEFORE_ANSWER, 5)
        proxy.heal()
        with connected(proxy) as opened:
            assert asked(opened) == ANSWER
        assert proxy.wait_until_cut(0) == 0


def test_what_is_frozen_goes_on_afterwards() -> None:
    """Nothing is lost, and nothing passes before."""
    heard = Heard()
    with answering(heard) as upstream, TcpProxy([upstream]) as proxy, connected(proxy) as opened:
        assert asked(opened) == ANSWER
        proxy.freeze()
        opened.sendall(REQUEST)
        opened.settimeout(0.1)
        with pytest.raises(TimeoutError):
            opened.recv(1)
        assert heard.lines == [REQUEST]
        proxy.heal()
        opened.settimeout(SECONDS_MAX)
        assert opened.recv(len(ANSWER)) == ANSWER
        assert heard.lines == [REQUEST, REQUEST]


def test_a_long_answer_arrives_whole() -> None:
    """More than one piece, at once and delayed, until the server hangs up."""
    long = b"x" * (tcp_proxy.CHUNK_BYTES * 5) + b"\n"
    with answering(Heard(), long) as upstream, TcpProxy([upstream]) as proxy:
        for seconds in (0.0, 0.001):
            proxy.delay(seconds)
            with connected(proxy) as opened:
                assert asked(opened, len(long)) == long


def test_another_server_takes_over() -> None:
    """Connections go in turn, and past a server that is gone."""
    first, second = Heard(), Heard()
    with answering(first) as one, answering(second) as other:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            gone = Upstream(host="127.0.0.1", port=listener.getsockname()[1])
        with TcpProxy([one, gone, other]) as proxy:
            for _ in range(6):
                with connected(proxy) as opened:
                    assert asked(opened) == ANSWER
    assert len(first.lines) + len(second.lines) == 6
    assert first.lines
    assert second.lines


def test_nobody_behind_it_is_a_closed_connection() -> None:
    """At once, not a wait."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = Upstream(host="127.0.0.1", port=listener.getsockname()[1])
    with TcpProxy([gone]) as proxy, connected(proxy) as opened:
        assert asked(opened) == b""


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than it holds is closed."""
    monkeypatch.setattr(tcp_proxy, "CONNECTIONS_MAX", 1)
    with answering(Heard()) as upstream, TcpProxy([upstream]) as proxy, connected(proxy) as first:
        assert asked(first) == ANSWER
        with connected(proxy) as second:
            assert asked(second) == b""
        assert asked(first) == ANSWER
        proxy.cut_all()
        assert asked(first) == b""


def test_a_unix_socket_may_stand_behind(tmp_path: Path) -> None:
    """As an embedded store listens."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with TcpProxy([Upstream.of_store(f"unix://{path}")]) as proxy, connected(proxy) as opened:
            opened.sendall(REQUEST)
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.recv(len(REQUEST)) == REQUEST


def test_a_store_s_url_is_read() -> None:
    """What can be passed on to, and what cannot."""
    assert Upstream.of_store("redis://h:1/0") == Upstream(host="h", port=1)
    assert Upstream.of_store("valkey://:pw@h") == Upstream(host="h", port=6379)
    for url in ("rediss://h:1/0", "http://h:1", "unix://"):
        with pytest.raises(ValueError, match="can be passed on to"):
            Upstream.of_store(url)
