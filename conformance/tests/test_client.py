"""The harness's HTTP client: every way in which an answer can fail to come, told apart."""

import socket
import threading

import h11
import pytest
from raw_server import Talk, answering, http, request_of, talking

from checkpoint_conformance.client import (
    ANSWER_BYTES_MAX,
    Address,
    Client,
    HttpAnswer,
    Lost,
    LostReason,
    Pool,
    UrlError,
    land_all,
    outgoing,
)
from checkpoint_conformance.rules import Binding

OK = http("200 OK", b'{"a":1}')
HTTP = Binding.HTTP


def _silent(connection: socket.socket) -> None:
    request_of(connection)
    connection.recv(1)  # until the client gives up


def _trickling(connection: socket.socket) -> None:
    request_of(connection)
    waiting = threading.Event()
    for byte in OK * 1000:
        connection.sendall(bytes([byte]))
        waiting.wait(0.02)


def _resetting(connection: socket.socket) -> None:
    request_of(connection)
    # With this, close() sends a reset instead of an orderly end.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


@pytest.mark.parametrize(
    ("talk", "reason"),
    [
        (_silent, LostReason.TIMED_OUT),
        (_trickling, LostReason.TIMED_OUT),
        (answering(b""), LostReason.CLOSED),
        (_resetting, LostReason.CLOSED),
        (answering(OK[:-1]), LostReason.CUT),
        (answering(OK[:20]), LostReason.CUT),
        (answering(b"SSH-2.0-OpenSSH_9.2\r\n"), LostReason.NOT_HTTP),
        (answering(b"-ERR unknown command 'POST'\r\n"), LostReason.NOT_HTTP),
        (answering(http("200 OK", b"x" * (ANSWER_BYTES_MAX + 1))), LostReason.TOO_LONG),
        (answering(b"HTTP/1.1 200 OK\r\nx: " + b"y" * ANSWER_BYTES_MAX), LostReason.NOT_HTTP),
    ],
)
def test_an_answer_that_does_not_come_is_lost_for_a_reason(talk: Talk, reason: str) -> None:
    """Each in bounded time, however slowly bytes trickle; nothing is raised."""
    with talking(talk) as url, Client(Address.parse(url), seconds_max=0.4) as client:
        exchange = client.exchange("POST", "/x", b"{}")
    assert isinstance(exchange.answer, Lost)
    assert exchange.answer.reason == reason
    assert exchange.returned_ns - exchange.called_ns < 5e9


def test_nobody_there_is_refused() -> None:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Client(Address.parse(f"http://127.0.0.1:{port}")) as client:
        lost = client.exchange("GET", "/").answer
    assert isinstance(lost, Lost)
    assert lost.reason == LostReason.REFUSED


@pytest.mark.parametrize(
    "wire",
    [
        OK,
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n',
        b'HTTP/1.0 200 OK\r\n\r\n{"a":1}',  # ends with the connection
    ],
)
def test_every_framing_is_read(wire: bytes) -> None:
    """Length, chunks, the end of the connection; an interim answer is passed over."""
    with talking(answering(wire)) as url, Client(Address.parse(url)) as client:
        answer = client.exchange("POST", "/x", b"{}").answer
    assert isinstance(answer, HttpAnswer)
    assert (answer.status, answer.body) == (200, b'{"a":1}')


def test_what_comes_unasked_stands_before_the_next_answer() -> None:
    """Whoever reads the same connection on takes it for the beginning of what follows."""

    def talk(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(OK + b"more")
        request_of(connection)
        connection.sendall(OK)

    with talking(talk) as url, Client(Address.parse(url)) as client:
        first, second = (client.exchange("POST", "/x", b"{}").answer for _ in range(2))
    assert isinstance(first, HttpAnswer)
    assert first.body == b'{"a":1}'
    assert isinstance(second, Lost)
    assert second.reason == LostReason.NOT_HTTP


def test_a_short_request_goes_out_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a long one without its last byte first, which is when it counts as called."""
    pieces: list[bytes] = []
    send = socket.socket.sendall

    def noted(self: socket.socket, data: bytes) -> None:
        pieces.append(data)
        send(self, data)

    monkeypatch.setattr(socket.socket, "sendall", noted)

    def talk(connection: socket.socket) -> None:
        for _ in range(2):
            request_of(connection)
            connection.send(OK)

    with talking(talk) as url, Client(Address.parse(url)) as client:
        for body in (b"short", b"x" * 20_000):
            client.exchange("POST", "/x", body)
    assert [piece.partition(b"\r\n\r\n")[2] for piece in pieces[:2]] == [b"short", b"x" * 19_999]
    assert pieces[2:] == [b"x"]


def test_a_header_that_is_none_is_refused_every_time() -> None:
    """By h11, before anything is sent."""
    for _ in range(2):
        with pytest.raises(h11.LocalProtocolError):
            outgoing(Address.parse("http://127.0.0.1"), "GET", "/", b"", (("a b", "c"),))


def test_a_connection_is_kept_and_one_that_was_closed_is_opened_again() -> None:
    """Three requests: two on one connection, the third on another, and none sent twice."""
    seen: list[tuple[int, bytes]] = []
    numbers = iter(range(10))
    closed = threading.Event()

    def talk(connection: socket.socket) -> None:
        number = next(numbers)
        for _ in range(2):
            request = request_of(connection)
            if not request:
                return
            seen.append((number, request.partition(b" HTTP")[0]))
            connection.sendall(OK)
        connection.close()
        closed.set()

    with talking(talk) as url, Client(Address.parse(url)) as client:
        for path in ("/1", "/2"):
            client.exchange("GET", path)
        assert closed.wait(5)
        last = client.exchange("GET", "/3").answer
    assert isinstance(last, HttpAnswer)
    assert seen == [(0, b"GET /1"), (0, b"GET /2"), (1, b"GET /3")]


def test_the_last_byte_is_held_back_until_the_release() -> None:
    """What is prepared cannot be answered; all that is released is answered."""
    arrived = threading.Semaphore(0)
    bodies: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        arrived.release()
        bodies.append(request_of(connection).partition(b"\r\n\r\n")[2])
        connection.sendall(OK)

    with talking(talk) as url:
        clients = [Client(Address.parse(url)) for _ in range(20)]
        flights = [client.prepare("POST", "/x", b"abc") for client in clients]
        for _ in flights:
            assert arrived.acquire(timeout=5)
        assert bodies == []
        for flight in flights:
            flight.release()
        exchanges = land_all(flights)
        for client in clients:
            client.close()
    assert bodies == [b"abc"] * 20
    assert all(isinstance(exchange.answer, HttpAnswer) for exchange in exchanges)
    assert max(e.called_ns for e in exchanges) <= min(e.returned_ns for e in exchanges)


def test_many_land_even_when_one_never_answers() -> None:
    """The late one is given up at its own deadline, the others are not."""
    numbers = iter(range(10))
    lock = threading.Lock()

    def talk(connection: socket.socket) -> None:
        with lock:
            number = next(numbers)
        request_of(connection)
        if number == 1:
            connection.recv(1)
        connection.sendall(OK)

    with talking(talk) as url:
        clients = [Client(Address.parse(url), seconds_max=0.5) for _ in range(3)]
        flights = [client.prepare("POST", "/x", b"{}") for client in clients]
        for flight in flights:
            flight.release()
        kinds = [type(exchange.answer).__name__ for exchange in land_all(flights)]
        for client in clients:
            client.close()
    assert sorted(kinds) == ["HttpAnswer", "HttpAnswer", "Lost"]


def test_a_pool_tells_each_as_it_lands() -> None:
    """A late one does not keep the others waiting, and is given up at its own deadline."""
    go_on = threading.Event()

    def talk(connection: socket.socket) -> None:
        while request := request_of(connection):
            if b"late" in request:
                go_on.wait(5)
            connection.sendall(OK)

    with talking(talk) as url:
        address = Address.parse(url)
        clients = [Client(address, seconds_max=0.5) for _ in range(2)]
        with Pool[str](clients) as pool:
            landed: list[tuple[str, type]] = []
            room = [pool.has_room(HTTP)]
            pool.send("late", HTTP, lambda client: client.compose("POST", "/late", b"{}"))
            for name in ("a", "b", "c"):
                pool.send(name, HTTP, lambda client: client.compose("POST", "/x", b"{}"))
                room.append(pool.has_room(HTTP))
                landed += [(owner, type(exchange.answer)) for owner, exchange in pool.landed()]
            landed += [(owner, type(exchange.answer)) for owner, exchange in pool.landed()]
            go_on.set()
    assert room == [True, False, False, False]
    assert landed == [("a", HttpAnswer), ("b", HttpAnswer), ("c", HttpAnswer), ("late", Lost)]


def test_a_pool_opens_what_was_closed_again() -> None:
    """Connections that the server closes after each answer, and one that it never lets open."""
    closed = threading.Semaphore(0)

    def talk(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(OK)
        connection.close()
        closed.release()

    with talking(talk) as url, Pool[int]([Client(Address.parse(url)) for _ in range(2)]) as pool:
        for number in range(6):
            pool.send(number, HTTP, lambda client: client.compose("POST", "/x", b"{}"))
            ((owner, exchange),) = pool.landed()
            assert (owner, type(exchange.answer)) == (number, HttpAnswer)
            assert closed.acquire(timeout=5)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Pool[int]([Client(Address.parse(f"http://127.0.0.1:{port}"))]) as pool:
        pool.send(6, HTTP, lambda client: client.compose("POST", "/x", b"{}"))
        ((_, refused),) = pool.landed()
    assert isinstance(refused.answer, Lost)
    assert refused.answer.reason == LostReason.REFUSED


def test_headers_and_base_path_are_sent() -> None:
    """Extra headers with every request, the base path before every path."""
    seen: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        seen.append(request_of(connection))
        connection.sendall(OK)

    with (
        talking(talk) as url,
        Client(Address.parse(url + "/base/"), headers={"authorization": "Bearer t"}) as client,
    ):
        client.exchange("POST", "/x", b"{}", [("content-type", "application/json")])
    head = seen[0].lower()
    assert head.startswith(b"post /base/x http/1.1\r\n")
    assert b"\r\nauthorization: bearer t\r\n" in head
    assert head.count(b"content-type") == 1


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "localhost",
        "ftp://a",
        "http://",
        "http://a:b",
        "http://a/?q",
        "http://u@a",
    ],
)
def test_what_is_no_base_url_is_refused(url: str) -> None:
    """With a message that shows one."""
    with pytest.raises(UrlError, match=r"URL"):
        Address.parse(url)


def test_addresses_are_understood() -> None:
    """Scheme, default ports, IPv6, base path."""
    plain = Address.parse("http://example.test")
    assert (plain.port, plain.tls, plain.host_header) == (80, False, "example.test")
    secure = Address.parse("https://example.test/base/")
    assert (secure.port, secure.tls, secure.base_path) == (443, True, "/base")
    six = Address.parse("http://[::1]:8080")
    assert (six.host, six.port, six.host_header) == ("::1", 8080, "[::1]:8080")
