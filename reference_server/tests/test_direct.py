"""The short way to the endpoint: which requests take it, and that nobody can tell by the answer."""

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from real_server import SECONDS_MAX, OwnStore, Server, claim, fresh, own_store, same, serving
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

from checkpoint_conformance.client import Address
from checkpoint_model.vocabulary import BODY_BYTES_MAX, TOOL_PATH
from checkpoint_reference_server.direct import DIRECT, DIRECT_BYTES_MAX, DirectProtocol

HEAD = b"POST /tool HTTP/1.1\r\nhost: localhost\r\n"
WHOLE = HEAD + b"content-length: 2\r\n\r\n{}"


class Endpoint:
    """Says that it was asked."""

    bytes_max = 2 * DIRECT_BYTES_MAX

    def admit(self, headers: Headers, client: Any) -> Any:
        """Everybody but the unwanted."""
        assert client[0] == "127.0.0.1"
        return PlainTextResponse("who?", 401) if "unwanted" in headers else "caller"

    async def answer(self, headers: Headers, body: bytes, caller: Any) -> Response:
        """The body, or a fault."""
        assert caller == "caller"
        if "faulty" in headers:
            raise RuntimeError("a fault of the endpoint's")
        return Response(b"direct:" + body[:10])

    def fault(self) -> Response:
        """As the real ones have it."""
        return PlainTextResponse("fault", 500, {"Connection": "close"})


async def by_asgi(scope: Any, receive: Any, send: Any) -> None:
    """What stands behind everything that does not go straight to an endpoint."""
    if scope["type"] == "lifespan":
        await receive()
        scope["state"] |= {"cut": lambda _: None, DIRECT: lambda _: {b"/tool": Endpoint()}}
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await Response(b"asgi")(scope, receive, send)


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
