"""The short way to the endpoint: which requests take it, and that nobody can tell by the answer."""

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from real_server import SECONDS_MAX, OwnStore, Server, claim, fresh, own_store, same, serving
from starlette.datastructures import Headers
from starlette.responses import Response
from wires import (
    HEAD,
    OTHER,
    WHOLE,
    Endpoint,
    Forgetful,
    Parsed,
    Wire,
    by_asgi,
    connection,
    settled,
    told,
    with_header,
)

from checkpoint_conformance.client import Address
from checkpoint_model.vocabulary import BODY_BYTES_MAX, TOOL_PATH
from checkpoint_reference_server.direct import (
    DIRECT_BYTES_MAX,
    HEAD_BYTES_MAX,
    HEADS_MAX,
    DirectProtocol,
)


async def answers_to(*parts: bytes, count: int = 1) -> list[tuple[int, Mapping[str, str], bytes]]:
    """What a server says to bytes that are sent one after the other, and whether it hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(by_asgi, http=DirectProtocol, log_config=None, lifespan="on")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        for part in parts:
            writer.write(part)
            await writer.drain()
        answers = [await asyncio.wait_for(_answer(reader), SECONDS_MAX) for _ in range(count)]
        if answers[-1][1].get("connection") == "close":
            assert await asyncio.wait_for(reader.read(), SECONDS_MAX) == b""
        writer.close()
    finally:
        server.should_exit = True
        await running
        listener.close()
    return answers


async def _answer(reader: asyncio.StreamReader) -> tuple[int, Mapping[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, body


LONG = b"x" * (DIRECT_BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([WHOLE], [b"direct:{}"]),
        # In pieces, it is whole in the end.
        ([WHOLE[:20], WHOLE[20:-1], WHOLE[-1:]], [b"direct:{}"]),
        ([WHOLE.replace(b"/tool", b"/other")], [b"asgi"]),
        ([WHOLE.replace(b"/tool", b"/tool?query")], [b"asgi"]),
        ([WHOLE.replace(b"POST", b"PUT")], [b"asgi"]),
        ([WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0")], [b"asgi"]),
        ([HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"], [b"asgi"]),
        ([HEAD + b"content-length: %d\r\n\r\n" % len(LONG) + LONG], [b"asgi"]),
        # Behind one that is not answered yet, a request waits its turn.
        ([WHOLE + WHOLE + WHOLE], [b"direct:{}", b"asgi", b"asgi"]),
    ],
)
def test_what_is_whole_and_plain_goes_straight(parts: list[bytes], says: list[bytes]) -> None:
    """And nothing else does."""
    answers = asyncio.run(answers_to(*parts, count=len(says)))
    assert [(status, body) for status, _, body in answers] == [(200, body) for body in says]


def test_one_who_may_not_call_is_told_so() -> None:
    """By the endpoint's own response, and the connection stays."""
    unwanted = WHOLE.replace(b"\r\n\r\n", b"\r\nunwanted: yes\r\n\r\n")
    ((status, headers, body),) = asyncio.run(answers_to(unwanted))
    assert (status, body, headers.get("connection")) == (401, b"who?", None)


def test_a_fault_is_told_and_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """As by the other way: whoever sent it must not send the next one there."""
    faulty = WHOLE.replace(b"\r\n\r\n", b"\r\nfaulty: yes\r\n\r\n")
    ((status, headers, body),) = asyncio.run(answers_to(faulty))
    assert (status, body, headers["connection"]) == (500, b"fault", "close")
    assert "a fault of the endpoint's" in caplog.text


def test_a_caller_who_ends_the_connection_is_obeyed() -> None:
    """``Connection: close`` is answered by the same."""
    last = WHOLE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    ((_, headers, body),) = asyncio.run(answers_to(last))
    assert (body, headers["connection"]) == (b"direct:{}", "close")


# -- Heads that were read before -------------------------------------------------------------------


async def remembering(endpoint: Endpoint | None = None) -> tuple[Parsed, Wire]:
    """A connection that knows the usual head, and has answered two requests."""
    protocol, wire = connection(Parsed, endpoint)
    for _ in range(2):
        protocol.data_received(WHOLE)
        await settled()
    return protocol, wire


def read_anew(*requests: bytes) -> int:
    """How many of the requests were parsed, each sent when the one before was answered."""
    written, _, protocol = asyncio.run(told(Parsed, [(data, True) for data in requests]))
    assert b"".join(written).count(b"HTTP/1.1 ") == len(requests)
    return protocol.count


def test_a_head_is_read_once_on_a_connection() -> None:
    """But for the first request of all, of which it is not known yet how the next ones come."""
    assert read_anew(*[WHOLE] * 5) == 2
    assert read_anew(*[WHOLE, OTHER] * 5) == 3
    # What comes behind it is whatever its length says.
    bodies = [b"{}", b"[]", b'""', b"12"]
    requests = [(WHOLE.replace(b"{}", body), True) for body in bodies]
    written, _, protocol = asyncio.run(told(Parsed, requests))
    assert [answer[-2:] for answer in written] == bodies
    assert protocol.count == 2


def test_who_may_not_call_is_asked_each_time() -> None:
    """A head tells who calls; whether they may is another matter."""
    unwanted = with_header(b"unwanted: yes")
    written, _, protocol = asyncio.run(told(Parsed, [(unwanted, True)] * 4))
    assert [answer[:12] for answer in written] == [b"HTTP/1.1 401"] * 4
    assert protocol.count == 2


def test_few_heads_and_short_ones_are_remembered() -> None:
    """So that nobody fills the memory with them."""
    different = [with_header(b"x: %d" % number) for number in range(HEADS_MAX + 1)]
    assert read_anew(WHOLE, *different[:-1] * 2) == 1 + HEADS_MAX
    assert read_anew(WHOLE, *different * 2) == 1 + 2 * len(different)  # all at once are forgotten
    room = HEAD_BYTES_MAX - len(with_header(b"x: ")) + len(b"{}")
    longest, too_long = (with_header(b"x: " + b"y" * count) for count in (room, room + 1))
    assert read_anew(WHOLE, longest, longest, longest) == 2
    assert read_anew(WHOLE, too_long, too_long, too_long) == 4


def test_what_is_not_plain_is_read_anew() -> None:
    """And so is what follows it."""
    chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert read_anew(*[chunked] * 3) == 3
    assert read_anew(WHOLE, WHOLE, chunked, WHOLE, WHOLE) == 4


def test_a_request_behind_a_remembered_head_waits_for_a_client_that_does_not_read() -> None:
    """As every other one does."""

    async def written() -> tuple[int, int]:
        protocol, wire = await remembering()
        protocol.pause_writing()
        protocol.data_received(WHOLE)
        await settled()
        unread = len(wire.written)
        protocol.resume_writing()
        await settled()
        protocol.connection_lost(None)
        return unread, b"".join(wire.written).count(b"HTTP/1.1 ")

    assert asyncio.run(written()) == (2, 3)


def test_a_connection_is_not_idle_while_such_a_request_is_answered() -> None:
    """It idles for no time at all here before it is closed."""

    class Slow(Endpoint):
        async def answer(self, headers: Headers, body: bytes, caller: Any) -> Response:
            await may_answer.wait()
            return await super().answer(headers, body, caller)

    may_answer = asyncio.Event()

    async def closed() -> tuple[bool, bool]:
        may_answer.set()
        protocol, wire = await remembering(Slow())
        may_answer.clear()
        protocol.data_received(WHOLE)
        await settled()
        protocol._look()
        while_answered = wire.closed
        may_answer.set()
        await settled()
        protocol._look()
        protocol.connection_lost(None)
        return while_answered, wire.closed

    assert asyncio.run(closed()) == (False, True)


def test_the_servers_own_headers_are_those_of_now() -> None:
    """Such as the date, of which the server makes a new list each second."""

    async def written() -> list[bytes]:
        protocol, wire = connection(Parsed)
        for date in (b"now", b"then"):
            protocol.server_state.default_headers = [(b"date", date), (b"server", b"ours")]
            protocol.data_received(WHOLE)
            await settled()
        protocol.connection_lost(None)
        return wire.written

    for answer, date in zip(asyncio.run(written()), (b"now", b"then"), strict=True):
        assert answer.startswith(b"HTTP/1.1 200 OK\r\ndate: %b\r\nserver: ours\r\n" % date)


MESSAGES = (
    WHOLE,
    WHOLE.replace(b"{}", b"[]"),
    OTHER,
    with_header(b"unwanted: yes"),
    with_header(b"faulty: yes"),
    with_header(b"connection: close"),
    with_header(b"expect: 100-continue"),
    with_header(b"connection: upgrade\r\nupgrade: websocket"),
    WHOLE.replace(b"/tool", b"/other"),
    WHOLE.replace(b"POST", b"PUT"),
    WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"),
    HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    HEAD + b"content-length: 8\r\n\r\n\r\n\r\n{}\r\n",
    b"\r\n",
    b"\r\n\r\n" + WHOLE,
    b"POST /tool HTTP/1.1\r\nx: ",
    b"no HTTP\r\n\r\n",
)


@st.composite
def connections(draw: st.DrawFn) -> list[tuple[bytes, bool]]:
    """Requests one behind the other, mostly the usual ones, cut anywhere or not at all."""
    usual = st.sampled_from(MESSAGES[:3])
    drawn = draw(st.lists(usual | usual | st.sampled_from(MESSAGES), min_size=1, max_size=12))
    pieces = [(message, draw(st.booleans() | st.just(True))) for message in drawn]
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(pieces) - 1))
        data, settles = pieces[place]
        cut = draw(st.integers(0, len(data)))
        pieces[place : place + 1] = [(data[:cut], draw(st.booleans())), (data[cut:], settles)]
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(pieces) - 1))
        (data, _), *rest = pieces[place : place + 2]
        joined = data + b"".join(part for part, _ in rest)
        pieces[place : place + 2] = [(joined, draw(st.booleans()))]
    return [(data, settles) for data, settles in pieces if data]


@given(connections())
@example([(WHOLE, True)] * 4)
@example([(WHOLE, True), (WHOLE, True), (WHOLE + WHOLE, True), (WHOLE, True)])
@example([(WHOLE, True), (WHOLE, True), (WHOLE[:-1], True), (b"}", True), (WHOLE, True)])
@example([(WHOLE, True), (WHOLE, True), (WHOLE, False), (WHOLE, False), (WHOLE, True)])
@example([(WHOLE, True), (b"\r\n\r\n" + WHOLE, True), (b"\r\n\r\n" + WHOLE, True)])
@example([(WHOLE, True), (WHOLE, True), (b"POST /tool HTTP/1.1\r\nx: ", True), (WHOLE, True)])
@example([(WHOLE, True), *[(WHOLE[:-1], True), (b"}", True)] * 2])
@example([(WHOLE, True), (MESSAGES[7], True), (WHOLE, True), (WHOLE, True)])
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_nobody_can_tell_whether_a_head_was_remembered(pieces: list[tuple[bytes, bool]]) -> None:
    """The same bytes are answered by the same bytes, however they come."""

    async def both() -> tuple[list[bytes], bool, list[bytes], bool]:
        remembering, forgetful = await told(Parsed, pieces), await told(Forgetful, pieces)
        assert remembering[2].count <= forgetful[2].count
        return *remembering[:2], *forgetful[:2]

    written, closed, as_written, as_closed = asyncio.run(both())
    assert (b"".join(written), closed) == (b"".join(as_written), as_closed)


# -- Both ways to the real server ------------------------------------------------------------------


@pytest.fixture(scope="module")
def own() -> Iterator[OwnStore]:
    """A store for this file alone."""
    with own_store() as store:
        yield store


@pytest.fixture(scope="module")
def server(own: OwnStore) -> Iterator[Server]:
    """A server on it."""
    with serving(store_url=own.url) as server:
        yield server


@contextmanager
def connected(server: Server) -> Iterator[Any]:
    """A connection, as a file of bytes."""
    address = Address.parse(server.url)
    with (
        socket.create_connection((address.host, address.port), timeout=SECONDS_MAX) as wire,
        wire.makefile("rwb") as file,
    ):
        yield file


def ask(file: Any, head: bytes, body: bytes, *, chunked: bool) -> tuple[int, list[bytes], bytes]:
    """Status, header lines and body of an answer, to a body in one piece or in chunks."""
    start = b"POST " + TOOL_PATH.encode() + b" HTTP/1.1\r\n" + head
    if chunked:
        pieces = [b"%x\r\n" % len(body) + body + b"\r\n"] if body else []
        body = b"".join([*pieces, b"0\r\n\r\n"])
        file.write(start + b"transfer-encoding: chunked\r\n\r\n" + body)
    else:
        file.write(start + b"content-length: %d\r\n\r\n" % len(body) + body)
    file.flush()
    lines = [file.readline()]
    while lines[-1] != b"\r\n":
        lines.append(file.readline())
    headers = sorted(line for line in lines[1:-1] if not line.startswith(b"date:"))
    length = next(int(h.partition(b":")[2]) for h in headers if h.startswith(b"content-length"))
    return int(lines[0].split()[1]), headers, file.read(length)


JSON = b"host: localhost\r\ncontent-type: application/json\r\n"
CLAIM = claim(claim_ttl_seconds=900, state_ttl_seconds=3600)
BODIES = {
    "a claim": (JSON, CLAIM),
    "another's claim": (JSON, {**CLAIM, "holder": fresh("h")}),
    "another configuration": (JSON, {**CLAIM, "retry_failed": True}),
    "nobody's": (JSON, same(claim(), "status")),
    "no member": (JSON, {"action": "claim"}),
    "no object": (JSON, b"[]"),
    "no JSON": (JSON, b"{"),
    "nothing": (JSON, b""),
    "the longest": (JSON, json.dumps(CLAIM).encode().ljust(BODY_BYTES_MAX)),
    "too long": (JSON, b"x" * (BODY_BYTES_MAX + 1)),
    "another media type": (b"host: localhost\r\ncontent-type: text/plain\r\n", CLAIM),
    "no media type": (b"host: localhost\r\n", CLAIM),
    "coded": (JSON + b"content-encoding: gzip\r\n", CLAIM),
    "a host that is not served": (JSON.replace(b"localhost", b"evil.example"), CLAIM),
    "a page's origin": (JSON + b"origin: https://evil.example\r\n", CLAIM),
    "a key to it": (JSON + b"idempotency-key: 1\r\n", CLAIM),
}
MOVES = ("observed_at", "claim_ttl_seconds_remaining", "state_ttl_seconds_remaining")
"""What another moment may change."""


@pytest.mark.parametrize("name", BODIES)
def test_both_ways_give_the_same_answer(server: Server, name: str) -> None:
    """To the byte, but for the moment."""
    head, body = BODIES[name]
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with connected(server) as file:
        ask(file, JSON, json.dumps(CLAIM).encode(), chunked=False)  # so that it is held
        straight = ask(file, head, raw, chunked=False)
        around = ask(file, head, raw, chunked=True)
    assert straight[:2] == around[:2]
    if straight[2] != around[2]:
        told = [json.loads(answer[2]) for answer in (straight, around)]
        for moved in MOVES:
            assert all(members.pop(moved, None) is not None for members in told) or not any(
                moved in members for members in told
            )
        assert told[0] == told[1]
