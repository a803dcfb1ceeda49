"""Where a request begins and ends, and in what order requests are answered: RFC 9112."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.responses import Response
from wires import (
    HEAD,
    OTHER,
    WHOLE,
    Forgetful,
    Wire,
    by_asgi,
    connection,
    settled,
    told,
    with_header,
)

from checkpoint_reference_server import protocol as protocol_module
from checkpoint_reference_server.protocol import HEAD_BYTES_MAX, HEADERS_MAX, PIECE_BYTES

ANSWERED = (200, b"direct:{}")
BY_ASGI = (200, b"asgi")
NO_HTTP = (400, b"Invalid HTTP request received.")
TOO_LARGE = (431, b"The head is too large.\n")
NOT_IMPLEMENTED = (501, b"This is not implemented here.\n")
GET = b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
SMUGGLED = b"PUT /smuggled HTTP/1.1\r\nhost: hidden\r\n\r\n"
JAVA = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"
)
"""What its client offers with the first request to a server that it does not know."""


def parsed(written: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each answer."""
    found = []
    while written:
        head, end, written = written.partition(b"\r\n\r\n")
        assert end, head
        status, *lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ") for line in lines)
        length = int(headers.get(b"content-length", 0))
        found.append((int(status.split()[1]), written[:length]))
        written = written[length:]
    return found


def answers(*parts: bytes, app: Any = by_asgi, settles: bool = True) -> list[tuple[int, bytes]]:
    """To parts that come one after the other, each when the one before is done with."""
    pieces = [(part, settles) for part in parts]
    return parsed(b"".join(asyncio.run(told(Forgetful, pieces, app))[0]))


def is_closed(*parts: bytes) -> bool:
    """Whether the connection is, behind these."""
    return asyncio.run(told(Forgetful, [(part, True) for part in parts]))[1]


def bytewise(data: bytes) -> list[bytes]:
    """As slowly as may be."""
    return [data[at : at + 1] for at in range(len(data))]


async def before_the_body(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once."""
    await Response(b"asgi")(scope, receive, send)


# -- Another protocol is offered -------------------------------------------------------------------


@pytest.mark.parametrize("offer", [JAVA, b"connection: upgrade\r\nupgrade: websocket"])
@pytest.mark.parametrize("body", [b"{}", SMUGGLED, b""], ids=["body", "request", "nothing"])
def test_an_upgrade_is_ignored(offer: bytes, body: bytes) -> None:
    """Its request is answered with its body, which is no request, and so is the next one."""
    offering = with_header(offer, HEAD + b"content-length: %d\r\n\r\n" % len(body)) + body
    answer = (200, b"direct:" + body[:10])
    assert answers(offering) == [answer]
    head = len(offering) - len(body)
    assert answers(offering[:head], *filter(None, [body]), WHOLE) == [answer, ANSWERED]
    assert answers(*bytewise(offering)) == [answer]
    assert answers(offering + offering + WHOLE) == [answer, BY_ASGI, BY_ASGI]
    assert answers(WHOLE + offering + WHOLE) == [ANSWERED, BY_ASGI, BY_ASGI]


def test_an_upgrade_is_ignored_before_the_last_request() -> None:
    """Whose body belongs to it as well; and with chunks."""
    last = b"connection: close, upgrade\r\nupgrade: h2c"
    assert answers(with_header(last)) == [ANSWERED]
    assert is_closed(with_header(last))
    chunked = with_header(JAVA, CHUNKED) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)
    assert answers(chunked + GET) == [BY_ASGI, BY_ASGI]


def test_a_head_with_an_upgrade_is_read_twice_and_may_be_as_long() -> None:
    """In pieces of a read."""
    pad = b"x: " + b"y" * (HEAD_BYTES_MAX - 300)
    assert answers(with_header(JAVA + b"\r\n" + pad)) == [ANSWERED]


def test_nothing_goes_through_a_tunnel() -> None:
    """What follows a CONNECT is for whoever is at its other end."""
    tunnel = b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost:80\r\n\r\n"
    assert answers(tunnel + SMUGGLED) == [NOT_IMPLEMENTED]
    assert is_closed(tunnel)


# -- Requests ahead of their answers ---------------------------------------------------------------


def test_so_many_requests_wait_and_no_more_are_read() -> None:
    """However many come at once: nothing is read while one waits, also not by who wants a body."""
    count = 3000

    async def drain() -> tuple[list[int], list[int], bytes]:
        waiting: list[int] = []
        resumed: list[int] = []

        class Watched(Wire):
            def resume_reading(self) -> None:
                resumed.append(len(protocol.pipeline))
                super().resume_reading()

        protocol, wire = connection(wire=Watched())
        protocol.data_received(GET * count)
        while wire.paused:
            waiting.append(len(protocol.pipeline))
            await asyncio.sleep(0)
        await settled()
        protocol.connection_lost(None)
        return waiting, resumed, b"".join(wire.written)

    waiting, resumed, written = asyncio.run(drain())
    assert 1 < max(waiting) <= PIECE_BYTES // len(GET) + 1  # of which one began before
    assert set(resumed) == {0}
    assert parsed(written) == [BY_ASGI] * count


def test_a_connection_that_parses_on_is_not_idle() -> None:
    """It idles for no time at all here before it is closed."""

    async def closed() -> bool:
        protocol, wire = connection()
        protocol.data_received(GET * (PIECE_BYTES // len(GET) * 3))
        while not protocol.cycle.response_complete:
            protocol._look()
            await asyncio.sleep(0)
        closed = wire.closed
        protocol.connection_lost(None)
        return closed

    assert not asyncio.run(closed())


# -- The order of the answers ----------------------------------------------------------------------


LARGE = b"GET / HTTP/1.1\r\nx: " + b"y" * (HEAD_BYTES_MAX + 1) + b"\r\n\r\n"
BAD_CHUNK = CHUNKED + b"zz\r\n"


@pytest.mark.parametrize(
    ("refused", "refusal"),
    [(b"}\r\n", NO_HTTP), (LARGE, TOO_LARGE), (BAD_CHUNK, NO_HTTP), (b"GET\r\n\r\n", NO_HTTP)],
    ids=["garbage", "large", "chunk", "head"],
)
def test_what_is_refused_waits_for_the_answers_before(
    refused: bytes, refusal: tuple[int, bytes]
) -> None:
    """Else it would be taken for one of them, or they would not come at all."""
    assert answers(refused) == [refusal]
    assert answers(WHOLE + refused) == [ANSWERED, refusal]
    assert answers(WHOLE, refused) == [ANSWERED, refusal]
    assert answers(WHOLE + GET + GET + refused + WHOLE) == [ANSWERED, BY_ASGI, BY_ASGI, refusal]
    assert is_closed(WHOLE + GET + refused)


def test_behind_what_is_refused_nothing_is_read() -> None:
    """Also by who waits for an answer before it, and asks for a body."""

    async def refused() -> tuple[list[str], list[bool]]:
        reasons: list[str] = []
        protocol, wire = connection()
        protocol._cut = reasons.append
        protocol.data_received(GET + b"}\r\n" + GET * (PIECE_BYTES // len(GET)))
        paused = [wire.paused]
        await settled()
        protocol.connection_lost(None)
        return reasons, [*paused, wire.paused]

    assert asyncio.run(refused()) == (["no HTTP"], [True, True])


def test_nobody_waits_for_the_rest_of_what_is_refused() -> None:
    """Its application is told that the client has gone."""

    async def applications() -> list[int]:
        protocol, _ = connection()
        counts = []
        for part in (CHUNKED, b"zz\r\n"):
            protocol.data_received(part)
            await settled()
            counts.append(len(protocol.tasks))
        protocol.connection_lost(None)
        return counts

    assert asyncio.run(applications()) == [1, 0]


def test_a_request_has_one_answer() -> None:
    """Also where that was given before its body proved to be none."""
    assert answers(BAD_CHUNK[:-4] + b"1\r\n", b"}zz", app=before_the_body) == [BY_ASGI]


@pytest.mark.parametrize("half", [b"", b"GET", HEAD, WHOLE[:-1], BAD_CHUNK[:-4] + b"2\r\n{"])
def test_a_client_that_stops_half_way_gets_the_answers_before(half: bytes) -> None:
    """To each request that came whole, and none to the half one."""

    async def stopped(data: bytes) -> tuple[bool | None, bytes, bool]:
        protocol, wire = connection()
        protocol.data_received(data + half)
        stays_open = protocol.eof_received()
        await settled()
        protocol.connection_lost(None)
        return stays_open, b"".join(wire.written), wire.closed

    for data, expected in ((WHOLE, [ANSWERED]), (WHOLE + GET, [ANSWERED, BY_ASGI])):
        stays_open, written, closed = asyncio.run(stopped(data))
        assert stays_open
        assert (parsed(written), closed) == (expected, True)
        assert half or written.count(b"connection: close") == 1
    assert asyncio.run(stopped(b"")) == (None, b"", True)


# -- Heads and trailers ----------------------------------------------------------------------------


def test_a_head_is_counted_once() -> None:
    """However it comes."""
    pad = b"x: " + b"y" * (HEAD_BYTES_MAX - len(with_header(b"x: ")))
    longest = with_header(pad)
    for size in (1, 1000, 9000, len(longest) - 3, len(longest) - 1):
        pieces = [longest[at : at + size] for at in range(0, len(longest), size)]
        assert answers(*pieces, settles=False) == [ANSWERED]


def test_what_came_before_a_head_is_none_of_it() -> None:
    """A read of many requests that ends within the next one's head."""
    many = [with_header(b"x: " + b"y" * 300)] * 60
    data = b"".join(many)
    assert len(data) > HEAD_BYTES_MAX
    assert len(answers(GET + data[:50], data[50:-9], data[-9:])) == 1 + len(many)


@pytest.mark.parametrize("endless", [b"x: ", b"x"], ids=["value", "name"])
def test_a_trailer_that_never_ends_is_refused_on_its_way(endless: bytes) -> None:
    """The parser keeps it until it is whole."""
    parts = [CHUNKED + b"2\r\n{}\r\n0\r\n" + endless, *[b"a" * 1024] * 16]
    assert answers(*parts) == []
    assert answers(*parts, b"a") == [TOO_LARGE]


def test_trailers_are_counted_with_the_headers() -> None:
    """Both together may be so many."""
    headers = b"".join(b"h%d: 1\r\n" % number for number in range(HEADERS_MAX // 2))
    head = HEAD + headers + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    trailers = [b"t%d: 1\r\n" % number for number in range(HEADERS_MAX // 2 - 2)]
    assert answers(head + b"".join(trailers) + b"\r\n") == [BY_ASGI]
    assert answers(head + b"".join(trailers) + b"t: 1\r\n\r\n") == [TOO_LARGE]


def test_a_body_in_chunks_is_no_trailer() -> None:
    """Wherever a read ends, and however large a chunk is."""
    large = b"%x\r\n%b\r\n" % (2 * HEAD_BYTES_MAX, b"x" * 2 * HEAD_BYTES_MAX)
    assert answers(CHUNKED + large + b"0\r\n\r\n") == [BY_ASGI]
    chunk = b"800\r\n" + b"x" * 2048 + b"\r\n"
    parts = [chunk[5:] + chunk[:5]] * 20
    assert answers(CHUNKED + chunk[:5], *parts, chunk[5:] + b"0\r\n\r\n") == [BY_ASGI]


async def headers_told(scope: Any, receive: Any, send: Any) -> None:
    """The names of the headers, once the body is whole."""
    while (await receive()).get("more_body"):
        pass
    names = b" ".join(name for name, _ in scope["headers"])
    await Response(names)(scope, receive, send)


def test_trailers_are_no_headers() -> None:
    """Whether they come with the head or behind it (RFC 9110, 6.5.1)."""
    trailing = CHUNKED + b"2\r\n{}\r\n0\r\ncontent-encoding: gzip\r\nhost: other\r\n\r\n"
    for parts in ([trailing], bytewise(trailing)):
        assert answers(*parts, app=headers_told) == [(200, b"host transfer-encoding")]


# -- What a head must have -------------------------------------------------------------------------


@pytest.mark.parametrize("path", [b"/tool", b"/other"])
@pytest.mark.parametrize(
    ("host", "version", "refused"),
    [
        (b"host: localhost\r\n", b"1.1", False),
        (b"host:\r\n", b"1.1", False),
        (b"", b"1.1", True),
        (b"", b"1.0", False),
        (b"host: localhost\r\nHost: localhost\r\n", b"1.1", True),
        (b"host: a\r\nhost: b\r\n", b"1.0", True),
    ],
)
def test_a_request_names_one_host(path: bytes, host: bytes, version: bytes, refused: bool) -> None:
    """RFC 9112, 3.2; before HTTP/1.1 it need not."""
    request = b"POST %b HTTP/%b\r\n%bcontent-length: 2\r\n\r\n{}" % (path, version, host)
    ((status, body),) = answers(request)
    assert ((status, body) == NO_HTTP) == refused
    assert refused or status == 200


@pytest.mark.parametrize(
    ("codings", "answer"),
    [
        (b"transfer-encoding: Chunked", BY_ASGI),
        (b"transfer-encoding: gzip, chunked", NOT_IMPLEMENTED),
        (b"transfer-encoding: gzip\r\ntransfer-encoding: chunked", NOT_IMPLEMENTED),
        (b"transfer-encoding: gzip", NO_HTTP),  # of no length that could be known
        (b"transfer-encoding: chunked, gzip", NO_HTTP),
    ],
)
def test_no_coding_is_known_but_chunked(codings: bytes, answer: tuple[int, bytes]) -> None:
    """Within it, the body would be taken as it is."""
    assert answers(HEAD + codings + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n") == [answer]


def test_a_client_of_http_1_0_is_not_told_to_continue() -> None:
    """It would take that for the answer (RFC 9110, 10.1.1)."""
    expecting = with_header(b"expect: 100-continue")
    assert answers(expecting) == [(100, b""), BY_ASGI]
    assert answers(with_header(b"expect: something")) == [ANSWERED]
    assert answers(expecting.replace(b"HTTP/1.1", b"HTTP/1.0")) == [BY_ASGI]


# -- Nobody stays for ever -------------------------------------------------------------------------


def test_a_body_that_comes_behind_its_answer_leaves_the_connection_idle() -> None:
    """Which is closed after a while: here at once."""

    async def closed() -> list[bool]:
        protocol, wire = connection(app=before_the_body)
        protocol.data_received(b"PUT / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n")
        await settled()
        assert len(wire.written) > 0
        found = []
        for part in (b"{", b"}"):
            protocol.data_received(part)
            await settled()
            protocol._look()
            found.append(wire.closed)
        protocol.connection_lost(None)
        return found

    assert asyncio.run(closed()) == [False, True]


def test_what_never_becomes_a_request_has_no_more_time_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Line ends without end, behind an answer."""

    async def is_cut() -> bool:
        protocol, wire = connection()
        protocol.data_received(WHOLE)
        await settled()
        protocol.data_received(b"\r\n")
        monkeypatch.setattr(protocol_module, "REQUEST_SECONDS_MAX", 0.0)
        protocol._look()
        protocol.connection_lost(None)
        return wire.aborted

    assert asyncio.run(is_cut())


def test_an_idle_connection_whose_answer_is_not_read_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To close it is to wait for that."""
    monkeypatch.setattr(protocol_module, "ANSWER_SECONDS_MAX", 0.0)

    async def is_given_up() -> bool:
        protocol, wire = connection()
        protocol.data_received(WHOLE)
        for _ in range(1000):
            if wire.aborted:
                break
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        return wire.aborted

    assert asyncio.run(is_given_up())


# -- However it comes ------------------------------------------------------------------------------

ALL = (
    WHOLE,
    OTHER,
    GET,
    with_header(JAVA),
    with_header(JAVA, CHUNKED) + b"2\r\n{}\r\n0\r\nx: y\r\n\r\n",
    with_header(b"connection: close"),
    with_header(b"faulty: yes"),
    CHUNKED + b"1\r\n{\r\n1\r\n}\r\n0\r\nhost: a\r\n\r\n",
    CHUNKED + b"0\r\n\r\n",
    BAD_CHUNK,
    b"\r\n",
    b"no HTTP\r\n\r\n",
    HEAD,
    WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"),
    b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
)


async def as_the_endpoint(scope: Any, receive: Any, send: Any) -> None:
    """Answers by ASGI what the endpoint answers without."""
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    faulty = any(name == b"faulty" for name, _ in scope["headers"])
    last = {"Connection": "close"} if faulty else {}
    response = Response(
        b"fault" if faulty else b"direct:" + body[:10], 500 if faulty else 200, last
    )
    await response(scope, receive, send)


@given(st.lists(st.sampled_from(ALL), min_size=1, max_size=8), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
@example([WHOLE, WHOLE], None)
def test_the_answers_are_the_same_however_the_requests_are_cut(
    requests: Sequence[bytes], data: st.DataObject | None
) -> None:
    """In one read, byte by byte, or in any other pieces, slowly or not."""
    whole = b"".join(requests)
    cuts = [] if data is None else data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    settles = data is None or data.draw(st.booleans())
    places = [0, *sorted(cuts), len(whole)]
    parts = [whole[a:b] for a, b in itertools.pairwise(places) if a < b]
    at_once = answers(whole, app=as_the_endpoint)
    assert answers(*parts, app=as_the_endpoint, settles=settles) == at_once
    assert answers(*bytewise(whole), app=as_the_endpoint, settles=False) == at_once
