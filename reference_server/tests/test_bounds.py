"""What no client can make the server do: wait, remember or keep open without end.

The bounds in seconds are made short here, in the program that is started, and everything that is
waited for is an event.
"""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_server import (
    SECONDS_MAX,
    OwnStore,
    Server,
    claim,
    get,
    held_back,
    own_store,
    send,
    serving,
    status,
    told,
    wait_until,
)

from checkpoint_conformance.client import Address
from checkpoint_model.vocabulary import HEALTH_PATH, OPENAPI_PATH, TOOL_PATH
from checkpoint_reference_server import protocol
from checkpoint_reference_server.commands import serve
from checkpoint_reference_server.protocol import HEAD_BYTES_MAX, HEADERS_MAX

SHORT = """
import socket
from checkpoint_reference_server import protocol, serving
from checkpoint_reference_server.commands import serve

listen = serving._listen


def listen_with_small_buffers(host, port):
    listener = listen(host, port)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # of its connections, too
    return listener


serving._listen = listen_with_small_buffers

protocol.REQUEST_SECONDS_MAX = 0.5
protocol.ANSWER_SECONDS_MAX = 0.5
serving.KEEP_ALIVE_SECONDS = 1
if __name__ == "__main__":
    serve()
"""
HEAD = f"POST {TOOL_PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store for this file alone."""
    with own_store() as store:
        yield store


@pytest.fixture(scope="module")
def server(own: OwnStore) -> Iterator[Server]:
    """A server as it is."""
    with serving("--mcp", store_url=own.url) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(own: OwnStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits half a second where the real one waits ten."""
    program = tmp_path_factory.mktemp("hasty") / "hasty.py"
    program.write_text(SHORT)
    command = (sys.executable, str(program))
    with serving("--mcp", "--metrics-port", "0", store_url=own.url, command=command) as running:
        yield running


def connect(server: Server) -> socket.socket:
    """A connection whose every byte is the test's."""
    address = Address.parse(server.url)
    return socket.create_connection((address.host, address.port), timeout=SECONDS_MAX)


def all_that_comes(wire: socket.socket) -> bytes:
    """Until the server closes."""
    came = b""
    try:
        while part := wire.recv(65536):
            came += part
    except ConnectionResetError:
        pass
    return came


# -- Heads ------------------------------------------------------------------------------------


def head_of(bytes_: int) -> bytes:
    """A head of this many bytes as the server counts them: target, names and values."""
    begun = len(TOOL_PATH) + sum(map(len, HEAD.split()[3:])) - len(HEAD.split()[3:]) // 2
    return f"{HEAD}x-pad: {'p' * (bytes_ - begun - len('x-pad'))}\r\n".encode()


def test_a_head_may_be_so_long(server: Server) -> None:
    """And no longer: 431, and the connection is closed."""
    body = json.dumps(status(claim())).encode()
    rest = b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
    for bytes_, expected in ((HEAD_BYTES_MAX - 200, b"404"), (HEAD_BYTES_MAX + 200, b"431")):
        with connect(server) as wire:
            wire.sendall(head_of(bytes_) + rest)
            assert all_that_comes(wire).startswith(b"HTTP/1.1 %s " % expected)


def test_a_head_may_have_so_many_headers(server: Server) -> None:
    """HEADERS_MAX of them."""
    for count, expected in ((HEADERS_MAX - 3, b"400"), (HEADERS_MAX, b"431")):
        pads = "".join(f"x{number}: 1\r\n" for number in range(count))
        with connect(server) as wire:
            wire.sendall(f"{HEAD}{pads}connection: close\r\n\r\n".encode())
            assert all_that_comes(wire).startswith(b"HTTP/1.1 %s " % expected)


ENDLESS = {
    "target": "GET /",
    "value": f"{HEAD}x-endless: ",
    "name": f"{HEAD}x",
    "trailer": f"{HEAD}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nx-endless: ",
}


@pytest.mark.parametrize("begun", ENDLESS.values(), ids=ENDLESS)
def test_a_head_that_never_ends_is_refused_on_its_way(server: Server, begun: str) -> None:
    """A target, a value, a name, a trailer: the answer comes long before a megabyte was sent."""
    with connect(server) as wire:
        wire.sendall(begun.encode())
        sent = 0
        try:
            while sent < 1 << 20:
                sent += wire.send(b"a" * 4096)
        except (ConnectionResetError, BrokenPipeError):
            pass
        came = all_that_comes(wire)
    assert came == b"" or came.startswith(b"HTTP/1.1 431 ")
    assert b"aaaa" not in came
    assert sent < 1 << 20 or came


def test_trailers_count_too(server: Server) -> None:
    """Headers after the body."""
    chunk = b"2\r\n{}\r\n0\r\n"
    trailers = b"".join(b"t%d: 1\r\n" % number for number in range(HEADERS_MAX))
    with connect(server) as wire:
        wire.sendall(f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode() + chunk + trailers)
        assert b"HTTP/1.1 431 " in all_that_comes(wire)


# -- Time -------------------------------------------------------------------------------------

DRIBBLES = {
    "nothing": b"",
    "line ends": b"\r\n",
    "a head": HEAD.encode(),
    "a body": HEAD.encode() + b"content-length: 900\r\n\r\n{",
    "a chunked body": HEAD.encode() + b"transfer-encoding: chunked\r\n\r\n5\r\n{",
    "an unread body": b"POST /zq HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n{",
    "mcp": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900\r\n\r\n{",
}


@pytest.mark.parametrize("begun", DRIBBLES.values(), ids=DRIBBLES)
def test_a_client_that_dribbles_is_cut(hasty: Server, begun: bytes) -> None:
    """However steadily: a byte now and then starts nothing anew."""
    with connect(hasty) as wire:
        wire.sendall(begun)
        began = time.monotonic()
        wire.settimeout(0.05)
        ended = False
        while not ended and time.monotonic() - began < SECONDS_MAX:
            try:
                ended = wire.recv(65536) == b""
                if begun:
                    wire.sendall(b" " if b"\r\n\r\n" in begun else b"x")
            except TimeoutError:
                if begun:
                    wire.sendall(b" " if b"\r\n\r\n" in begun else b"x")
            except (ConnectionResetError, BrokenPipeError):
                ended = True
        assert ended
    with hasty.client() as client:
        assert get(client, HEALTH_PATH).status == 200


def test_a_steady_client_is_not_cut(hasty: Server) -> None:
    """The time is that of one request, not of a connection."""
    with hasty.client() as client:
        began = time.monotonic()
        while time.monotonic() - began < 2 * 0.5 + 0.5:
            assert send(client, status(claim())).status == 404
        assert client._socket is not None


def test_a_request_that_waits_for_the_store_is_not_cut(hasty: Server, own: OwnStore) -> None:
    """It is the server that takes its time, also with what it does not read behind it."""
    first, second = (json.dumps(claim()).encode() for _ in range(2))
    head = HEAD.encode() + b"content-length: %d\r\n\r\n"
    with connect(hasty) as wire:
        with held_back(own):
            wire.sendall(head % len(first) + first)
            wait_until(own.waiting_steps, "the first step is in the store")
            wire.sendall(head % len(second) + second[:1])
            for rest in (second[1:], b""):
                with connect(hasty) as idle:
                    assert all_that_comes(idle) == b""  # cut: so much time has passed
                wire.sendall(rest)
        for _ in range(2):
            came = answer_on(wire)
            assert came.startswith(b"HTTP/1.1 200 ")
            assert b'"acquired":true' in came


def test_an_idle_connection_is_closed(hasty: Server) -> None:
    """After an answer, uvicorn's own bound."""
    with connect(hasty) as wire:
        wire.sendall(f"GET {HEALTH_PATH} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert all_that_comes(wire).startswith(b"HTTP/1.1 200 ")


def cuts(server: Server) -> dict[str, float]:
    """How many connections were cut, by reason."""
    assert server.metrics_url is not None
    with urllib.request.urlopen(server.metrics_url, timeout=SECONDS_MAX) as answer:
        page = answer.read().decode()
    found = re.findall(r'connections_cut_total\{reason="(.*)"\} (\S+)', page)
    return {reason: float(value) for reason, value in found}


@pytest.mark.parametrize(
    ("asked", "close"),
    [(50, ""), (1, "connection: close\r\n"), (1, "")],
    ids=["many", "the last", "idle"],
)
def test_an_answer_that_is_not_read_is_given_up(hasty: Server, asked: int, close: str) -> None:
    """Whole requests, and nobody who reads what they ask for: more than a system keeps for them.

    The last one's connection closes behind its answer, which would be for ever; and so does one
    that has been idle for so long.
    """
    before = cuts(hasty).get("unread answer", 0)
    address = Address.parse(hasty.url)
    with socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.connect((address.host, address.port))
        ask = f"GET {OPENAPI_PATH} HTTP/1.1\r\nhost: localhost\r\n{close}\r\n".encode()
        wire.sendall(ask * asked)
        wait_until(lambda: cuts(hasty).get("unread answer", 0) > before, "it is cut")


def test_a_client_that_has_said_everything_is_answered(server: Server, own: OwnStore) -> None:
    """It ends its side behind the request, as simple clients do; the answer ends the other."""
    body = json.dumps(claim()).encode()
    with connect(server) as wire, held_back(own):
        wire.sendall(HEAD.encode() + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        wire.shutdown(socket.SHUT_WR)
        wait_until(own.waiting_steps, "the step is in the store")
        own.admin.client_unpause()
        came = all_that_comes(wire)
    assert came.startswith(b"HTTP/1.1 200 ")
    assert json.loads(came.partition(b"\r\n\r\n")[2])["acquired"] is True


def test_a_client_that_stops_half_way_is_not(server: Server) -> None:
    """Without a word, and without one in the log."""
    for begun in (b"", b"GET", HEAD.encode(), HEAD.encode() + b"content-length: 9\r\n\r\n{"):
        with connect(server) as wire:
            wire.sendall(begun)
            wire.shutdown(socket.SHUT_WR)
            assert all_that_comes(wire) == b""
    assert server.err == ""


# -- Connections ------------------------------------------------------------------------------


def test_one_connection_too_many_is_closed_at_once(own: OwnStore) -> None:
    """Those that are there go on, and when one is gone another may come."""
    with serving("--max-connections", "3", store_url=own.url) as running:
        wires = [connect(running) for _ in range(3)]
        ask = f"GET {HEALTH_PATH} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        for wire in wires:
            wire.sendall(ask)
            assert answer_on(wire).startswith(b"HTTP/1.1 200 ")
        with connect(running) as fourth:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                fourth.sendall(ask)
            assert all_that_comes(fourth) == b""
        for wire in wires:
            wire.sendall(ask)
            assert answer_on(wire).startswith(b"HTTP/1.1 200 ")
        wires.pop().close()

        def comes_in() -> bool:
            with connect(running) as another:
                another.sendall(ask)
                return answer_on(another).startswith(b"HTTP/1.1 200 ")

        wait_until(comes_in, "another is let in")
        for wire in wires:
            wire.close()


def answer_on(wire: socket.socket) -> bytes:
    """One answer whose body is a JSON object; what came of it where the connection is cut."""
    came = b""
    try:
        while not came.endswith(b"}"):
            part = wire.recv(1)  # and not what comes behind it
            if not part:
                break
            came += part
    except ConnectionResetError:
        pass
    return came


def test_the_number_that_is_told_is_the_one_that_holds() -> None:
    """The option's default is written where nothing heavy is imported."""
    (option,) = (option for option in serve.params if option.name == "max_connections")
    assert option.default == protocol.CONNECTIONS_MAX


@pytest.mark.skipif(sys.platform != "linux", reason="not run: there is no prlimit")
def test_files_enough_are_allowed(own: OwnStore) -> None:
    """By default a shell allows a quarter of the connections."""
    with serving(store_url=own.url) as running:
        soft, hard = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard or soft > protocol.CONNECTIONS_MAX


# -- The end ----------------------------------------------------------------------------------


def test_a_slow_client_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """SIGTERM while a body dribbles: it ends, with 0, as soon as the bound is reached."""
    program = tmp_path / "hasty.py"
    program.write_text(SHORT)
    with serving(command=(sys.executable, str(program))) as running:
        with connect(running) as wire, running.client() as client:
            told(client, claim())
            wire.sendall(HEAD.encode() + b"content-length: 900\r\n\r\n{")
            os.kill(running.process.pid, signal.SIGTERM)
            assert running.wait() == 0
        for line in running.err.splitlines():
            assert json.loads(line)["level"] in ("debug", "info"), line
