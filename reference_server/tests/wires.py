"""A protocol at a wire that nobody else has, fed by hand: without a server, sockets or waiting."""

import asyncio
from collections.abc import Iterable
from typing import Any

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from uvicorn.server import ServerState

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


class Wire(asyncio.Transport):
    """What a protocol writes, and nothing else."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written: list[bytes] = []
        self.closed = False
        self.aborted = False
        self.paused = False

    def write(self, data: Any) -> None:
        """Keep it."""
        self.written.append(bytes(data))

    def close(self) -> None:
        """Take no more."""
        self.closed = True

    def abort(self) -> None:
        """Not even what was written."""
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        """Whether that was said."""
        return self.closed

    def pause_reading(self) -> None:
        """Which whoever feeds it may look at."""
        self.paused = True

    def resume_reading(self) -> None:
        """And this."""
        self.paused = False


class Parsed(DirectProtocol):
    """Counts the requests that the parser was given."""

    count = 0

    def on_message_begin(self) -> None:
        """One more."""
        self.count += 1
        super().on_message_begin()


class Forgetful(Parsed):
    """Lets every request be parsed."""

    def _remember(self, data: bytes, end: int) -> None:
        """Not at all."""


TURNS = 20
"""Of the event loop: so many settle whatever is under way, for nothing here waits for a clock."""


async def settled() -> None:
    """Whatever can be done is done."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def connection(
    kind: type[Parsed] = Parsed,
    endpoint: Endpoint | None = None,
    app: Any = by_asgi,
    wire: Wire | None = None,
) -> tuple[Parsed, Wire]:
    """A protocol at a wire, without a server; connections idle for no time at all."""
    config = uvicorn.Config(app, log_config=None, timeout_keep_alive=0)
    config.load()
    state = {"cut": lambda _: None, DIRECT: lambda _: {b"/tool": endpoint or Endpoint()}}
    protocol, wire = kind(config, ServerState(), state, asyncio.get_running_loop()), wire or Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def told(
    kind: type[Parsed], pieces: Iterable[tuple[bytes, bool]], app: Any = by_asgi
) -> tuple[list[bytes], bool, Parsed]:
    """What is written to pieces of a connection, and whether it is closed.

    Args:
        kind: what is fed.
        pieces: each with whether to let everything settle before the next.
        app: what stands behind what does not go straight.
    """
    protocol, wire = connection(kind, app=app)
    for data, settles in pieces:
        if wire.closed:
            break
        protocol.data_received(data)
        if settles:
            await settled()
    await settled()
    protocol.connection_lost(None)
    return wire.written, wire.closed, protocol


OTHER = HEAD + b"content-length: 3\r\n\r\n[1]"


def with_header(line: bytes, whole: bytes = WHOLE) -> bytes:
    """The same request with another header."""
    return whole.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n", 1)
